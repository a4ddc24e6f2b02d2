//! Random walks: random requests, the same on both servers for the same seed.
//!
//! A walk uses three names in its own namespace, so that requests affect each other: stale versions, recreated objects, pending
//! deletions. Bodies come from small sets that include invalid ones. A concurrent watch shows that events are equal, too.

use kube::Client;
use serde_json::{Value, json};
use tenure_handles::{Entropy, SeededEntropy};

use super::objects::{lease, leases, widget};
use super::recorder::{Call, Recorder};
use super::{Outcome, Scenario, SuiteError, Transcript, normalise, with_causes};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Created at the end of every walk: its event is the watch's last.
const LAST: &str = "zz-last";

/// Sends `steps` random requests from `seed` to the server behind `client`, in a namespace for this `attempt`.
pub async fn walk(client: &Client, seed: u64, steps: usize, attempt: usize) -> Transcript {
    let mut recorder = Recorder::named(client.clone(), format!("walk-{seed}-{attempt}"));
    let outcome = wander(&mut recorder, seed, steps).await;
    let scenario = Scenario { area: "walk", name: "walk", run: |_| Box::pin(async { Ok(()) }) };
    let mut transcript = normalise::transcript(scenario, recorder.into_steps());
    transcript.scenario = format!("seed {seed}");
    transcript.stopped = outcome.err().map(|error| with_causes(&error));
    transcript
}

async fn wander(r: &mut Recorder, seed: u64, steps: usize) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let plain = leases(&r.own_name());
    let mut walker = Walker { chance: SeededEntropy::new(seed), group, seen: Vec::new() };
    let (start, start_plain) = (r.get(&custom).await?.version()?, r.get(&plain).await?.version()?);
    let mut watch = r.watch(&format!("{custom}?resourceVersion={start}")).await?;
    let mut selected =
        r.watch(&format!("{plain}?labelSelector=side%3Dleft&resourceVersion={start_plain}")).await?;
    for _ in 0..steps {
        let collection = if walker.one_in(4) { &plain } else { &custom };
        let call = walker.call(collection);
        let answer = r.send(call).await?;
        walker.remember(answer.body);
    }
    r.get(&custom).await?;
    r.get(&plain).await?;
    r.prepare(&custom, &widget(&walker.group, LAST, &json!({}))).await?;
    let mut last = lease(LAST, "h");
    last["metadata"]["labels"] = json!({"side": "left"});
    r.prepare(&plain, &last).await?;
    for (what, watch) in [("custom", &mut watch), ("selected", &mut selected)] {
        let mut events: Vec<Value> = Vec::new();
        while events.last().is_none_or(|event| event["object"]["metadata"]["name"] != LAST) {
            let Some(event) = watch.next().await? else {
                let last = events.last().map_or_else(String::new, Value::to_string);
                return Err(SuiteError::Patience {
                    what: format!("the last event of the {what} watch"),
                    waited: std::time::Duration::ZERO,
                    last,
                });
            };
            events.push(event);
        }
        r.note(&format!("events of the {what} watch"), json!(events));
    }
    Ok(())
}

struct Walker {
    chance: SeededEntropy,
    group: String,
    /// Every object that was ever answered, newest last: the source of stale versions and old UIDs.
    seen: Vec<Value>,
}

impl Walker {
    fn remember(&mut self, mut object: Value) {
        if object["metadata"]["name"].is_string() && object["metadata"]["uid"].is_string() {
            // Only the real server keeps managed fields: sent back, they would be a change there.
            super::document::take(&mut object, "/metadata/managedFields");
            self.seen.push(object);
        }
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.chance.next_u64() % bound.max(1) as u64).unwrap_or(0)
    }

    fn one_in(&self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// The next request.
    fn call(&self, collection: &str) -> Call {
        let is_lease = collection.ends_with("/leases");
        let name = *self.pick(&NAMES);
        let one = format!("{collection}/{name}");
        match self.below(20) {
            0..=4 => Call::new("POST", &self.with_query(collection)).json(&self.fresh(is_lease, name)),
            5..=7 => Call::new("PUT", &self.with_query(&one)).json(&self.replacement(is_lease, name)),
            8..=11 => Self::merge(&self.with_query(&one), &self.patch(is_lease)),
            12 if !is_lease => Self::merge(&format!("{one}/status"), &self.status_patch()),
            13 if !is_lease => Call::new("PUT", &format!("{one}/status")).json(&self.status(name)),
            14 if !is_lease => {
                Self::merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 20 + self.below(90)}}))
            }
            15 => Call::new("PATCH", &one)
                .json(&self.operations(is_lease))
                .header("content-type", "application/json-patch+json"),
            16..=17 => Call::new("DELETE", &one).json(&self.deletion()),
            18 => Call::new("GET", &format!("{collection}?{}", self.pick(&LISTS))),
            _ => Call::new("GET", &one),
        }
    }

    fn merge(path: &str, patch: &Value) -> Call {
        Call::new("PATCH", path).json(patch).header("content-type", "application/merge-patch+json")
    }

    fn with_query(&self, path: &str) -> String {
        match self.below(12) {
            0 => format!("{path}?dryRun=All"),
            1 => format!("{path}?fieldValidation=Strict"),
            2 => format!("{path}?fieldValidation=Ignore"),
            _ => path.to_owned(),
        }
    }

    fn spec(&self, is_lease: bool) -> Value {
        if is_lease {
            return self
                .pick(&[
                    json!({"holderIdentity": "one"}),
                    json!({"holderIdentity": "two", "leaseDurationSeconds": 5}),
                    json!({"leaseDurationSeconds": -1}),
                    json!({"renewTime": "2021-06-01T10:00:00.000000Z", "unknown": 1}),
                    json!({"leaseTransitions": 3}),
                    json!({}),
                ])
                .clone();
        }
        self.pick(&[
            json!({}),
            json!({"size": 7, "color": "red"}),
            json!({"size": 0}),
            json!({"size": null, "color": "green", "unknown": {"deep": true}}),
            json!({"tags": ["x", "y"], "limits": {"cpu": 2}}),
            json!({"tags": ["1", "2", "3", "4"], "note": "Bad"}),
            json!({"parts": [{"name": "p"}, {"count": 4}]}),
            json!({"parts": [{"name": "q", "odd": 1}], "free": {"any": [1, null]}}),
            json!({"note": "fine", "free": {}}),
        ])
        .clone()
    }

    fn metadata(&self, name: &str) -> Value {
        let mut metadata = json!({"name": name});
        if self.one_in(3) {
            metadata["labels"] = self
                .pick(&[json!({"side": "left"}), json!({"side": "right", "x": ""}), json!({"bad key": "x"})])
                .clone();
        }
        if self.one_in(4) {
            metadata["finalizers"] = self
                .pick(&[
                    json!(["tenure.test/x"]),
                    json!(["tenure.test/x", "tenure.test/y"]),
                    json!(["plain"]),
                ])
                .clone();
        }
        if self.one_in(8) {
            metadata["annotations"] = json!({"note": "text", "tenure.test/empty": ""});
        }
        if self.one_in(10) {
            metadata["resourceVersion"] = self.some_version();
        }
        metadata
    }

    fn fresh(&self, is_lease: bool, name: &str) -> Value {
        let mut object = if is_lease { lease(name, "h") } else { widget(&self.group, name, &json!({})) };
        object["metadata"] = self.metadata(name);
        object["spec"] = self.spec(is_lease);
        if self.one_in(6) {
            object["status"] = json!({"ready": 1});
        }
        object
    }

    /// An earlier state of an object, somewhat changed.
    fn replacement(&self, is_lease: bool, name: &str) -> Value {
        let kind = if is_lease { "Lease" } else { "Widget" };
        let past: Vec<&Value> = self
            .seen
            .iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .collect();
        if past.is_empty() || self.one_in(8) {
            return self.fresh(is_lease, name);
        }
        // Mostly the newest, so that some replacements succeed.
        let at = if self.one_in(4) { self.below(past.len()) } else { past.len() - 1 };
        let mut object = past[at].clone();
        match self.below(6) {
            0 => object["spec"] = self.spec(is_lease),
            1 => object["metadata"]["labels"] = json!({"side": "left"}),
            2 => object["metadata"]["finalizers"] = json!([]),
            3 => object["status"] = json!({"ready": self.below(9), "phase": "Up"}),
            4 => object["metadata"]["resourceVersion"] = self.some_version(),
            _ => {}
        }
        object
    }

    /// An earlier state of an object with another status. Nothing else is changed: the real server records ignored fields of a
    /// status write as an update of its own.
    fn status(&self, name: &str) -> Value {
        let mut past = self
            .seen
            .iter()
            .rev()
            .filter(|object| object["kind"] == "Widget" && object["metadata"]["name"] == name);
        let mut object =
            past.nth(self.below(2)).cloned().unwrap_or_else(|| widget(&self.group, name, &json!({})));
        object["status"] = json!({"ready": self.below(9), "phase": "Up"});
        object
    }

    fn patch(&self, is_lease: bool) -> Value {
        match self.below(9) {
            0 => json!({"metadata": {"labels": {"side": "left"}}}),
            1 => json!({"metadata": {"labels": {"side": null, "x": "y"}}}),
            2 => json!({"metadata": {"finalizers": null}}),
            3 => json!({"metadata": {"finalizers": ["tenure.test/y"]}}),
            4 => json!({"metadata": {"resourceVersion": self.some_version()}, "spec": self.spec(is_lease)}),
            5 => json!({"metadata": {"annotations": {"n": "1"}}, "status": {"ready": 3}}),
            _ => json!({"spec": self.spec(is_lease)}),
        }
    }

    fn status_patch(&self) -> Value {
        let ready = json!({"status": {"ready": self.below(5)}});
        self.pick(&[
            ready,
            json!({"status": {"phase": "Up", "unknown": 1}}),
            json!({"status": {"ready": "many"}}),
            json!({"status": null}),
        ])
        .clone()
    }

    fn operations(&self, is_lease: bool) -> Value {
        let field = if is_lease { "/spec/holderIdentity" } else { "/spec/color" };
        self.pick(&[
            json!([{"op": "test", "path": "/metadata/resourceVersion", "value": self.some_version()}, {"op": "add", "path": "/metadata/labels", "value": {"side": "right"}}]),
            json!([{"op": "add", "path": field, "value": "red"}]),
            json!([{"op": "remove", "path": field}]),
            json!([{"op": "replace", "path": "/metadata/finalizers", "value": []}]),
            json!([{"op": "add", "path": "/metadata/finalizers", "value": ["tenure.test/x"]}]),
            json!([{"op": "remove", "path": "/metadata/finalizers/0"}]),
        ])
        .clone()
    }

    fn deletion(&self) -> Value {
        match self.below(6) {
            0 => json!({"preconditions": {"resourceVersion": self.some_version()}}),
            1 => json!({"preconditions": {"uid": self.some_uid()}}),
            2 => json!({"dryRun": ["All"]}),
            3 => json!({"propagationPolicy": "Background"}),
            _ => json!({}),
        }
    }

    fn some_version(&self) -> Value {
        self.some("resourceVersion").unwrap_or_else(|| json!("9000000000000000"))
    }

    fn some_uid(&self) -> Value {
        self.some("uid").unwrap_or_else(|| json!("11111111-2222-4333-8444-555555555555"))
    }

    fn some(&self, field: &str) -> Option<Value> {
        let newest = self.seen.len().checked_sub(1)?;
        let at = if self.one_in(2) { newest } else { self.below(self.seen.len()) };
        Some(self.seen[at]["metadata"][field].clone())
    }
}

const LISTS: [&str; 7] = [
    "limit=2",
    "labelSelector=side%3Dleft",
    "labelSelector=side%21%3Dleft",
    "labelSelector=side%20in%20%28left%2Cright%29%2C%21x",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=metadata.name%21%3Da&labelSelector=side",
    "fieldSelector=spec.size%3D3",
];
