//! The recordings that the embedded server's parts are tested with, replayed: a real kube-apiserver still gives
//! these answers, and so does the embedded one as a whole. Needs etcd and kube-apiserver.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};

const ANSWERS: &str = include_str!("../../crates/localapi/fixtures/answers.json");
const METADATA: &str = include_str!("../../crates/localapi/fixtures/metadata.json");
const PATCHES: &str = include_str!("../../crates/localapi/fixtures/patches.json");

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

mod on_kube_apiserver {
    use super::{ControlPlane, ControlPlaneOptions, Result};

    #[tokio::test]
    async fn every_recorded_answer_is_given_again() -> Result<()> {
        let plane = ControlPlane::start(ControlPlaneOptions::default().without_controller_manager()).await?;
        super::every_recorded_answer_is_given_again(&plane.client()?).await
    }
}

mod on_the_embedded_server {
    use super::{LocalApi, Result, SeededEntropy, SystemClock};

    #[tokio::test]
    async fn every_recorded_answer_is_given_again() -> Result<()> {
        let server = LocalApi::temporary(SystemClock, SeededEntropy::new(1));
        super::every_recorded_answer_is_given_again(&server.client()).await
    }
}

async fn every_recorded_answer_is_given_again(client: &Client) -> Result<()> {
    let server = Server { client };
    let mut different = Vec::new();
    server.replay_answers(&mut different).await.context("replaying answers.json")?;
    server.replay_metadata(&mut different).await.context("replaying metadata.json")?;
    server.replay_patches(&mut different).await.context("replaying patches.json")?;
    ensure!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
    Ok(())
}

struct Server<'a> {
    client: &'a Client,
}

impl Server<'_> {
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        self.call_with(method, path, body, "application/json").await
    }

    async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> Result<(u16, Value)> {
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(Body::from(bytes))?;
        let response = self.client.send(request).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// Serves `things` of a group of their own under a schema.
    async fn define(&self, group: &str, schema: &Value) -> Result<()> {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {"group": group, "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        });
        let (code, answer) = self.call(Method::POST, CRDS, Some(&definition)).await?;
        ensure!(code == 201, "defining things.{group}: {answer}");
        for _ in 0..200 {
            let (code, _) = self.call(Method::GET, &format!("/apis/{group}/v1/things"), None).await?;
            if code == 200 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("things.{group} are not served after 10 s")
    }

    async fn redefine(&self, group: &str, schema: &Value) -> Result<()> {
        let path = format!("{CRDS}/things.{group}");
        let (_, mut definition) = self.call(Method::GET, &path, None).await?;
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone();
        let (code, answer) = self.call(Method::PUT, &path, Some(&definition)).await?;
        ensure!(code == 200, "changing things.{group}: {answer}");
        // A real server takes the new schema a moment after it has acknowledged it.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        Ok(())
    }

    async fn replay_answers(&self, different: &mut Vec<String>) -> Result<()> {
        let cases: Vec<Value> = serde_json::from_str(ANSWERS)?;
        for (number, case) in cases.iter().enumerate() {
            let group = format!("case{number}.answers.test");
            let things = format!("/apis/{group}/v1/things");
            let before = case.get("before");
            self.define(&group, before.unwrap_or(&case["schema"])).await?;
            let steps = case["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut versions = Vec::new();
            for (index, step) in steps.iter().enumerate() {
                let Some(old) = step.get("old") else {
                    versions.push(None);
                    continue;
                };
                let (code, answer) =
                    self.call(Method::POST, &things, Some(&thing(&group, index, old, None))).await?;
                ensure!(code == 201, "{} step {index}: {answer}", case["name"]);
                versions.push(Some(answer["metadata"]["resourceVersion"].clone()));
            }
            if before.is_some() {
                self.redefine(&group, &case["schema"]).await?;
            }
            for (index, (step, version)) in steps.iter().zip(&versions).enumerate() {
                let object = thing(&group, index, &step["object"], version.as_ref());
                let (code, answer) = if version.is_some() {
                    let path = format!("{things}/o{}", index + 1);
                    self.call(Method::PUT, &path, Some(&object)).await?
                } else {
                    self.call(Method::POST, &things, Some(&object)).await?
                };
                let given = match step.get("stored") {
                    Some(_) => without_meta(&answer),
                    None => causes(&answer),
                };
                let expected = step.get("stored").cloned().unwrap_or_else(|| sorted(&step["causes"]));
                let what = format!("{} step {index} {}", case["name"], step["object"]);
                note(different, &what, (&step["code"], &expected), (&json!(code), &given));
            }
        }
        Ok(())
    }

    async fn replay_metadata(&self, different: &mut Vec<String>) -> Result<()> {
        let group = "metadata.answers.test";
        self.define(group, &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).await?;
        let cases: Vec<Value> = serde_json::from_str(METADATA)?;
        for case in &cases {
            let object =
                json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": case["metadata"]});
            let path = format!("/apis/{group}/v1/things?dryRun=All");
            let (code, answer) = self.call(Method::POST, &path, Some(&object)).await?;
            // A name that the server made up differs each time.
            let made_up = case["metadata"].get("name").is_none();
            let keep = |list: Value| -> Value {
                let items = list.as_array().cloned().unwrap_or_default();
                items.into_iter().filter(|cause| !made_up || cause["field"] != "metadata.name").collect()
            };
            let (given, expected) = if code == 422 {
                (keep(causes(&answer)), keep(sorted(&case["causes"])))
            } else {
                (Value::Null, Value::Null)
            };
            note(
                different,
                &case["metadata"].to_string(),
                (&case["code"], &expected),
                (&json!(code), &given),
            );
        }
        Ok(())
    }

    async fn replay_patches(&self, different: &mut Vec<String>) -> Result<()> {
        let group = "patches.answers.test";
        self.define(group, &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).await?;
        let cases: Vec<Value> = serde_json::from_str(PATCHES)?;
        for (index, case) in cases.iter().enumerate() {
            let path = format!("/apis/{group}/v1/things");
            let content_type = if case["type"] == "merge" {
                "application/merge-patch+json"
            } else {
                "application/json-patch+json"
            };
            let object = thing(group, index, &case["target"], None);
            let (code, answer) = self.call(Method::POST, &path, Some(&object)).await?;
            ensure!(code == 201, "patch {index}: {answer}");
            let path = format!("{path}/o{}", index + 1);
            let (code, answer) =
                self.call_with(Method::PATCH, &path, Some(&case["patch"]), content_type).await?;
            let (given, expected) = if code == 200 {
                (without_meta(&answer), case["result"].clone())
            } else {
                (Value::Null, Value::Null)
            };
            note(different, &case["patch"].to_string(), (&case["code"], &expected), (&json!(code), &given));
        }
        Ok(())
    }
}

fn note(different: &mut Vec<String>, what: &str, recorded: (&Value, &Value), given: (&Value, &Value)) {
    if recorded != given {
        let (code, answer) = recorded;
        let (given_code, given_answer) = given;
        different.push(format!("{what}\n  recorded {code} {answer}\n  given    {given_code} {given_answer}"));
    }
}

/// The object of a step: its content, with a type, a name, and the version that it replaces.
fn thing(group: &str, index: usize, content: &Value, version: Option<&Value>) -> Value {
    let mut object = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": format!("o{}", index + 1)},
    });
    if let Some(version) = version {
        object["metadata"]["resourceVersion"] = version.clone();
    }
    for (key, value) in content.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn without_meta(object: &Value) -> Value {
    let mut fields: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    for key in ["apiVersion", "kind", "metadata"] {
        fields.remove(key);
    }
    Value::Object(fields)
}

fn causes(answer: &Value) -> Value {
    let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    let causes: Vec<Value> = causes
        .iter()
        .map(|cause| {
            let text = |name: &str| cause[name].as_str().unwrap_or_default();
            json!({"reason": text("reason"), "field": text("field"), "message": text("message")})
        })
        .collect();
    sorted(&Value::Array(causes))
}

/// Without the words in which the two servers differ: an evaluator's about a rule that it could not evaluate, and the
/// order of fields in an owner reference.
fn plain(mut cause: Value) -> Value {
    let message = cause["message"].as_str().unwrap_or_default();
    if let Some((_, rule)) = message.split_once(" evaluating rule: ") {
        cause["message"] = json!(format!("not evaluated: {rule}"));
    } else if cause["field"] == "metadata.ownerReferences" {
        cause["message"] = json!("");
    }
    cause
}

fn sorted(causes: &Value) -> Value {
    let causes = causes.as_array().cloned().unwrap_or_default();
    let mut causes: Vec<Value> = causes.into_iter().map(plain).collect();
    causes.sort_by_key(|cause| (cause["field"].to_string(), cause["message"].to_string()));
    Value::Array(causes)
}
