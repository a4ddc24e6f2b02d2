//! What `IPPool`s tell about slices: who holds something where, and which ranges are used undivided.

use std::collections::BTreeSet;

use tenure_api::claims::label::FLOATING;
use tenure_api::whereabouts::{IPPool, label};
use tenure_ipam::Address;

use super::{HeldSpan, SharedPool};
use crate::ledger::{OWNER_IN_NAMES, PoolId, State};

/// What an object tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It belongs to a shared range.
    Shared(SharedPool),
    /// It belongs to a node's slice, of which these addresses are held.
    Node(PoolId, Option<(Address, Address)>),
}

/// What the pools of these networks tell. Our objects name their owner in labels; for others `is_node` tells nodes'
/// names from networks', and has to know nodes that are gone but still in a `NodeSlicePool`.
pub fn see<'p>(
    pools: impl IntoIterator<Item = &'p IPPool>,
    networks: &BTreeSet<String>,
    is_node: impl Fn(&str) -> bool,
) -> (Vec<HeldSpan>, Vec<SharedPool>) {
    let (mut held, mut shared) = (Vec::new(), Vec::new());
    for pool in pools {
        match see_one(pool, networks, &is_node, || span(pool)) {
            Some(Seen::Shared(pool)) => shared.push(pool),
            Some(Seen::Node(PoolId { network, node, .. }, Some((first, last)))) => {
                held.push(HeldSpan { network, node, first, last });
            }
            Some(Seen::Node(..)) | None => {}
        }
    }
    (held, shared)
}

/// What one pool of these networks tells; `span` returns the addresses that a node holds.
pub fn see_one(
    pool: &IPPool,
    networks: &BTreeSet<String>,
    is_node: &impl Fn(&str) -> bool,
    span: impl FnOnce() -> Option<(Address, Address)>,
) -> Option<Seen> {
    let id = identify(pool, networks, is_node)?;
    if !id.node.is_empty() {
        return Some(Seen::Node(id, span()));
    }
    let name = pool.metadata.name.clone().unwrap_or_default();
    let used = pool.spec.allocations.len();
    Some(Seen::Shared(SharedPool { id, name, state: State::of(pool), used }))
}

/// The nodes that an object may belong to: the one in its label or, without a label, whatever part of its name may be
/// a node's name.
pub fn nodes_meant(pool: &IPPool) -> Vec<&str> {
    let labels = pool.metadata.labels.as_ref();
    if let Some(node) = labels.and_then(|labels| labels.get(label::NODE)) {
        return vec![node];
    }
    let range = pool.spec.cidr().ok().and_then(|range| PoolId::shared("", range).name().ok());
    let front =
        range.and_then(|range| pool.metadata.name.as_deref()?.strip_suffix(&range)?.strip_suffix('-'));
    let ends = |front: &'_ str| -> Vec<usize> { front.match_indices('-').map(|(at, _)| at + 1).collect() };
    front.map_or_else(Vec::new, |front| [0].into_iter().chain(ends(front)).map(|at| &front[at..]).collect())
}

/// The pool that an object belongs to, among these networks: by its labels, otherwise by its name.
pub fn identify(
    pool: &IPPool,
    networks: &BTreeSet<String>,
    is_node: &impl Fn(&str) -> bool,
) -> Option<PoolId> {
    let labels = pool.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let of = |network: &str| PoolId::of_object(network, pool, is_node).map(|(id, _)| id);
    match (label(label::NETWORK), label(label::NODE).or(label(FLOATING))) {
        (Some(network), _) => of(network),
        (None, Some(_)) => of("").or_else(|| networks.iter().find_map(|network| of(network))),
        (None, None) => std::iter::once("").chain(networks.iter().map(String::as_str)).find_map(of),
    }
}

/// The lowest and highest held address.
fn span(pool: &IPPool) -> Option<(Address, Address)> {
    let entries = pool.spec.reservations().ok()?.entries;
    Some((entries.first()?.0, entries.last()?.0))
}

/// The network of an object: as its label says, or the part before the range in its name.
pub fn network_of_ledger(pool: &IPPool) -> String {
    let labels = pool.metadata.labels.as_ref();
    if let Some(network) = labels.and_then(|labels| labels.get(label::NETWORK)) {
        return network.clone();
    }
    let range = pool.spec.cidr().ok().and_then(|range| PoolId::shared("", range).name().ok());
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    // The objects of a large range have a number after a dot.
    let front = range.and_then(|range| Some(name.split_at(name.rfind(&range)?).0.trim_end_matches('-')));
    let front = front.unwrap_or_default();
    // The node is between network and range.
    let floats = labels.is_some_and(|labels| labels.contains_key(FLOATING));
    let node = labels.and_then(|labels| labels.get(label::NODE)).map(String::as_str);
    let node = node.unwrap_or(if floats { OWNER_IN_NAMES } else { "" });
    front.strip_suffix(node).unwrap_or(front).trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tenure_api::whereabouts::IPPoolSpec;

    use super::*;
    use crate::ledger::Network;

    #[test]
    fn the_network_of_an_object_is_what_its_ledger_knows_it_by() {
        for (name, range, node, network) in [
            ("10.0.0.0-16", "10.0.0.0/16", None, ""),
            ("10.0.0.0-16.3", "10.0.0.0/16", None, ""),
            ("blue-10.0.0.0-16", "10.0.0.0/16", None, "blue"),
            ("node1-10.0.1.0-24", "10.0.1.0/24", Some("node1"), ""),
            ("blue-node1-10.0.1.0-24", "10.0.1.0/24", Some("node1"), "blue"),
            ("blue-fd00---64", "fd00::/64", None, "blue"),
        ] {
            let mut pool = IPPool::new(name, IPPoolSpec { range: range.into(), ..IPPoolSpec::default() });
            pool.metadata.labels =
                node.map(|node: &str| BTreeMap::from([(label::NODE.to_owned(), node.to_owned())]));
            assert_eq!(network_of_ledger(&pool), network, "{name}");
            assert!(Network::new(network).see_pool(&pool, |_| true).is_some(), "{name}");
        }
    }
}
