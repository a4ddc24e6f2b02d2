//! Findings about agents, their blocks, holds and kernels, and about pods.

use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, label};
use tenure_testbed::wait::until;
use tenure_tests::chaos::looks::{every, view_of};

use super::bed::{Bed, Before, end_pods, hear};
use super::case::Case;

pub const CASES: &[Case] = &[
    // Agents may not read a kind any more.
    Case::new("agent", |bed| bed.forbid_watch("namespaces"), hear),
    // An event that an agent never hears of.
    Case::new(
        "block-unknown-to-agent",
        |bed| {
            bed.deaf("addressblocks");
            bed.carve("default", 40, 40, Some(&bed.machines[0].name));
        },
        hear,
    ),
    // The block of the case before, which has no holders.
    Case::new(
        "block-unknown-to-api",
        |bed| {
            until_known(bed, 0, "default-40");
            bed.deaf("addressblocks");
            bed.cluster.destroy_block("default-40");
        },
        hear,
    ),
    Case::new(
        "block-of-two-nodes",
        |bed| {
            bed.carve("default", 41, 41, Some(&bed.machines[0].name));
            until_known(bed, 0, "default-41");
            bed.deaf("addressblocks");
            let patch = json!({"metadata": {"labels": {label::NODE: bed.machines[1].name}}});
            bed.merge::<AddressBlock>(&bed.cluster.blocks(), "default-41", patch);
        },
        hear,
    ),
    // The object of the block of a pod that runs is gone, finalizer and all.
    Case::new(
        "held-in-lost-block",
        |bed| bed.cluster.destroy_block(&bed.block_of_running(0).name_any()),
        |_| (),
    ),
    // And the agent's journal with it, so that only the kernel knows of the pod.
    Case::new(
        "hold-outside-blocks",
        |bed| {
            let block = bed.block_of_running(1).name_any();
            let journal = bed.machines[1].file("journal");
            bed.while_down(1, || {
                bed.cluster.destroy_block(&block);
                std::fs::remove_file(journal).unwrap();
            });
        },
        |_| (),
    ),
    Case::new("held-twice", |bed| same_address_on_two_nodes(bed, "twice"), |bed| end_both(bed, "twice")),
    Case::new(
        "pods-share-address",
        |bed| same_address_on_two_nodes(bed, "shared"),
        |bed| end_both(bed, "shared"),
    ),
    // A container that runs without its pod's object.
    Case::new(
        "hold-without-pod",
        |bed| {
            bed.attach(0, "default", "orphan");
            bed.forget_last();
        },
        end_pods,
    ),
    Case::new(
        "pod-without-hold",
        |bed| bed.ghost("ghost", &["10.64.200.7".parse().unwrap()]),
        |bed| bed.delete_pod("default", "ghost"),
    ),
    // A pod that ended without a DEL.
    Case::new(
        "kernel",
        |bed| {
            bed.attach(0, "default", "killed");
            bed.forget_last();
            let (_, pod) = bed.extra.last().expect("a pod of this case");
            pod.network.namespace().ip("link del eth0\n").unwrap();
        },
        |_| (),
    ),
];

pub fn prepare(before: &mut Before<'_, '_>) {
    // Blocks of one address.
    before.cluster.tenant("twice", 0, json!([{"ipv4": "10.67.0.0/30"}]));
    before.cluster.tenant("shared", 0, json!([{"ipv4": "10.68.0.0/30"}]));
}

/// Waits until an agent knows a block.
fn until_known(bed: &Bed<'_>, machine: usize, block: &str) {
    until(&format!("an agent that knows {block}"), || {
        let view = view_of(&bed.machines[machine]).ok()?;
        every(&view["blocks"]).iter().any(|it| it["name"] == block).then_some(())
    });
}

/// A second object of a block gives its address to another node, whose pod gets it, too.
fn same_address_on_two_nodes(bed: &mut Bed<'_>, pool: &str) {
    let address = bed.attach(0, pool, "one");
    let index = u32::try_from(bed.block_with(0, address[0]).spec.index).unwrap();
    bed.carve(pool, index, 77, Some(&bed.machines[1].name));
    until_known(bed, 1, &format!("{pool}-77"));
    assert_eq!(bed.attach(1, pool, "other"), address);
}

/// Both pods end, and the second object goes, as `tenure repair` would have it.
fn end_both(bed: &mut Bed<'_>, pool: &str) {
    bed.detach();
    let name = format!("{pool}-77");
    let patch: Value = json!({"metadata": {"annotations": {"tenure/drain": "true"}}});
    bed.merge::<AddressBlock>(&bed.cluster.blocks(), &name, patch);
    until("the second object of the block to go", || {
        bed.wait(bed.cluster.blocks().get_opt(&name)).unwrap().is_none().then_some(())
    });
}
