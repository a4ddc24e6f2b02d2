//! Whatever is asked, the answer is an object or a `Status`, and nothing breaks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests and their helpers may")]

mod harness;

use bytes::Bytes;
use harness::{Host, crd, widget};
use http::Request;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use serde_json::{Value, json};

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "api", "apis", "v1", "namespaces", "default", "configmaps", "pods", "nodes", "a", "b", "status", "scale",
            "apps", "deployments", "example.com", "widgets", "events", "events.k8s.io", "coordination.k8s.io",
            "leases", "apiextensions.k8s.io", "customresourcedefinitions", "widgets.example.com", "finalize",
            "version", "openapi", "v2", "v3", "healthz", "secrets", "services", "kube-system", "policy",
            "poddisruptionbudgets",
        ])
        .prop_map(str::to_owned),
        1 => "[a-z.%/0-9A-F-]{0,8}",
    ]
}

fn path() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a/status",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/a",
        "/api/v1/nodes",
        "/apis/apps/v1/namespaces/default/deployments/a/scale",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
        "/apis/example.com/v1/namespaces/default/widgets",
        "/apis/example.com/v1/namespaces/default/widgets/a",
        "/apis/example.com/v1/namespaces/default/widgets/a/status",
        "/apis/example.com/v1/namespaces/default/widgets/a/scale",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ])
    .prop_map(str::to_owned);
    prop_oneof![2 => known, 1 => prop::collection::vec(word(), 0..8).prop_map(|words| format!("/{}", words.join("/")))]
}

fn parameter() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "timeoutSeconds",
        "dryRun",
        "fieldValidation",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "propagationPolicy",
        "gracePeriodSeconds",
        "orphanDependents",
        "includeObject",
        "fieldManager",
        "pretty",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "0",
            "1",
            "2",
            "true",
            "false",
            "All",
            "Strict",
            "Exact",
            "NotOlderThan",
            "Background",
            "Foreground",
            "Orphan",
            "a%3Db",
            "metadata.name%3Da",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
        ])
        .prop_map(str::to_owned),
        "[a-z0-9=,!()%. -]{0,10}".prop_map(|text| text.replace(' ', "+")),
    ];
    (key, value).prop_map(|(key, value)| format!("{key}={value}"))
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9./ -]{0,12}".prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        4 => prop::sample::select(vec![
            "apiVersion", "kind", "metadata", "spec", "status", "data", "name", "namespace", "labels", "annotations",
            "finalizers", "ownerReferences", "uid", "resourceVersion", "generateName", "size", "colour", "replicas",
            "selector", "template", "containers", "ports", "matchLabels", "preconditions", "deletionTimestamp",
            "generation", "versions", "names", "group", "schema", "openAPIV3Schema", "properties", "type", "op",
            "path", "value", "$patch", "creationTimestamp", "stringData", "regarding", "holderIdentity", "renewTime",
        ])
        .prop_map(str::to_owned),
        1 => "[a-z$]{0,6}",
    ];
    leaf().prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Good objects with one thing wrong find more than noise does.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let good = prop::sample::select(vec![
        json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
        json!({"metadata": {"generateName": "a"}}),
        widget("a", &json!({"size": 1})),
        crd(),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
               "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
        json!({"spec": {"replicas": 3}, "status": {"ready": true}}),
        json!({"kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": {"uid": "x"}}),
    ]);
    let spoiled = (good.clone(), "[a-z]{0,3}", tree()).prop_map(|(mut value, at, noise)| {
        let pointers =
            ["/metadata", "/spec", "/metadata/name", "/spec/versions", "/spec/versions/0/schema", "/status"];
        let pointer = pointers[at.len() * 7 % pointers.len()];
        if let Some(place) = value.pointer_mut(pointer) {
            *place = noise;
        }
        value.to_string().into_bytes()
    });
    prop_oneof![
        2 => good.prop_map(|value| value.to_string().into_bytes()),
        4 => spoiled,
        3 => tree().prop_map(|value| value.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

#[derive(Clone, Debug)]
struct Asked {
    method: String,
    uri: String,
    media: String,
    accept: String,
    body: Vec<u8>,
}

fn asked() -> impl Strategy<Value = Asked> {
    let method =
        prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
    let media = prop::sample::select(vec![
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "text/plain",
        "",
    ]);
    let accept = prop::sample::select(vec![
        "application/json",
        "*/*",
        "",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/yaml",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    ]);
    let query = prop::collection::vec(parameter(), 0..3).prop_map(|parameters| parameters.join("&"));
    (method, path(), query, media, accept, body()).prop_map(|(method, path, query, media, accept, body)| {
        Asked {
            method: method.to_owned(),
            uri: if query.is_empty() { path } else { format!("{path}?{query}") },
            media: media.to_owned(),
            accept: accept.to_owned(),
            body,
        }
    })
}

fn check(asked: &Asked, code: u16, media: &str, bytes: &[u8]) {
    if asked.method == "HEAD" {
        return;
    }
    if media.starts_with("text/plain") {
        assert!(code == 404 || bytes == b"ok", "{asked:?}: {code} {}", String::from_utf8_lossy(bytes));
        return;
    }
    let value: Value =
        serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{asked:?}: {code}: {error}"));
    if code >= 400 {
        assert_eq!(value["kind"], "Status", "{asked:?}: {value}");
        assert_eq!(value["status"], "Failure");
        assert_eq!(value["code"], code);
        assert!(!value["message"].as_str().unwrap().is_empty());
    } else {
        assert!(value.is_object(), "{asked:?}: {value}");
    }
    assert_ne!(code, 503);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered_with_an_object_or_a_status(all in prop::collection::vec(asked(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let host = Host::new();
            host.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd()).await;
            for asked in &all {
                let request = Request::builder()
                    .method(asked.method.as_str())
                    .uri(asked.uri.as_str())
                    .header("content-type", asked.media.as_str())
                    .header("accept", asked.accept.as_str())
                    .body(Full::new(Bytes::from(asked.body.clone())));
                // Some made-up paths are no URIs.
                let Ok(request) = request else { continue };
                let response = host.raw(request).await;
                let code = response.status().as_u16();
                let media = response.headers()["content-type"].to_str().unwrap().to_owned();
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                check(asked, code, &media, &bytes);
            }
        });
    }
}
