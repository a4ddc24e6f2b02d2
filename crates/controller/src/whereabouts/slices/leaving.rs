//! Who leaves slices with a write, and who has them afterwards.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::claims::SLICE_OWNER;
use tenure_api::whereabouts::{NodeSliceAllocation, NodeSlicePool};
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;
use tenure_whereabouts::ledger::PoolId;
use tenure_whereabouts::slices::{SliceChange, Table, network_of};

/// After so long everybody has heard that a slice was taken away.
const LEFT_LONG_AGO: Duration = Duration::from_mins(10);

/// Slices that missing nodes have left, and since when.
#[derive(Debug, Default)]
pub(super) struct LeftSlices(BTreeMap<LeavingSlice, Timestamp>);

/// A slice that a missing node has left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LeavingSlice {
    pool: String,
    node: String,
    slice: String,
}

impl LeftSlices {
    /// The nodes that lose their slices of a pool because they are gone; and the ledgers of nodes that have left slices of it, with
    /// this write or not long ago, and are not given them again.
    pub(super) fn note(&mut self, leaving: &Leaving<'_>, now: Timestamp) -> (Vec<String>, Vec<String>) {
        let Leaving { pool, network, missing, .. } = leaving;
        self.0.retain(|_, since| *since <= now && now.since(*since) < LEFT_LONG_AGO);
        let mut gone = BTreeSet::new();
        for (node, slice) in missing.iter().filter(|(node, _)| !leaving.keeps(node)) {
            gone.insert((*node).to_owned());
            let left =
                LeavingSlice { pool: pool.clone(), node: (*node).to_owned(), slice: (*slice).to_owned() };
            self.0.insert(left, now);
        }
        let ledger =
            |left: &LeavingSlice| PoolId::of_node(network, &left.node, left.slice.parse().ok()?).name().ok();
        let is_left = |left: &&LeavingSlice| left.pool == *pool && !leaving.has(&left.node, &left.slice);
        let left = self.0.keys().filter(is_left).filter_map(ledger).collect();
        (gone.into_iter().collect(), left)
    }
}

/// A pool as it is to be, and who is missing in it.
pub(super) struct Leaving<'a> {
    pub(super) pool: String,
    pub(super) network: String,
    /// Nodes that have slices and do not live, with their slices.
    pub(super) missing: BTreeSet<(&'a str, &'a str)>,
    after: After<'a>,
}

/// Who has slices after the write.
enum After<'a> {
    Whole { slices: HashSet<(&'a str, &'a str)>, nodes: HashSet<&'a str> },
    Change(&'a SliceChange, &'a Table),
}

impl<'a> Leaving<'a> {
    /// The pool is written as a whole.
    pub(super) fn of(
        pool: &'a NodeSlicePool,
        before: Option<&'a NodeSlicePool>,
        living: &HashSet<String>,
    ) -> Self {
        let missing = before.into_iter().flat_map(slices);
        let missing = missing.filter(|(node, _)| *node != SLICE_OWNER && !living.contains(*node)).collect();
        let (slices, nodes) = (slices(pool).collect(), slices(pool).map(|(node, _)| node).collect());
        Self {
            pool: pool.name_any(),
            network: network_of(pool),
            missing,
            after: After::Whole { slices, nodes },
        }
    }

    /// Only some slices are written.
    pub(super) fn with(change: &'a SliceChange, known: &'a NodeSlicePool, table: &'a Table) -> Self {
        let all = known.status.as_ref().map(|status| status.allocations.as_slice()).unwrap_or_default();
        let slice = |(node, place): (&'a str, usize)| Some((node, all.get(place)?.slice_range.as_str()));
        Self {
            pool: change.name.clone(),
            network: network_of(known),
            missing: table.missing().filter_map(slice).collect(),
            after: After::Change(change, table),
        }
    }

    /// Whether a node has a slice afterwards.
    pub(super) fn keeps(&self, node: &str) -> bool {
        match &self.after {
            After::Whole { nodes, .. } => nodes.contains(node),
            After::Change(change, table) => {
                let stays = table.place_of(node).is_some_and(|place| change.after(place).is_none());
                stays || change.slices.iter().any(|edit| edit.after == node)
            }
        }
    }

    /// Whether a node has this slice afterwards.
    pub(super) fn has(&self, node: &str, slice: &str) -> bool {
        match &self.after {
            After::Whole { slices, .. } => slices.contains(&(node, slice)),
            After::Change(change, table) => {
                let cut = table.facts().cut.zip(slice.parse::<Cidr>().ok());
                let place = cut.and_then(|(cut, slice)| usize::try_from(cut.index_of(&slice)?).ok());
                place.is_some_and(|place| change.after(place).or_else(|| table.node_of(place)) == Some(node))
            }
        }
    }
}

/// The nodes that have slices of a pool, and the slices.
fn slices(pool: &NodeSlicePool) -> impl Iterator<Item = (&str, &str)> {
    let all = pool.status.iter().flat_map(|status| &status.allocations);
    all.map(|NodeSliceAllocation { node_name, slice_range }| (node_name.as_str(), slice_range.as_str()))
        .filter(|(node, _)| !node.is_empty())
}
