//! What a pod's containers amount to, in two words: how many are ready, and what the others wait for.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;

/// What a table says of a pod.
pub(super) struct Summary {
    /// `ready/all`
    pub(super) ready: String,
    /// The reason of its state.
    pub(super) status: String,
    /// How often containers were restarted, and when last.
    pub(super) restarts: String,
}

/// Rows of pods that have ended are marked, so that clients can leave them out.
pub(super) fn row_conditions(object: &Value) -> Option<Value> {
    if object["kind"] != "Pod" || object["apiVersion"] != "v1" {
        return None;
    }
    let (reason, message) = match object["status"]["phase"].as_str()? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn condition_true(status: &Value, kind: &str) -> bool {
    items(status, "conditions").iter().any(|c| c["type"] == kind && c["status"] == "True")
}

/// Restarts, and when the last of them was.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += container["restartCount"].as_i64().unwrap_or(0);
        let finished = text(&container["lastState"]["terminated"], "finishedAt").parse().ok();
        self.last = self.last.max(finished);
    }

    fn shown(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, age::between(last, now)),
            _ => self.count.to_string(),
        }
    }
}

/// Why a container ended, as its state says.
fn end(terminated: &Value) -> String {
    let reason = text(terminated, "reason");
    let signal = terminated["signal"].as_i64().unwrap_or(0);
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0))
    }
}

/// Sums up a pod.
pub(super) fn summary(pod: &Value, now: Timestamp) -> Summary {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let phase = text(status, "phase");
    let mut reason = match text(status, "reason") {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    let gated = |c: &Value| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated";
    if items(status, "conditions").iter().any(gated) {
        "SchedulingGated".clone_into(&mut reason);
    }
    let sidecars: Vec<&str> = items(spec, "initContainers")
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .map(|container| text(container, "name"))
        .collect();
    let total = items(spec, "containers").len() + sidecars.len();
    let mut ready = 0;
    let mut restarts = Restarts::default();
    let mut sidecar_restarts = Restarts::default();
    let mut initializing = false;
    for (index, container) in items(status, "initContainerStatuses").iter().enumerate() {
        let sidecar = sidecars.contains(&text(container, "name"));
        restarts.add(container);
        if sidecar {
            sidecar_restarts.add(container);
        }
        let (terminated, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
        if !terminated.is_null() && terminated["exitCode"] == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            ready += usize::from(container["ready"] == true);
            continue;
        }
        reason = match text(waiting, "reason") {
            _ if !terminated.is_null() => format!("Init:{}", end(terminated)),
            "" | "PodInitializing" => format!("Init:{index}/{}", items(spec, "initContainers").len()),
            waiting => format!("Init:{waiting}"),
        };
        initializing = true;
        break;
    }
    if !initializing || condition_true(status, "Initialized") {
        restarts = sidecar_restarts;
        let mut running = false;
        let mut failure = String::new();
        for container in items(status, "containerStatuses").iter().rev() {
            restarts.add(container);
            let state = &container["state"];
            let waiting = text(&state["waiting"], "reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if !state["terminated"].is_null() {
                reason = end(&state["terminated"]);
                if state["terminated"]["exitCode"] != 0 {
                    failure.clone_from(&reason);
                }
            } else if container["ready"] == true && !state["running"].is_null() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if running && condition_true(status, "Ready") {
                "Running".clone_into(&mut reason);
            } else if !failure.is_empty() {
                reason = failure;
            } else if running {
                "NotReady".clone_into(&mut reason);
            }
        }
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        if text(status, "reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if phase != "Succeeded" && phase != "Failed" {
            "Terminating".clone_into(&mut reason);
        }
    }
    Summary { ready: format!("{ready}/{total}"), status: reason, restarts: restarts.shown(now) }
}

/// Readiness gates that are open, of how many.
pub(super) fn readiness_gates(pod: &Value) -> String {
    let gates = items(&pod["spec"], "readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open =
        gates.iter().filter(|gate| condition_true(&pod["status"], text(gate, "conditionType"))).count();
    format!("{open}/{}", gates.len())
}
