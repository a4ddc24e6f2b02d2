//! Subnets, their secondary ranges, and reservations of internal ranges.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{Answer, Refused};
use super::faults::Harm;
use super::instances::fingerprint;
use super::ranges::Net;
use super::state::{State, no_network, region_of};
use super::{PROJECT, Shared};

/// So many secondary ranges a subnet takes.
const MOST_RANGES: usize = 170;
/// Before the name of a reservation where another API refers to it.
const RESERVED: &str = "//networkconnectivity.googleapis.com/";

#[derive(Clone, Debug)]
pub(super) struct Subnet {
    primary: Net,
    secondary: Vec<Secondary>,
    fingerprint: u64,
    /// Whether a change is under way: another one is refused.
    busy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Secondary {
    name: String,
    net: Net,
    reserved: Option<String>,
}

impl Subnet {
    pub(super) fn new(primary: Net) -> Self {
        Self { primary, secondary: Vec::new(), fingerprint: 0, busy: false }
    }

    /// The networks of all of its ranges.
    pub(super) fn nets(&self) -> impl Iterator<Item = Net> {
        self.secondary.iter().map(|range| range.net).chain([self.primary])
    }

    /// The network of a range; the empty name is that of the primary one.
    pub(super) fn range(&self, name: &str) -> Option<Net> {
        if name.is_empty() {
            return Some(self.primary);
        }
        self.secondary.iter().find(|range| range.name == name).map(|range| range.net)
    }

    fn to_json(&self, base: &str, region: &str, name: &str) -> Value {
        let link = |path: &str| format!("{base}/projects/{PROJECT}/{path}");
        let secondary = |range: &Secondary| {
            let mut json = json!({"rangeName": range.name, "ipCidrRange": range.net.to_string()});
            if let Some(reserved) = &range.reserved {
                json["reservedInternalRange"] = json!(format!("{RESERVED}{reserved}"));
            }
            json
        };
        json!({
            "kind": "compute#subnetwork",
            "name": name,
            "network": link("global/networks/default"),
            "region": link(&format!("regions/{region}")),
            "ipCidrRange": self.primary.to_string(),
            "secondaryIpRanges": self.secondary.iter().map(secondary).collect::<Vec<_>>(),
            "fingerprint": fingerprint(self.fingerprint),
            "selfLink": link(&format!("regions/{region}/subnetworks/{name}")),
        })
    }
}

impl State {
    fn subnet_mut(&mut self, region: &str, name: &str) -> Result<&mut Subnet, Refused> {
        let path = format!("projects/{PROJECT}/regions/{region}/subnetworks/{name}");
        self.subnets.get_mut(&(region.to_owned(), name.to_owned())).ok_or_else(|| Answer::not_found(&path))
    }

    pub(super) fn subnet(&mut self, base: &str, region: &str, name: &str) -> Result<Answer, Refused> {
        Ok(Answer::ok(self.subnet_mut(region, name)?.to_json(base, region, name)))
    }

    /// The secondary ranges that a patch asks for, if the cloud would accept them.
    fn checked_ranges(
        &mut self,
        region: &str,
        name: &str,
        body: &Value,
    ) -> Result<Option<Vec<Secondary>>, Refused> {
        let subnet = self.subnet_mut(region, name)?.clone();
        if body["fingerprint"].as_str() != Some(fingerprint(subnet.fingerprint).as_str()) {
            return Err(Answer::refused(412, "conditionNotMet", "Invalid fingerprint."));
        }
        if subnet.busy {
            let path = format!("projects/{PROJECT}/regions/{region}/subnetworks/{name}");
            return Err(Answer::refused(
                400,
                "resourceNotReady",
                format!("The resource '{path}' is not ready"),
            ));
        }
        let Some(list) = body["secondaryIpRanges"].as_array() else { return Ok(None) };
        let mut ranges: Vec<Secondary> = Vec::new();
        for (at, entry) in list.iter().enumerate() {
            let range = self.checked_range(at, entry)?;
            let others = ranges.iter().map(|other| other.net).chain([subnet.primary]);
            if let Some(other) = others.into_iter().find(|other| other.overlaps(range.net)) {
                let field = format!("resource.secondaryIpRanges[{at}].ipCidrRange");
                return Err(Answer::invalid(
                    &field,
                    &range.net.to_string(),
                    &format!("Conflicts with '{other}'."),
                ));
            }
            ranges.push(range);
        }
        if ranges.len() > MOST_RANGES {
            return Err(Answer::refused(
                400,
                "limitExceeded",
                format!("A subnetwork has at most {MOST_RANGES} secondary ranges."),
            ));
        }
        let names =
            |of: Vec<&Secondary>| of.iter().map(|range| range.name.clone()).collect::<Vec<_>>().join(", ");
        let added: Vec<_> = ranges.iter().filter(|range| !subnet.secondary.contains(range)).collect();
        let removed: Vec<_> = subnet.secondary.iter().filter(|range| !ranges.contains(range)).collect();
        if !added.is_empty() && !removed.is_empty() {
            let message = format!(
                "Cannot add and remove secondary IP ranges in the same request. Added ranges: [{}]. Removed ranges: [{}].",
                names(added),
                names(removed)
            );
            return Err(Answer::refused(400, "invalid", message));
        }
        let used = |range: &&&Secondary| {
            self.machines.iter().any(|((zone, _), machine)| {
                region_of(zone) == region
                    && machine.subnet == name
                    && machine.aliases.iter().any(|alias| alias.range == range.name)
            })
        };
        // Whoever adds a range by the name of another one has not read the subnet.
        if let Some(range) = ranges
            .iter()
            .enumerate()
            .find(|(at, range)| ranges.iter().take(*at).any(|other| other.name == range.name))
        {
            let field = format!("resource.secondaryIpRanges[{}].rangeName", range.0);
            return Err(Answer::invalid(&field, &range.1.name, "Duplicate range name."));
        }
        if let Some(range) = removed.iter().find(used) {
            let message =
                format!("The secondary range '{}' is already being used by an instance", range.name);
            return Err(Answer::refused(400, "resourceInUseByAnotherResource", message));
        }
        Ok(Some(ranges))
    }

    fn checked_range(&self, at: usize, entry: &Value) -> Result<Secondary, Refused> {
        let field = |name: &str| format!("resource.secondaryIpRanges[{at}].{name}");
        let Some(name) = entry["rangeName"].as_str().filter(|name| !name.is_empty()) else {
            return Err(Answer::refused(
                400,
                "required",
                format!("Required field '{}' not specified", field("rangeName")),
            ));
        };
        let reserved = entry["reservedInternalRange"].as_str();
        let reserved = reserved.map(|path| path.strip_prefix(RESERVED).unwrap_or(path).to_owned());
        let text = entry["ipCidrRange"].as_str();
        let parse = |text: &str| {
            Net::parse(text)
                .ok_or_else(|| Answer::invalid(&field("ipCidrRange"), text, "Must be an IPv4 CIDR range."))
        };
        let given = text.map(parse).transpose()?;
        let net = match &reserved {
            Some(path) => {
                let id = path.rsplit('/').next().unwrap_or(path);
                let found = self.reservations.get(id).filter(|range| range.done);
                let found = found.ok_or_else(|| Answer::not_found(path))?.net;
                if given.is_some_and(|given| !found.contains(given)) {
                    let why = format!("Not within the reserved range '{found}'.");
                    return Err(Answer::invalid(&field("ipCidrRange"), text.unwrap_or_default(), &why));
                }
                given.unwrap_or(found)
            }
            None => given.ok_or_else(|| Answer::invalid(&field("ipCidrRange"), "", "Must be specified."))?,
        };
        Ok(Secondary { name: name.to_owned(), net, reserved })
    }

    pub(super) fn secondary_ranges(&self, region: &str, name: &str) -> BTreeMap<String, String> {
        let subnet = self.subnets.get(&(region.to_owned(), name.to_owned()));
        let ranges = subnet.iter().flat_map(|subnet| &subnet.secondary);
        ranges.map(|range| (range.name.clone(), range.net.to_string())).collect()
    }

    /// A range that somebody else adds.
    pub(super) fn add_secondary_range(
        &mut self,
        region: &str,
        subnet: &str,
        name: &str,
        net: &str,
    ) -> io::Result<()> {
        let net = Net::parse(net).ok_or_else(|| no_network(net))?;
        let number = self.number();
        if let Ok(subnet) = self.subnet_mut(region, subnet) {
            subnet.secondary.push(Secondary { name: name.to_owned(), net, reserved: None });
            subnet.fingerprint = number;
        }
        Ok(())
    }
}

/// `subnetworks.patch`
pub(super) fn patch(
    shared: &Arc<Shared>,
    base: &str,
    (region, name): (&str, &str),
    query: &BTreeMap<String, String>,
    body: &Value,
    harm: Option<&Harm>,
) -> Result<Answer, Refused> {
    let mut state = shared.state();
    let request = query.get("requestId");
    if let Some(operation) = state.repeated(request.map(String::as_str))? {
        return Ok(Answer::ok(operation.to_json(base)));
    }
    let ranges = state.checked_ranges(region, name, body)?;
    let target = format!("regions/{region}/subnetworks/{name}");
    let operation = state.begin(
        &format!("regions/{region}"),
        "compute.subnetworks.patch",
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
    state.subnet_mut(region, name)?.busy = true;
    if harm != Some(&Harm::Endless) {
        let (shared, key) = (shared.clone(), (region.to_owned(), name.to_owned()));
        tokio::spawn(async move {
            tokio::time::sleep(shared.takes(&shared.settings.update)).await;
            let mut state = shared.state();
            let number = state.number();
            if let Some(subnet) = state.subnets.get_mut(&key) {
                subnet.busy = false;
            }
            if let (Some(subnet), Some(ranges)) = (state.subnets.get_mut(&key), ranges) {
                (subnet.secondary, subnet.fingerprint) = (ranges.clone(), number);
                for range in state.reservations.values_mut() {
                    range.users.retain(|user| !user.ends_with(&format!("/{}/subnetworks/{}", key.0, key.1)));
                }
                for path in ranges.into_iter().filter_map(|range| range.reserved) {
                    let user = format!(
                        "https://www.googleapis.com/compute/v1/projects/{PROJECT}/regions/{}/subnetworks/{}",
                        key.0, key.1
                    );
                    let id = path.rsplit('/').next().unwrap_or_default().to_owned();
                    if let Some(range) =
                        state.reservations.get_mut(&id).filter(|range| !range.users.contains(&user))
                    {
                        range.users.push(user);
                    }
                }
            }
            state.end(&id, Ok(()));
        });
    }
    Ok(Answer::ok(json))
}
