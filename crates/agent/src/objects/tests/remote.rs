//! Other nodes' blocks, for hosts on a flat network.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tenure_api::coil::AddressBlock;

use super::bed::{Bed, NODE, a_moment, until};
use crate::objects::remote::NodeAddresses;
use crate::objects::{Options, RemoteRoutes};

fn routes(expected: &[(&str, &[&str])]) -> RemoteRoutes {
    let networks = |list: &[&str]| list.iter().map(|it| it.parse().unwrap()).collect::<BTreeSet<_>>();
    expected.iter().map(|(gateway, list)| (gateway.parse().unwrap(), networks(list))).collect()
}

async fn dual(bed: &Bed, index: u8, node: &str) {
    let mut block = super::bed::block("default", index, node);
    block["ipv6"] = json!(format!("fd01::{:x}/126", u32::from(index) * 4));
    bed.create::<AddressBlock>(block).await;
}

#[test]
fn i7_the_first_internal_address_of_each_family_is_the_gateway() {
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

#[tokio::test]
async fn p8_blocks_of_known_other_nodes_are_routed_by_family_and_merged_by_gateway() {
    let bed = Bed::new(61).await;
    bed.node("node-2", &["10.0.0.2", "fd02::2"]).await;
    bed.node("node-3", &["10.0.0.3"]).await;
    dual(&bed, 0, NODE).await;
    dual(&bed, 1, "node-2").await;
    dual(&bed, 2, "node-2").await;
    dual(&bed, 3, "node-3").await;
    dual(&bed, 4, "node-unknown").await;
    let agent = bed.agent_with(Options { remote_blocks: true, ..Options::new(NODE) });
    let mut told = agent.objects.remote_routes();
    let first = told.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    let expected = routes(&[
        ("10.0.0.2", &["10.1.0.4/30", "10.1.0.8/30"]),
        ("10.0.0.3", &["10.1.0.12/30"]),
        ("fd02::2", &["fd01::4/126", "fd01::8/126"]),
    ]);
    assert_eq!(first, expected);
    assert_eq!(agent.objects.health().watches.len(), 7);
    // A node that becomes known, a block that goes.
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

#[tokio::test]
async fn without_being_asked_for_other_nodes_are_not_looked_at() {
    let bed = Bed::new(62).await;
    bed.node("node-2", &["10.0.0.2"]).await;
    dual(&bed, 1, "node-2").await;
    let agent = bed.ready().await;
    a_moment().await;
    assert!(agent.objects.remote_routes().borrow().is_none());
}
