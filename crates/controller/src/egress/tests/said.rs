//! The status of an Egress, and its events.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_api::coil::egress::EgressStatus;
use tenure_api::coil::{AddressPool, Egress};

use super::rig::{NAMESPACE, Rig};

async fn status(rig: &Rig, name: &str) -> EgressStatus {
    rig.get::<Egress>(name).await.unwrap().status.unwrap()
}

fn condition(status: &EgressStatus, type_: &str) -> (String, String, String) {
    let condition = status.condition(type_).unwrap_or_else(|| panic!("no {type_}"));
    (condition.status.clone(), condition.reason.clone(), condition.message.clone())
}

fn told(text: &str, status: &str, reason: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), text.to_owned())
}

#[tokio::test]
async fn the_status_counts_gateways_names_their_addresses_and_selects_them() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"replicas": 2})).await;
    rig.settle().await;
    let before = status(&rig, "internet").await;
    assert_eq!(before.replicas, 0);
    assert_eq!(
        before.selector,
        "app.kubernetes.io/component=egress,app.kubernetes.io/instance=internet,app.kubernetes.io/name=coil"
    );
    let words = "0 of 2 gateways serve: the others are not ready; their pods say why";
    assert_eq!(condition(&before, "Ready"), told(words, "False", "GatewaysMissing"));
    rig.serve("internet", json!({"availableReplicas": 2, "replicas": 2})).await;
    rig.pod("a", "internet", "Running", &["10.2.0.9", "fd00::9"]).await;
    rig.pod("b", "internet", "Running", &["10.2.0.10"]).await;
    rig.pod("c", "internet", "Pending", &["10.2.0.11"]).await;
    rig.pod("d", "other", "Running", &["10.2.0.12"]).await;
    rig.settle().await;
    let after = status(&rig, "internet").await;
    assert_eq!(
        (after.replicas, condition(&after, "Ready")),
        (2, told("2 of 2 gateways serve", "True", "Serving"))
    );
    assert_eq!(after.addresses, ["10.2.0.9", "10.2.0.10", "fd00::9"]);
    rig.delete::<k8s_openapi::api::core::v1::Pod>("a").await;
    rig.serve(
        "internet",
        json!({"availableReplicas": 1, "conditions": [{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota",
        }]}),
    )
    .await;
    rig.settle().await;
    let after = status(&rig, "internet").await;
    assert_eq!(after.addresses, ["10.2.0.10"]);
    assert_eq!(
        condition(&after, "Ready"),
        told("1 of 2 gateways serve: exceeded quota", "False", "PodsRefused")
    );
    assert_eq!(rig.told(), ["PodsRefused"]);
}

#[tokio::test]
async fn a_template_that_the_server_refuses_is_said_with_its_words_until_it_is_corrected() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"template": {"spec": {"tolerations": "all"}}})).await;
    for _ in 0..6 {
        rig.step().await;
    }
    let refused = condition(&status(&rig, "internet").await, "Ready");
    assert_eq!((refused.0.as_str(), refused.1.as_str()), ("False", "TemplateRefused"));
    assert!(
        refused.2.starts_with("0 of 1 gateways serve: the API server refuses what they need: "),
        "{}",
        refused.2
    );
    assert_eq!(rig.told(), ["TemplateRefused"]);
    rig.patch::<Egress>("internet", json!({"spec": {"template": {"spec": {"tolerations": null}}}})).await;
    rig.settle().await;
    assert_eq!(condition(&status(&rig, "internet").await, "Ready").1, "GatewaysMissing");
    assert!(rig.get::<Deployment>("internet").await.is_some());
}

#[tokio::test]
async fn an_object_of_others_that_has_the_name_stays_and_the_egress_says_so_until_it_is_gone() {
    let mut rig = Rig::new().await;
    let theirs = json!({
        "metadata": {"name": "internet"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
        },
    });
    let theirs = rig.make::<Deployment>(theirs).await;
    rig.egress("internet", json!({})).await;
    for _ in 0..5 {
        rig.step().await;
    }
    let words = "0 of 1 gateways serve: Deployment \"internet\" of this namespace is not this Egress's: delete or rename it";
    assert_eq!(condition(&status(&rig, "internet").await, "Ready"), told(words, "False", "NameTaken"));
    assert_eq!(rig.told(), ["NameTaken"]);
    assert_eq!(rig.get::<Deployment>("internet").await.unwrap(), theirs);
    rig.delete::<Deployment>("internet").await;
    rig.settle().await;
    assert_eq!(condition(&status(&rig, "internet").await, "Ready").1, "GatewaysMissing");
}

#[tokio::test]
async fn a_namespace_whose_pool_is_missing_is_said_and_told() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({})).await;
    rig.settle().await;
    assert_eq!(
        condition(&status(&rig, "internet").await, "PoolMissing").0,
        "False",
        "another plugin gives addresses"
    );
    let pool = |name: &str| {
        json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool", "metadata": {"name": name},
            "spec": {"subnets": [{"ipv4": "10.2.0.0/16"}]},
        })
    };
    rig.make_cluster::<AddressPool>(pool("blue")).await;
    rig.settle().await;
    let missing = condition(&status(&rig, "internet").await, "PoolMissing");
    assert_eq!((missing.0.as_str(), missing.1.as_str()), ("True", "PoolNotFound"));
    assert!(missing.2.contains("AddressPool \"default\", which does not exist"), "{}", missing.2);
    assert_eq!(condition(&status(&rig, "internet").await, "Ready").1, "PoolNotFound");
    let namespaces: Api<Namespace> = Api::all(rig.client.clone());
    for (pool, missing) in [("blue", "False"), ("global", "True")] {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"coil.cybozu.com/pool": pool}}}));
        namespaces.patch(NAMESPACE, &PatchParams::default(), &patch).await.unwrap();
        rig.settle().await;
        assert_eq!(condition(&status(&rig, "internet").await, "PoolMissing").0, missing, "{pool}");
    }
    rig.make_cluster::<AddressPool>(pool("global")).await;
    rig.settle().await;
    assert_eq!(condition(&status(&rig, "internet").await, "PoolMissing").1, "PoolFound");
    assert_eq!(rig.told(), ["PoolNotFound", "PoolNotFound"]);
}
