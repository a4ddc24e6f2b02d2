//! Reservations of internal ranges, an API of its own with operations of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{Answer, Refused};
use super::faults::Harm;
use super::ranges::Net;
use super::state::State;
use super::subnets::Subnet;
use super::{PROJECT, Shared};

/// Before the names of this API's types.
const TYPES: &str = "type.googleapis.com/google.cloud.networkconnectivity.v1";

/// An internal range.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) network: String,
    pub(super) net: Net,
    pub(super) users: Vec<String>,
    /// Whether its operation has ended.
    pub(super) done: bool,
    /// What it ended with, if not with success: a code of gRPC and the message.
    pub(super) failed: Option<(i64, String)>,
}

impl State {
    pub(super) fn reservation(&self, id: &str) -> Result<Answer, Refused> {
        let path = format!("projects/{PROJECT}/locations/global/internalRanges/{id}");
        let found = self.reservations.get(id).filter(|range| range.done && range.failed.is_none());
        Ok(Answer::ok(found.ok_or_else(|| Answer::not_found(&path))?.to_json(id)))
    }

    /// The long-running operation of a reservation, which is named after it.
    pub(super) fn reservation_operation(&self, name: &str) -> Result<Answer, Refused> {
        if name.starts_with("operation-delete-") {
            return Ok(Answer::ok(operation_json(name, Some(nothing()))));
        }
        let id = name.strip_prefix("operation-create-").unwrap_or(name);
        let found = self.reservations.get(id);
        let found = found.ok_or_else(|| {
            Answer::not_found(&format!("projects/{PROJECT}/locations/global/operations/{name}"))
        })?;
        let mut response = found.to_json(id);
        response["@type"] = json!(format!("{TYPES}.InternalRange"));
        let mut json = operation_json(name, Some(response).filter(|_| found.done && found.failed.is_none()));
        if let Some((code, message)) = &found.failed {
            json["done"] = json!(found.done);
            json["error"] = json!({"code": code, "message": message});
        }
        Ok(Answer::ok(json))
    }

    /// `internalRanges.delete`: refused while somebody uses it.
    pub(super) fn release(&mut self, id: &str) -> Result<Answer, Refused> {
        let path = format!("projects/{PROJECT}/locations/global/internalRanges/{id}");
        let found = self.reservations.get(id).ok_or_else(|| Answer::not_found(&path))?;
        if let Some(user) = found.users.first() {
            return Err(Answer::refused(
                400,
                "failedPrecondition",
                format!("The resource '{path}' is in use by '{user}'"),
            ));
        }
        self.reservations.remove(id);
        Ok(Answer::ok(operation_json(&format!("operation-delete-{id}"), Some(nothing()))))
    }

    pub(super) fn internal_ranges(&self) -> BTreeMap<String, String> {
        let done = self.reservations.iter().filter(|(_, range)| range.done && range.failed.is_none());
        done.map(|(name, range)| (name.clone(), range.net.to_string())).collect()
    }
}

impl Reservation {
    fn to_json(&self, id: &str) -> Value {
        json!({
            "name": format!("projects/{PROJECT}/locations/global/internalRanges/{id}"),
            "network": self.network,
            "ipCidrRange": self.net.to_string(),
            "usage": "FOR_VPC",
            "peering": "FOR_SELF",
            "users": self.users,
        })
    }
}

/// An operation under way, or one that has ended with a response.
fn operation_json(name: &str, response: Option<Value>) -> Value {
    let mut json = json!({
        "name": format!("projects/{PROJECT}/locations/global/operations/{name}"),
        "metadata": {"@type": format!("{TYPES}.OperationMetadata"), "apiVersion": "v1"},
        "done": response.is_some(),
    });
    if let Some(response) = response {
        json["response"] = response;
    }
    json
}

/// The response of an operation that has none.
fn nothing() -> Value {
    json!({"@type": "type.googleapis.com/google.protobuf.Empty"})
}

/// `internalRanges.create`
pub(super) fn reserve(
    shared: &Arc<Shared>,
    query: &BTreeMap<String, String>,
    body: &Value,
    harm: Option<&Harm>,
) -> Result<Answer, Refused> {
    let mut state = shared.state();
    let Some(id) = query.get("internalRangeId").filter(|id| !id.is_empty()) else {
        return Err(Answer::refused(400, "required", "Required parameter: internalRangeId"));
    };
    if state.reservations.get(id).is_some_and(|range| range.failed.is_none()) {
        return Err(Answer::refused(409, "alreadyExists", format!("Resource '{id}' already exists")));
    }
    let Some(network) = body["network"].as_str() else {
        return Err(Answer::refused(400, "required", "Required field 'network' not specified"));
    };
    // By name or by number, as Google's APIs take them; both are the first.
    let is = |field: &str, name: &str| body[field] == name || body[field] == 1;
    if !is("usage", "FOR_VPC") || !is("peering", "FOR_SELF") {
        return Err(Answer::refused(400, "invalid", "The fake reserves ranges FOR_VPC and FOR_SELF alone."));
    }
    let taken: Vec<Net> = state
        .reservations
        .values()
        .filter(|range| range.failed.is_none())
        .map(|range| range.net)
        .chain(state.subnets.values().flat_map(Subnet::nets))
        .collect();
    let net = match body["ipCidrRange"].as_str() {
        Some(text) => these(text, &taken)?,
        None => any(body, &taken)?,
    };
    let failed = match harm {
        Some(Harm::FailedOperation { code, message }) => Some((code.parse().unwrap_or(13), message.clone())),
        _ => None,
    };
    let reservation =
        Reservation { network: network.to_owned(), net, users: Vec::new(), done: false, failed };
    state.reservations.insert(id.clone(), reservation);
    let (shared, key) = (shared.clone(), id.clone());
    tokio::spawn(async move {
        tokio::time::sleep(shared.takes(&shared.settings.update)).await;
        if let Some(range) = shared.state().reservations.get_mut(&key) {
            range.done = true;
        }
    });
    Ok(Answer::ok(operation_json(&format!("operation-create-{id}"), None)))
}

/// The range that a reservation names.
fn these(text: &str, taken: &[Net]) -> Result<Net, Refused> {
    let net = Net::parse(text)
        .ok_or_else(|| Answer::invalid("ipCidrRange", text, "Must be an IPv4 CIDR range."))?;
    if let Some(other) = taken.iter().find(|other| other.overlaps(net)) {
        return Err(Answer::invalid("ipCidrRange", text, &format!("Overlaps with '{other}'.")));
    }
    Ok(net)
}

/// A free range of the size that a reservation asks for.
fn any(body: &Value, taken: &[Net]) -> Result<Net, Refused> {
    let prefix = body["prefixLength"]
        .as_u64()
        .and_then(|prefix| u8::try_from(prefix).ok())
        .filter(|prefix| *prefix <= 29);
    let prefix = prefix.ok_or_else(|| {
        Answer::invalid("prefixLength", &body["prefixLength"].to_string(), "Must be from 1 to 29.")
    })?;
    let targets = body["targetCidrRange"].as_array().cloned().unwrap_or_else(|| vec![json!("10.0.0.0/8")]);
    let targets = targets.iter().filter_map(|target| Net::parse(target.as_str()?));
    targets.into_iter().find_map(|target| target.free_part(prefix, taken)).ok_or_else(|| {
        Answer::refused(400, "failedPrecondition", "No free range of that size in the target ranges.")
    })
}
