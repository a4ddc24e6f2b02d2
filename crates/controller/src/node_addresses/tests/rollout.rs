//! Nodes come and go, and policies change.

use kube::ResourceExt;
use serde_json::json;
use tenure_api::nmstate::NodeIPPool;

use super::rig::{Enactment, Policy, Rig};

async fn seed(rig: &Rig) {
    for (name, third) in [("traffic-1", 10), ("traffic-2", 11)] {
        let address = |last: u8| format!("10.10.{third}.{last}");
        rig.pool(
            name,
            json!({"cidr": format!("10.10.{third}.0/24"), "start": address(1), "end": address(10), "exclude": [address(4), address(7)]}),
        )
        .await;
    }
    rig.policy("static-ip", &["traffic-1", "traffic-2"], json!({})).await;
}

#[tokio::test]
async fn every_node_gets_the_addresses_of_the_seed() {
    let mut rig = Rig::new().await;
    for node in 1..=6 {
        rig.node(&format!("node0{node}"), json!({})).await;
    }
    seed(&rig).await;
    rig.settle().await;
    assert_eq!(rig.offsets("traffic-1").await, [0, 1, 2, 4, 5, 7], "as in the seed");
    assert_eq!(rig.said("traffic-1").await, ("ReconciledPool".into(), "The pool is up to date".into()));
    assert_eq!(
        rig.policy_said("static-ip").await,
        ("Available".into(), "6/6 nodes successfully configured".into())
    );
    let last: Enactment = rig.get("node06.static-ip").await.unwrap();
    let status = last.status.clone().unwrap();
    assert_eq!(status.ippool["traffic-1"].allocated, ["10.10.10.8"]);
    let captured = &status.captured_states["from-traffic-2"];
    assert_eq!((captured.ip.as_deref(), captured.prefix_length), (Some("10.10.11.8"), Some(24)));
    assert_eq!((last.policy(), last.node()), (Some("static-ip"), Some("node06")));
    let pool: NodeIPPool = rig.get("traffic-1").await.unwrap();
    let usage = pool.status.unwrap().addresses.unwrap();
    assert_eq!((usage.capacity.as_str(), usage.allocated.as_str(), usage.free.as_str()), ("8", "6", "2"));
}

#[tokio::test]
async fn two_hundred_nodes_at_once_take_few_writes_of_the_pool() {
    let mut rig = Rig::new().await;
    for node in 0..200 {
        rig.node(&format!("n{node}"), json!({})).await;
    }
    rig.pool("wide", json!({"cidr": "10.0.0.0/16"})).await;
    rig.policy("all", &["wide"], json!({})).await;
    rig.settle().await;
    assert_eq!(rig.held("wide").await.len(), 200);
    let writes = rig.pool_writes("wide").await;
    assert!(writes <= 5, "{writes} writes of the pool");
}

#[tokio::test]
async fn a_node_that_joins_gets_an_address_and_one_that_is_not_selected_gives_it_back() {
    let mut rig = Rig::new().await;
    rig.node("a", json!({"role": "storage"})).await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.policy("s", &["p"], json!({"nodeSelector": {"role": "storage", "tenure/node-addresses": "true"}}))
        .await;
    rig.settle().await;
    rig.node("b", json!({"role": "storage"})).await;
    rig.settle().await;
    assert_eq!(
        rig.held("p").await,
        [("a".into(), "10.0.0.1".into()), ("b".into(), "10.0.0.2".into())].into()
    );
    // The agent of the node is down: nothing is freed.
    rig.dead.insert("a".into());
    rig.patch::<k8s_openapi::api::core::v1::Node>("a", json!({"metadata": {"labels": {"role": null}}})).await;
    rig.settle().await;
    rig.wait(3_600);
    rig.settle().await;
    assert_eq!(rig.offsets("p").await, [0, 1], "the address is still on the interface");
    rig.dead.clear();
    rig.settle().await;
    assert_eq!(rig.offsets("p").await, [1]);
    assert!(rig.get::<Enactment>("a.s").await.is_none());
    assert!(rig.interfaces["a"].is_empty());
    // It cools: the next node gets another one.
    rig.node("c", json!({"role": "storage"})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["c"], "10.0.0.3");
    rig.wait(60);
    rig.node("d", json!({"role": "storage"})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["d"], "10.0.0.1");
}

#[tokio::test]
async fn a_node_that_is_gone_for_good_is_abandoned_after_a_rest_and_one_that_is_not_ready_never() {
    let mut rig = Rig::new().await;
    rig.node("a", json!({})).await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.policy("s", &["p"], json!({})).await;
    rig.settle().await;
    rig.dead.insert("a".into());
    let api = rig.api::<k8s_openapi::api::core::v1::Node>();
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    api.patch_status("a", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(not_ready))
        .await
        .unwrap();
    rig.settle().await;
    rig.wait(7_200);
    rig.settle().await;
    assert_eq!(rig.offsets("p").await, [0], "a node that is not ready keeps its address");
    rig.delete::<k8s_openapi::api::core::v1::Node>("a").await;
    rig.settle().await;
    rig.wait(60);
    rig.settle().await;
    assert_eq!(rig.offsets("p").await, [0], "one observation is none");
    for _ in 0..4 {
        rig.wait(130);
        rig.settle().await;
    }
    assert_eq!(rig.offsets("p").await, [0_i64; 0]);
    assert!(rig.get::<Enactment>("a.s").await.is_none());
}

#[tokio::test]
async fn a_policy_that_is_deleted_takes_its_addresses_back_and_one_that_is_made_again_gives_others() {
    let mut rig = Rig::new().await;
    rig.node("a", json!({})).await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.policy("s", &["p"], json!({})).await;
    rig.settle().await;
    rig.delete::<Policy>("s").await;
    rig.settle().await;
    assert_eq!((rig.offsets("p").await, rig.enactments().await.len()), (vec![], 0));
    rig.policy("s", &["p"], json!({})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["a"], "10.0.0.2", "the first one cools");
}

#[tokio::test]
async fn only_so_many_nodes_are_changed_at_once() {
    let mut rig = Rig::new().await;
    for node in ["a", "b", "c", "d"] {
        rig.node(node, json!({})).await;
    }
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.policy("s", &["p"], json!({"maxUnavailable": 1})).await;
    // No agent does anything yet.
    for _ in 0..8 {
        rig.step().await;
    }
    let turns = |all: &[Enactment]| {
        all.iter().filter(|it| it.status.as_ref().is_some_and(|it| it.policy_generation.is_some())).count()
    };
    let all = rig.enactments().await;
    assert_eq!((all.len(), turns(&all), rig.held("p").await.len()), (4, 1, 4));
    let waiting = all.iter().find(|it| it.name_any() == "b.s").unwrap().condition("Pending").unwrap().clone();
    assert_eq!(waiting.reason.as_deref(), Some("MaxUnavailableLimitReached"));
    let changing = all.iter().find(|it| it.name_any() == "a.s").unwrap();
    assert!(
        changing.condition("Progressing").unwrap().is_true()
            && !changing.condition("Pending").unwrap().is_true()
    );
    assert_eq!(rig.policy_said("s").await.0, "Progressing");
    rig.settle().await;
    assert_eq!(turns(&rig.enactments().await), 4);
    // The next generation is rolled out in the same way.
    rig.patch::<Policy>("s", json!({"spec": {"desiredState": {"interfaces": []}}})).await;
    for _ in 0..4 {
        rig.step().await;
    }
    let second = |all: &[Enactment]| {
        all.iter().filter(|it| it.status.as_ref().unwrap().policy_generation == Some(2)).count()
    };
    assert_eq!(second(&rig.enactments().await), 1);
    rig.settle().await;
    assert_eq!(second(&rig.enactments().await), 4);
    assert_eq!(rig.policy_said("s").await.0, "Available");
}

#[tokio::test]
async fn a_policy_that_selects_nobody_is_ignored_and_one_without_its_pool_fails() {
    let mut rig = Rig::new().await;
    rig.policy("s", &["p"], json!({})).await;
    rig.settle().await;
    assert_eq!(rig.policy_said("s").await, ("Ignored".into(), "Policy does not match any node".into()));
    rig.node("a", json!({})).await;
    rig.settle().await;
    let (type_, message) = rig.policy_said("s").await;
    assert_eq!(type_, "Degraded");
    assert_eq!(message, "1/1 nodes failed to configure: node \"a\": NodeIPPool \"p\" does not exist");
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.settle().await;
    assert_eq!(rig.policy_said("s").await.0, "Available");
}
