//! Compares Whereabouts' ledgers, reservations, slices and pods with each other.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use tenure_api::claims::{RECORD_PREFIX, SLICE_OWNER};
use tenure_api::whereabouts::{IPPool, NodeSlicePool, reservation_name};
use tenure_ipam::{Address, Cidr};
use tenure_whereabouts::ledger::State;
use tenure_whereabouts::reconcile::named_address;

use super::Findings;
use crate::ranges::{Recorded, records_of};
use crate::snapshot::{PodFacts, Snapshot};

pub(super) fn compare(snapshot: &Snapshot, findings: &mut Findings) {
    for ledger in &snapshot.ranges.ledgers {
        one_ledger(snapshot, ledger, findings);
    }
    recorded_twice(snapshot, findings);
    reservations(snapshot, findings);
    for pool in &snapshot.ranges.slices {
        one_slice_pool(snapshot, pool, findings);
    }
    if let Some(pods) = &snapshot.pods {
        records_have_pods(snapshot, pods, findings);
        pods_have_records(snapshot, pods, findings);
    }
}

fn one_ledger(snapshot: &Snapshot, ledger: &IPPool, findings: &mut Findings) {
    let subject = format!("IPPool {}", ledger.name_any());
    let Ok(cidr) = ledger.spec.cidr() else {
        findings.differ(
            "ledger-invalid",
            subject,
            format!("spec.range {:?} is no network", ledger.spec.range),
            "nobody can tell what its records stand for; delete it when their pods are gone",
        );
        return;
    };
    let senseless = ledger.spec.allocations.len() - records_of(ledger).count();
    if senseless > 0 {
        findings.differ(
            "record-senseless",
            &subject,
            format!("{senseless} of its records stand for no address of {cidr}"),
            "remove them (kubectl edit); nobody has these addresses",
        );
    }
    let Some(node) = snapshot.ranges.node_of(ledger).filter(|_| State::of(ledger) == State::Owned) else {
        return;
    };
    let its = snapshot.ranges.slices().any(|slice| slice.node == node && slice.cidr == cidr);
    if !its && !snapshot.ranges.slices.is_empty() {
        findings.differ(
            "ledger-without-slice",
            subject,
            format!("says that node {node} assigns from {cidr}, and no NodeSlicePool gives it that"),
            "see whether the node's agent reaches the API server; nobody else gets the slice while records are in it",
        );
    }
}

/// An address has one holder in a network.
fn recorded_twice(snapshot: &Snapshot, findings: &mut Findings) {
    let mut holders: BTreeMap<(String, Address), Vec<Recorded<'_>>> = BTreeMap::new();
    for recorded in snapshot.ranges.records() {
        // This does not hold across ranges for networks with enable_overlapping_ranges: false.
        holders.entry((recorded.network.clone(), recorded.address)).or_default().push(recorded);
    }
    for ((network, address), all) in holders.into_iter().filter(|(_, all)| all.len() > 1) {
        let who: BTreeSet<String> =
            all.iter().map(|it| format!("{} (IPPool {})", it.record.podref, it.ledger.name_any())).collect();
        let ledgers: BTreeSet<String> = all.iter().map(|it| it.ledger.name_any()).collect();
        let unmarked = all.iter().any(|it| State::of(it.ledger) == State::Unmarked);
        if ledgers.len() > 1 && !unmarked {
            let of = if network.is_empty() { String::new() } else { format!(" of network {network}") };
            findings.differ(
                "recorded-twice",
                format!("{address}{of}"),
                format!("is held by {}", who.into_iter().collect::<Vec<_>>().join(" and by ")),
                "delete the pods but one, so that they get addresses of their own",
            );
        }
    }
}

/// Where ranges overlap, every record has its reservation, and every reservation its record.
fn reservations(snapshot: &Snapshot, findings: &mut Findings) {
    let reserved: BTreeMap<String, &str> =
        snapshot.ranges.reservations.iter().map(|it| (it.name_any(), it.spec.podref.as_str())).collect();
    for it in snapshot.ranges.records().filter(|it| State::of(it.ledger) == State::Overlapping) {
        let Ok(name) = reservation_name(&it.network, it.address.to_ip()) else { continue };
        if reserved.get(&name).is_none_or(|podref| *podref != it.record.podref) {
            findings.differ(
                "record-without-reservation",
                format!("IPPool {}: {}", it.ledger.name_any(), it.address),
                format!(
                    "is held by {}, and no reservation of it keeps it from ranges that overlap",
                    it.record.podref
                ),
                "delete the pod, so that it gets an address that is reserved",
            );
        }
    }
    let recorded: BTreeSet<(Address, &str)> =
        snapshot.ranges.records().map(|it| (it.address, it.record.podref.as_str())).collect();
    for reservation in &snapshot.ranges.reservations {
        let name = reservation.name_any();
        let explained = named_address(&name)
            .is_none_or(|address| recorded.contains(&(address, reservation.spec.podref.as_str())));
        if !explained {
            findings.differ(
                "reservation-without-record",
                format!("OverlappingRangeIPReservation {name}"),
                format!("is for {}, and no record says that it has the address", reservation.spec.podref),
                "the controller deletes it within minutes, if the pod does not have it; if it stays, see its log",
            );
        }
    }
}

fn one_slice_pool(snapshot: &Snapshot, pool: &NodeSlicePool, findings: &mut Findings) {
    let name = pool.name_any();
    let subject = format!("NodeSlicePool {name}");
    let slices: Vec<_> = snapshot.ranges.slices().filter(|slice| slice.pool == name).collect();
    let mut of_node: BTreeMap<&str, Vec<Cidr>> = BTreeMap::new();
    let mut of_slice: BTreeMap<Cidr, Vec<&str>> = BTreeMap::new();
    for slice in &slices {
        of_node.entry(slice.node).or_default().push(slice.cidr);
        of_slice.entry(slice.cidr).or_default().push(slice.node);
    }
    for (cidr, nodes) in of_slice.iter().filter(|(_, nodes)| nodes.len() > 1) {
        findings.differ(
            "slice-of-two-nodes",
            &subject,
            format!("{cidr} is given to {}", nodes.join(" and to ")),
            "take it from all but one of them (kubectl edit), and restart their agents",
        );
    }
    for (node, all) in of_node.iter().filter(|(node, _)| **node != SLICE_OWNER) {
        if all.len() > 1 {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            findings.differ(
                "node-with-two-slices",
                &subject,
                format!("node {node} has {}", all.join(" and ")),
                "take all but one of them from it (kubectl edit), and restart its agent",
            );
        }
        let held = slices.iter().any(|slice| {
            slice.node == *node && slice.ledger.is_some_and(|ledger| !ledger.spec.allocations.is_empty())
        });
        if !snapshot.nodes.is_empty() && !snapshot.nodes.contains(*node) && !held {
            findings.differ(
                "slice-without-node",
                &subject,
                format!("node {node} has a slice, holds nothing in it, and does not exist"),
                "the controller takes it back within a minute; see whether one leads",
            );
        }
    }
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    for condition in conditions {
        let bad = match condition.type_.as_str() {
            "Ready" => condition.status == "False",
            "NodesWithoutSlice" | "Conflict" => condition.status == "True",
            _ => false,
        };
        if bad {
            findings.differ(
                "slices",
                &subject,
                format!("{}: {}", condition.reason, condition.message),
                "change the NetworkAttachmentDefinition that asks for it",
            );
        }
    }
}

fn records_have_pods(snapshot: &Snapshot, pods: &[PodFacts], findings: &mut Findings) {
    let living: BTreeSet<String> = pods.iter().filter(|pod| !pod.over).map(PodFacts::label).collect();
    // A claim's record names the claim where others name their pod.
    let of_pods = snapshot.ranges.records().filter(|it| !it.record.id.starts_with(RECORD_PREFIX));
    for it in of_pods.filter(|it| !living.contains(&it.record.podref)) {
        findings.differ(
            "record-without-pod",
            format!("IPPool {}: {}", it.ledger.name_any(), it.address),
            format!("is held by {}, and there is no such pod, or it has ended", it.record.podref),
            "it is released within minutes, by the node's agent or the controller; if it stays, see their logs",
        );
    }
}

fn pods_have_records(snapshot: &Snapshot, pods: &[PodFacts], findings: &mut Findings) {
    let recorded: BTreeSet<(Address, &str)> =
        snapshot.ranges.records().map(|it| (it.address, it.record.podref.as_str())).collect();
    let ranges: Vec<Cidr> = snapshot.ranges.ledgers.iter().filter_map(|it| it.spec.cidr().ok()).collect();
    for pod in pods.iter().filter(|pod| !pod.over) {
        let label = pod.label();
        for address in pod.networks.iter().map(|ip| Address::from(*ip)) {
            let ours = ranges.iter().any(|range| range.contains(address));
            if ours && !recorded.contains(&(address, label.as_str())) {
                findings.differ(
                    "pod-without-record",
                    format!("pod {label}"),
                    format!("has {address}, and no record of the range says so"),
                    "delete the pod, so that it gets an address that is held; until then another pod may get the same",
                );
            }
        }
    }
}
