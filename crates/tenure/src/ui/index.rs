//! The map's pieces by pool and address, and which addresses changed since somebody last looked.
//!
//! A change of a source costs its own pieces. A look at part of a pool costs what is there, however large the pool is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use tenure_ipam::Address;

use super::cell::{Cell, Owner};
use super::pieces::{Kind, Name, Piece, State};

/// So many changes are remembered. Who looks more rarely reads everything again.
const REMEMBERED: usize = 8192;
/// A change of more pieces than this is remembered as one.
const IN_ONE: usize = 512;

/// A source: its kind, and its name.
pub(super) type Source = (&'static str, String);

/// All pieces.
#[derive(Debug, Default)]
pub(super) struct Index {
    sources: BTreeMap<Source, Said>,
    next: u32,
    nodes: Nodes,
    pools: BTreeMap<Name, Places>,
    changes: VecDeque<(u64, Change)>,
    version: u64,
}

/// What a source says, in order.
#[derive(Debug)]
struct Said {
    number: u32,
    pieces: Vec<Piece>,
}

/// Numbers for the names of nodes.
#[derive(Debug, Default)]
struct Nodes {
    numbers: BTreeMap<Name, u32>,
    names: Vec<Name>,
}

/// Addresses about which something else is said now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    pool: Name,
    first: Address,
    last: Address,
    /// Whether it is about areas, and not only about single addresses.
    areas: bool,
}

/// The pieces of a pool by their first address, and the number of their source.
#[derive(Debug, Default)]
struct Places {
    owned: Areas,
    told: Areas,
    excluded: Areas,
    marks: BTreeMap<(Address, u32), Mark>,
}

type Areas = BTreeMap<(Address, u32), Area>;

#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) first: Address,
    pub(super) last: Address,
    pub(super) kind: Kind,
    pub(super) node: Option<u32>,
    pub(super) name: Name,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    state: State,
    node: Option<u32>,
}

/// A part of a pool in cells of equal size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) pool: Name,
    pub(super) first: Address,
    /// A cell has two to the power of this many addresses.
    pub(super) bits: u8,
    pub(super) cells: u32,
}

/// What changed in a view.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Too much to know.
    All,
    /// These cells, and whether areas did.
    Cells(BTreeSet<u32>, bool),
}

impl View {
    /// The first address of a cell.
    pub(super) fn start(&self, cell: u32) -> Option<Address> {
        self.first.plus(u128::from(cell) << self.bits).ok()
    }

    /// The last address of a cell.
    fn end(&self, cell: u32) -> Option<Address> {
        self.start(cell)?.plus((1 << self.bits) - 1).ok()
    }

    /// The cells that have some of these addresses.
    pub(super) fn cells_of(&self, first: Address, last: Address) -> Range<u32> {
        if first.family() != self.first.family() || last < self.first {
            return 0..0;
        }
        let cell = |address: Address| {
            let distance = address.bits().saturating_sub(self.first.bits()) >> self.bits;
            u32::try_from(distance).unwrap_or(u32::MAX)
        };
        let (from, to) = (cell(first), cell(last).saturating_add(1).min(self.cells));
        from.min(to)..to
    }
}

impl Nodes {
    fn number(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }
}

impl Places {
    fn layer(&mut self, kind: Kind) -> &mut Areas {
        match kind {
            Kind::Owned | Kind::Floating | Kind::Reserved => &mut self.owned,
            Kind::Told | Kind::Fenced => &mut self.told,
            Kind::Excluded => &mut self.excluded,
        }
    }
}

impl Index {
    /// What a source says from now on; nothing if it is gone.
    pub(super) fn say(&mut self, source: Source, mut pieces: Vec<Piece>) {
        pieces.sort();
        // Of two words of one source about an address, the more important one, which comes last.
        pieces.reverse();
        pieces.dedup_by(|next, kept| match (next, kept) {
            (Piece::Mark { pool, address, .. }, Piece::Mark { pool: other, address: same, .. }) => {
                pool == other && address == same
            }
            (next, kept) => next == kept,
        });
        pieces.reverse();
        let said = self.sources.remove(&source);
        let number = said.as_ref().map_or(self.next, |said| said.number);
        self.next = self.next.max(number + 1);
        let before = said.map(|said| said.pieces).unwrap_or_default();
        let (gone, new) = differences(&before, &pieces);
        self.note(&gone, &new);
        for piece in gone {
            self.take_away(piece, number);
        }
        for piece in new {
            self.put(piece, number);
        }
        if !pieces.is_empty() {
            self.sources.insert(source, Said { number, pieces });
        }
    }

    /// Every source of a kind that is not among `names` says nothing any more.
    pub(super) fn keep_only(&mut self, kind: &'static str, names: &BTreeSet<String>) {
        let of_kind = self.sources.range((kind, String::new())..).take_while(|((it, _), _)| *it == kind);
        let gone = of_kind.filter(|((_, name), _)| !names.contains(name));
        let gone: Vec<Source> = gone.map(|(source, _)| source.clone()).collect();
        for source in gone {
            self.say(source, Vec::new());
        }
    }

    /// The version of everything.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The name of a node.
    pub(super) fn node(&self, number: u32) -> Option<&Name> {
        self.nodes.names.get(usize::try_from(number).ok()?)
    }

    /// What changed in a view since a version.
    pub(super) fn news(&self, view: &View, since: u64) -> News {
        let first = self.changes.front().map_or(self.version, |(version, _)| version - 1);
        if since < first {
            return News::All;
        }
        let (mut cells, mut areas) = (BTreeSet::new(), false);
        let later = self.changes.iter().rev().take_while(|(version, _)| *version > since);
        for (_, change) in later.filter(|(_, it)| it.pool == view.pool || it.pool.is_empty()) {
            let changed = view.cells_of(change.first, change.last);
            areas |= change.areas && !changed.is_empty();
            cells.extend(changed);
        }
        News::Cells(cells, areas)
    }

    /// The areas of a view that have an owner, and how many there are, up to one more than `most`.
    pub(super) fn areas(&self, view: &View, most: usize) -> Vec<&Area> {
        let Some((first, last)) = bounds(view, &(0..view.cells)) else { return Vec::new() };
        let Some(places) = self.pools.get(&view.pool) else { return Vec::new() };
        within(&places.owned, first, last).take(most + 1).collect()
    }

    /// The first and the last address of a pool that anything is said about, among these.
    pub(super) fn extent(&self, pool: &Name, first: Address, last: Address) -> Option<(Address, Address)> {
        let places = self.pools.get(pool)?;
        let starts = |areas: &Areas| within(areas, first, last).next().map(|area| area.first.max(first));
        let ends =
            |areas: &Areas| areas.range(..=(last, u32::MAX)).next_back().map(|(_, it)| it.last.min(last));
        let marks = || places.marks.range((first, 0)..=(last, u32::MAX)).map(|((address, _), _)| *address);
        let start = starts(&places.owned).into_iter().chain(marks().next()).min()?;
        let end = ends(&places.owned).into_iter().chain(marks().next_back()).max()?;
        (start <= end).then_some((start, end))
    }

    /// What is in these cells of a view; cells about which nothing is said are left out.
    pub(super) fn cells(&self, view: &View, range: Range<u32>) -> BTreeMap<u32, Cell> {
        let mut cells: BTreeMap<u32, Cell> = BTreeMap::new();
        let Some((first, last)) = bounds(view, &range) else { return cells };
        let clip = |cells: Range<u32>| cells.start.max(range.start)..cells.end.min(range.end);
        // How many addresses of an area are in a cell.
        let part = |cell: u32, area: &Area| {
            let (start, end) = (view.start(cell)?.max(area.first), view.end(cell)?.min(area.last));
            end.distance_from(start).ok()?.checked_add(1)
        };
        if let Some(places) = self.pools.get(&view.pool) {
            for area in within(&places.owned, first, last) {
                let owner = match (area.kind, area.node) {
                    (Kind::Floating, _) => Owner::Claims,
                    (_, Some(node)) => Owner::Node(node),
                    (_, None) => Owner::Nobody,
                };
                for number in clip(view.cells_of(area.first, area.last)) {
                    let Some(size) = part(number, area) else { continue };
                    let cell = cells.entry(number).or_default();
                    cell.carved = cell.carved.saturating_add(size);
                    cell.owned_by(owner);
                    match area.kind {
                        Kind::Reserved => cell.reserved += size,
                        Kind::Owned => cell.unknown += size,
                        _ => {}
                    }
                }
            }
            for area in within(&places.told, first, last) {
                for number in clip(view.cells_of(area.first, area.last)) {
                    let (Some(size), Some(cell)) = (part(number, area), cells.get_mut(&number)) else {
                        continue;
                    };
                    cell.unknown = cell.unknown.saturating_sub(size);
                    if area.kind == Kind::Fenced {
                        cell.reserved += size;
                    }
                }
            }
            for area in within(&places.excluded, first, last) {
                for number in clip(view.cells_of(area.first, area.last)) {
                    let Some(size) = part(number, area) else { continue };
                    let cell = cells.entry(number).or_default();
                    cell.excluded = cell.excluded.saturating_add(size);
                }
            }
        }
        self.mark(view, first, last, &mut cells);
        for cell in cells.values_mut() {
            cell.settle(view.bits);
        }
        cells
    }

    /// Counts single addresses, each once, by the most important word about it.
    fn mark(&self, view: &View, first: Address, last: Address, cells: &mut BTreeMap<u32, Cell>) {
        // The state of each, and which mark names its node.
        let mut marks: BTreeMap<Address, (State, Option<Mark>)> = BTreeMap::new();
        let name = |mark: &Mark| mark.node.and_then(|node| self.node(node));
        // Of holds without a pool, the view's addresses decide.
        for pool in [&*view.pool, ""].into_iter().take(if view.pool.is_empty() { 1 } else { 2 }) {
            let Some(places) = self.pools.get(pool) else { continue };
            for ((address, _), mark) in places.marks.range((first, 0)..=(last, u32::MAX)) {
                let (state, named) = marks.entry(*address).or_insert((mark.state, None));
                *state = mark.state.max(*state);
                let is_better = |known: &Mark| {
                    mark.state > known.state || (mark.state == known.state && name(mark) < name(known))
                };
                if mark.node.is_some() && named.as_ref().is_none_or(is_better) {
                    *named = Some(*mark);
                }
            }
        }
        for (address, (state, named)) in marks {
            let number = view.cells_of(address, address).start;
            let cell = cells.entry(number).or_default();
            cell.count(state);
            if let Some(node) = named.and_then(|mark| mark.node) {
                cell.held_on(node);
            }
        }
    }

    fn note(&mut self, gone: &[Piece], new: &[Piece]) {
        let mut changes: Vec<Change> = gone.iter().chain(new).map(change).collect();
        if changes.len() > IN_ONE {
            changes = hulls(changes);
        }
        for change in changes {
            self.version += 1;
            self.changes.push_back((self.version, change));
        }
        while self.changes.len() > REMEMBERED {
            self.changes.pop_front();
        }
    }

    fn put(&mut self, piece: Piece, number: u32) {
        match piece {
            Piece::Area { pool, first, last, kind, node, name } => {
                let node = node.map(|node| self.nodes.number(&node));
                let area = Area { first, last, kind, node, name };
                self.pools.entry(pool).or_default().layer(kind).insert((first, number), area);
            }
            Piece::Mark { pool, address, state, node } => {
                let node = node.map(|node| self.nodes.number(&node));
                self.pools.entry(pool).or_default().marks.insert((address, number), Mark { state, node });
            }
        }
    }

    fn take_away(&mut self, piece: Piece, number: u32) {
        match piece {
            Piece::Area { pool, first, kind, .. } => {
                if let Some(places) = self.pools.get_mut(&pool) {
                    places.layer(kind).remove(&(first, number));
                }
            }
            Piece::Mark { pool, address, .. } => {
                if let Some(places) = self.pools.get_mut(&pool) {
                    places.marks.remove(&(address, number));
                }
            }
        }
    }
}

/// The first and the last address of these cells.
fn bounds(view: &View, cells: &Range<u32>) -> Option<(Address, Address)> {
    Some((view.start(cells.start)?, view.end(cells.end.checked_sub(1)?)?))
}

/// The areas that have some of these addresses. Those of a layer do not overlap, unless something is wrong, which `check` says; so only
/// the last one before `first` can reach into it.
fn within(areas: &Areas, first: Address, last: Address) -> impl Iterator<Item = &Area> {
    let before = areas.range(..(first, 0)).next_back().filter(|(_, area)| area.last >= first);
    before.into_iter().chain(areas.range((first, 0)..=(last, u32::MAX))).map(|(_, area)| area)
}

fn change(piece: &Piece) -> Change {
    match piece {
        Piece::Area { pool, first, last, .. } => {
            Change { pool: pool.clone(), first: *first, last: *last, areas: true }
        }
        Piece::Mark { pool, address, .. } => {
            Change { pool: pool.clone(), first: *address, last: *address, areas: false }
        }
    }
}

/// One change for each pool and family instead of all.
fn hulls(changes: Vec<Change>) -> Vec<Change> {
    let mut hulls: BTreeMap<(Name, bool), Change> = BTreeMap::new();
    for change in changes {
        let key = (change.pool.clone(), change.first.family() == tenure_ipam::Family::V4);
        let hull = hulls.entry(key).or_insert_with(|| change.clone());
        hull.first = hull.first.min(change.first);
        hull.last = hull.last.max(change.last);
        hull.areas |= change.areas;
    }
    hulls.into_values().collect()
}

/// What is only in the one and only in the other of two sorted lists.
fn differences(before: &[Piece], after: &[Piece]) -> (Vec<Piece>, Vec<Piece>) {
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    loop {
        match (before.peek(), after.peek()) {
            (Some(one), Some(other)) if one == other => {
                before.next();
                after.next();
            }
            (Some(one), other) if other.is_none_or(|other| *one < *other) => {
                gone.extend(before.next().cloned());
            }
            (_, Some(_)) => new.extend(after.next().cloned()),
            (_, None) => return (gone, new),
        }
    }
}

#[cfg(test)]
mod tests;
