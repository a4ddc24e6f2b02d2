//! Assigns slices to nodes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tenure_api::claims::SLICE_OWNER;
use tenure_ipam::Cidr;

use super::desired::Desired;
use super::{Group, Holdings, SlicePool};

/// Slices and their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assigned<'a> {
    pub(super) given: Given<'a>,
    /// How many slices there are.
    pub(super) count: usize,
    /// How many have a node.
    pub(super) taken: usize,
    /// How many are for claims.
    pub(super) floating: usize,
    /// Living nodes without a slice, by name.
    pub(super) without: Vec<&'a str>,
    /// Slices that wait until what is held in them is released.
    pub(super) waiting: usize,
}

impl Assigned<'_> {
    /// Whether at most this many slices change.
    pub(super) fn is_small(&self, most: usize) -> bool {
        matches!(&self.given, Given::Changes(changes) if changes.len() <= most)
    }
}

/// Slices with their nodes; the node is empty if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given<'a> {
    /// All slices, in order.
    All(Vec<&'a str>),
    /// Only the slices that change, by number.
    Changes(BTreeMap<usize, &'a str>),
}

/// What may be assigned to nodes without a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Give {
    /// Free slices.
    All,
    /// Slices in which they hold something: others may still take from the whole range.
    Held,
    /// Nothing: the range must not be divided.
    Nothing,
}

impl Give {
    /// The range may be divided; `sealed` tells whether nobody takes from the whole of it any more.
    pub(super) fn given(sealed: bool) -> Self {
        if sealed { Self::All } else { Self::Held }
    }
}

pub(super) fn assign<'a>(
    inputs: &Group<'a>,
    pool: &Desired<'_>,
    known: Option<SlicePool<'a>>,
    give: Give,
) -> Assigned<'a> {
    let give_away = give == Give::All;
    let floating = inputs.floating.get(pool.name).cloned().unwrap_or_default();
    let table = known.and_then(|known| known.table).filter(|_| give_away);
    if let Some(assigned) = table.and_then(|table| table.assign(pool, &floating, inputs.nodes)) {
        return assigned;
    }
    let count = usize::try_from(pool.cut.count()).unwrap_or(0);
    let mut nodes = vec![""; count];
    let mut served: HashSet<&str> = HashSet::with_capacity(inputs.nodes.len());
    let holders = Holders::of(inputs, pool);
    let named =
        |slice: usize| pool.cut.get(slice as u128).is_some_and(|cidr| floating.slices.contains(&cidr));

    // A node keeps its slice while it lives or holds something.
    let present = known.and_then(|known| known.object.status.as_ref());
    let in_order = known.is_some_and(|known| known.facts.in_order && known.facts.cut == Some(pool.cut));
    let mut displaced: Vec<&str> = Vec::new();
    let mut left: BTreeSet<usize> = BTreeSet::new();
    // How many of the living nodes have one.
    let mut living = 0;
    let given = present.into_iter().flat_map(|status| &status.allocations).enumerate();
    for (index, slice) in given.filter(|(_, slice)| !slice.node_name.is_empty()) {
        let node = slice.node_name.as_str();
        let place = || {
            let cidr = slice.slice_range.parse::<Cidr>().ok()?;
            usize::try_from(pool.cut.index_of(&cidr)?).ok().filter(|place| *place < count)
        };
        let place = if in_order { Some(index) } else { place() };
        if node == SLICE_OWNER {
            // Claims may have many; each is kept separately.
            if let Some(place) = place.filter(|place| nodes[*place].is_empty())
                && (holders.has(place, node) || named(place))
            {
                nodes[place] = node;
            }
            continue;
        }
        let lives = inputs.nodes.contains(node);
        let keeps = |place: usize| nodes[place].is_empty() && (lives || holders.has(place, node));
        match place {
            Some(place) if keeps(place) && served.insert(node) => {
                nodes[place] = node;
                living += usize::from(lives);
            }
            _ if lives => displaced.push(node),
            _ => left.extend(place),
        }
    }

    // A slice without a node in which something is held goes to the holder, or is withheld.
    let mut kept_back: BTreeSet<usize> = BTreeSet::new();
    for all in holders.by_slice() {
        let slice = all[0].0;
        if nodes.get(slice).is_none_or(|node| !node.is_empty()) {
            continue;
        }
        match all {
            [(_, SLICE_OWNER)] if give != Give::Nothing => nodes[slice] = SLICE_OWNER,
            // What is held there belongs to another pool, if this one must not be divided.
            [(_, only)] if give != Give::Nothing && served.insert(only) => {
                nodes[slice] = only;
                living += usize::from(inputs.nodes.contains(*only));
            }
            _ => {
                kept_back.insert(slice);
            }
        }
    }
    let has_node = |node: &&&str| !node.is_empty() && **node != SLICE_OWNER;
    let dead = nodes.iter().filter(has_node).count() - living;
    let waiting = kept_back.len() + dead;
    // A slice that a node has left is assigned with a later write: a node that is taking its slice first says so and
    // then checks that it still has it, so one of the two sees the other.
    kept_back.extend(left);

    // What claims ask for by name.
    if give_away {
        let asked = floating.slices.iter().filter_map(|cidr| usize::try_from(pool.cut.index_of(cidr)?).ok());
        for slice in asked.filter(|slice| !kept_back.contains(slice)) {
            if nodes.get(slice).is_some_and(|node| node.is_empty()) {
                nodes[slice] = SLICE_OWNER;
            }
        }
    }

    // The rest, lowest slice first: to nodes that had one before the range was divided differently, then by name.
    let mut line: Vec<&str> = Vec::new();
    if living < inputs.nodes.len() {
        let mut unserved: Vec<&str> =
            inputs.nodes.iter().map(String::as_str).filter(|node| !served.contains(node)).collect();
        unserved.sort_unstable();
        line.extend(displaced.into_iter().chain(unserved).filter(|node| served.insert(node)));
    }
    let mut without = Vec::new();
    let usable =
        |slice: &usize| pool.cut.get(*slice as u128).is_some_and(|cidr| pool.range.within(cidr).is_some());
    let mut free = (0..count).filter(|slice| !kept_back.contains(slice));
    for node in line {
        let next =
            if give_away { free.find(|slice| nodes[*slice].is_empty() && usable(slice)) } else { None };
        match next {
            Some(slice) => nodes[slice] = node,
            None => without.push(node),
        }
    }
    if give_away {
        // Last, because a node without a slice serves no pod at all.
        for slice in free
            .filter(|slice| nodes[*slice].is_empty() && usable(slice))
            .take(floating.more)
            .collect::<Vec<_>>()
        {
            nodes[slice] = SLICE_OWNER;
        }
    }
    without.sort_unstable();
    let floating = nodes.iter().filter(|node| **node == SLICE_OWNER).count();
    let taken = nodes.iter().filter(|node| !node.is_empty()).count() - floating;
    Assigned { given: Given::All(nodes), count, taken, floating, without, waiting }
}

/// Who holds addresses in which slice, or may at any time because its ledger marks the slice as in use. By slice,
/// without duplicates.
struct Holders<'a>(Vec<(usize, &'a str)>);

impl<'a> Holders<'a> {
    fn of(inputs: &Group<'a>, pool: &Desired<'_>) -> Self {
        let whole = pool.cut.whole();
        let Holdings { held, owned } = inputs.holders.holdings();
        let held = held.into_iter().filter(|span| span.network == pool.network);
        let owned = owned.into_iter().filter(|id| id.network == pool.network && !id.node.is_empty());
        let spans = held
            .map(|span| (span.first, span.last, span.node.as_str()))
            .chain(owned.map(|id| (id.range.first(), id.range.last(), id.node.as_str())));
        let mut holders = Vec::new();
        for (first, last, node) in spans {
            if first.family() != whole.family() || last < whole.first() || first > whole.last() {
                continue;
            }
            let (first, last) = (first.max(whole.first()), last.min(whole.last()));
            let index =
                |address| pool.cut.index_of_address(address).and_then(|index| usize::try_from(index).ok());
            if let (Some(first), Some(last)) = (index(first), index(last)) {
                holders.extend((first..=last).map(|slice| (slice, node)));
            }
        }
        holders.sort_unstable();
        holders.dedup();
        Self(holders)
    }

    fn has(&self, slice: usize, node: &str) -> bool {
        self.0.binary_search(&(slice, node)).is_ok()
    }

    fn by_slice(&self) -> impl Iterator<Item = &[(usize, &'a str)]> {
        self.0.chunk_by(|one, other| one.0 == other.0)
    }
}
