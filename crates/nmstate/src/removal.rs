//! Takes addresses and routes away, and leaves everything else of the interface as NetworkManager has it.
//!
//! A desired state of nmstate has the whole list of an interface's addresses. So this reads the running configuration,
//! and desires it without what goes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nmstate::NetworkState;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::desired::Desired;
use crate::failure::{Failure, Reason};

/// What goes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Removal {
    addresses: Vec<Address>,
    /// As under `routes.config` of a desired state.
    #[serde(default)]
    routes: Vec<serde_json::Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Address {
    interface: String,
    /// With or without the length of its prefix, which does not matter.
    address: String,
}

impl Removal {
    /// Understands a line of JSON.
    pub(crate) fn parse(line: &str) -> Result<Self, Failure> {
        let parsed: Self = serde_json::from_str(line).map_err(|error| {
            let message = format!(
                "the removal is not understood: {error}; it is {{\"addresses\": [{{\"interface\": NAME, \"address\": \
                 IP}}], \"routes\": [ROUTE]}}"
            );
            Failure::new(Reason::Unsupported, message)
        })?;
        parsed.by_interface()?;
        Ok(parsed)
    }

    /// The names of the interfaces.
    pub(crate) fn interfaces(&self) -> Vec<&str> {
        self.addresses.iter().map(|address| address.interface.as_str()).collect()
    }

    /// The running configuration without what goes; nothing if it has nothing of it.
    pub(crate) fn desired(&self) -> Result<Option<Desired>, Failure> {
        self.left()?.map(Desired::from_value).transpose()
    }

    /// A desired state that also takes away what goes. What the state itself says of an interface's family is what counts.
    pub(crate) fn beside(&self, state: Value) -> Result<Desired, Failure> {
        Desired::from_value(match self.left()? {
            Some(left) => merged(state, left),
            None => state,
        })
    }

    fn left(&self) -> Result<Option<Value>, Failure> {
        let current = serde_json::to_value(current()?).map_err(|error| {
            Failure::new(Reason::ApplyFailed, format!("the current state cannot be written as JSON: {error}"))
        })?;
        self.without(&current)
    }

    /// What goes, by interface.
    pub(crate) fn by_interface(&self) -> Result<BTreeMap<&str, Vec<IpAddr>>, Failure> {
        let mut sorted: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
        for Address { interface, address } in &self.addresses {
            let ip = address.split('/').next().unwrap_or_default().parse().map_err(|_| {
                let message = format!(
                    "{address:?} of {interface} is no IP address: it takes 192.0.2.10 or 192.0.2.10/24"
                );
                Failure::of(interface, Reason::Unsupported, message)
            })?;
            sorted.entry(interface).or_default().push(ip);
        }
        Ok(sorted)
    }

    fn without(&self, current: &Value) -> Result<Option<Value>, Failure> {
        let all = current["interfaces"].as_array();
        let mut interfaces = Vec::new();
        for (name, gone) in self.by_interface()? {
            // An interface that does not exist has no addresses either.
            let Some(now) = all.into_iter().flatten().find(|entry| entry["name"] == name) else { continue };
            let families =
                ["ipv4", "ipv6"].map(|family| (family, family_without(family, &now[family], &gone)));
            if families.iter().all(|(_, settings)| settings.is_none()) {
                continue;
            }
            let mut desired = json!({ "name": name, "type": now["type"], "state": "up" });
            for (family, settings) in families {
                if let Some(settings) = settings {
                    desired[family] = settings;
                }
            }
            interfaces.push(desired);
        }
        let mut routes = self.routes.clone();
        for route in &mut routes {
            route.insert("state".to_owned(), json!("absent"));
        }
        if interfaces.is_empty() && routes.is_empty() {
            return Ok(None);
        }
        Ok(Some(json!({ "interfaces": interfaces, "routes": { "config": routes } })))
    }
}

/// A state with what another one says about interfaces, families and routes that it does not mention.
fn merged(mut state: Value, left: Value) -> Value {
    let list = |value: &mut Value| value.as_array_mut().map(std::mem::take).unwrap_or_default();
    let Value::Object(mut left) = left else { return state };
    let mut interfaces = list(&mut state["interfaces"]);
    for entry in left.get_mut("interfaces").map(list).unwrap_or_default() {
        match interfaces.iter_mut().find(|it| it["name"] == entry["name"]) {
            // One that goes takes everything with it.
            Some(own) if own["state"] == "absent" => {}
            Some(own) => {
                for family in ["ipv4", "ipv6"] {
                    if own.get(family).is_none() && entry.get(family).is_some() {
                        own[family] = entry[family].clone();
                    }
                }
            }
            None => interfaces.push(entry),
        }
    }
    state["interfaces"] = Value::Array(interfaces);
    let gone = left.get_mut("routes").map(|it| list(&mut it["config"])).unwrap_or_default();
    if !gone.is_empty() {
        let mut routes = list(&mut state["routes"]["config"]);
        routes.splice(0..0, gone);
        state["routes"]["config"] = Value::Array(routes);
    }
    state
}

/// One family's settings without these addresses; nothing if it has none of them. What is not said here stays.
fn family_without(family: &str, now: &Value, gone: &[IpAddr]) -> Option<Value> {
    let ip = |entry: &Value| entry["ip"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
    let is_gone = |entry: &Value| ip(entry).is_some_and(|ip| gone.contains(&ip));
    // The kernel makes it, and nmstate takes no such address.
    let is_link_local =
        |entry: &Value| matches!(ip(entry), Some(IpAddr::V6(ip)) if ip.is_unicast_link_local());
    let addresses = now["address"].as_array()?;
    if !addresses.iter().any(is_gone) {
        return None;
    }
    let left: Vec<&Value> =
        addresses.iter().filter(|entry| !is_gone(entry) && !is_link_local(entry)).collect();
    let is_dynamic = now["dhcp"] == true || now["autoconf"] == true;
    if left.is_empty() && !is_dynamic && family == "ipv4" {
        // NetworkManager takes no static configuration without addresses.
        return Some(json!({ "enabled": false }));
    }
    let mut settings = json!({ "enabled": true, "dhcp": now["dhcp"] == true, "address": left });
    if family == "ipv6" {
        settings["autoconf"] = json!(now["autoconf"] == true);
    }
    Some(settings)
}

/// The configuration that NetworkManager runs, without what comes from DHCP and routers.
pub(crate) fn current() -> Result<NetworkState, Failure> {
    let mut state = NetworkState::new();
    state.set_running_config_only(true);
    state.retrieve().map_err(|error| {
        let message = format!("NetworkManager's configuration cannot be read: {}", error.msg());
        Failure::new(Reason::ApplyFailed, message)
    })?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_as_it_is() {
        let line = r#"{"addresses": [{"interface": "eth1", "address": "192.0.2.10/24"}, {"interface": "gone", "address": "192.0.2.11"}],
                       "routes": [{"destination": "198.51.100.0/24", "next-hop-interface": "eth1"}]}"#;
        let current = json!({"interfaces": [
            {"name": "eth0", "type": "ethernet", "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}},
            {"name": "eth1", "type": "ethernet", "mtu": 1500,
             "ipv4": {"enabled": true, "dhcp": false, "address": [
                 {"ip": "192.0.2.10", "prefix-length": 24}, {"ip": "192.0.2.12", "prefix-length": 24}]},
             "ipv6": {"enabled": true, "address": [{"ip": "fe80::1", "prefix-length": 64}]}},
        ]});
        let desired = Removal::parse(line).unwrap().without(&current).unwrap().unwrap();
        let expected = json!({
            "interfaces": [{"name": "eth1", "type": "ethernet", "state": "up",
                "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.12", "prefix-length": 24}]}}],
            "routes": {"config": [{"destination": "198.51.100.0/24", "next-hop-interface": "eth1", "state": "absent"}]},
        });
        assert_eq!(desired, expected);
    }

    #[test]
    fn the_last_address_takes_ipv4_along_and_leaves_ipv6_its_link_local_address() {
        let gone = ["192.0.2.10".parse().unwrap(), "2001:db8::10".parse().unwrap()];
        let four =
            json!({"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]});
        assert_eq!(family_without("ipv4", &four, &gone), Some(json!({"enabled": false})));
        let six = json!({"enabled": true, "dhcp": false, "autoconf": false, "address": [
            {"ip": "2001:db8::10", "prefix-length": 64}, {"ip": "fe80::1", "prefix-length": 64}]});
        let left = json!({"enabled": true, "dhcp": false, "autoconf": false, "address": []});
        assert_eq!(family_without("ipv6", &six, &gone), Some(left));
        let leased =
            json!({"enabled": true, "dhcp": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]});
        let left = json!({"enabled": true, "dhcp": true, "address": []});
        assert_eq!(family_without("ipv4", &leased, &gone), Some(left));
    }

    #[test]
    fn beside_a_desired_state_only_what_it_does_not_mention_goes() {
        let off = json!({"enabled": false});
        let left = json!({
            "interfaces": [
                {"name": "eth1", "type": "ethernet", "state": "up", "ipv4": off, "ipv6": off},
                {"name": "eth2", "type": "ethernet", "state": "up", "ipv4": off},
                {"name": "br1", "type": "linux-bridge", "state": "up", "ipv4": off},
            ],
            "routes": {"config": [{"destination": "198.51.100.0/24", "state": "absent"}]},
        });
        let state = json!({"interfaces": [
            {"name": "eth1", "ipv4": {"enabled": true}}, {"name": "br1", "state": "absent"}]});
        let expected = json!({
            "interfaces": [
                {"name": "eth1", "ipv4": {"enabled": true}, "ipv6": off},
                {"name": "br1", "state": "absent"},
                {"name": "eth2", "type": "ethernet", "state": "up", "ipv4": off},
            ],
            "routes": {"config": [{"destination": "198.51.100.0/24", "state": "absent"}]},
        });
        assert_eq!(merged(state, left), expected);
    }

    #[test]
    fn what_is_gone_already_needs_no_change() {
        let line = r#"{"addresses": [{"interface": "eth1", "address": "192.0.2.10"}, {"interface": "eth2", "address": "192.0.2.11"}]}"#;
        let current =
            json!({"interfaces": [{"name": "eth1", "type": "ethernet", "ipv4": {"enabled": false}}]});
        assert_eq!(Removal::parse(line).unwrap().without(&current).unwrap(), None);
    }

    #[test]
    fn a_removal_that_is_not_understood_is_refused_by_name() {
        for (line, named) in [
            (r#"{"addresses": [{"interface": "eth1", "address": "eth1"}]}"#, "\\\"eth1\\\" of eth1"),
            (r#"{"addresses": [], "address": 1}"#, "unknown field `address`"),
            (r"{}", "missing field `addresses`"),
        ] {
            let said = Removal::parse(line).unwrap_err().line().to_string();
            assert!(said.contains(named), "{said}");
        }
    }
}
