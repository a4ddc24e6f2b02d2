//! Findings about Whereabouts' ranges: ledgers, records, reservations and slices.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tenure_testbed::faults::Calls;
use tenure_testbed::wait::until;
use tenure_tests::chaos::looks::{every, view_of};
use tenure_tests::whereabouts::{NODE, STATE, network};

use super::bed::{Bed, Before, hear, lead};
use super::case::Case;
use super::objects::{loosen, tighten};

/// Where Whereabouts' objects are.
const NAMESPACE: &str = "kube-system";
/// The range that all nodes share, and its object.
const SHARED: &str = "10.90.0.0/24";
const LEDGER: &str = "10.90.0.0-24";
/// The definition of ledgers.
const LEDGERS: &str = "ippools.whereabouts.cni.cncf.io";
/// What tells a node whether a slice is its own.
const GIVEN: &str = "whereabouts.cni.cncf.io/given";
/// The range that is sliced.
const SLICED: &str = "10.91.0.0/24";

pub const CASES: &[Case] = &[
    // The definition refuses such a range, so it is made as it was before our rules.
    Case::new("ledger-invalid", unreadable_range, |bed| {
        tighten(bed, LEDGERS);
    }),
    Case::new("record-senseless", |bed| record(bed, LEDGER, "9999", &bed.podref(0)), |_| ()),
    Case::new(
        "ledger-without-slice",
        // The node gives it up as soon as it sees it, and cannot write that here.
        |bed| {
            bed.stop_controller();
            bed.refuse(Calls::writes().to("ippools"));
            let node = &bed.machines[0].name;
            ledger(
                bed,
                &format!("{node}-10.95.0.0-26"),
                "10.95.0.0/26",
                &json!({NODE: node}),
                "owned",
                &json!({}),
            );
        },
        |bed| {
            bed.delete(&ledgers(bed), &format!("{}-10.95.0.0-26", bed.machines[0].name));
            bed.end_faults();
            bed.control();
        },
    ),
    Case::new(
        "recorded-twice",
        |bed| {
            bed.stop_controller();
            for (name, range, pod) in [
                ("10.96.0.0-24", "10.96.0.0/24", bed.podref(0)),
                ("10.96.0.0-25", "10.96.0.0/25", bed.podref(1)),
            ] {
                ledger(bed, name, range, &json!({}), "unique", &json!({"5": taken(&pod)}));
            }
        },
        |bed| {
            for name in ["10.96.0.0-24", "10.96.0.0-25"] {
                bed.delete(&ledgers(bed), name);
            }
            bed.control();
        },
    ),
    Case::new(
        "record-without-pod",
        |bed| {
            bed.stop_controller();
            record(bed, LEDGER, "77", "default/gone");
        },
        lead,
    ),
    Case::new(
        "pod-without-record",
        |bed| {
            bed.ghost("ghost", &["192.0.2.99".parse().unwrap()]);
            let status = json!([{"name": "default/shared", "interface": "net1", "ips": ["10.90.0.99"]}]);
            let status = json!({"k8s.v1.cni.cncf.io/network-status": status.to_string()});
            bed.merge(&bed.api_in::<Pod>("default"), "ghost", json!({"metadata": {"annotations": status}}));
        },
        |bed| bed.delete_pod("default", "ghost"),
    ),
    Case::new(
        "record-without-reservation",
        |bed| {
            bed.stop_controller();
            ledger(
                bed,
                "10.97.0.0-24",
                "10.97.0.0/24",
                &json!({}),
                "overlapping",
                &json!({"5": taken(&bed.podref(0))}),
            );
        },
        |bed| {
            bed.delete(&ledgers(bed), "10.97.0.0-24");
            bed.delete(&reservations(bed), "10.97.0.5");
            bed.control();
        },
    ),
    Case::new(
        "reservation-without-record",
        |bed| {
            bed.stop_controller();
            let spec = json!({"podref": "default/gone", "ifname": "net1"});
            bed.make(&reservations(bed), json!({"metadata": {"name": "10.90.0.66"}, "spec": spec}));
        },
        lead,
    ),
    Case::new(
        "slice-of-two-nodes",
        |bed| {
            let [one, other] = [0, 1].map(|at| bed.machines[at].name.clone());
            give(bed, &[(3, &one)]);
            let mut doubled = bed.kept.clone();
            doubled[3]["nodeName"] = json!(one);
            let mut second = doubled[3].clone();
            second["nodeName"] = json!(other);
            doubled.as_array_mut().unwrap().push(second);
            allocate(bed, &doubled);
        },
        take_back,
    ),
    Case::new(
        "node-with-two-slices",
        |bed| {
            let node = bed.machines[0].name.clone();
            give(bed, &[(3, &node)]);
        },
        take_back,
    ),
    Case::new("slice-without-node", |bed| give(bed, &[(3, "gone")]), lead),
    Case::new(
        "slices",
        |bed| attach_definition(bed, "narrow", "10.98.0.0/30", "/30"),
        |bed| {
            bed.delete(&definitions(bed), "narrow");
            bed.delete(&slices(bed), "narrow");
        },
    ),
    // A network is deleted, and an agent does not hear that its slice of it is not its own any more.
    Case::new("slice-unknown-to-api", forget_slice, hear),
];

pub fn prepare(before: &mut Before<'_, '_>) {
    let definition =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/optional/network-attachment-definitions.yaml");
    let (runtime, plane) = (&before.cluster.runtime, before.cluster.plane());
    runtime.block_on(plane.kubectl(&["apply", "-f", definition])).unwrap();
    runtime
        .block_on(plane.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=300s"]))
        .unwrap();
}

/// Slices a range for both hosts, and has them assign from it and from a range that they share.
pub fn begin(bed: &mut Bed<'_>) {
    attach_definition(bed, "sliced", SLICED, "/26");
    until("slices of both nodes", || {
        let pool = bed.wait(slices(bed).get_opt("sliced")).unwrap()?;
        bed.machines.iter().all(|machine| pool.slice_of(&machine.name).is_some()).then_some(())
    });
    for machine in [0, 1] {
        bed.attach_to(machine, &format!("shared-{machine}"), &network("shared", json!({"range": SHARED})));
        let of_slices = network("sliced", json!({"range": SLICED, "node_slice_size": "/26"}));
        bed.attach_to(machine, &format!("sliced-{machine}"), &of_slices);
        bed.detach_last(&of_slices);
    }
}

fn ledgers(bed: &Bed<'_>) -> Api<IPPool> {
    bed.api_in(NAMESPACE)
}

fn slices(bed: &Bed<'_>) -> Api<NodeSlicePool> {
    bed.api_in(NAMESPACE)
}

fn reservations(bed: &Bed<'_>) -> Api<OverlappingRangeIPReservation> {
    bed.api_in(NAMESPACE)
}

fn definitions(bed: &Bed<'_>) -> Api<NetworkAttachmentDefinition> {
    bed.api_in("default")
}

/// A record of a pod.
fn taken(pod: &str) -> Value {
    json!({"id": "c-planted", "podref": pod, "ifname": "net1"})
}

/// Adds a record.
fn record(bed: &Bed<'_>, name: &str, key: &str, pod: &str) {
    bed.merge(&ledgers(bed), name, json!({"spec": {"allocations": {key: taken(pod)}}}));
}

/// Makes an object of a range.
fn ledger(bed: &Bed<'_>, name: &str, range: &str, labels: &Value, state: &str, records: &Value) {
    bed.make(
        &ledgers(bed),
        json!({
            "metadata": {"name": name, "labels": labels, "annotations": {STATE: state}},
            "spec": {"range": range, "allocations": records},
        }),
    );
}

fn unreadable_range(bed: &mut Bed<'_>) {
    loosen(bed, LEDGERS);
    let object =
        json!({"metadata": {"name": "nonsense"}, "spec": {"range": "10.90.0/24", "allocations": {}}});
    let object: IPPool = serde_json::from_value(object).unwrap();
    until("a range that our rules refuse", || {
        bed.wait(ledgers(bed).create(&PostParams::default(), &object)).ok()
    });
}

fn attach_definition(bed: &Bed<'_>, name: &str, range: &str, size: &str) {
    let config = network(name, json!({"range": range, "node_slice_size": size}));
    let object = json!({"metadata": {"name": name}, "spec": {"config": config.to_string()}});
    bed.make(&definitions(bed), object);
}

/// Deletes a network with slices, which the node is told and does not hear.
fn forget_slice(bed: &mut Bed<'_>) {
    attach_definition(bed, "doomed", "10.94.0.0/24", "/26");
    let own = until("a slice that the agent knows", || {
        let view = view_of(&bed.machines[0]).ok()?;
        let block = every(&view["blocks"]).into_iter().find(|it| it["pool"] == "whereabouts/doomed")?;
        Some(block["name"].as_str()?.to_owned())
    });
    bed.deaf("ippools");
    bed.delete(&definitions(bed), "doomed");
    bed.delete(&slices(bed), "doomed");
    until("the node to be told that its slice is withdrawn", || {
        let told = bed.wait(ledgers(bed).get_opt(&own)).unwrap();
        told.is_none_or(|told| told.annotations().get(GIVEN).is_some_and(String::is_empty)).then_some(())
    });
}

/// Gives slices to nodes, while no controller looks; [`take_back`] undoes it.
fn give(bed: &mut Bed<'_>, to: &[(usize, &str)]) {
    bed.stop_controller();
    let pool = bed.wait(slices(bed).get("sliced")).unwrap();
    let before = json!(pool.status.unwrap().allocations);
    let mut given = before.clone();
    for (at, node) in to {
        given[*at]["nodeName"] = json!(node);
    }
    bed.kept = before;
    allocate(bed, &given);
}

fn take_back(bed: &mut Bed<'_>) {
    let before = std::mem::take(&mut bed.kept);
    allocate(bed, &before);
    bed.control();
}

/// Writes who has which slice. This kind has no status of its own.
fn allocate(bed: &Bed<'_>, slices_of_nodes: &Value) {
    let patch = json!({"status": {"allocations": slices_of_nodes}});
    bed.merge(&slices(bed), "sliced", patch);
}
