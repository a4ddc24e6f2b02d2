//! Changes of pools, and their status.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_api::coil::AddressPool;
use tenure_api::nmstate::NodeIPPool;

use super::rig::{Enactment, Policy, Rig};

async fn two_nodes() -> Rig {
    let mut rig = Rig::new().await;
    rig.node("a", json!({})).await;
    rig.node("b", json!({})).await;
    rig.pool("p", json!({"cidr": "10.0.0.0/24", "start": "10.0.0.1", "end": "10.0.0.2"})).await;
    rig.policy("s", &["p"], json!({})).await;
    rig.settle().await;
    rig
}

#[tokio::test]
async fn an_exhausted_pool_says_for_whom_and_recovers_when_it_grows() {
    let mut rig = two_nodes().await;
    rig.node("c", json!({})).await;
    rig.settle().await;
    let (reason, message) = rig.said("p").await;
    assert_eq!(reason, "ExhaustedIPPool");
    assert!(
        message.starts_with("The IP pool has being depleted, manual intervention needed to modify NodeIPPool. NodeIPPool \"p\" has no free address for node \"c\" (policy \"s\")"),
        "{message}"
    );
    let (type_, said) = rig.policy_said("s").await;
    assert_eq!(type_, "Degraded");
    assert!(said.contains("node \"c\": NodeIPPool \"p\" gives no address (ExhaustedIPPool)"), "{said}");
    rig.patch::<NodeIPPool>("p", json!({"spec": {"range": {"end": "10.0.0.9"}}})).await;
    rig.settle().await;
    assert_eq!(rig.said("p").await.0, "ReconciledPool");
    assert_eq!(rig.policy_said("s").await.0, "Available");
    assert_eq!(rig.offsets("p").await, [0, 1, 2]);
}

#[tokio::test]
async fn an_exhausted_pool_recovers_when_a_node_gives_an_address_back() {
    let mut rig = two_nodes().await;
    rig.node("c", json!({})).await;
    rig.settle().await;
    rig.delete::<Node>("a").await;
    rig.dead.insert("a".into());
    rig.interfaces.remove("a");
    for _ in 0..4 {
        rig.wait(130);
        rig.settle().await;
    }
    // Cooling is cut short rather than let a node wait.
    assert_eq!(rig.held("p").await["c"], "10.0.0.1");
    assert_eq!(rig.said("p").await.0, "ReconciledPool");
}

#[tokio::test]
async fn a_record_that_was_emptied_or_lost_is_rebuilt_from_the_enactments() {
    let mut rig = two_nodes().await;
    let before = rig.held("p").await;
    let api = rig.api::<NodeIPPool>();
    let empty = Patch::Merge(json!({"status": {"allocated-offsets": []}}));
    api.patch_status("p", &PatchParams::default(), &empty).await.unwrap();
    rig.settle().await;
    assert_eq!((rig.offsets("p").await, rig.held("p").await), (vec![0, 1], before.clone()));
    // A larger pool of the same name: everybody keeps what still fits.
    rig.delete::<NodeIPPool>("p").await;
    rig.settle().await;
    rig.pool("p", json!({"cidr": "10.0.0.0/23", "start": "10.0.0.2"})).await;
    rig.settle().await;
    let after = rig.held("p").await;
    assert_eq!(after["b"], "10.0.0.2");
    assert_eq!(after["a"], "10.0.0.3", "its old address is not in the pool any more");
    assert_eq!(rig.offsets("p").await, [0, 1]);
}

#[tokio::test]
async fn what_nobody_holds_is_freed_at_the_second_observation() {
    let mut rig = two_nodes().await;
    rig.patch::<NodeIPPool>("p", json!({"spec": {"range": {"end": "10.0.0.9"}}})).await;
    let api = rig.api::<NodeIPPool>();
    let more = Patch::Merge(json!({"status": {"allocated-offsets": [0, 1, 7]}}));
    api.patch_status("p", &PatchParams::default(), &more).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.offsets("p").await, [0, 1, 7]);
    rig.wait(11);
    rig.settle().await;
    assert_eq!(rig.offsets("p").await, [0, 1]);
}

#[tokio::test]
async fn a_reset_of_a_pool_drops_what_is_stale_and_keeps_what_is_held() {
    let mut rig = two_nodes().await;
    let before = rig.held("p").await;
    let api = rig.api::<NodeIPPool>();
    let more = Patch::Merge(json!({"status": {"allocated-offsets": [0]}}));
    api.patch_status("p", &PatchParams::default(), &more).await.unwrap();
    rig.patch::<NodeIPPool>("p", json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": ""}}})).await;
    rig.step().await;
    assert_eq!(rig.said("p").await, ("ReconcilingPool".into(), "The pool is being updated".into()));
    rig.settle().await;
    assert_eq!((rig.offsets("p").await, rig.held("p").await), (vec![0, 1], before));
    let pool: NodeIPPool = rig.get("p").await.unwrap();
    assert!(pool.annotations().is_empty());
    assert_eq!(rig.said("p").await.0, "ReconciledPool");
}

#[tokio::test]
async fn a_reset_of_an_enactment_or_a_policy_gives_other_addresses() {
    let mut rig = two_nodes().await;
    rig.patch::<NodeIPPool>("p", json!({"spec": {"range": {"end": "10.0.0.99"}}})).await;
    let reset = json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": "p"}}});
    rig.patch::<Enactment>("a.s", reset.clone()).await;
    rig.settle().await;
    let held = rig.held("p").await;
    assert_eq!((held["a"].as_str(), held["b"].as_str()), ("10.0.0.3", "10.0.0.2"));
    rig.patch::<Policy>("s", reset).await;
    rig.settle().await;
    let held = rig.held("p").await;
    assert_eq!(held.len(), 2);
    assert!(!held.values().any(|it| ["10.0.0.1", "10.0.0.2", "10.0.0.3"].contains(&it.as_str())), "{held:?}");
    let policy: Policy = rig.get("s").await.unwrap();
    assert!(policy.annotations().is_empty());
}

#[tokio::test]
async fn of_two_pools_that_overlap_the_younger_gives_nothing() {
    let mut rig = two_nodes().await;
    // The embedded server's clock has a resolution of a second; names and UIDs decide within one.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    rig.pool("q", json!({"cidr": "10.0.0.0/24", "start": "10.0.0.2"})).await;
    rig.policy("t", &["q"], json!({})).await;
    rig.settle().await;
    let (reason, message) = rig.said("q").await;
    assert_eq!(reason, "OverlappingIPPool");
    assert!(message.starts_with("The NodeIPPool p is overlapping with this one."), "{message}");
    assert_eq!((rig.held("q").await.len(), rig.said("p").await.0.as_str()), (0, "ReconciledPool"));
    assert_eq!(rig.policy_said("t").await.0, "Degraded");
    rig.delete::<Policy>("s").await;
    rig.settle().await;
    rig.delete::<NodeIPPool>("p").await;
    rig.settle().await;
    assert_eq!((rig.held("q").await.len(), rig.said("q").await.0.as_str()), (2, "ReconciledPool"));
    rig.make::<AddressPool>(json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool", "metadata": {"name": "pods"},
        "spec": {"subnets": [{"ipv4": "10.0.0.0/24"}]},
    }))
    .await;
    rig.settle().await;
    assert!(rig.said("q").await.1.starts_with("The AddressPool pods is overlapping with this one."));
}

#[tokio::test]
async fn an_address_that_another_node_reports_is_not_given_and_collides_if_it_was() {
    let mut rig = two_nodes().await;
    rig.patch::<NodeIPPool>("p", json!({"spec": {"range": {"end": "10.0.0.9"}}})).await;
    let nodes = rig.api::<Node>();
    let reports = |address: &str| {
        Patch::Merge(json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}}))
    };
    nodes.patch_status("a", &PatchParams::default(), &reports("10.0.0.3")).await.unwrap();
    rig.node("c", json!({})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["c"], "10.0.0.4", "a has the one before");
    nodes.patch_status("a", &PatchParams::default(), &reports("10.0.0.2")).await.unwrap();
    rig.settle().await;
    assert_eq!(
        rig.said("p").await,
        (
            "IPCollision".into(),
            "The IP address 10.0.0.2 at node b and interface eth1 is colliding with node a".into()
        )
    );
    nodes.patch_status("a", &PatchParams::default(), &reports("10.0.0.1")).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.said("p").await.0, "ReconciledPool", "its own address is no collision");
}

#[tokio::test]
async fn an_excluded_address_stays_with_the_node_that_has_it_is_named_and_goes_to_nobody_else() {
    let mut rig = two_nodes().await;
    let grown =
        json!({"end": "10.0.0.9", "exclude": ["10.0.0.2-10.0.0.3", "10.0.0.1", "10.0.0.8", "10.0.0.9"]});
    rig.patch::<NodeIPPool>("p", json!({"spec": {"range": grown}})).await;
    rig.settle().await;
    let held = rig.held("p").await;
    assert_eq!((held["a"].as_str(), held["b"].as_str()), ("10.0.0.1", "10.0.0.2"), "nobody loses anything");
    assert_eq!(rig.said("p").await.0, "ReconciledPool");
    let said = async |rig: &Rig| {
        let status = rig.get::<NodeIPPool>("p").await.unwrap().status.unwrap();
        status.condition("ExclusionsInEffect").cloned()
    };
    let condition = said(&rig).await.unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "ExcludedAddressHeld"));
    assert_eq!(
        condition.message,
        "spec.range.exclude of NodeIPPool \"p\" lists addresses that nodes have: 10.0.0.1 on node \"a\" (interface eth1), 10.0.0.2 on \
         node \"b\" (interface eth1). They stay until they are freed, and no other node gets them. To free one, annotate its \
         NodeNetworkConfigurationEnactment with nmstate.io/reset-ippool: p."
    );
    // The recommended steps reclaim the address, and the exclusion takes effect.
    let reset = json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": "p"}}});
    rig.patch::<Enactment>("b.s", reset.clone()).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["b"], "10.0.0.4");
    assert!(!said(&rig).await.unwrap().message.contains("node \"b\""));
    rig.patch::<Enactment>("a.s", reset).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["a"], "10.0.0.5");
    assert_eq!(said(&rig).await, None);
    // Neither is assigned when it has cooled.
    rig.wait(60);
    rig.node("c", json!({})).await;
    rig.settle().await;
    assert_eq!(rig.held("p").await["c"], "10.0.0.6");
}

#[tokio::test]
async fn a_range_of_whereabouts_with_the_same_addresses_is_said_and_what_its_pods_have_goes_to_no_node() {
    use tenure_api::whereabouts::{IPPool, NodeSlicePool, label};

    let mut rig = two_nodes().await;
    rig.patch::<NodeIPPool>("p", json!({"spec": {"range": {"end": "10.0.0.6"}}})).await;
    let ledger = |name: &str, network: Option<&str>, offsets: &[&str]| -> IPPool {
        let allocations: serde_json::Map<String, serde_json::Value> = offsets
            .iter()
            .map(|offset| ((*offset).to_owned(), json!({"id": "c1", "podref": "a/b", "ifname": "net1"})))
            .collect();
        let labels = network.map_or(json!({}), |network| json!({label::NETWORK: network}));
        serde_json::from_value(json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
            "metadata": {"name": name, "labels": labels, "resourceVersion": "1", "uid": name},
            "spec": {"range": "10.0.0.0/24", "allocations": allocations},
        }))
        .unwrap()
    };
    // Networks with a name are separate from all others.
    rig.leaders[0].world.apply_ledger(ledger("storage-10.0.0.0-24", Some("storage"), &["3"]));
    rig.settle().await;
    assert_eq!(rig.said("p").await.0, "ReconciledPool");
    rig.leaders[0].world.apply_ledger(ledger("10.0.0.0-24", None, &["3", "5"]));
    rig.node("c", json!({})).await;
    rig.settle().await;
    let (reason, message) = rig.said("p").await;
    assert_eq!(reason, "OverlappingIPPool");
    assert!(
        message.starts_with("The IPPool 10.0.0.0-24 of Whereabouts is overlapping with this one."),
        "{message}"
    );
    assert_eq!(rig.held("p").await["c"], "10.0.0.4", "pods have 3 and 5");
    assert_eq!(rig.policy_said("s").await.0, "Available", "the pool goes on");
    rig.node("d", json!({})).await;
    rig.node("e", json!({})).await;
    rig.settle().await;
    assert_eq!(rig.said("p").await.0, "ExhaustedIPPool");
    // A pod returns its address: the node gets it.
    let free = ledger("10.0.0.0-24", None, &["3"]);
    let free: IPPool = IPPool {
        metadata: kube::api::ObjectMeta { resource_version: Some("2".into()), ..free.metadata },
        ..free
    };
    rig.leaders[0].world.apply_ledger(free);
    rig.settle().await;
    let held = rig.held("p").await;
    assert_eq!((held["d"].as_str(), held["e"].as_str()), ("10.0.0.6", "10.0.0.5"));
    assert_eq!(rig.said("p").await.0, "OverlappingIPPool");
    let slices: NodeSlicePool = serde_json::from_value(json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
        "metadata": {"name": "sliced", "resourceVersion": "1", "uid": "sliced"},
        "spec": {"range": "10.0.0.0/16", "sliceSize": "/24"},
    }))
    .unwrap();
    rig.leaders[0].world.ledgers_mut().slices.apply(slices);
    rig.settle().await;
    assert!(rig.said("p").await.1.starts_with("The NodeSlicePool sliced of Whereabouts"));
}
