//! Afterwards: what machines have, what records and nodes say and what pods were told are the same, and in the end nothing is left.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::cloud::{IPLedger, NodeAliases};
use tenure_tests::chaos::programs::Programs;
use tenure_tests::cloud::{on_two_machines, over_budget, unkept};

use crate::bed::{ChaosBed, WARM, ZONES};
use crate::plan::CONTROLLERS;
use crate::work::{Running, Worker};

/// What the controller's budget of a region is: in a minute, and at once after a start.
const READS: (usize, usize) = (600, 60);
const UPDATES: (usize, usize) = (300, 30);
/// How long one echo request is waited for.
const ECHO: Duration = Duration::from_secs(2);

/// What happened that must not, as far as the cloud has kept it. `starts`: how often a controller was started.
pub fn history(bed: &ChaosBed<'_>, starts: usize) -> Vec<String> {
    let (log, changes) = (bed.cloud.fake.log(), bed.cloud.fake.changes());
    let mut found = on_two_machines(&changes);
    found.extend(unkept(&bed.promises(), &changes));
    let leaders = CONTROLLERS + starts;
    found.extend(over_budget(&log, READS.0 + leaders * READS.1, UPDATES.0 + leaders * UPDATES.1));
    found
}

/// What differs between machines, records, nodes and pods.
pub fn different(programs: &Programs<'_>, bed: &ChaosBed<'_>, workers: &[Worker<'_>]) -> Vec<String> {
    let mut found = programs.ended();
    let (ledgers, nodes): (Vec<IPLedger>, Vec<NodeAliases>) = (bed.list(), bed.list());
    for (number, machine) in bed.machines.iter().enumerate() {
        let living: BTreeSet<String> =
            of_node(workers, number).map(|pod| format!("{}/32", pod.address)).collect();
        let recorded = recorded(&ledgers, &machine.name);
        let (configured, arriving) = (
            bed.cloud.fake.aliases(ZONES[number], &machine.name),
            bed.cloud.fake.arriving(ZONES[number], &machine.name),
        );
        let status = nodes.iter().find(|it| it.name_any() == machine.name).and_then(|it| it.status.clone());
        let status = status.unwrap_or_default().aliases;
        let attached: BTreeSet<String> =
            status.iter().filter(|(_, alias)| alias.attached).map(|(range, _)| range.clone()).collect();
        for (what, ranges) in [("arrive", &arriving), ("are recorded", &recorded), ("are said", &attached)] {
            if *ranges != configured {
                found.push(format!("{}: {configured:?} are attached, and {ranges:?} {what}", machine.name));
            }
        }
        let lost: Vec<&String> = living.difference(&configured).collect();
        if !lost.is_empty() {
            found.push(format!("{}: {lost:?} of living pods are lost", machine.name));
        }
        // An agent gives back what it has beyond twice its warm set.
        let spare: Vec<&String> = configured.difference(&living).collect();
        if spare.len() > 2 * WARM {
            found.push(format!("{}: nobody uses {spare:?}", machine.name));
        }
    }
    let freed = ledgers.iter().flat_map(|it| &it.spec.records).filter(|(_, it)| it.freed.is_some());
    found.extend(freed.map(|(offset, it)| format!("record {offset} is still freed: {it:?}")));
    found
}

/// What is left when no pod is, and no node keeps anything ready.
pub fn left(bed: &ChaosBed<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, machine) in bed.machines.iter().enumerate() {
        let there = bed.cloud.fake.aliases(ZONES[number], &machine.name);
        if !there.is_empty() {
            found.push(format!("{} has {there:?}", machine.name));
        }
    }
    for ledger in bed.list::<IPLedger>().iter().filter(|it| !it.spec.records.is_empty()) {
        found.push(format!("{} has {:?}", ledger.name_any(), ledger.spec.records));
    }
    found
}

/// Living pods that another machine does not reach.
pub fn unreached(bed: &ChaosBed<'_>, workers: &[Worker<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, machine) in bed.machines.iter().enumerate() {
        let from = &bed.machines[(number + 1) % bed.machines.len()];
        for pod in of_node(workers, number) {
            if let Err(error) = from.host.ping(pod.address, ECHO) {
                found.push(format!("{} on {}: {error}", pod.name, machine.name));
            }
        }
    }
    found
}

/// The pods of a node that live.
fn of_node<'a>(workers: &'a [Worker<'_>], node: usize) -> impl Iterator<Item = &'a Running> {
    workers.iter().flat_map(|worker| worker.pods.iter().flatten()).filter(move |pod| pod.node == node)
}

/// The ranges that records give to a node.
fn recorded(ledgers: &[IPLedger], node: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for ledger in ledgers {
        let first: Option<IpAddr> = ledger.spec.cidr.split('/').next().and_then(|text| text.parse().ok());
        let Some(IpAddr::V4(first)) = first else { continue };
        let own = ledger.spec.records.iter().filter(|(_, it)| it.node == node && it.freed.is_none());
        let [a, b, c, _] = first.octets();
        found.extend(own.map(|(offset, _)| format!("{a}.{b}.{c}.{offset}/32")));
    }
    found
}
