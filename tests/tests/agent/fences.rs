//! Nothing is handed out of a block that is not this node's any more.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use tenure_tests::agent::{Cluster, Machine};

#[test]
fn a_block_whose_object_is_gone_is_never_handed_out_of_again_and_no_longer_exported() {
    let cluster = Cluster::shared();
    // One block, so that the other node can only get the same networks.
    cluster.tenant("fence", 4, json!([{"ipv4": "10.88.0.0/28"}]));
    let mut machine = Machine::running(&cluster);
    let before = machine.pod_in("fence", "before");
    let kept = machine.add(&before);
    let lost = machine.blocks();
    assert_eq!(lost.len(), 1);
    let subnet = cluster.blocks_of(&machine.name)[0].spec.ipv4.clone().unwrap();
    // While it exists, the request would be answered with another block.
    machine.until("the request to go", || cluster.requests_of(&machine.name).is_empty().then_some(()));
    cluster.destroy_block(&lost[0]);
    machine.until("the route to go", || machine.table(119).is_empty().then_some(()));
    // The controller may carve the same networks again, for another one; so this node must not have them either.
    let other = Machine::running(&cluster);
    let theirs = other.add(&other.pod_in("fence", "theirs"));
    assert_eq!(other.networks(), std::slice::from_ref(&subnet));
    let grown = json!({"spec": {"subnets": [{"ipv4": subnet}, {"ipv4": "10.88.1.0/24"}]}});
    let (pools, params) = (cluster.pools(), PatchParams::default());
    cluster.runtime.block_on(pools.patch("fence", &params, &Patch::Merge(grown))).unwrap();
    let after = machine.add(&machine.pod_in("fence", "after"));
    assert!(!machine.networks().contains(&subnet));
    assert!(after != kept && after != theirs, "{after:?}");
    // Who held an address of it keeps it until his end, and people are told.
    machine.assert_reached(&before, &kept);
    machine.until("words about it", || machine.log().contains(&lost[0]).then_some(()));
    // Also after a restart.
    machine.kill();
    machine.start();
    let again = machine.add(&machine.pod_in("fence", "again"));
    assert!(![&kept, &theirs, &after].contains(&&again), "{again:?}");
    assert_eq!(machine.add(&before), kept);
    machine.del(&before);
}

#[test]
fn a_block_that_names_another_node_or_has_another_uid_is_never_handed_out_of_again() {
    let cluster = Cluster::shared();
    cluster.tenant("moved", 4, json!([{"ipv4": "10.89.0.0/24"}]));
    let machine = Machine::running(&cluster);
    let first = machine.add(&machine.pod_in("moved", "first"));
    // Another node has it from now on.
    let block = cluster.blocks_of(&machine.name).remove(0);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"coil.cybozu.com/node": "somebody-else"}}}));
    let (blocks, name, params) = (cluster.blocks(), block.name_any(), PatchParams::default());
    cluster.runtime.block_on(blocks.patch(&name, &params, &patch)).unwrap();
    machine.until("the route to go", || machine.table(119).is_empty().then_some(()));
    let second = machine.add(&machine.pod_in("moved", "second"));
    let network = |addresses: &[std::net::IpAddr]| {
        addresses[0].to_string().rsplit_once('.').unwrap().1.parse::<u8>().unwrap() / 16
    };
    assert_ne!(network(&first), network(&second));
    // The block is made anew under the same name; by us, for nobody requests one.
    machine.until("the requests to go", || cluster.requests_of(&machine.name).is_empty().then_some(()));
    let mut block = cluster.blocks_of(&machine.name).remove(0);
    let gone = block.uid().unwrap();
    cluster.destroy_block(&block.name_any());
    (block.metadata.uid, block.metadata.resource_version) = (None, None);
    let made = cluster.runtime.block_on(cluster.blocks().create(&PostParams::default(), &block)).unwrap();
    assert_ne!(made.uid().unwrap(), gone);
    machine.until("words about it", || machine.log().contains(&gone).then_some(()));
    let third = machine.add(&machine.pod_in("moved", "third"));
    assert_ne!(second, third, "two pods have one address");
}
