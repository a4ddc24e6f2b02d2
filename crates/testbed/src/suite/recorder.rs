//! Sends a scenario's requests and records the exchanges, with the server's own values. [`super::normalise`] turns them into a
//! transcript.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::document::parse;
use super::watching::Watch;
use super::{Outcome, SuiteError};

/// The limit for changes that controllers make: long enough for a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);
/// The polling interval meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// A scenario's connection to the server, and its recording.
pub struct Recorder {
    client: Client,
    own_name: String,
    steps: Vec<Raw>,
}

/// One step with the server's own values.
#[derive(Debug)]
pub(super) enum Raw {
    Exchange { call: Call, answer: Answer },
    Events { watch: String, events: Vec<Value>, ended: bool },
    Note { note: String, value: Value },
}

/// A request before it is sent.
#[derive(Clone, Debug)]
pub struct Call {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) request: String,
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) warnings: Vec<String>,
    /// The parsed body; a string if it is not JSON.
    pub body: Value,
}

impl Recorder {
    pub(super) fn new(client: Client, scenario: &str) -> Self {
        Self::named(client, scenario.replace('_', "-"))
    }

    pub(super) fn named(client: Client, own_name: String) -> Self {
        Self { client, own_name, steps: Vec::new() }
    }

    pub(super) fn into_steps(self) -> Vec<Raw> {
        self.steps
    }

    /// The client itself, for scenarios that use kube's runtime.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A name that no other scenario uses, valid for a namespace, a node or a part of an API group.
    pub fn own_name(&self) -> String {
        self.own_name.clone()
    }

    /// An API group that no other scenario uses.
    pub fn own_group(&self) -> String {
        format!("{}.tenure.test", self.own_name())
    }

    /// Creates the scenario's own namespace and waits until pods can be created in it; not recorded.
    pub async fn namespace(&mut self) -> Result<String, SuiteError> {
        let name = self.own_name();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.prepare("/api/v1/namespaces", &namespace).await?;
        // The real server admits a pod only if a service account exists, which a controller may or may not create.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
        self.peek(Call::new("POST", &path).json(&account)).await?;
        Ok(name)
    }

    /// Creates `object`, which must succeed or exist already; not recorded.
    pub async fn prepare(&mut self, path: &str, object: &Value) -> Outcome {
        let answer = self.peek(Call::new("POST", path).json(object)).await?;
        if matches!(answer.status, 200 | 201 | 409) {
            return Ok(());
        }
        Err(SuiteError::Prepare {
            request: answer.request,
            status: answer.status,
            body: answer.body.to_string(),
        })
    }

    /// Sends `call` and records the exchange.
    pub async fn send(&mut self, call: Call) -> Result<Answer, SuiteError> {
        let answer = self.peek(call.clone()).await?;
        self.steps.push(Raw::Exchange { call, answer: answer.clone() });
        Ok(answer)
    }

    /// Sends `call` without recording it.
    pub async fn peek(&self, call: Call) -> Result<Answer, SuiteError> {
        let what = format!("the whole answer to {}", call.title());
        let answer = tokio::time::timeout(PATIENCE, self.exchange(call)).await;
        answer.unwrap_or(Err(SuiteError::Patience { what, waited: PATIENCE, last: "nothing".to_owned() }))
    }

    async fn exchange(&self, call: Call) -> Result<Answer, SuiteError> {
        let title = call.title();
        let response = respond(&self.client, &call).await?;
        let (parts, body) = response.into_parts();
        let header = |name: &str| {
            let values = parts.headers.get_all(name).iter();
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>()
        };
        let (content_type, warnings) = (header("content-type").join(", "), header("warning"));
        let status = parts.status.as_u16();
        let bytes = body
            .collect()
            .await
            .map_err(|source| SuiteError::Send { request: title.clone(), source: source.into() })?
            .to_bytes();
        Ok(Answer { request: title, status, content_type, warnings, body: parse(&bytes) })
    }

    /// `GET`, recorded.
    pub async fn get(&mut self, path: &str) -> Result<Answer, SuiteError> {
        self.send(Call::new("GET", path)).await
    }

    /// `POST`, recorded.
    pub async fn post(&mut self, path: &str, object: &Value) -> Result<Answer, SuiteError> {
        self.send(Call::new("POST", path).json(object)).await
    }

    /// `PUT`, recorded.
    pub async fn put(&mut self, path: &str, object: &Value) -> Result<Answer, SuiteError> {
        self.send(Call::new("PUT", path).json(object)).await
    }

    /// `PATCH` with a JSON merge patch, recorded.
    pub async fn merge(&mut self, path: &str, patch: &Value) -> Result<Answer, SuiteError> {
        self.send(Call::new("PATCH", path).json(patch).header("content-type", "application/merge-patch+json"))
            .await
    }

    /// `DELETE` without options, recorded.
    pub async fn delete(&mut self, path: &str) -> Result<Answer, SuiteError> {
        self.send(Call::new("DELETE", path)).await
    }

    /// `DELETE` with options, recorded.
    pub async fn delete_with(&mut self, path: &str, options: &Value) -> Result<Answer, SuiteError> {
        self.send(Call::new("DELETE", path).json(options)).await
    }

    /// Polls `path` until `done` accepts the answer, and records only the last exchange.
    pub async fn until(
        &mut self,
        path: &str,
        what: &str,
        done: impl Fn(&Answer) -> bool,
    ) -> Result<Answer, SuiteError> {
        let answer = self.wait(path, what, done).await?;
        self.steps.push(Raw::Exchange { call: Call::new("GET", path), answer: answer.clone() });
        Ok(answer)
    }

    /// Polls `path` until `done` accepts the answer; not recorded.
    pub async fn wait(
        &mut self,
        path: &str,
        what: &str,
        done: impl Fn(&Answer) -> bool,
    ) -> Result<Answer, SuiteError> {
        let mut waited = Duration::ZERO;
        loop {
            let answer = self.peek(Call::new("GET", path)).await?;
            if done(&answer) {
                return Ok(answer);
            }
            if waited >= PATIENCE {
                let last = format!("{} {}", answer.status, answer.body);
                return Err(SuiteError::Patience { what: what.to_owned(), waited, last });
            }
            tokio::time::sleep(PAUSE).await;
            waited += PAUSE;
        }
    }

    /// Polls `path` until it answers 404, and records only that.
    pub async fn until_gone(&mut self, path: &str) -> Result<Answer, SuiteError> {
        self.until(path, &format!("{path} to be gone"), |answer| answer.status == 404).await
    }

    /// Opens a watch: `path` has everything but `watch=1`. The request is recorded if it is refused.
    pub async fn watch(&mut self, path: &str) -> Result<Watch, SuiteError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let call = Call::new("GET", &format!("{path}{separator}watch=1"));
        let response = respond(&self.client, &call).await?;
        Ok(Watch::new(call.title(), response))
    }

    /// Reads the next `count` events other than bookmarks, and records them.
    pub async fn events(&mut self, watch: &mut Watch, count: usize) -> Result<Vec<Value>, SuiteError> {
        let mut events = Vec::new();
        while events.len() < count {
            match watch.next().await? {
                Some(event) if event["type"] == "BOOKMARK" => {}
                Some(event) => events.push(event),
                None => break,
            }
        }
        let ended = events.len() < count;
        self.steps.push(Raw::Events { watch: watch.title().to_owned(), events: events.clone(), ended });
        Ok(events)
    }

    /// Reads the watch to its end, and records it; consecutive bookmarks count as one, because servers send them at different
    /// rates.
    pub async fn rest(&mut self, watch: &mut Watch) -> Result<Vec<Value>, SuiteError> {
        let mut events: Vec<Value> = Vec::new();
        while let Some(event) = watch.next().await? {
            let repeated = event["type"] == "BOOKMARK"
                && events.last().is_some_and(|last| last["type"] == "BOOKMARK" && same_notes(last, &event));
            if repeated {
                events.pop();
            }
            events.push(event);
        }
        self.steps.push(Raw::Events { watch: watch.title().to_owned(), events: events.clone(), ended: true });
        Ok(events)
    }

    /// Records an observation of the scenario itself.
    pub fn note(&mut self, note: &str, value: Value) {
        self.steps.push(Raw::Note { note: note.to_owned(), value });
    }
}

fn same_notes(one: &Value, other: &Value) -> bool {
    one.pointer("/object/metadata/annotations") == other.pointer("/object/metadata/annotations")
}

async fn respond(client: &Client, call: &Call) -> Result<http::Response<Body>, SuiteError> {
    let title = call.title();
    let mut request = Request::builder().method(call.method).uri(&call.path);
    for (name, value) in &call.headers {
        request = request.header(*name, value);
    }
    let request = request
        .body(Body::from(call.body.clone()))
        .map_err(|source| SuiteError::Build { request: title.clone(), source })?;
    client.send(request).await.map_err(|source| SuiteError::Send { request: title, source: source.into() })
}

impl Call {
    /// A request that accepts JSON and has no body.
    pub fn new(method: &'static str, path: &str) -> Self {
        let headers = vec![("accept", "application/json".to_owned())];
        Self { method, path: path.to_owned(), headers, body: Vec::new() }
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(self, object: &Value) -> Self {
        let body = object.to_string();
        self.header("content-type", "application/json").text(&body)
    }

    /// Sets a text body.
    #[must_use]
    pub fn text(mut self, body: &str) -> Self {
        self.body = body.as_bytes().to_vec();
        self
    }

    /// Sets a header, replacing any of the same name.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(present, _)| *present != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn title(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Answer {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The object's uid.
    pub fn uid(&self) -> Result<String, SuiteError> {
        self.text("/metadata/uid", "metadata.uid")
    }

    /// The object's or the list's resource version.
    pub fn version(&self) -> Result<String, SuiteError> {
        self.text("/metadata/resourceVersion", "metadata.resourceVersion")
    }

    /// The object's name.
    pub fn name(&self) -> Result<String, SuiteError> {
        self.text("/metadata/name", "metadata.name")
    }

    /// The list's continue token.
    pub fn token(&self) -> Result<String, SuiteError> {
        self.text("/metadata/continue", "metadata.continue")
    }

    /// The body with `value` at `pointer`; creates missing objects.
    pub fn with(&self, pointer: &str, value: Value) -> Value {
        let mut body = self.body.clone();
        super::document::put(&mut body, pointer, value);
        body
    }

    fn text(&self, pointer: &str, field: &'static str) -> Result<String, SuiteError> {
        let text = self.body.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| SuiteError::Lacks {
            request: self.request.clone(),
            status: self.status,
            field,
            body: self.body.to_string(),
        })
    }
}
