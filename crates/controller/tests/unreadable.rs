//! Objects that others write and that do not have the shape of their kind: they cost their author, and nobody else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use bed::ranges::*;
use bed::*;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tenure_controller_testbed as bed;

/// A kind of others whose definition accepts anything.
async fn define(client: &Client, group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": anything},
            }],
        },
    });
    let crd = serde_json::from_value(crd).unwrap();
    Api::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>::all(
        client.clone(),
    )
    .create(&PostParams::default(), &crd)
    .await
    .unwrap();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

async fn write(client: &Client, of: &ApiResource, name: &str, fields: Value) {
    let mut object = DynamicObject::new(name, of);
    object.data = fields;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "apps", of);
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_read_costs_its_author_and_nobody_else() {
    let client = server(71).await.client();
    let apps: Namespace = serde_json::from_value(json!({"metadata": {"name": "apps"}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &apps).await.unwrap();
    let kind = "NetworkAttachmentDefinition";
    let of = define(&client, "k8s.cni.cncf.io", "v1", kind, "network-attachment-definitions").await;
    node(&client, "node1").await;
    write(&client, &of, "bare", json!({})).await;
    write(&client, &of, "wrong", json!({"spec": {"config": {"type": "macvlan"}}})).await;
    write(&client, &of, "worse", json!({"spec": "all of it", "status": 7})).await;
    attach(&client, "apps", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"})).await;
    let controller = start(client.clone(), "a");
    slices(&client, "net", &["node1"]).await;
    let event = told(&client, "apps", "Unreadable", "wrong").await;
    let words = event.message.unwrap();
    assert!(words.contains("spec.config: invalid type: map, expected a string"), "{words}");
    assert_eq!(event.involved_object.kind.as_deref(), Some(kind));
    told(&client, "apps", "Unreadable", "worse").await;
    let count = format!("tenure_controller_undecodable_objects{{kind=\"{kind}\"}}");
    until("both to be counted", async || {
        controller.metrics.text().unwrap().contains(&format!("{count} 2")).then_some(())
    })
    .await;
    // Another one while it watches, and one that is corrected.
    write(&client, &of, "late", json!({"spec": [1, {"config": 3}]})).await;
    attach(&client, "apps", "net2", &json!({"range": "10.1.0.0/24", "node_slice_size": "/26"})).await;
    slices(&client, "net2", &["node1"]).await;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "apps", &of);
    let config = json!({"cniVersion": "1.0.0", "name": "wrong", "type": "macvlan",
        "ipam": {"type": "whereabouts", "range": "10.2.0.0/24", "node_slice_size": "/26"}});
    let patch = Patch::Merge(json!({"spec": {"config": config.to_string()}}));
    api.patch("wrong", &PatchParams::default(), &patch).await.unwrap();
    slices(&client, "wrong", &["node1"]).await;
    until("the corrected one not to be counted", async || {
        let text = controller.metrics.text().unwrap();
        (text.contains(&format!("{count} 1")) || text.contains(&format!("{count} 2"))).then_some(())
    })
    .await;
    detach(&client, "apps", "net").await;
    until("a pool that nobody asks for to go", async || {
        slice_pools(&client).get_opt("net").await.unwrap().is_none().then_some(())
    })
    .await;
    let ready = controller.pages.answer(&http::Method::GET, "/readyz", None).await;
    assert!(ready.status().is_success());
    controller.stop().await;
    let typed = attachments(&client, "apps").list(&ListParams::default()).await;
    assert!(typed.is_err(), "one of them makes the typed list of all fail");
}
