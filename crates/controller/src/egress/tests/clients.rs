//! Clients: those of missing nodes are removed after two looks, and Egresses of one client with a common destination
//! report it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::coil::{Egress, EgressClients};
use tenure_api::release::mark_of;

use super::rig::Rig;

async fn clients(rig: &Rig, egress: &Egress, node: &str, uids: &[&str]) -> EgressClients {
    let uids: Vec<String> = uids.iter().map(|uid| (*uid).to_owned()).collect();
    let object = Rig::clients_object(egress, node, &uids);
    rig.api::<EgressClients>().create(&PostParams::default(), &object).await.unwrap()
}

async fn conflict(rig: &Rig, name: &str) -> (String, String) {
    let status = rig.get::<Egress>(name).await.unwrap().status.unwrap();
    let condition = status.condition("Conflicting").unwrap();
    (condition.status.clone(), condition.message.clone())
}

#[tokio::test]
async fn two_egresses_of_one_client_with_the_same_destination_are_told_and_others_are_not() {
    let mut rig = Rig::new().await;
    let a = rig.egress("a", json!({"destinations": ["0.0.0.0/0", "10.1.0.0/16"]})).await;
    let b = rig.egress("b", json!({"destinations": ["9.9.9.9/32", "10.1.2.3/16"]})).await;
    let c = rig.egress("c", json!({"destinations": ["9.9.9.9/32"]})).await;
    rig.make_cluster::<Node>(json!({"metadata": {"name": "n1"}})).await;
    clients(&rig, &a, "n1", &["pod1", "pod2"]).await;
    clients(&rig, &b, "n1", &["pod2"]).await;
    clients(&rig, &c, "n1", &["pod3"]).await;
    rig.settle().await;
    let words = "pods use this Egress and others with the same destination: 10.1.0.0/16 of Egress \"internet/a\", which goes through \
                 \"internet/a\"; remove the destination from one, or one from the pods";
    assert_eq!(conflict(&rig, "b").await, ("True".to_owned(), words.to_owned()));
    assert_eq!(conflict(&rig, "a").await.0, "True");
    assert_eq!(conflict(&rig, "c").await.0, "False", "nobody uses both");
    assert_eq!(rig.told(), ["SameDestination", "SameDestination"]);
    rig.patch::<Egress>("a", json!({"spec": {"destinations": ["0.0.0.0/0"]}})).await;
    rig.settle().await;
    assert_eq!((conflict(&rig, "a").await.0, conflict(&rig, "b").await.0), ("False".into(), "False".into()));
}

#[tokio::test]
async fn clients_of_a_missing_node_go_after_two_looks_and_a_node_that_comes_back_keeps_them() {
    let mut rig = Rig::new().await;
    let egress = rig.egress("internet", json!({})).await;
    rig.make_cluster::<Node>(json!({"metadata": {"name": "n1"}})).await;
    let object = clients(&rig, &egress, "n1", &["pod1"]).await;
    let name = object.name_any();
    rig.settle().await;
    assert_eq!(mark_of(&rig.get::<EgressClients>(&name).await.unwrap()), None);
    let nodes: Api<Node> = Api::all(rig.client.clone());
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    rig.settle().await;
    assert!(
        mark_of(&rig.get::<EgressClients>(&name).await.unwrap()).is_some(),
        "the first look is written down"
    );
    rig.make_cluster::<Node>(json!({"metadata": {"name": "n1"}})).await;
    rig.settle().await;
    assert_eq!(mark_of(&rig.get::<EgressClients>(&name).await.unwrap()), None, "it is back");
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    rig.settle().await;
    rig.now = rig.now.plus(Duration::from_mins(1));
    rig.settle().await;
    assert!(rig.get::<EgressClients>(&name).await.is_some(), "the rest is not over");
    rig.now = rig.now.plus(Duration::from_secs(61));
    rig.settle().await;
    assert!(rig.get::<EgressClients>(&name).await.is_none());
    assert_eq!(rig.told(), ["ClientsReleased"]);
}

#[tokio::test]
async fn clients_stay_while_a_pod_is_bound_to_their_missing_node() {
    let mut rig = Rig::new().await;
    let egress = rig.egress("internet", json!({})).await;
    let object = clients(&rig, &egress, "n1", &["pod1"]).await;
    let pod = json!({
        "metadata": {"name": "pod1"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "a"}]},
        "status": {"phase": "Running"},
    });
    rig.make::<Pod>(pod).await;
    for _ in 0..4 {
        rig.step().await;
        rig.now = rig.now.plus(Duration::from_secs(200));
    }
    let live = rig.get::<EgressClients>(&object.name_any()).await.unwrap();
    assert_eq!(mark_of(&live), None);
}
