//! Compares records of alias addresses with each other, with what nodes were told, and with the addresses that pods report.

use kube::ResourceExt;
use tenure_ipam::{Address, Cidr};

use super::Findings;
use crate::snapshot::Snapshot;

pub(super) fn compare(snapshot: &Snapshot, findings: &mut Findings) {
    let known = &snapshot.aliases;
    let mut all: Vec<_> = known.records().collect();
    all.sort_by_key(|it| (it.range.first(), it.range.prefix(), it.ledger.name_any()));
    for pair in all.windows(2) {
        let [one, other] = pair else { continue };
        if one.range.overlaps(&other.range) {
            findings.differ(
                "alias-twice",
                format!("IPLedger {}", one.ledger.name_any()),
                format!(
                    "{} of node {} and {} of node {} (IPLedger {}) have the same addresses",
                    one.range,
                    one.record.node,
                    other.range,
                    other.record.node,
                    other.ledger.name_any()
                ),
                "end the pods of one of the nodes, so that it gives its range back; see the condition Overlapping of the IPPools",
            );
        }
    }
    for object in &known.nodes {
        let (node, subject) = (object.name_any(), format!("NodeAliases {}", object.name_any()));
        if !snapshot.nodes.is_empty() && !snapshot.nodes.contains(&node) {
            let has = all.iter().filter(|it| it.record.node == node).count();
            findings.differ(
                "alias-node-missing",
                &subject,
                format!("there is no such Node; {has} records name it"),
                "the controller releases them two minutes after the node is gone, and deletes it; if it does not, see whether it leads",
            );
        }
        let status = object.status.iter();
        for (text, alias) in status.flat_map(|status| &status.aliases).filter(|(_, it)| it.claim.is_none()) {
            let Ok(range) = text.parse::<Cidr>() else { continue };
            let recorded = all.iter().any(|it| {
                it.range == range && it.record.node == node && it.record.grant == alias.grant && !it.cools()
            });
            if !recorded {
                findings.differ(
                    "alias-status",
                    &subject,
                    format!("it says that the node has {text}, and no IPLedger does"),
                    "the controller writes it again; if it does not, see whether it leads",
                );
            }
        }
    }
    for pod in snapshot.pods.iter().flatten().filter(|pod| !pod.over && !pod.host_network) {
        for ip in &pod.addresses {
            let address = Address::from(*ip);
            let usable = known.pool_with(address).is_some_and(|(_, usable)| usable);
            if usable && known.record_of(address).is_none() {
                findings.differ(
                    "alias-unrecorded",
                    format!("pod {}", pod.label()),
                    format!("its status has {ip}, which no IPLedger does: another pod could get it"),
                    "the controller records it; if it does not, see whether it leads and runs with --cloud=gcp",
                );
            }
        }
    }
}
