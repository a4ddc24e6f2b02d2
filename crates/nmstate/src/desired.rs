//! What was ordered: a desired state of nmstate, and the interfaces that it is about.
//!
//! Everything that would fail late, or silently do less than it says, is refused here by name.

use std::net::IpAddr;

use nmstate::NetworkState;
use serde::Deserialize as _;
use serde_json::Value;

use crate::devices::{Management, Seen};
use crate::failure::{Failure, Reason};

/// What nmstate keeps of an interface that shall not be there; it drops the rest with a warning.
const OF_AN_ABSENT_ONE: [&str; 6] = ["name", "type", "state", "identifier", "mac-address", "pci-address"];
/// The settings that name other interfaces as ports.
const PORTS: [&str; 2] = ["port", "ports"];

/// A desired state, understood.
#[derive(Debug)]
pub(crate) struct Desired {
    /// As nmstate has it.
    pub(crate) state: NetworkState,
    interfaces: Vec<Interface>,
}

#[derive(Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    /// Whether it has to be there already, because it cannot be created.
    must_exist: bool,
    /// Whether it is left alone, so that nobody has to manage it.
    ignored: bool,
}

impl Desired {
    /// Understands a line of JSON.
    pub(crate) fn parse(line: &str) -> Result<Self, Failure> {
        let document: Value = serde_json::from_str(line).map_err(|error| unsupported(&error))?;
        Self::from_value(document)
    }

    /// Understands a JSON document.
    pub(crate) fn from_value(document: Value) -> Result<Self, Failure> {
        let interfaces = interfaces(&document)?;
        // One by one first: nmstate's own error does not say which interface it means.
        for entry in document["interfaces"].as_array().into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default();
            let refused = |error: &dyn std::fmt::Display| {
                let message = format!("the desired state of {name} is not supported: {error}");
                Failure::of(name, Reason::Unsupported, message)
            };
            if let Some(text) = addresses(entry).find(|text| text.parse::<IpAddr>().is_err()) {
                return Err(refused(&format!("{text:?} is no IP address")));
            }
            nmstate::Interface::deserialize(entry).map_err(|error| refused(&error))?;
        }
        let state: NetworkState = serde_json::from_value(document).map_err(|error| unsupported(&error))?;
        if state.is_empty() {
            return Err(unsupported(
                &"it is empty: it needs interfaces, routes, route-rules or dns-resolver",
            ));
        }
        Ok(Self { state, interfaces })
    }

    /// The names of the interfaces.
    pub(crate) fn interfaces(&self) -> Vec<&str> {
        self.interfaces.iter().map(|interface| interface.name.as_str()).collect()
    }

    /// The names of the interfaces, for messages.
    pub(crate) fn names(&self) -> String {
        let names = self.interfaces();
        if names.is_empty() { "the host".to_owned() } else { names.join(", ") }
    }

    /// Refuses what NetworkManager would not do: nmstate takes minutes to find that out.
    pub(crate) fn check(&self, seen: &Seen) -> Result<(), Failure> {
        for Interface { name, must_exist, ignored } in &self.interfaces {
            match seen.management(name) {
                Management::Unmanaged if !ignored => {
                    let message = format!(
                        "NetworkManager does not manage {name}; let it (`nmcli device set {name} managed yes`, and no \
                         unmanaged-devices entry for it), or let the agent configure {name} itself"
                    );
                    return Err(Failure::of(name, Reason::Unmanaged, message));
                }
                Management::Absent if *must_exist => {
                    let message = format!(
                        "interface {name} does not exist on this host; correct its name, or give a type that can be \
                         created, such as vlan, bond or linux-bridge"
                    );
                    return Err(Failure::of(name, Reason::InterfaceAbsent, message));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The interfaces of a desired state, and the ports of those.
fn interfaces(document: &Value) -> Result<Vec<Interface>, Failure> {
    let mut found: Vec<Interface> = Vec::new();
    for entry in document["interfaces"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err(unsupported(&"an entry of interfaces has no name"));
        }
        let state = entry["state"].as_str().unwrap_or("up");
        if state == "absent" {
            let keys = entry.as_object().into_iter().flat_map(serde_json::Map::keys);
            if let Some(key) = keys.into_iter().find(|key| !OF_AN_ABSENT_ONE.contains(&key.as_str())) {
                let message = format!(
                    "the desired state is not supported: {name} is absent, so {key} has no meaning; remove it"
                );
                return Err(Failure::of(name, Reason::Unsupported, message));
            }
        }
        // With another identifier, the name is the profile's.
        if entry["identifier"].as_str().is_some_and(|identifier| identifier != "name") {
            continue;
        }
        let creatable = match entry["type"].as_str() {
            None | Some("unknown") => false,
            Some("ethernet") => entry.get("veth").is_some(),
            Some(_) => true,
        };
        let must_exist = state == "up" && !creatable;
        found.push(Interface { name: name.to_owned(), must_exist, ignored: state == "ignore" });
    }
    let ports = document["interfaces"].as_array().into_iter().flatten().flat_map(ports);
    for name in ports.collect::<Vec<_>>() {
        if !found.iter().any(|interface| interface.name == name) {
            found.push(Interface { name: name.to_owned(), must_exist: true, ignored: false });
        }
    }
    Ok(found)
}

/// The ports of a bond, a bridge or a VRF: a list of names, or of objects with names.
fn ports(interface: &Value) -> Vec<&str> {
    let settings = interface.as_object().into_iter().flat_map(serde_json::Map::values);
    let lists = settings.flat_map(|setting| PORTS.iter().filter_map(|key| setting.get(*key)?.as_array()));
    lists.flatten().filter_map(|port| port.as_str().or_else(|| port.get("name")?.as_str())).collect()
}

/// The addresses that an interface shall have.
fn addresses(interface: &Value) -> impl Iterator<Item = &str> {
    let lists = ["ipv4", "ipv6"].into_iter().filter_map(|family| interface[family]["address"].as_array());
    lists.flatten().filter_map(|address| address["ip"].as_str())
}

fn unsupported(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Reason::Unsupported, format!("the desired state is not supported: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(document: Value) -> String {
        Desired::from_value(document).unwrap_err().line()["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        let with = |interface: Value| json!({ "interfaces": [interface] });
        let ethernet = |key: &str, value: Value| {
            let mut interface = json!({"name": "eth1", "type": "ethernet", "state": "up"});
            interface[key] = value;
            with(interface)
        };
        for (document, named) in [
            (json!({"interfaces": [], "wireless": {}}), "wireless"),
            (ethernet("mtuu", json!(1500)), "mtuu"),
            (ethernet("ipv4", json!({"enabled": true, "adress": []})), "adress"),
            (
                ethernet(
                    "ipv4",
                    json!({"enabled": true, "address": [{"ip": "192.0.2.300", "prefix-length": 24}]}),
                ),
                "192.0.2.300",
            ),
            (with(json!({"name": "eth1", "state": "absent", "mtu": 1400})), "mtu"),
            (with(json!({"type": "ethernet"})), "no name"),
            (json!({}), "empty"),
            (json!(7), "7"),
        ] {
            let said = refusal(document.clone());
            assert!(said.contains(named), "{document}: {said}");
        }
        let said = Desired::parse("{").unwrap_err().line();
        assert_eq!(said["error"]["reason"], "unsupported");
    }

    #[test]
    fn an_interface_must_exist_unless_it_can_be_created_or_goes() {
        let document = json!({"interfaces": [
            {"name": "eth1"},
            {"name": "eth2", "type": "ethernet", "state": "up"},
            {"name": "eth3", "type": "ethernet", "state": "absent"},
            {"name": "veth4", "type": "veth", "veth": {"peer": "peer4"}},
            {"name": "bond0", "type": "bond", "link-aggregation": {"mode": "active-backup", "port": ["eth2", "eth5"]}},
            {"name": "br0", "type": "linux-bridge", "bridge": {"port": [{"name": "eth6"}]}},
            {"name": "uplink", "type": "ethernet", "identifier": "mac-address", "mac-address": "02:00:00:00:00:01"},
        ]});
        let found = interfaces(&document).unwrap();
        let found: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.must_exist)).collect();
        let expected = [
            ("eth1", true),
            ("eth2", true),
            ("eth3", false),
            ("veth4", false),
            ("bond0", false),
            ("br0", false),
            ("eth5", true),
            ("eth6", true),
        ];
        assert_eq!(found, expected);
    }
}
