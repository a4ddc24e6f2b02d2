//! Whose slice is whose.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::claims::SLICE_OWNER;
use tenure_api::whereabouts::NodeSlicePool;
use tenure_ipam::Cidr;

use super::Inputs;
use super::desired::Desired;

/// Slices and their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assigned {
    /// For each slice, in their order, its node; empty when it has none.
    pub(super) nodes: Vec<String>,
    /// Nodes that live and have none, by name.
    pub(super) without: Vec<String>,
    /// Slices that wait until what is held in them is released.
    pub(super) waiting: usize,
}

/// What may be given to those who have nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Give {
    /// What is free.
    All,
    /// What they hold something in: others may still take from the whole range.
    Held,
    /// Nothing: the range must not be cut.
    Nothing,
}

impl Give {
    /// Where the range may be cut; `sealed` says whether nobody takes from the whole of it any more.
    pub(super) fn given(sealed: bool) -> Self {
        if sealed { Self::All } else { Self::Held }
    }
}

pub(super) fn assign(
    inputs: &Inputs<'_>,
    pool: &Desired<'_>,
    known: Option<&NodeSlicePool>,
    give: Give,
) -> Assigned {
    let give_away = give == Give::All;
    let count = usize::try_from(pool.cut.count()).unwrap_or(0);
    let mut nodes = vec![String::new(); count];
    let mut served: BTreeSet<&str> = BTreeSet::new();
    let holders = holders(inputs, pool);
    let holds = |slice: usize, node: &str| holders.get(&slice).is_some_and(|all| all.contains(node));
    let floating = inputs.floating.get(&pool.name).cloned().unwrap_or_default();
    let named =
        |slice: usize| pool.cut.get(slice as u128).is_some_and(|cidr| floating.slices.contains(&cidr));

    // Who has one keeps it, while it lives or holds something.
    let present = known.and_then(|known| known.status.as_ref()).map(|status| status.allocations.as_slice());
    let mut displaced: Vec<&str> = Vec::new();
    let mut left: BTreeSet<usize> = BTreeSet::new();
    for slice in present.unwrap_or_default().iter().filter(|slice| !slice.node_name.is_empty()) {
        let node = slice.node_name.as_str();
        let place = slice.slice_range.parse::<Cidr>().ok().and_then(|cidr| pool.cut.index_of(&cidr));
        let place = place.and_then(|place| usize::try_from(place).ok()).filter(|place| *place < count);
        if node == SLICE_OWNER {
            // Claims may have many, and each is kept for its own sake.
            if let Some(place) = place.filter(|place| nodes[*place].is_empty())
                && (holds(place, node) || named(place))
            {
                node.clone_into(&mut nodes[place]);
            }
            continue;
        }
        let lives = inputs.nodes.contains(node);
        match place {
            Some(place)
                if nodes[place].is_empty() && !served.contains(node) && (lives || holds(place, node)) =>
            {
                node.clone_into(&mut nodes[place]);
                served.insert(node);
            }
            _ if lives => displaced.push(node),
            _ => left.extend(place),
        }
    }

    // What is held in a slice without a node keeps it for its holder, or keeps it back.
    let mut kept_back: BTreeSet<usize> = BTreeSet::new();
    for (&slice, all) in &holders {
        if nodes.get(slice).is_none_or(|node| !node.is_empty()) {
            continue;
        }
        let mut all = all.iter().copied();
        match (all.next(), all.next()) {
            (Some(SLICE_OWNER), None) if give != Give::Nothing => SLICE_OWNER.clone_into(&mut nodes[slice]),
            // What is held there is of another pool, where this one must not be cut.
            (Some(only), None) if !served.contains(only) && give != Give::Nothing => {
                only.clone_into(&mut nodes[slice]);
                served.insert(only);
            }
            _ => {
                kept_back.insert(slice);
            }
        }
    }
    let lives = |node: &String| node == SLICE_OWNER || inputs.nodes.contains(node);
    let dead = nodes.iter().filter(|node| !node.is_empty() && !lives(node)).count();
    let waiting = kept_back.len() + dead;
    // What a node has left is given to another with a later write: a node that is taking its slice says so first and looks then
    // whether it still has it, so that one of the two sees the other.
    kept_back.extend(left);

    // What claims ask for by name.
    if give_away {
        for slice in (0..count).filter(|slice| !kept_back.contains(slice)) {
            if nodes[slice].is_empty() && named(slice) {
                SLICE_OWNER.clone_into(&mut nodes[slice]);
            }
        }
    }

    // The rest, lowest slice first: to those who had one before it was cut anew, then by name.
    let mut seen = BTreeSet::new();
    let line: Vec<&str> = displaced
        .into_iter()
        .chain(inputs.nodes.iter().map(String::as_str))
        .filter(|node| !served.contains(node) && seen.insert(*node))
        .collect();
    let mut without = Vec::new();
    let usable =
        |slice: &usize| pool.cut.get(*slice as u128).is_some_and(|cidr| pool.range.within(cidr).is_some());
    let mut free = (0..count).filter(|slice| !kept_back.contains(slice));
    for node in line {
        let next =
            if give_away { free.find(|slice| nodes[*slice].is_empty() && usable(slice)) } else { None };
        match next {
            Some(slice) => node.clone_into(&mut nodes[slice]),
            None => without.push(node.to_owned()),
        }
    }
    if give_away {
        // Last of all, because a node without a slice serves no pod at all.
        for slice in free
            .filter(|slice| nodes[*slice].is_empty() && usable(slice))
            .take(floating.more)
            .collect::<Vec<_>>()
        {
            SLICE_OWNER.clone_into(&mut nodes[slice]);
        }
    }
    without.sort();
    Assigned { nodes, without, waiting }
}

/// Who holds addresses in which slice, or may at any time: its ledger says that it hands out of it.
fn holders<'a>(inputs: &Inputs<'a>, pool: &Desired<'_>) -> BTreeMap<usize, BTreeSet<&'a str>> {
    let whole = pool.cut.whole();
    let mut holders: BTreeMap<usize, BTreeSet<&'a str>> = BTreeMap::new();
    let held = inputs.held.iter().filter(|span| span.network == pool.network);
    let owned = inputs.owned.iter().filter(|id| id.network == pool.network && !id.node.is_empty());
    let spans = held
        .map(|span| (span.first, span.last, &span.node))
        .chain(owned.map(|id| (id.range.first(), id.range.last(), &id.node)));
    for (first, last, node) in spans {
        if first.family() != whole.family() || last < whole.first() || first > whole.last() {
            continue;
        }
        let (first, last) = (first.max(whole.first()), last.min(whole.last()));
        let index =
            |address| pool.cut.index_of_address(address).and_then(|index| usize::try_from(index).ok());
        if let (Some(first), Some(last)) = (index(first), index(last)) {
            for slice in first..=last {
                holders.entry(slice).or_default().insert(node);
            }
        }
    }
    holders
}
