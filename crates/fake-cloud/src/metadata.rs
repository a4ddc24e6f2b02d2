//! The metadata server of one machine.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::state::Machine;
use super::{PROJECT, Shared, TOKEN};

/// An answer: status, content, and the version of what it is about.
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) etag: String,
}

/// Answers a path below `/computeMetadata/v1/`.
pub(super) async fn answer(
    shared: &Shared,
    zone: &str,
    name: &str,
    path: &str,
    query: &BTreeMap<String, String>,
) -> Told {
    let machine = || shared.state().machine(zone, name).ok().cloned();
    let Some(mut found) = machine() else { return told(404, "", "") };
    if query.get("wait_for_change").is_some_and(|wait| wait == "true") {
        let seconds =
            query.get("timeout_sec").and_then(|seconds| seconds.parse().ok()).unwrap_or(u64::MAX >> 32);
        let last = query.get("last_etag").cloned().unwrap_or_else(|| etag(&found));
        let changed = async {
            loop {
                // The next change is waited for before the look: what comes between is not missed.
                let next = shared.arrived.notified();
                tokio::pin!(next);
                next.as_mut().enable();
                match machine() {
                    Some(now) if etag(&now) == last => next.await,
                    other => return other,
                }
            }
        };
        if let Ok(now) = tokio::time::timeout(Duration::from_secs(seconds), changed).await {
            let Some(now) = now else { return told(404, "", "") };
            found = now;
        }
    }
    let etag = etag(&found);
    match path.trim_end_matches('/') {
        "project/project-id" => told(200, PROJECT, &etag),
        "instance/name" => told(200, name, &etag),
        "instance/zone" => told(200, &format!("projects/123456789/zones/{zone}"), &etag),
        "instance/attributes/cluster-name" => told(200, "test-cluster", &etag),
        "instance/network-interfaces/0"
            if query.get("recursive").is_some_and(|recursive| recursive == "true") =>
        {
            told(200, &interface(&found).to_string(), &etag)
        }
        "instance/service-accounts/default/token" => told(
            200,
            &json!({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"}).to_string(),
            &etag,
        ),
        _ => told(404, "", &etag),
    }
}

fn told(status: u16, body: &str, etag: &str) -> Told {
    Told { status, body: body.to_owned(), etag: etag.to_owned() }
}

/// The interface as the host has it: the data plane, not the configuration.
fn interface(machine: &Machine) -> Value {
    let aliases: Vec<String> = machine.arriving.iter().map(ToString::to_string).collect();
    json!({"ipAliases": aliases, "mtu": 1460, "network": "projects/123456789/networks/default"})
}

fn etag(machine: &Machine) -> String {
    format!("{:016x}", machine.arrivals + 1)
}
