//! Findings about pools, blocks and requests.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, FINALIZER, label};
use tenure_testbed::faults::{Calls, Verb};
use tenure_testbed::wait::until;

use super::bed::{Bed, Before, hear, lead};
use super::case::Case;

/// The definition of pools.
const POOLS: &str = "addresspools.coil.cybozu.com";

pub const CASES: &[Case] = &[
    // Our rules refuse such a pool, so it is made as it was before them: with Coil's own definition, which has none.
    Case::new("pool-invalid", invalid_pool, |bed| {
        bed.delete(&bed.cluster.pools(), "tight");
        tighten(bed, POOLS);
    }),
    Case::new(
        "pools-overlap",
        |bed| bed.cluster.pool("younger", 5, json!([{"ipv4": "10.64.128.0/24"}])),
        |bed| bed.delete(&bed.cluster.pools(), "younger"),
    ),
    Case::new(
        "pool-unprotected",
        |bed| {
            bed.stop_controller();
            bed.merge(&bed.cluster.pools(), "default", json!({"metadata": {"finalizers": null}}));
        },
        lead,
    ),
    Case::new(
        "pool-status",
        |bed| {
            bed.stop_controller();
            bed.merge_status(&bed.cluster.pools(), "default", json!({"blocks": {"allocated": "7"}}));
        },
        lead,
    ),
    // The block of a pod that runs.
    Case::new("block-without-pool", |bed| relabel(bed, label::POOL, &Value::Null), |_| ()),
    Case::new("block-without-node", |bed| relabel(bed, label::NODE, &Value::Null), |_| ()),
    // A block that nobody has.
    Case::new("block-without-node", |bed| _ = bed.carve("default", 30, 30, None), |_| ()),
    Case::new(
        "block-outside-pool",
        |bed| _ = bed.carve("default", 31, 731, Some(&bed.machines[0].name)),
        |_| (),
    ),
    // With the addresses of the block of a pod that runs.
    Case::new(
        "blocks-overlap",
        |bed| {
            let index = u32::try_from(bed.block_of_running(0).spec.index).unwrap();
            bed.carve("default", index, 732, Some(&bed.machines[1].name));
        },
        |_| (),
    ),
    Case::new(
        "leftover-finalizer",
        |bed| {
            bed.stop_controller();
            let block = bed.carve("default", 33, 33, None);
            let deleted = bed.cluster.blocks();
            bed.wait(deleted.delete(&block.name_any(), &DeleteParams::default())).unwrap();
        },
        lead,
    )
    .seen_after(90),
    Case::new(
        "request-without-node",
        |bed| {
            bed.stop_controller();
            let request = json!({"metadata": {"name": "of-nobody"}, "spec": {"nodeName": "gone", "poolName": "default"}});
            bed.make(&bed.api::<BlockRequest>(), request);
        },
        lead,
    ),
    Case::new(
        "request-unanswered",
        |bed| {
            bed.stop_controller();
            bed.begin(0, "late", "late");
        },
        |bed| {
            bed.control();
            bed.await_address();
            bed.detach();
        },
    )
    .seen_after(90),
    // The agent deletes a request that was refused, and asks again; here it cannot.
    Case::new("request-failed", refused_request, |bed| {
        bed.end_faults();
        bed.give_up();
        bed.detach();
        until("the request to be deleted", || requests(bed).is_empty().then_some(()));
    }),
    Case::new(
        "waiting",
        |bed| {
            bed.stop_controller();
            bed.begin(0, "later", "waits");
        },
        |bed| {
            bed.control();
            bed.await_address();
            bed.detach();
        },
    )
    .seen_after(40),
    // A node that has its block, and cannot delete its request.
    Case::new(
        "request-left-over",
        |bed| {
            bed.refuse(Calls::of(Verb::Delete).to("blockrequests"));
            bed.begin(0, "left", "left");
            bed.await_address();
            bed.detach();
        },
        hear,
    )
    .seen_after(400),
];

pub fn prepare(before: &mut Before<'_, '_>) {
    before.cluster.tenant("late", 1, json!([{"ipv4": "10.66.2.0/29"}]));
    before.cluster.tenant("later", 1, json!([{"ipv4": "10.66.1.0/29"}]));
    before.cluster.tenant("left", 1, json!([{"ipv4": "10.66.3.0/29"}]));
    // One block.
    before.cluster.tenant("tiny", 1, json!([{"ipv4": "10.66.0.0/31"}]));
}

fn invalid_pool(bed: &mut Bed<'_>) {
    loosen(bed, POOLS);
    let pool: AddressPool = serde_json::from_value(json!({
        "metadata": {"name": "tight"}, "spec": {"blockSizeBits": 5, "subnets": [{"ipv4": "10.99.0.0/30"}]},
    }))
    .unwrap();
    // The server takes a while to serve another definition.
    until("a pool that our rules refuse", || {
        bed.wait(bed.cluster.pools().create(&PostParams::default(), &pool)).ok()
    });
}

/// Takes all rules out of one of our definitions, as in a cluster that had the kind before us.
pub fn loosen(bed: &Bed<'_>, name: &str) {
    let mut definition = json!(ours(name));
    strip(&mut definition);
    define(bed, name, definition);
}

/// Puts the rules back.
pub fn tighten(bed: &Bed<'_>, name: &str) {
    define(bed, name, json!(ours(name)));
}

fn ours(name: &str) -> CustomResourceDefinition {
    tenure_api::crds().into_iter().find(|it| it.name_any() == name).expect("a definition of ours")
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn define(bed: &Bed<'_>, name: &str, mut definition: Value) {
    let api = bed.api::<CustomResourceDefinition>();
    definition["metadata"]["resourceVersion"] = json!(bed.wait(api.get(name)).unwrap().resource_version());
    let definition = serde_json::from_value(definition).unwrap();
    bed.wait(api.replace(name, &PostParams::default(), &definition)).unwrap();
}

/// Sets or removes a label of the block of a pod that runs.
fn relabel(bed: &mut Bed<'_>, key: &str, value: &Value) {
    let block = bed.block_of_running(0);
    let patch = json!({"metadata": {"labels": {key: value}}});
    let changed: AddressBlock = bed.merge(&bed.cluster.blocks(), &block.name_any(), patch);
    assert!(changed.finalizers().contains(&FINALIZER.to_owned()));
}

/// A pod that waits for an address of a pool whose only block another node has.
fn refused_request(bed: &mut Bed<'_>) {
    bed.refuse(Calls::of(Verb::Delete).to("blockrequests"));
    bed.attach(1, "tiny", "first");
    bed.begin(0, "tiny", "second");
}

fn requests(bed: &Bed<'_>) -> Vec<BlockRequest> {
    bed.cluster.requests_of(&bed.machines[0].name)
}
