//! Other nodes' blocks, for hosts on a flat network.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tenure_api::coil::AddressBlock;

use super::bed::{Bed, NODE, a_moment, until};
use crate::node::Event;
use crate::objects::remote::NodeAddresses;
use crate::objects::{Objects, ObjectsOptions, RemoteClaim, RemoteRoutes, with_lingering};

fn routes(expected: &[(&str, &[&str])]) -> RemoteRoutes {
    let networks = |list: &[&str]| list.iter().map(|it| it.parse().unwrap()).collect::<BTreeSet<_>>();
    expected.iter().map(|(gateway, list)| (gateway.parse().unwrap(), networks(list))).collect()
}

#[test]
fn a_network_that_leads_nowhere_any_more_lingers_and_one_that_leads_elsewhere_does_not() {
    let before = routes(&[("10.0.0.2", &["10.1.0.1/32", "10.1.0.2/32"]), ("10.0.0.3", &["10.1.0.3/32"])]);
    let next = routes(&[("10.0.0.3", &["10.1.0.2/32", "10.1.0.4/32"])]);
    let both = routes(&[
        ("10.0.0.2", &["10.1.0.1/32"]),
        ("10.0.0.3", &["10.1.0.2/32", "10.1.0.3/32", "10.1.0.4/32"]),
    ]);
    assert_eq!(with_lingering(&next, &before), both);
    assert_eq!(with_lingering(&next, &RemoteRoutes::new()), next);
}

async fn dual(bed: &Bed, index: u8, node: &str) {
    let mut block = super::bed::block("default", index, node);
    block["ipv6"] = json!(format!("fd01::{:x}/126", u32::from(index) * 4));
    bed.create::<AddressBlock>(block).await;
}

#[test]
fn the_first_internal_address_of_each_family_is_the_gateway() {
    let addresses = |list: &[(&str, &str)]| {
        let list: Vec<_> = list.iter().map(|(kind, it)| json!({"type": kind, "address": it})).collect();
        let node: Node =
            serde_json::from_value(json!({"metadata": {}, "status": {"addresses": list}})).unwrap();
        let NodeAddresses { ipv4, ipv6 } = NodeAddresses::of(&node);
        (ipv4.map(|it: IpAddr| it.to_string()), ipv6.map(|it| it.to_string()))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(addresses(&[("InternalIP", "10.0.0.1")]), (some("10.0.0.1"), None));
    assert_eq!(addresses(&[("InternalIP", "fd02::1")]), (None, some("fd02::1")));
    let both =
        [("Hostname", "a"), ("ExternalIP", "1.2.3.4"), ("InternalIP", "fd02::1"), ("InternalIP", "10.0.0.1")];
    assert_eq!(addresses(&both), (some("10.0.0.1"), some("fd02::1")));
    assert_eq!(addresses(&[("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")]).0, some("10.0.0.1"));
    assert_eq!(addresses(&[("InternalIP", "no address")]), (None, None));
}

#[tokio::test(start_paused = true)]
async fn blocks_of_known_other_nodes_are_routed_by_family_and_merged_by_gateway() {
    let bed = Bed::new(61).await;
    bed.node("node-2", &["10.0.0.2", "fd02::2"]).await;
    bed.node("node-3", &["10.0.0.3"]).await;
    dual(&bed, 0, NODE).await;
    dual(&bed, 1, "node-2").await;
    dual(&bed, 2, "node-2").await;
    dual(&bed, 3, "node-3").await;
    dual(&bed, 4, "node-unknown").await;
    let agent = bed.agent_with(ObjectsOptions { remote_blocks: true, ..ObjectsOptions::new(NODE) });
    let mut told = agent.objects.remote_routes();
    let first = told.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    let expected = routes(&[
        ("10.0.0.2", &["10.1.0.4/30", "10.1.0.8/30"]),
        ("10.0.0.3", &["10.1.0.12/30"]),
        ("fd02::2", &["fd01::4/126", "fd01::8/126"]),
    ]);
    assert_eq!(first, expected);
    agent.until("the first lists", |event| *event == Event::ApiRead).await;
    assert_eq!(agent.objects.health().watches.len(), 6);
    // A node becomes known, a block goes.
    bed.node("node-unknown", &["10.0.0.4"]).await;
    bed.merge::<AddressBlock>("default-3", json!({"metadata": {"finalizers": []}})).await;
    bed.delete::<AddressBlock>("default-3").await;
    let expected = routes(&[
        ("10.0.0.2", &["10.1.0.4/30", "10.1.0.8/30"]),
        ("10.0.0.4", &["10.1.0.16/30"]),
        ("fd02::2", &["fd01::4/126", "fd01::8/126"]),
    ]);
    until("the change", async || (told.borrow_and_update().as_ref() == Some(&expected)).then_some(())).await;
    assert!(!told.has_changed().unwrap(), "what is the same is not told again");
    let own: Vec<String> = agent.story().into_iter().filter(|line| line.starts_with("+default-")).collect();
    assert_eq!(own.len(), 1, "the node itself is told of its own blocks only: {own:?}");
}

#[tokio::test(start_paused = true)]
async fn without_being_asked_for_other_nodes_are_not_looked_at() {
    let bed = Bed::new(62).await;
    bed.node("node-2", &["10.0.0.2"]).await;
    dual(&bed, 1, "node-2").await;
    let agent = bed.ready().await;
    a_moment().await;
    assert!(agent.objects.remote_routes().borrow().is_none());
}

/// A block of claims with these records.
async fn floating(bed: &Bed, index: u8, claims: &[&str]) {
    let mut floating = super::bed::block("default", index, "");
    floating["metadata"]["labels"] = json!({"coil.cybozu.com/pool": "default", "tenure/floating": "true"});
    floating["ipv6"] = json!(format!("fd01::{:x}/126", u32::from(index) * 4));
    let record = |uid: &&str| json!({"namespace": "ns", "name": "c", "uid": uid});
    let records = claims.iter().enumerate().map(|(offset, uid)| (offset.to_string(), record(uid)));
    floating["claims"] = records.collect::<serde_json::Map<_, _>>().into();
    bed.create::<AddressBlock>(floating).await;
}

fn seen(objects: &Objects, claim: &str, node: &str, addresses: &[&str]) {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    objects.claim_seen(claim, Some(RemoteClaim { node: node.into(), addresses }));
}

#[tokio::test(start_paused = true)]
async fn claims_are_routed_by_their_records_to_the_node_of_the_pod_that_has_them_and_blocks_without_a_node_are_not()
 {
    let bed = Bed::new(63).await;
    bed.node("node-2", &["10.0.0.2", "fd02::2"]).await;
    bed.node("node-3", &["10.0.0.3"]).await;
    dual(&bed, 1, "node-2").await;
    floating(&bed, 8, &["a", "b", "c"]).await;
    let options = ObjectsOptions { remote_blocks: true, remote_claims: true, ..ObjectsOptions::new(NODE) };
    let agent = bed.agent_with(options);
    let mut told = agent.objects.remote_routes();
    a_moment().await;
    assert!(told.borrow_and_update().is_none(), "what an agent before routed stays until claims are known");
    seen(&agent.objects, "a", "node-2", &["10.1.0.32", "fd01::20"]);
    seen(&agent.objects, "b", NODE, &["10.1.0.33"]);
    seen(&agent.objects, "c", "node-3", &["10.1.0.34", "fd01::22"]);
    agent.objects.claim_seen("d", None);
    // Addresses that a status makes up: of a node's block, of another claim, and of nobody.
    seen(&agent.objects, "forged", "node-3", &["10.1.0.5", "10.1.0.32", "10.1.0.35", "192.0.2.1"]);
    agent.objects.claims_listed();
    let mut until_told = async |expected: &[(&str, &[&str])]| {
        let expected = routes(expected);
        until("routes", async || (told.borrow_and_update().as_ref() == Some(&expected)).then_some(())).await;
    };
    until_told(&[
        ("10.0.0.2", &["10.1.0.4/30", "10.1.0.32/32"]),
        ("10.0.0.3", &["10.1.0.34/32"]),
        ("fd02::2", &["fd01::4/126", "fd01::20/128"]),
    ])
    .await;
    // One claim moves away, one comes, one is no longer used.
    seen(&agent.objects, "b", "node-3", &["10.1.0.33"]);
    seen(&agent.objects, "a", NODE, &["10.1.0.32", "fd01::20"]);
    agent.objects.claim_seen("c", None);
    until_told(&[
        ("10.0.0.2", &["10.1.0.4/30"]),
        ("10.0.0.3", &["10.1.0.33/32"]),
        ("fd02::2", &["fd01::4/126"]),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_object_is_gone_is_routed_until_its_addresses_are_free_or_somebody_elses() {
    let bed = Bed::new(64).await;
    floating(&bed, 7, &["a"]).await;
    floating(&bed, 8, &["b", "c", "d"]).await;
    bed.node("node-2", &["10.0.0.2"]).await;
    bed.node("node-3", &["10.0.0.3"]).await;
    let agent = bed.agent_with(ObjectsOptions {
        remote_blocks: true,
        remote_claims: true,
        ..ObjectsOptions::new(NODE)
    });
    let mut told = agent.objects.remote_routes();
    let mut until_told = async |expected: &[(&str, &[&str])]| {
        let expected = routes(expected);
        until("routes", async || (told.borrow_and_update().as_ref() == Some(&expected)).then_some(())).await;
    };
    seen(&agent.objects, "a", "node-2", &["10.1.0.28"]);
    seen(&agent.objects, "b", "node-2", &["10.1.0.32"]);
    agent.objects.claims_listed();
    until_told(&[("10.0.0.2", &["10.1.0.28/32", "10.1.0.32/32"])]).await;
    // Their pods still run.
    agent.objects.claim_gone("a");
    agent.objects.claim_gone("b");
    seen(&agent.objects, "c", "node-3", &["10.1.0.33"]);
    until_told(&[("10.0.0.2", &["10.1.0.28/32", "10.1.0.32/32"]), ("10.0.0.3", &["10.1.0.33/32"])]).await;
    // One claim's block is gone, and the other's address belongs to another claim.
    bed.merge::<AddressBlock>("default-7", json!({"metadata": {"finalizers": []}})).await;
    bed.delete::<AddressBlock>("default-7").await;
    seen(&agent.objects, "other", "node-3", &["10.1.0.32"]);
    bed.merge::<AddressBlock>("default-8", json!({"claims": {"0": {"uid": "other"}}})).await;
    until_told(&[("10.0.0.3", &["10.1.0.32/32", "10.1.0.33/32"])]).await;
    // Nobody else has these addresses, but the pods ended: one cools, the other is free.
    seen(&agent.objects, "c", "node-2", &["10.1.0.33"]);
    seen(&agent.objects, "d", "node-2", &["10.1.0.34"]);
    agent.objects.claim_gone("c");
    agent.objects.claim_gone("d");
    let both: (&str, &[&str]) = ("10.0.0.3", &["10.1.0.32/32"]);
    until_told(&[("10.0.0.2", &["10.1.0.33/32", "10.1.0.34/32"]), both]).await;
    let patch = json!({"claims": {"1": {"freed": "2026-01-01T00:00:00.000000Z"}}});
    bed.merge::<AddressBlock>("default-8", patch).await;
    until_told(&[("10.0.0.2", &["10.1.0.34/32"]), both]).await;
    bed.merge::<AddressBlock>("default-8", json!({"claims": {"2": null}})).await;
    until_told(&[both]).await;
}
