//! Who has an address of Whereabouts' ranges, according to ledgers and slices.

use kube::ResourceExt;
use tenure_api::claims::RECORD_PREFIX;
use tenure_ipam::Address;
use tenure_view::{Holder, Pod};
use tenure_whereabouts::ledger::State as Agreed;

use super::{Answer, State};
use crate::ranges::Recorded;
use crate::snapshot::Snapshot;

/// Searches ledgers, then slices, then ranges; returns whether it was found.
pub(super) fn find(snapshot: &Snapshot, address: Address, answer: &mut Answer) -> bool {
    held(snapshot, address, answer)
        || in_a_slice(snapshot, address, answer)
        || in_a_range(snapshot, address, answer)
}

/// The claim that a ledger has on record for the address, as `namespace/name`.
pub(super) fn claim_of(snapshot: &Snapshot, address: Address) -> Option<String> {
    let mut records = snapshot.ranges.records().filter(|it| it.address == address);
    records.find(|it| it.record.id.starts_with(RECORD_PREFIX)).map(|it| it.record.podref.clone())
}

/// A record names it. Networks with names of their own may have the same address; all are listed.
fn held(snapshot: &Snapshot, address: Address, answer: &mut Answer) -> bool {
    let records: Vec<Recorded<'_>> = snapshot.ranges.records().filter(|it| it.address == address).collect();
    let Some(first) = records.first() else { return false };
    let said = |it: &Recorded<'_>| {
        let node = it.node.map(|node| format!(" on node {node}")).unwrap_or_default();
        let claim = if it.record.id.starts_with(RECORD_PREFIX) { "claim " } else { "" };
        format!("{claim}{}{node} (IPPool {})", it.record.podref, it.ledger.name_any())
    };
    let all: Vec<String> = records.iter().map(said).collect();
    let (namespace, name) = first.record.podref.split_once('/').unwrap_or(("", &first.record.podref));
    answer.state = State::Held;
    answer.summary = format!("{address} is held by {}", all.join(", and by "));
    answer.block = Some(first.ledger.name_any());
    answer.pool = Some(pool_of(snapshot, first));
    answer.node = first.node.map(str::to_owned);
    answer.addresses = vec![address.to_ip()];
    if first.record.id.starts_with(RECORD_PREFIX) {
        return true;
    }
    answer.holder = Some(Holder {
        network: first.network.clone(),
        container: first.record.id.clone(),
        interface: first.record.ifname.clone().unwrap_or_default(),
        pod: Some(Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() }),
    });
    true
}

/// The `NodeSlicePool` of a node's ledger, or the ledger's own name.
fn pool_of(snapshot: &Snapshot, it: &Recorded<'_>) -> String {
    let ledger = it.ledger.name_any();
    let slice =
        snapshot.ranges.slices().find(|slice| slice.ledger.is_some_and(|own| own.name_any() == ledger));
    slice.map_or(ledger, |slice| slice.pool.to_owned())
}

fn in_a_slice(snapshot: &Snapshot, address: Address, answer: &mut Answer) -> bool {
    let Some(slice) = snapshot.ranges.slices().find(|slice| slice.cidr.contains(address)) else {
        return false;
    };
    answer.state = State::Free;
    answer.summary = format!(
        "nobody has {address}: it is free in slice {} of node {} (NodeSlicePool {})",
        slice.cidr, slice.node, slice.pool
    );
    (answer.pool, answer.node) = (Some(slice.pool.to_owned()), Some(slice.node.to_owned()));
    answer.block = slice.ledger.map(ResourceExt::name_any);
    true
}

fn in_a_range(snapshot: &Snapshot, address: Address, answer: &mut Answer) -> bool {
    let sliced =
        snapshot.ranges.slices.iter().find(|pool| {
            pool.spec.range.parse::<tenure_ipam::Cidr>().is_ok_and(|cidr| cidr.contains(address))
        });
    if let Some(pool) = sliced {
        let name = pool.name_any();
        answer.state = State::Uncarved;
        answer.summary = format!("nobody has {address}: its slice of NodeSlicePool {name} has no node");
        answer.pool = Some(name);
        return true;
    }
    let shared = snapshot.ranges.shared();
    let Some((name, (_, ledgers))) = shared.iter().find(|(_, (cidr, _))| cidr.contains(address)) else {
        return false;
    };
    let cut = ledgers.iter().any(|ledger| Agreed::of(ledger) == Agreed::Sliced);
    answer.state = if cut { State::KeptBack } else { State::Free };
    answer.summary = if cut {
        format!("nobody has {address}: the range of IPPool {name} is cut into slices")
    } else {
        format!("nobody has {address}: it is free in IPPool {name}")
    };
    answer.pool = Some(name.clone());
    true
}
