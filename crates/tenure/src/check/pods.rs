//! Compares pods with holds: every pod with an address of a pool has a hold, and every hold has its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tenure_api::coil::EnginePool;
use tenure_ipam::Address;
use tenure_view::{Hold, Node};

use super::Findings;
use crate::snapshot::{PodFacts, Snapshot, has};

pub(super) fn compare(snapshot: &Snapshot, findings: &mut Findings) {
    let Some(pods) = &snapshot.pods else { return };
    let engines = snapshot.engines();
    let addressed = || pods.iter().filter(|pod| !pod.host_network && !pod.over);
    for pod in addressed() {
        pod_has_hold(snapshot, pod, &engines, findings);
    }
    let known: BTreeMap<(&str, &str), &PodFacts> =
        pods.iter().map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod)).collect();
    for node in snapshot.agents.values().filter_map(|told| told.as_ref().ok()) {
        for hold in &node.holds {
            hold_has_pod(node, hold, &known, findings);
        }
    }
    shared(addressed(), &engines, findings);
}

fn pod_has_hold(
    snapshot: &Snapshot,
    pod: &PodFacts,
    engines: &BTreeMap<String, EnginePool>,
    findings: &mut Findings,
) {
    for address in pod.addresses.iter().filter(|address| is_ours(**address, engines)) {
        // Pods of an earlier system have their addresses in reserved blocks.
        if snapshot.blocks.iter().any(|block| block.is_reserved() && has(block, (*address).into())) {
            continue;
        }
        let subject = format!("pod {}", pod.label());
        match snapshot.agents.get(&pod.node) {
            None => findings.unseen(format!("node {}", pod.node), "no agent was asked, and pods have addresses of our pools"),
            // Already reported for the node.
            Some(Err(_)) => {}
            Some(Ok(node)) => match node.holds.iter().find(|hold| hold.addresses.contains(address)) {
                None => findings.differ(
                    "pod-without-hold",
                    subject,
                    format!("has {address}, and the agent of node {} knows no hold of it", pod.node),
                    "delete the pod, so that it gets an address that is held; until then another pod may get the same",
                ),
                Some(hold) if !is_for(hold, pod) => findings.differ(
                    "pod-without-hold",
                    subject,
                    format!("has {address}, which node {} holds for {}", pod.node, hold.holder),
                    "delete both pods; they get addresses of their own",
                ),
                Some(_) => {}
            },
        }
    }
}

fn hold_has_pod(
    node: &Node,
    hold: &Hold,
    known: &BTreeMap<(&str, &str), &PodFacts>,
    findings: &mut Findings,
) {
    // Without a pod's name it has nothing to do with Kubernetes.
    let Some(pod) = &hold.holder.pod else { return };
    let problem = match known.get(&(pod.namespace.as_str(), pod.name.as_str())) {
        None => "there is no such pod".to_owned(),
        Some(found) if !pod.uid.is_empty() && !found.uid.is_empty() && pod.uid != found.uid => {
            format!("the pod of this name is another one (UID {})", found.uid)
        }
        Some(found) if found.node != node.node => format!("the pod of this name runs on node {}", found.node),
        // A pod that ended keeps its sandbox for a while, and one that starts has no address in its status
        // yet.
        Some(_) => return,
    };
    let addresses = hold.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    findings.differ(
        "hold-without-pod",
        format!("node {}: {addresses}", node.node),
        format!("is held for {pod}, and {problem}"),
        "the runtime deletes its sandbox in the end; if it does not, remove it there (crictl rmp)",
    );
}

/// No two pods have the same address.
fn shared<'a>(
    pods: impl Iterator<Item = &'a PodFacts>,
    engines: &BTreeMap<String, EnginePool>,
    findings: &mut Findings,
) {
    let mut holders: BTreeMap<IpAddr, BTreeSet<String>> = BTreeMap::new();
    for pod in pods {
        for address in pod.addresses.iter().filter(|address| is_ours(**address, engines)) {
            holders.entry(*address).or_default().insert(pod.label());
        }
    }
    for (address, pods) in holders.into_iter().filter(|(_, pods)| pods.len() > 1) {
        let pods: Vec<String> = pods.into_iter().collect();
        findings.differ(
            "pods-share-address",
            address.to_string(),
            format!("is in the status of {}", pods.join(" and of ")),
            "delete all of these pods but the one that holds it (`tenure who`)",
        );
    }
}

fn is_for(hold: &Hold, pod: &PodFacts) -> bool {
    let holder = hold.holder.pod.as_ref();
    holder.is_none_or(|it| it.namespace == pod.namespace && it.name == pod.name)
}

fn is_ours(address: IpAddr, engines: &BTreeMap<String, EnginePool>) -> bool {
    engines.values().any(|engine| engine.pool().index_of_address(Address::from(address)).is_some())
}
