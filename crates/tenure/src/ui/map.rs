//! The map of a pool: which part is looked at, in how many cells, and what is in them; first all of it, then what changed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde::Serialize;
use tenure_ipam::{Address, Cidr};

use super::cell::{Cell, Owner, Run, runs};
use super::index::{Area, Index, News, View};
use super::pieces::Kind;

/// A view has at most so many cells.
const MOST_CELLS: u32 = 1 << 17;
/// And as many by default.
const CELLS: u32 = 1 << 12;
/// So many areas are drawn and named at most.
const MOST_AREAS: usize = 4096;

/// What a page asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) pool: String,
    /// One of the pool's networks; the first one by default.
    pub(super) subnet: Option<String>,
    /// A part of one; by default the smallest part with everything that is in use.
    pub(super) part: Option<String>,
    /// The most cells.
    pub(super) cells: Option<u32>,
}

/// A map, from its beginning on.
#[derive(Debug)]
pub(super) struct Map {
    view: View,
    head: Head,
    sent: BTreeMap<u32, Cell>,
    nodes: BTreeSet<u32>,
    version: u64,
}

/// What does not change.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    pool: String,
    subnet: String,
    /// The part that is shown.
    part: String,
    /// The smallest part with everything that is in use.
    used: String,
    /// A cell has two to the power of this many addresses.
    bits: u8,
    cells: u32,
}

/// What a page needs to draw, or to draw again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Drawn {
    /// Only the first time.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    head: Option<Head>,
    /// Names of nodes that cells name by numbers for the first time.
    nodes: BTreeMap<u32, String>,
    /// Cells that are new or different. Those that are not mentioned at first are empty.
    runs: Vec<Run>,
    /// All blocks, slices and ranges, if they are new or different and not too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    areas: Option<Vec<Drawing>>,
}

/// A block, a slice, or an alias range: its cells, its name and its node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Drawing {
    first: u32,
    last: u32,
    name: String,
    node: Option<u32>,
    kind: &'static str,
}

impl Map {
    /// The map that a page asks for, of a pool with these networks.
    pub(super) fn of(index: &Index, asked: &Asked, networks: &[String]) -> Result<Self> {
        let mut subnets: Vec<Cidr> = networks.iter().filter_map(|text| text.parse().ok()).collect();
        if let Some(wanted) = &asked.subnet {
            let wanted: Cidr = parse(wanted)?;
            subnets.retain(|subnet| *subnet == wanted);
        }
        let part = asked.part.as_deref().map(parse).transpose()?;
        if let Some(part) = &part {
            subnets.retain(|subnet| subnet.overlaps(part));
        }
        let Some(subnet) = subnets.first().copied() else {
            bail!("pool {:?} has no such addresses; it has {}", asked.pool, networks.join(", "))
        };
        let pool = asked.pool.as_str().into();
        let extent = index.extent(&pool, subnet.first(), subnet.last());
        let used = extent.and_then(|(first, last)| cover(first, last)).filter(|used| subnet.covers(used));
        let used = used.unwrap_or(subnet);
        let part = part.map_or(used, |part| if part.covers(&subnet) { subnet } else { part });
        let most = asked.cells.unwrap_or(CELLS).clamp(16, MOST_CELLS);
        // Powers of two, so that a cell is a network.
        let bits = part.host_bits().saturating_sub(u8::try_from(most.ilog2())?);
        let cells = u32::try_from(1_u64 << (part.host_bits() - bits))?;
        let head = Head {
            pool: asked.pool.clone(),
            subnet: subnet.to_string(),
            part: part.to_string(),
            used: used.to_string(),
            bits,
            cells,
        };
        let view = View { pool, first: part.first(), bits, cells };
        Ok(Self { view, head, sent: BTreeMap::new(), nodes: BTreeSet::new(), version: 0 })
    }

    /// Everything.
    pub(super) fn all(&mut self, index: &Index) -> Drawn {
        self.version = index.version();
        self.sent = index.cells(&self.view, 0..self.view.cells);
        self.nodes.clear();
        let areas = self.areas(index);
        let nodes = self.names(index, self.sent.values().cloned().collect::<Vec<_>>().iter(), &areas);
        let sent = self.sent.iter().map(|(number, cell)| (*number, cell.clone()));
        Drawn { head: Some(self.head.clone()), nodes, runs: runs(sent), areas: Some(areas) }
    }

    /// What changed since the last time; `None` if nothing did.
    pub(super) fn news(&mut self, index: &Index) -> Option<Drawn> {
        let (changed, areas) = match index.news(&self.view, self.version) {
            News::All => ((0..self.view.cells).collect(), true),
            News::Cells(cells, areas) => (cells, areas),
        };
        self.version = index.version();
        let mut new: Vec<(u32, Cell)> = Vec::new();
        for range in ranges(&changed) {
            let mut now = index.cells(&self.view, range.clone());
            for number in range {
                let cell = now.remove(&number).unwrap_or_default();
                if self.sent.get(&number).map_or(cell != Cell::default(), |sent| *sent != cell) {
                    new.push((number, cell));
                }
            }
        }
        for (number, cell) in &new {
            self.sent.insert(*number, cell.clone());
        }
        let areas = areas.then(|| self.areas(index));
        if new.is_empty() && areas.is_none() {
            return None;
        }
        let nodes = self.names(index, new.iter().map(|(_, cell)| cell), areas.as_deref().unwrap_or_default());
        Some(Drawn { head: None, nodes, runs: runs(new), areas })
    }

    /// The cells that the page knows, without empty ones.
    #[cfg(test)]
    pub(super) fn known(&self) -> BTreeMap<u32, Cell> {
        self.sent
            .iter()
            .filter(|(_, cell)| **cell != Cell::default())
            .map(|(at, cell)| (*at, cell.clone()))
            .collect()
    }

    /// The areas, unless they are too many or smaller than a cell.
    fn areas(&self, index: &Index) -> Vec<Drawing> {
        let all = index.areas(&self.view, MOST_AREAS);
        if all.len() > MOST_AREAS {
            return Vec::new();
        }
        let drawing = |area: &Area| {
            let cells = self.view.cells_of(area.first, area.last);
            let kind = match area.kind {
                Kind::Floating => "claims",
                Kind::Reserved => "reserved",
                _ => "node",
            };
            let (first, last) = (cells.start, cells.end.checked_sub(1)?);
            let is_smaller = self.view.start(first)? < area.first || area.last < self.view.start(last)?;
            let is_smaller = is_smaller && first == last;
            (!is_smaller).then(|| Drawing { first, last, name: area.name.to_string(), node: area.node, kind })
        };
        all.into_iter().filter_map(drawing).collect()
    }

    /// Names that the page does not know yet.
    fn names<'a>(
        &mut self,
        index: &Index,
        cells: impl Iterator<Item = &'a Cell>,
        areas: &[Drawing],
    ) -> BTreeMap<u32, String> {
        let owners = cells.filter_map(|cell| match cell.owner {
            Owner::Node(node) => Some(node),
            _ => None,
        });
        let all: BTreeSet<u32> = owners.chain(areas.iter().filter_map(|area| area.node)).collect();
        let new: Vec<u32> = all.into_iter().filter(|node| self.nodes.insert(*node)).collect();
        new.into_iter().filter_map(|node| Some((node, index.node(node)?.to_string()))).collect()
    }
}

fn parse(text: &str) -> Result<Cidr> {
    text.parse().map_err(|error| anyhow::anyhow!("{text:?} is no network: {error}"))
}

/// The smallest network with both.
fn cover(first: Address, last: Address) -> Option<Cidr> {
    let family = first.family();
    let differing = 128 - (first.bits() ^ last.bits()).leading_zeros();
    Cidr::new(first, family.bits().checked_sub(u8::try_from(differing).ok()?)?)
}

/// Numbers as ranges.
fn ranges(numbers: &BTreeSet<u32>) -> Vec<std::ops::Range<u32>> {
    let mut ranges: Vec<std::ops::Range<u32>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(range) if range.end == *number => range.end += 1,
            _ => ranges.push(*number..number + 1),
        }
    }
    ranges
}
