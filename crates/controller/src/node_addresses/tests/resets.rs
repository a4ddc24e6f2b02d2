//! Some addresses of a node are replaced, and the others are not; what one policy cannot use, another gets.

use kube::ResourceExt;
use serde_json::json;
use tenure_api::nmstate::NodeIPPool;

use super::rig::{Enactment, Policy, Rig};

async fn nodes(rig: &Rig, names: &[&str]) {
    for name in names {
        rig.node(name, json!({})).await;
    }
}

#[tokio::test]
async fn a_reset_of_one_pool_leaves_the_addresses_of_the_others() {
    let mut rig = Rig::new().await;
    nodes(&rig, &["a", "b"]).await;
    for (pool, third) in [("p", 0), ("q", 1)] {
        rig.pool(pool, json!({"cidr": format!("10.0.{third}.0/24")})).await;
    }
    rig.policy("s", &["p", "q"], json!({})).await;
    rig.settle().await;
    let (p, q) = (rig.held("p").await, rig.held("q").await);
    let before: Enactment = rig.get("a.s").await.unwrap();
    rig.patch::<Enactment>("a.s", json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": "p"}}}))
        .await;
    rig.settle().await;
    let after: Enactment = rig.get("a.s").await.unwrap();
    assert_ne!(before.metadata.uid, after.metadata.uid);
    let now = rig.held("p").await;
    assert_eq!((now["a"].as_str(), &now["b"]), ("10.0.0.3", &p["b"]), "the first one cools");
    assert_eq!(rig.held("q").await, q, "nobody asked for others");
    // The policy as a whole, and the other pool.
    rig.patch::<Policy>("s", json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": "q"}}})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await, now);
    let other = rig.held("q").await;
    assert!(q.values().all(|it| !other.values().any(|other| other == it)), "{other:?}");
    let pool: NodeIPPool = rig.get("p").await.unwrap();
    assert_eq!(pool.status.unwrap().kept, []);
}

#[tokio::test]
async fn what_is_kept_is_freed_when_nobody_follows() {
    let mut rig = Rig::new().await;
    nodes(&rig, &["a"]).await;
    for (pool, third) in [("p", 0), ("q", 1)] {
        rig.pool(pool, json!({"cidr": format!("10.0.{third}.0/24")})).await;
    }
    rig.policy("s", &["p", "q"], json!({})).await;
    rig.settle().await;
    rig.patch::<Enactment>("a.s", json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": "p"}}}))
        .await;
    let kept = async |rig: &Rig| rig.get::<NodeIPPool>("q").await.unwrap().status.unwrap().kept.len();
    for _ in 0..50 {
        if kept(&rig).await > 0 {
            break;
        }
        rig.step().await;
        rig.agents().await;
    }
    assert_eq!(kept(&rig).await, 1);
    rig.delete::<Policy>("s").await;
    rig.settle().await;
    rig.wait(11);
    rig.settle().await;
    assert_eq!((kept(&rig).await, rig.offsets("q").await), (0, vec![]));
}

#[tokio::test]
async fn a_pool_that_is_made_again_without_an_address_changes_nothing_in_other_pools() {
    let mut rig = Rig::new().await;
    nodes(&rig, &["a", "b"]).await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.pool("q", json!({"cidr": "10.0.1.0/24"})).await;
    rig.policy("s", &["p", "q"], json!({})).await;
    rig.settle().await;
    let q = rig.held("q").await;
    rig.delete::<NodeIPPool>("p").await;
    rig.settle().await;
    rig.pool("p", json!({"cidr": "10.0.9.0/24"})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await.into_values().collect::<Vec<_>>(), ["10.0.9.1", "10.0.9.2"]);
    assert_eq!(rig.held("q").await, q);
}

#[tokio::test]
async fn a_reset_of_a_policy_changes_so_many_nodes_at_once() {
    let mut rig = Rig::new().await;
    nodes(&rig, &["a", "b", "c", "d"]).await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.policy("s", &["p"], json!({"maxUnavailable": 1})).await;
    rig.settle().await;
    let before = rig.held("p").await;
    rig.patch::<Policy>("s", json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": "p"}}})).await;
    for _ in 0..400 {
        let planned = !rig.step().await.is_empty();
        let did = rig.agents().await;
        let without: Vec<&String> =
            rig.interfaces.iter().filter(|(_, on)| on.is_empty()).map(|(node, _)| node).collect();
        assert!(without.len() <= 1, "{without:?} have no address");
        if !planned && !did {
            break;
        }
    }
    let after = rig.held("p").await;
    assert_eq!(after.len(), 4);
    assert!(after.iter().all(|(node, address)| before[node] != *address), "{before:?}, then {after:?}");
    let left = rig.enactments().await;
    assert!(left.iter().all(|it| it.annotations().is_empty()));
    assert_eq!(rig.policy_said("s").await.0, "Available");
}

#[tokio::test]
async fn a_policy_that_cannot_be_satisfied_takes_nothing_from_one_that_can() {
    let mut rig = Rig::new().await;
    nodes(&rig, &["a", "b"]).await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24", "start": "10.0.0.1", "end": "10.0.0.2"})).await;
    rig.policy("impossible", &["p", "missing"], json!({})).await;
    rig.settle().await;
    rig.policy("s", &["p"], json!({})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await.len(), 2);
    assert_eq!(
        (rig.said("p").await.0.as_str(), rig.policy_said("s").await.0.as_str()),
        ("ReconciledPool", "Available")
    );
    assert!(rig.policy_said("impossible").await.1.contains("NodeIPPool \"missing\" does not exist"));
    // It becomes possible.
    rig.patch::<NodeIPPool>("p", json!({"spec": {"range": {"end": "10.0.0.9"}}})).await;
    rig.pool("missing", json!({"cidr": "10.0.1.0/24"})).await;
    rig.settle().await;
    assert_eq!((rig.offsets("p").await.len(), rig.offsets("missing").await.len()), (4, 2));
    assert_eq!(rig.policy_said("impossible").await.0, "Available");
}

#[tokio::test]
async fn an_address_that_a_node_is_about_to_get_from_another_pool_is_not_given() {
    let mut rig = Rig::new().await;
    rig.node("a", json!({"role": "t"})).await;
    rig.dead.insert("a".into());
    rig.pool("q", json!({"cidr": "10.0.0.0/24"})).await;
    rig.policy("t", &["q"], json!({"nodeSelector": {"role": "t"}})).await;
    rig.settle().await;
    assert_eq!(rig.held("q").await["a"], "10.0.0.1");
    assert!(rig.interfaces.values().all(std::collections::BTreeSet::is_empty), "it is on no interface yet");
    rig.delete::<NodeIPPool>("q").await;
    rig.settle().await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    rig.node("b", json!({"role": "s"})).await;
    rig.policy("s", &["p"], json!({"nodeSelector": {"role": "s"}})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["b"], "10.0.0.2");
    rig.dead.clear();
    rig.settle().await;
}
