//! Machines and the alias ranges of their interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::answer::{Answer, Refused};
use super::faults::Harm;
use super::ranges::Net;
use super::state::{Alias, Machine, State, region_of};
use super::{PROJECT, Shared};

/// The one interface of a machine.
const INTERFACE: &str = "nic0";
/// So many machines a page has at most.
const MOST: usize = 500;
/// What an update may have; the cloud refuses the rest.
const ACCEPTED: [&str; 2] = ["fingerprint", "aliasIpRanges"];

impl Machine {
    fn to_json(&self, base: &str, zone: &str, name: &str) -> Value {
        let link = |path: &str| format!("{base}/projects/{PROJECT}/{path}");
        let mut interface = json!({
            "kind": "compute#networkInterface",
            "name": INTERFACE,
            "network": link("global/networks/default"),
            "subnetwork": link(&format!("regions/{}/subnetworks/{}", region_of(zone), self.subnet)),
            "fingerprint": fingerprint(self.fingerprint),
            "stackType": "IPV4_ONLY",
        });
        // The cloud leaves an empty list out.
        if !self.aliases.is_empty() {
            interface["aliasIpRanges"] = self.aliases.iter().map(Alias::to_json).collect();
        }
        json!({
            "kind": "compute#instance",
            "name": name,
            "status": "RUNNING",
            "zone": link(&format!("zones/{zone}")),
            "selfLink": link(&format!("zones/{zone}/instances/{name}")),
            "networkInterfaces": [interface],
        })
    }
}

impl Alias {
    fn to_json(&self) -> Value {
        let mut json = json!({"ipCidrRange": self.net.to_string()});
        if !self.range.is_empty() {
            json["subnetworkRangeName"] = json!(self.range);
        }
        json
    }
}

/// Opaque, as the cloud's.
pub(super) fn fingerprint(number: u64) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(number.to_be_bytes())
}

impl State {
    pub(super) fn instance(&mut self, base: &str, zone: &str, name: &str) -> Result<Answer, Refused> {
        Ok(Answer::ok(self.machine(zone, name)?.to_json(base, zone, name)))
    }

    /// A page of all machines.
    pub(super) fn all_instances(
        &self,
        base: &str,
        query: &BTreeMap<String, String>,
        most: usize,
    ) -> Result<Answer, Refused> {
        let asked = query.get("maxResults").map_or(Ok(MOST), |text| text.parse());
        let asked = asked.ok().filter(|count| (1..=MOST).contains(count)).ok_or_else(|| {
            let value = query.get("maxResults").map_or("", String::as_str);
            Answer::invalid("maxResults", value, "Must be a number from 1 to 500.")
        })?;
        let token = query.get("pageToken").map(String::as_str).unwrap_or_default();
        let start = match token.strip_prefix("page-") {
            None if token.is_empty() => 0,
            number => number
                .and_then(|number| number.parse().ok())
                .ok_or_else(|| Answer::invalid("pageToken", token, "Not a token of this list."))?,
        };
        let count = asked.min(most);
        let mut items: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for ((zone, name), machine) in self.machines.iter().skip(start).take(count) {
            items.entry(format!("zones/{zone}")).or_default().push(machine.to_json(base, zone, name));
        }
        let items: Map<String, Value> =
            items.into_iter().map(|(zone, instances)| (zone, json!({"instances": instances}))).collect();
        let mut list = json!({"kind": "compute#instanceAggregatedList", "items": items});
        if start.saturating_add(count) < self.machines.len() {
            list["nextPageToken"] = json!(format!("page-{}", start + count));
        }
        Ok(Answer::ok(list))
    }

    /// The list of an update, if the cloud would accept it. `None`: it has no list, and changes nothing.
    fn checked(
        &mut self,
        shared: &Shared,
        zone: &str,
        name: &str,
        body: &Value,
    ) -> Result<Option<Vec<Alias>>, Refused> {
        let fields = body.as_object().ok_or_else(|| Answer::refused(400, "parseError", "Parse Error"))?;
        if let Some(field) = fields.keys().find(|field| !ACCEPTED.contains(&field.as_str())) {
            return Err(Answer::invalid(
                &format!("resource.{field}"),
                "",
                "Updating this field is not supported.",
            ));
        }
        let Some(given) = fields.get("fingerprint").and_then(Value::as_str).filter(|text| !text.is_empty())
        else {
            return Err(Answer::refused(
                400,
                "required",
                "Required field 'resource.fingerprint' not specified",
            ));
        };
        let machine = self.machine(zone, name)?.clone();
        if machine.busy.is_some() {
            let path = format!("projects/{PROJECT}/zones/{zone}/instances/{name}");
            return Err(Answer::refused(
                400,
                "resourceNotReady",
                format!("The resource '{path}' is not ready"),
            ));
        }
        if given != fingerprint(machine.fingerprint) {
            return Err(Answer::refused(412, "conditionNotMet", "Invalid fingerprint."));
        }
        let Some(list) = fields.get("aliasIpRanges") else { return Ok(None) };
        let list = list
            .as_array()
            .ok_or_else(|| Answer::invalid("resource.aliasIpRanges", "", "Must be a list."))?;
        let mut aliases: Vec<Alias> = Vec::new();
        for (at, entry) in list.iter().enumerate() {
            let alias = self.checked_alias(region_of(zone), &machine.subnet, at, entry)?;
            if let Some(other) = aliases.iter().find(|other| other.net.overlaps(alias.net)) {
                let why = format!("Alias IP ranges must not overlap '{}'.", other.net);
                return Err(Answer::invalid(&field_of(at), &alias.net.to_string(), &why));
            }
            aliases.push(alias);
        }
        let limit = shared.settings.ranges_per_interface;
        if aliases.len() > limit {
            let message =
                format!("The number of alias IP ranges on a network interface must not exceed {limit}.");
            return Err(Answer::refused(400, "limitExceeded", message));
        }
        let adds = aliases.iter().any(|alias| !machine.aliases.contains(alias));
        let removes = machine.aliases.iter().any(|alias| !aliases.contains(alias));
        if shared.settings.strict_mixed && adds && removes {
            let message = "Cannot add and remove alias IP ranges in the same request.";
            return Err(Answer::refused(400, "invalid", message));
        }
        Ok(Some(aliases))
    }

    fn checked_alias(&self, region: &str, subnet: &str, at: usize, entry: &Value) -> Result<Alias, Refused> {
        let text = entry["ipCidrRange"].as_str().unwrap_or_default();
        let invalid = |why: &str| Answer::invalid(&field_of(at), text, why);
        let net = Net::parse(text).ok_or_else(|| invalid("Must be an IPv4 CIDR range or address."))?;
        let range = entry["subnetworkRangeName"].as_str().unwrap_or_default().to_owned();
        let subnet = self.subnets.get(&(region.to_owned(), subnet.to_owned()));
        let whole = subnet.and_then(|subnet| subnet.range(&range));
        let whole = whole
            .ok_or_else(|| invalid(&format!("Secondary range '{range}' was not found in the subnetwork.")))?;
        if !whole.contains(net) {
            return Err(invalid(&format!("IP range is not within '{whole}'.")));
        }
        Ok(Alias { net, range })
    }

    /// The end of an update: what only then turns out.
    fn finish(
        &mut self,
        shared: &Shared,
        zone: &str,
        name: &str,
        aliases: Vec<Alias>,
    ) -> Result<(), (String, String)> {
        let here = (zone.to_owned(), name.to_owned());
        let region = region_of(zone);
        let others =
            self.machines.iter().filter(|(other, _)| **other != here && region_of(&other.0) == region);
        let taken: Vec<Net> =
            others.flat_map(|(_, machine)| machine.aliases.iter().map(|alias| alias.net)).collect();
        let in_use = aliases
            .iter()
            .find(|alias| taken.iter().any(|net| net.overlaps(alias.net)))
            .map(|alias| alias.net);
        let total = aliases.len() + taken.len();
        let Some(machine) = self.machines.get_mut(&here) else {
            return Err(("RESOURCE_NOT_FOUND".to_owned(), format!("The resource '{name}' was not found")));
        };
        machine.busy = None;
        if let Some(net) = in_use {
            let message = format!("IP '{net}' is already being used by another resource.");
            return Err(("IP_IN_USE_BY_ANOTHER_RESOURCE".to_owned(), message));
        }
        let limit = shared.settings.ranges_per_network;
        if total > limit {
            let message = format!("Quota 'ALIASES_PER_NETWORK_GLOBAL' exceeded. Limit: {limit}.0 globally.");
            return Err(("QUOTA_EXCEEDED".to_owned(), message));
        }
        self.configure(zone, name, aliases).map_err(|refused| {
            ("RESOURCE_NOT_FOUND".to_owned(), refused.body["error"]["message"].to_string())
        })
    }
}

fn field_of(at: usize) -> String {
    format!("resource.networkInterfaces[0].aliasIpRanges[{at}].ipCidrRange")
}

/// `instances.updateNetworkInterface`
pub(super) fn update(
    shared: &Arc<Shared>,
    base: &str,
    (zone, name): (&str, &str),
    query: &BTreeMap<String, String>,
    body: &Value,
    harm: Option<&Harm>,
) -> Result<Answer, Refused> {
    let mut state = shared.state();
    let request = query.get("requestId");
    if let Some(operation) = state.repeated(request.map(String::as_str))? {
        return Ok(Answer::ok(operation.to_json(base)));
    }
    state.machine(zone, name)?;
    match query.get("networkInterface").map(String::as_str) {
        Some(INTERFACE) => {}
        None => return Err(Answer::refused(400, "required", "Required parameter: networkInterface")),
        Some(other) => {
            return Err(Answer::invalid(
                "networkInterface",
                other,
                "The instance has no such network interface.",
            ));
        }
    }
    let aliases = state.checked(shared, zone, name, body)?;
    let target = format!("zones/{zone}/instances/{name}");
    let operation = state.begin(
        &format!("zones/{zone}"),
        "updateNetworkInterface",
        target,
        request.cloned(),
        &shared.settings,
    )?;
    let json = operation.to_json(base);
    let id = json["name"].as_str().unwrap_or_default().to_owned();
    if let Some(Harm::FailedOperation { code, message }) = harm {
        state.end(&id, Err((code.clone(), message.clone())));
        return Ok(Answer::ok(json));
    }
    let Some(aliases) = aliases else {
        state.end(&id, Ok(()));
        return Ok(Answer::ok(json));
    };
    state.machine(zone, name)?.busy = Some(id.clone());
    let performed = perform(shared.clone(), zone.to_owned(), name.to_owned(), id, aliases);
    match harm {
        Some(Harm::Endless) => {
            let mut ended = shared.ended.subscribe();
            tokio::spawn(async move {
                // The fake may end first.
                if ended.changed().await.is_ok() {
                    performed.await;
                }
            });
        }
        Some(Harm::Late(late)) => {
            let late = *late;
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                performed.await;
            });
        }
        _ => drop(tokio::spawn(performed)),
    }
    Ok(Answer::ok(json))
}

/// An update under way: first the configuration changes, later the data plane.
async fn perform(shared: Arc<Shared>, zone: String, name: String, operation: String, aliases: Vec<Alias>) {
    tokio::time::sleep(shared.takes(&shared.settings.update)).await;
    {
        let mut state = shared.state();
        let result = state.finish(&shared, &zone, &name, aliases);
        state.end(&operation, result);
    }
    tokio::time::sleep(shared.takes(&shared.settings.arrival)).await;
    let arrivals = shared.state().arrive(&zone, &name);
    shared.tell(&arrivals);
}
