//! Which node has an address of a `NodeIPPool`.

use kube::ResourceExt;
use tenure_ipam::Address;

use super::{Answer, State};
use crate::offset;
use crate::snapshot::Snapshot;

/// Searches enactments, then pools; returns whether it was found.
pub(super) fn find(snapshot: &Snapshot, address: Address, answer: &mut Answer) -> bool {
    let known = &snapshot.node_pools;
    let all: Vec<_> = known.held().filter(|held| held.address == address && !held.released).collect();
    if let Some(first) = all.first() {
        let said = all.iter().map(|held| {
            let interface = held.interface.map(|it| format!(", on interface {it}")).unwrap_or_default();
            format!("node {} by policy {} (NodeIPPool {}{interface})", held.node, held.policy, held.pool)
        });
        answer.state = State::Held;
        answer.summary = format!("{address} is held by {}", said.collect::<Vec<_>>().join(", and by "));
        answer.pool = Some(first.pool.clone());
        answer.node = Some(first.node.to_owned());
        answer.host_interface = first.interface.map(str::to_owned);
        answer.addresses = vec![address.to_ip()];
        return true;
    }
    let found = known.ranges().find_map(|(pool, range)| Some((pool, range.offset(address).ok()?, range)));
    let Some((pool, offset, range)) = found else { return false };
    let name = pool.name_any();
    let state = offset::state(pool, &range, offset, address);
    answer.pool = Some(name.clone());
    (answer.state, answer.summary) = match state {
        "excluded" => (State::Excluded, format!("nobody has {address}: NodeIPPool {name} excludes it")),
        "cooling" => {
            (State::Cooling, format!("{address} cools in NodeIPPool {name}: a node has given it back"))
        }
        "free" => (State::Free, format!("nobody has {address}: it is free in NodeIPPool {name}")),
        _ => (
            State::KeptBack,
            format!(
                "{address} is taken in NodeIPPool {name} (offset {offset}), and no enactment names it yet"
            ),
        ),
    };
    true
}
