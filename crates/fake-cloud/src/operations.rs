//! Operations of the Compute API.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_handles::{Clock, SystemClock};

use super::answer::{Answer, Refused};
use super::state::State;
use super::{PROJECT, Settings, Shared};

/// The longest that `wait` waits.
const LONGEST_WAIT: Duration = Duration::from_mins(2);

#[derive(Clone, Debug)]
pub(super) struct Operation {
    name: String,
    id: u64,
    /// `zones/Z` or `regions/R`.
    place: String,
    kind: &'static str,
    target: String,
    request: Option<String>,
    inserted: String,
    ended: Option<String>,
    error: Option<(String, String)>,
}

impl Operation {
    pub(super) fn is_done(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn to_json(&self, base: &str) -> Value {
        let link = |path: &str| format!("{base}/projects/{PROJECT}/{path}");
        let mut json = json!({
            "kind": "compute#operation",
            "id": self.id.to_string(),
            "name": self.name,
            "operationType": self.kind,
            "targetLink": link(&self.target),
            "targetId": "1",
            "status": if self.is_done() { "DONE" } else { "RUNNING" },
            "progress": if self.is_done() { 100 } else { 0 },
            "user": "controller@test-project.iam.gserviceaccount.com",
            "insertTime": self.inserted,
            "startTime": self.inserted,
            "selfLink": link(&format!("{}/operations/{}", self.place, self.name)),
        });
        let (field, _) = self.place.split_once('s').unwrap_or((&self.place, ""));
        json[field] = json!(link(&self.place));
        if let Some(request) = &self.request {
            json["clientOperationId"] = json!(request);
        }
        if let Some(ended) = &self.ended {
            json["endTime"] = json!(ended);
        }
        if let Some((code, message)) = &self.error {
            json["error"] = json!({"errors": [{"code": code, "message": message}]});
            json["httpErrorStatusCode"] = json!(400);
            json["httpErrorMessage"] = json!("BAD REQUEST");
        }
        json
    }
}

fn time() -> String {
    SystemClock.now().to_jiff().to_string()
}

impl State {
    /// A new operation under way. Refused if there are too many.
    pub(super) fn begin(
        &mut self,
        place: &str,
        kind: &'static str,
        target: String,
        request: Option<String>,
        settings: &Settings,
    ) -> Result<Operation, Refused> {
        if self.operations.values().filter(|operation| !operation.is_done()).count()
            >= settings.operations_at_once
        {
            return Err(Answer::too_many_operations());
        }
        let id = self.number();
        let operation = Operation {
            name: format!("operation-{id}"),
            id,
            place: place.to_owned(),
            kind,
            target,
            request: request.clone(),
            inserted: time(),
            ended: None,
            error: None,
        };
        if let Some(request) = request {
            self.requests.insert(request, operation.name.clone());
        }
        self.operations.insert(operation.name.clone(), operation.clone());
        Ok(operation)
    }

    pub(super) fn end(&mut self, name: &str, result: Result<(), (String, String)>) {
        if let Some(operation) = self.operations.get_mut(name) {
            operation.ended = Some(time());
            operation.error = result.err();
        }
    }

    pub(super) fn operation(&self, place: &str, name: &str) -> Result<&Operation, Refused> {
        let found = self.operations.get(name).filter(|operation| operation.place == place);
        found.ok_or_else(|| Answer::not_found(&format!("projects/{PROJECT}/{place}/operations/{name}")))
    }

    /// The operations of a zone or region. Of filters it knows `status != "DONE"`.
    pub(super) fn operations_of(
        &self,
        place: &str,
        filter: Option<&str>,
        base: &str,
    ) -> Result<Answer, Refused> {
        let unfinished = match filter.map(|filter| filter.replace([' ', '"'], "")) {
            None => false,
            Some(filter) if filter == "status!=DONE" => true,
            Some(filter) => {
                return Err(Answer::invalid("filter", &filter, "The fake knows status != \"DONE\" alone."));
            }
        };
        let items: Vec<Value> = self
            .operations
            .values()
            .filter(|operation| operation.place == place && !(unfinished && operation.is_done()))
            .map(|operation| operation.to_json(base))
            .collect();
        Ok(Answer::ok(json!({"kind": "compute#operationList", "items": items})))
    }

    /// The operation that a request ID stands for already. An ID of zeros, or one that is none, is refused.
    pub(super) fn repeated(&self, request: Option<&str>) -> Result<Option<&Operation>, Refused> {
        let Some(request) = request else { return Ok(None) };
        let is_uuid = request.len() == 36
            && request
                .char_indices()
                .all(|(at, c)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { c.is_ascii_hexdigit() });
        if !is_uuid || request.chars().all(|c| c == '0' || c == '-') {
            return Err(Answer::invalid("requestId", request, "Must be a valid, non-zero UUID."));
        }
        Ok(self.requests.get(request).and_then(|name| self.operations.get(name)))
    }
}

/// Answers when the operation has ended, or after two minutes.
pub(super) async fn wait(shared: &Shared, place: &str, name: &str, base: &str) -> Result<Answer, Refused> {
    let mut waited = Duration::ZERO;
    loop {
        let operation = shared.state().operation(place, name)?.clone();
        if operation.is_done() || waited >= LONGEST_WAIT {
            return Ok(Answer::ok(operation.to_json(base)));
        }
        let pause = Duration::from_millis(10);
        tokio::time::sleep(pause).await;
        waited += pause;
    }
}
