//! A local API in memory and raw requests to it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tenure_handles::SeededEntropy;
use tenure_localapi::{LocalApi, Options, ResponseBody};
use tenure_testbed::clock::RuntimeClock;
use tower::ServiceExt;

pub(crate) struct Host {
    pub(crate) api: LocalApi,
}

pub(crate) type Events = Pin<Box<dyn Stream<Item = Value> + Send>>;

impl Host {
    pub(crate) fn new() -> Self {
        Self { api: LocalApi::temporary(RuntimeClock, SeededEntropy::new(1)) }
    }

    pub(crate) fn with_history(events: usize) -> Self {
        Self { api: Options::default().history(events).temporary(RuntimeClock, SeededEntropy::new(1)) }
    }

    pub(crate) async fn raw(&self, request: Request<Full<Bytes>>) -> http::Response<ResponseBody> {
        self.api.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn send(&self, method: &str, path: &str, media: &str, body: &[u8]) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let response = self.raw(request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        (code, value)
    }

    async fn json(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        self.send(method, path, "application/json", &body).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.json("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.json("POST", path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.json("PUT", path, Some(body)).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("PATCH", path, "application/merge-patch+json", body.to_string().as_bytes()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> (u16, Value) {
        self.json("DELETE", path, None).await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> (u16, Value) {
        self.json("DELETE", path, Some(options)).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        let response = self.raw(Request::get(path).body(Full::default()).unwrap()).await;
        assert_eq!(response.status(), 200);
        let lines = response.into_body().into_data_stream().map(Result::unwrap);
        Box::pin(lines.map(|line| serde_json::from_slice(&line).unwrap()))
    }

    pub(crate) async fn eventually(&self, condition: impl AsyncFn() -> bool) {
        for _ in 0..500 {
            if condition().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it did not happen within five seconds");
    }
}

/// Type and object name of the next event.
pub(crate) async fn event(events: &mut Events) -> (String, String) {
    let line = tokio::time::timeout(Duration::from_secs(5), events.next()).await.unwrap().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&line["type"]), text(&line["object"]["metadata"]["name"]))
}

/// A definition with a schema, a status and a scale.
pub(crate) fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": {
                                "size": {"type": "integer", "minimum": 0},
                                "colour": {"type": "string", "default": "red"},
                            },
                        },
                        "status": {
                            "type": "object",
                            "properties": {"ready": {"type": "boolean"}, "size": {"type": "integer"}},
                        },
                    },
                }},
            }],
        },
    })
}

/// A widget of that definition.
pub(crate) fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}
