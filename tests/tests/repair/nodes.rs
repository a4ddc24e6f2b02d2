//! Findings about addresses of nodes' own interfaces.

use std::sync::Arc;

use kube::Api;
use serde_json::{Value, json};
use tenure_api::nmstate::{
    NodeCondition, NodeIPPool, NodeNetworkConfigurationEnactment as Enactment,
    NodeNetworkConfigurationPolicy as Policy, enactment_name,
};
use tenure_testbed::faults::Calls;
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::until;

use super::bed::{Bed, Before, hear, lead};
use super::case::{Case, all};

/// The pool, and the policy that gives `eth1` of both hosts an address of it.
const POOL: &str = "storage";
/// What refuses agents to write what they have.
const ENACTMENTS: &str = "nodenetworkconfigurationenactments/status";

pub const CASES: &[Case] = &[
    Case::new(
        "node-address-twice",
        |bed| {
            bed.stop_controller();
            let (own, others) = (allocated(bed, 1), allocated(bed, 0));
            bed.kept = own;
            allocate(bed, 1, &others);
        },
        |bed| {
            let own = std::mem::take(&mut bed.kept);
            allocate(bed, 1, &own);
            bed.control();
        },
    ),
    Case::new(
        "node-address-stale",
        |bed| {
            bed.stop_controller();
            let mut offsets = offsets(bed);
            offsets.push(json!(15));
            bed.merge_status(&pools(bed), POOL, json!({"allocated-offsets": offsets}));
        },
        lead,
    ),
    Case::new(
        "node-address-unrecorded",
        |bed| {
            bed.stop_controller();
            let offsets = &offsets(bed)[1..];
            bed.merge_status(&pools(bed), POOL, json!({"allocated-offsets": offsets}));
        },
        lead,
    ),
    // An interface that the hosts do not have.
    Case::new(
        "node-address-problem",
        |bed| policy(bed, "broken", "eth7", true),
        |bed| bed.delete(&policies(bed), "broken"),
    ),
    // The agent has reported an address, and what it reported is lost; it cannot report again.
    Case::new(
        "node-address-unreported",
        |bed| {
            bed.refuse(Calls::writes().to(ENACTMENTS));
            bed.merge_status(
                &enactments(bed),
                &enactment(bed, 0, POOL),
                json!({"applied": {"addresses": []}}),
            );
        },
        hear,
    ),
    // The agent has reported an address that it took off, and cannot report that.
    Case::new(
        "node-address-not-there",
        |bed| {
            bed.refuse(Calls::writes().to(ENACTMENTS));
            let name = enactment(bed, 0, POOL);
            let found = json!(bed.wait(enactments(bed).get(&name)).unwrap());
            let mut addresses = found["status"]["applied"]["addresses"].clone();
            let mut lost = addresses[0].clone();
            lost["address"] = json!("10.10.20.77/24");
            addresses.as_array_mut().unwrap().push(lost);
            bed.merge_status(&enactments(bed), &name, json!({"applied": {"addresses": addresses}}));
        },
        hear,
    ),
    Case::new(
        "node-pool-record",
        |bed| {
            bed.stop_controller();
            bed.merge_status(&pools(bed), POOL, json!({"allocated-bitmap": "no base64!"}));
        },
        lead,
    )
    .asked(),
    Case::new(
        "node-pool-missing",
        |bed| {
            bed.stop_controller();
            bed.merge(&pools(bed), POOL, json!({"metadata": {"finalizers": null}}));
            bed.delete(&pools(bed), POOL);
        },
        |bed| {
            pool(bed);
            bed.control();
        },
    ),
    // A policy that asks for an address and does not use it.
    Case::new(
        "node-address-not-applied",
        |bed| policy(bed, "unused", "eth2", false),
        |bed| bed.delete(&policies(bed), "unused"),
    ),
];

pub fn prepare(before: &mut Before<'_, '_>) {
    for name in ["eth1", "eth2"] {
        let wire = Arc::new(Segment::new(name).unwrap());
        for machine in &*before.machines {
            before.ports.push(wire.connect(&machine.host, name, &[]).unwrap());
        }
        before.wires.push(wire);
    }
}

/// Gives both hosts an address on `eth1`.
pub fn begin(bed: &mut Bed<'_>) {
    pool(bed);
    policy(bed, POOL, "eth1", true);
    for machine in [0, 1] {
        until("the policy on a host", || {
            let found = bed.wait(enactments(bed).get_opt(&enactment(bed, machine, POOL))).unwrap()?;
            found.condition("Available").is_some_and(NodeCondition::is_true).then_some(())
        });
    }
}

fn pools(bed: &Bed<'_>) -> Api<NodeIPPool> {
    bed.api()
}

fn policies(bed: &Bed<'_>) -> Api<Policy> {
    bed.api()
}

fn enactments(bed: &Bed<'_>) -> Api<Enactment> {
    bed.api()
}

fn enactment(bed: &Bed<'_>, machine: usize, policy: &str) -> String {
    enactment_name(&bed.machines[machine].name, policy).unwrap()
}

fn pool(bed: &Bed<'_>) {
    let range = json!({"cidr": "10.10.20.0/24", "start": "10.10.20.1", "end": "10.10.20.20"});
    bed.make(&pools(bed), json!({"metadata": {"name": POOL}, "spec": {"range": range}}));
}

/// Makes a policy that asks for an address of the pool for an interface of every host, and uses it or not.
fn policy(bed: &mut Bed<'_>, name: &str, interface: &str, used: bool) {
    let mut desired = json!({"name": interface, "type": "ethernet", "state": "up"});
    if used {
        let own = |what: &str| format!("{{{{ capture.own.{what} }}}}");
        let address = json!([{"ip": own("ip"), "prefix-length": own("prefix-length")}]);
        desired["ipv4"] = json!({"enabled": true, "dhcp": false, "address": address});
    }
    let spec = json!({
        "maxUnavailable": "100%", "capture": {"own": format!("ippool.{POOL}.allocate")},
        "desiredState": {"interfaces": [desired]},
    });
    bed.make(&policies(bed), json!({"metadata": {"name": name}, "spec": spec}));
}

/// The offsets that the pool says are taken.
fn offsets(bed: &Bed<'_>) -> Vec<Value> {
    let pool = json!(bed.wait(pools(bed).get(POOL)).unwrap());
    all(&pool["status"]["allocated-offsets"]).cloned().collect()
}

/// The addresses that a host's enactment has.
fn allocated(bed: &Bed<'_>, machine: usize) -> Value {
    let found = json!(bed.wait(enactments(bed).get(&enactment(bed, machine, POOL))).unwrap());
    found["status"]["ippool"][POOL]["allocated"].clone()
}

fn allocate(bed: &Bed<'_>, machine: usize, addresses: &Value) {
    let status = json!({"ippool": {POOL: {"allocated": addresses}}});
    bed.merge_status(&enactments(bed), &enactment(bed, machine, POOL), status);
}
