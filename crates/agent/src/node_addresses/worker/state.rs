//! What is read of a desired state in nmstate's schema.

use ipnet::IpNet;
use serde_json::Value;
use tenure_node_addresses::DesiredState;
use tenure_node_addresses::desired::Interface;

/// Removes fields without a value: a patch of the status could not say them.
pub(super) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The interfaces of a desired state, and whether each is of a type that NetworkManager can make.
pub(super) fn interfaces_of(state: &Value) -> Vec<(String, bool)> {
    let all = state["interfaces"].as_array().into_iter().flatten();
    all.filter_map(|it| {
        let makes = matches!(it["type"].as_str(), Some("vlan" | "bond" | "linux-bridge" | "dummy"));
        Some((it["name"].as_str()?.to_owned(), makes))
    })
    .collect()
}

/// What can be looked up in the kernel of a state in nmstate's whole schema: interfaces and addresses.
pub(super) fn addresses_of(state: &Value) -> DesiredState {
    let all = state["interfaces"].as_array().into_iter().flatten();
    let address = |it: &Value| {
        let ip = it["ip"].as_str()?.parse().ok()?;
        let length = &it["prefix-length"];
        let length = length.as_u64().or_else(|| length.as_str()?.parse().ok())?;
        IpNet::new(ip, u8::try_from(length).ok()?).ok()
    };
    let interfaces = all.filter_map(|it| {
        let families = ["ipv4", "ipv6"].into_iter().filter_map(|family| it[family]["address"].as_array());
        // Leased ones that a capture copied stay leased.
        let fixed = families
            .flatten()
            .filter(|it| it["valid-life-time"].is_null() || it["valid-life-time"] == "forever");
        let addresses = fixed.filter_map(address).collect();
        Some(Interface { name: it["name"].as_str()?.to_owned(), kind: None, mtu: None, addresses })
    });
    DesiredState { interfaces: interfaces.collect(), routes: Vec::new() }
}
