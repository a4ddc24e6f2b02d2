//! Egress gateways by a whole controller on the embedded API server: made, kept over a restart, found late, and left alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use bed::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{Egress, EgressClients};
use tenure_controller::Settings;
use tenure_controller_testbed as bed;
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;

const NAMESPACE: &str = "internet";

fn with_egress(identity: &str) -> Settings {
    Settings { egress_image: Some("tenure:test".to_owned()), ..settings(identity) }
}

fn egresses(client: &Client) -> Api<Egress> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn namespace(client: &Client) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

async fn egress(client: &Client, name: &str, spec: Value) -> Egress {
    let object = json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "Egress", "metadata": {"name": name}, "spec": spec,
    });
    let object = serde_json::from_value(object).unwrap();
    egresses(client).create(&PostParams::default(), &object).await.unwrap()
}

/// Waits for the Deployment of an Egress.
async fn deployment(client: &Client, name: &str) -> Deployment {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    until(&format!("the Deployment {name}"), async || deployments.get_opt(name).await.unwrap()).await
}

async fn ready(client: &Client, name: &str, reason: &str) -> i32 {
    until(&format!("{name} to be {reason}"), async || {
        let status = egresses(client).get(name).await.unwrap().status?;
        (status.condition("Ready")?.reason == reason).then_some(status.replicas)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn gateways_are_made_counted_scaled_kept_over_a_restart_and_collected() {
    let api = server(91).await;
    let client = api.client();
    namespace(&client).await;
    node(&client, "node1").await;
    let controller = start_with(client.clone(), with_egress("a"));
    let spec =
        json!({"destinations": ["0.0.0.0/0"], "replicas": 2, "podDisruptionBudget": {"maxUnavailable": 1}});
    let made = egress(&client, "internet", spec).await;
    deployment(&client, "internet").await;
    ready(&client, "internet", "GatewaysMissing").await;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let serve = async |count: i32| {
        let patch = Patch::Merge(json!({"status": {"availableReplicas": count}}));
        deployments.patch_status("internet", &PatchParams::default(), &patch).await.unwrap();
    };
    serve(2).await;
    assert_eq!(ready(&client, "internet", "Serving").await, 2);

    // Clients are counted, and the scale subresource is what people scale by.
    let client_of = json!([{"namespace": "default", "pod": "a", "uid": "u1", "addresses": ["10.0.0.1"]}]);
    let clients = EgressClients::of(&made, "node1", serde_json::from_value(client_of).unwrap()).unwrap();
    let all_clients: Api<EgressClients> = Api::namespaced(client.clone(), NAMESPACE);
    all_clients.create(&PostParams::default(), &clients).await.unwrap();
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    egresses(&client).patch_scale("internet", &PatchParams::default(), &scale).await.unwrap();
    until("three replicas", async || {
        let spec = deployments.get("internet").await.unwrap().spec.unwrap();
        (spec.replicas == Some(3)).then_some(())
    })
    .await;
    let counted = [
        r#"tenure_egress_clients{namespace="internet",egress="internet"} 1"#,
        r#"tenure_egress_gateways{namespace="internet",egress="internet",state="wanted"} 3"#,
        "tenure_controller_overlooked_writes 0",
    ];
    until("metrics", async || {
        let text = controller.metrics.text().unwrap();
        counted.iter().all(|line| text.contains(line)).then_some(())
    })
    .await;

    // Another leader finds everything as it should be, and writes nothing.
    ready(&client, "internet", "GatewaysMissing").await;
    controller.stop().await;
    let before =
        (deployments.get("internet").await.unwrap(), egresses(&client).get("internet").await.unwrap());
    let controller = start_with(client.clone(), with_egress("b"));
    // What it does for another Egress shows that it has looked at this one.
    egress(&client, "other", json!({"destinations": ["9.9.9.9/32"]})).await;
    ready(&client, "other", "GatewaysMissing").await;
    let after =
        (deployments.get("internet").await.unwrap(), egresses(&client).get("internet").await.unwrap());
    assert_eq!(before, after);

    egresses(&client).delete("internet", &DeleteParams::default()).await.unwrap();
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    until("everything to be gone", async || {
        let all = ListParams::default();
        let of_it = |names: Vec<String>| names.iter().all(|name| !name.contains("internet"));
        let names = [
            deployments.list(&all).await.unwrap().iter().map(ResourceExt::name_any).collect(),
            services.list(&all).await.unwrap().iter().map(ResourceExt::name_any).collect(),
            budgets.list(&all).await.unwrap().iter().map(ResourceExt::name_any).collect(),
            all_clients.list(&all).await.unwrap().iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        ];
        names.into_iter().all(of_it).then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_image_egresses_are_left_alone_and_kinds_that_come_late_are_served() {
    // The kinds of egress come later than the controller.
    let api = LocalApi::temporary(SystemClock, SeededEntropy::new(92));
    let client = api.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let late = |crd: &CustomResourceDefinition| crd.spec.names.kind.starts_with("Egress");
    let (late, soon): (Vec<_>, Vec<_>) = tenure_api::crds().into_iter().partition(late);
    for crd in soon {
        definitions.create(&PostParams::default(), &crd).await.unwrap();
    }
    namespace(&client).await;
    let controller = start_with(client.clone(), with_egress("a"));
    pool(&client, "default", 5, "10.2.0.0/16").await;
    node(&client, "node1").await;
    ask(&client, "r", "node1", "default").await;
    answer(&client, "r").await.unwrap();
    for crd in late {
        definitions.create(&PostParams::default(), &crd).await.unwrap();
    }
    let odd = json!({"destinations": ["0.0.0.0/0"], "template": {"spec": {"tolerations": "all of them"}}});
    egress(&client, "odd", odd).await;
    egress(&client, "internet", json!({"destinations": ["0.0.0.0/0"]})).await;
    deployment(&client, "internet").await;
    ready(&client, "odd", "TemplateRefused").await;
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let told = async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter().find(|it| it.reason.as_deref() == Some("TemplateRefused"))
    };
    let event = until("an event", told).await;
    assert_eq!(event.involved_object.name.as_deref(), Some("odd"));
    controller.stop().await;

    // IPAM alone.
    let controller = start(client.clone(), "b");
    egress(&client, "alone", json!({"destinations": ["0.0.0.0/0"]})).await;
    ask(&client, "s", "node1", "default").await;
    answer(&client, "s").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(deployments.get_opt("alone").await.unwrap().is_none());
    assert!(egresses(&client).get("alone").await.unwrap().status.is_none());
    controller.stop().await;
}
