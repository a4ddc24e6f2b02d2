//! What `IPPool`s say about slices: who holds something where, and which ranges are used as a whole.

use std::collections::BTreeSet;

use tenure_api::whereabouts::{IPPool, label};
use tenure_ipam::Address;

use super::{HeldSpan, SharedPool};
use crate::ledger::{PoolId, State};

/// What the pools of these networks say. Objects of ours say in labels whose they are; for others `is_node` tells nodes'
/// names from networks', and has to know those of nodes that are gone but still stand in a `NodeSlicePool`.
pub fn see<'p>(
    pools: impl IntoIterator<Item = &'p IPPool>,
    networks: &BTreeSet<String>,
    is_node: impl Fn(&str) -> bool,
) -> (Vec<HeldSpan>, Vec<SharedPool>) {
    let (mut held, mut shared) = (Vec::new(), Vec::new());
    for pool in pools {
        let Some(id) = identify(pool, networks, &is_node) else { continue };
        if id.node.is_empty() {
            let name = pool.metadata.name.clone().unwrap_or_default();
            shared.push(SharedPool { id, name, state: State::of(pool) });
        } else if let Some((first, last)) = span(pool) {
            held.push(HeldSpan { network: id.network, node: id.node, first, last });
        }
    }
    (held, shared)
}

/// Which pool an object is of, among these networks. Labels say it; without them its name does.
pub fn identify(
    pool: &IPPool,
    networks: &BTreeSet<String>,
    is_node: &impl Fn(&str) -> bool,
) -> Option<PoolId> {
    let labels = pool.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let of = |network: &str| PoolId::of_object(network, pool, is_node).map(|(id, _)| id);
    match (label(label::NETWORK), label(label::NODE)) {
        (Some(network), _) => of(network),
        (None, Some(_)) => of("").or_else(|| networks.iter().find_map(|network| of(network))),
        (None, None) => std::iter::once("").chain(networks.iter().map(String::as_str)).find_map(of),
    }
}

/// The lowest and the highest address that is held.
fn span(pool: &IPPool) -> Option<(Address, Address)> {
    let entries = pool.spec.reservations().ok()?.entries;
    Some((entries.first()?.0, entries.last()?.0))
}
