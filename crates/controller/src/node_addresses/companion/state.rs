//! Desired states of generated policies: inserting literal addresses, and removing them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_api::nmstate::NodeNetworkConfigurationPolicy;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// The state with the values of pools' captures in place of references. Other captures belong to kubernetes-nmstate.
pub(super) fn filled(state: &Value, captured: &BTreeMap<String, (String, u8)>) -> Value {
    match state {
        Value::String(text) => fill(text, captured),
        Value::Array(items) => items.iter().map(|item| filled(item, captured)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), filled(value, captured))).collect()
        }
        other => other.clone(),
    }
}

fn fill(text: &str, captured: &BTreeMap<String, (String, u8)>) -> Value {
    let value = |reference: &str| {
        let (name, field) = reference.trim().strip_prefix("capture.")?.rsplit_once('.')?;
        let (ip, prefix) = captured.get(name)?;
        match field {
            "ip" => Some(json!(ip)),
            "prefix-length" => Some(json!(prefix)),
            _ => None,
        }
    };
    let whole = text.trim().strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE));
    if let Some(value) = whole.and_then(value) {
        return value;
    }
    let (mut made, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(OPEN) {
        let Some((inner, after)) = after.split_once(CLOSE) else { break };
        made.push_str(before);
        match value(inner) {
            Some(Value::String(text)) => made.push_str(&text),
            Some(other) => made.push_str(&other.to_string()),
            None => [OPEN, inner, CLOSE].into_iter().for_each(|part| made.push_str(part)),
        }
        rest = after;
    }
    made.push_str(rest);
    Value::String(made)
}

const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// The interface entries that remove these addresses where a state has them, and where `earlier` entries do.
pub(super) fn removals(earlier: &[Value], state: &Value, own: &[String]) -> Vec<Value> {
    let mut all = earlier.to_vec();
    for entry in without(state, own)["interfaces"].as_array().into_iter().flatten() {
        match all.iter_mut().find(|known| known["name"] == entry["name"]) {
            Some(known) => {
                for family in FAMILIES.into_iter().filter(|family| !entry[family].is_null()) {
                    known[family] = entry[family].clone();
                }
            }
            None => all.push(entry.clone()),
        }
    }
    all
}

/// The state with these entries, except where it sets an interface's addresses itself: nmstate keeps what a state
/// does not mention.
pub(super) fn with_removals(state: &Value, removals: &[Value]) -> Value {
    let mut state = state.clone();
    if removals.is_empty() {
        return state;
    }
    let mut interfaces = state["interfaces"].as_array().cloned().unwrap_or_default();
    for removal in removals {
        let there = interfaces.iter_mut().find(|it| it["name"] == removal["name"]);
        let Some(there) = there else {
            interfaces.push(removal.clone());
            continue;
        };
        if there["state"] == "absent" {
            continue;
        }
        for family in FAMILIES.into_iter().filter(|family| !removal[family].is_null()) {
            if !there[family].is_object() {
                there[family] = removal[family].clone();
            } else if there[family]["enabled"] != false && !there[family]["address"].is_array() {
                let others = removal[family]["address"].as_array().cloned().unwrap_or_default();
                there[family]["address"] = json!(others);
            }
        }
    }
    if !state.is_object() {
        state = json!({});
    }
    state["interfaces"] = json!(interfaces);
    state
}

/// The state that removes these addresses from their interfaces and changes nothing else.
fn without(state: &Value, own: &[String]) -> Value {
    let mut interfaces = Vec::new();
    for interface in state["interfaces"].as_array().into_iter().flatten() {
        let mut left = json!({"name": interface["name"], "type": interface["type"], "state": "up"});
        let mut concerned = false;
        for family in FAMILIES {
            let Some(addresses) = interface[family]["address"].as_array() else { continue };
            let is_own = |it: &&Value| it["ip"].as_str().is_some_and(|ip| own.iter().any(|own| own == ip));
            if !addresses.iter().any(|it| is_own(&it)) {
                continue;
            }
            concerned = true;
            let others: Vec<&Value> = addresses.iter().filter(|it| !is_own(it)).collect();
            left[family] = if others.is_empty() {
                json!({"enabled": false})
            } else {
                json!({"enabled": true, "dhcp": false, "address": others})
            };
        }
        if left["type"].is_null() {
            left.as_object_mut().map(|left| left.remove("type"));
        }
        interfaces.extend(concerned.then_some(left));
    }
    json!({ "interfaces": interfaces })
}

/// The addresses of a policy's desired state, with their interfaces.
pub(super) fn interfaces(policy: &NodeNetworkConfigurationPolicy) -> Vec<(String, String)> {
    let desired = policy.spec.desired_state.clone().unwrap_or_default();
    let mut found = Vec::new();
    for interface in desired["interfaces"].as_array().into_iter().flatten() {
        for family in FAMILIES {
            let addresses = interface[family]["address"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|it| it["ip"].as_str());
            let name = interface["name"].as_str().unwrap_or_default();
            found.extend(addresses.map(|ip| (name.to_owned(), ip.to_owned())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_in_typed_and_out_again() {
        let captured = [("a".to_owned(), ("10.0.0.7".to_owned(), 24))].into();
        let desired = json!({"interfaces": [
            {"name": "eth1", "type": "ethernet", "ipv4": {"enabled": true, "address": [
                {"ip": "{{ capture.a.ip }}", "prefix-length": "{{ capture.a.prefix-length }}"}, {"ip": "10.9.9.9", "prefix-length": 32}]}},
            {"name": "{{ capture.other.interfaces.0.name }}", "description": "is {{capture.a.ip}}/{{capture.a.prefix-length}}!"},
        ]});
        let state = filled(&desired, &captured);
        let first = &state["interfaces"][0]["ipv4"]["address"];
        assert_eq!(first[0], json!({"ip": "10.0.0.7", "prefix-length": 24}));
        assert_eq!(state["interfaces"][1]["name"], "{{ capture.other.interfaces.0.name }}");
        assert_eq!(state["interfaces"][1]["description"], "is 10.0.0.7/24!");
        let left = without(&state, &["10.0.0.7".to_owned()]);
        assert_eq!(
            left,
            json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up",
                "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.9.9.9", "prefix-length": 32}]}}]})
        );
        let alone = without(&left, &["10.9.9.9".to_owned()]);
        assert_eq!(alone["interfaces"][0]["ipv4"], json!({"enabled": false}));
    }

    #[test]
    fn what_earlier_states_put_on_interfaces_is_taken_off_by_the_next_one() {
        let own = ["10.0.0.7".to_owned(), "fd00::7".to_owned()];
        let on = |name: &str, family: &str, ip: &str| json!({"name": name, "type": "ethernet", family: {"enabled": true, "address": [{"ip": ip}]}});
        let first = json!({"interfaces": [on("eth1", "ipv4", "10.0.0.7"), on("eth3", "ipv4", "10.9.9.9")]});
        let second = json!({"interfaces": [on("eth1", "ipv6", "fd00::7"), on("eth2", "ipv4", "10.0.0.7")]});
        let removals = removals(&removals(&[], &first, &own), &second, &own);
        let off = json!({"enabled": false});
        let names: Vec<&Value> = removals.iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["eth1", "eth2"], "eth3 has nothing of ours");
        assert_eq!((&removals[0]["ipv4"], &removals[0]["ipv6"]), (&off, &off));
        // A state that sets an interface's addresses itself is left alone.
        let third = json!({"routes": {}, "interfaces": [
            {"name": "eth2", "ipv4": {"enabled": true, "dhcp": false}, "mtu": 9000},
            {"name": "eth1", "ipv4": {"address": [{"ip": "10.0.0.7"}]}},
        ]});
        let state = with_removals(&third, &removals);
        assert_eq!(state["interfaces"][0]["ipv4"], json!({"enabled": true, "dhcp": false, "address": []}));
        assert_eq!(state["interfaces"][1]["ipv4"], third["interfaces"][1]["ipv4"]);
        assert_eq!(state["interfaces"][1]["ipv6"], off);
        assert_eq!(state["interfaces"].as_array().map(Vec::len), Some(2));
        let absent = json!({"interfaces": [{"name": "eth1", "state": "absent"}]});
        assert_eq!(with_removals(&absent, &removals)["interfaces"][0], absent["interfaces"][0]);
        assert_eq!(with_removals(&Value::Null, &removals)["interfaces"], json!(removals));
    }
}
