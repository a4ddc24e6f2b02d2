//! The node's state in nmstate's form, for the expressions of captures.

use ipnet::IpNet;
use serde_json::{Value, json};
use tenure_linux::interface::{InterfaceRoute, InterfaceState};
use tenure_linux::link::LinkKind;

/// Interfaces, and the routes of all tables. The kernel's own routes are not among them, so `running` and `config` are the same.
pub(super) fn current(interfaces: &[InterfaceState]) -> Value {
    let name = |index: Option<u32>| {
        let found = interfaces.iter().find(|it| Some(it.index) == index);
        found.map(|it| it.name.clone()).unwrap_or_default()
    };
    let route = |it: &InterfaceRoute| {
        let mut route = json!({
            "destination": it.route.destination.to_string(),
            "next-hop-interface": name(it.route.link),
            "metric": it.route.metric,
            "table-id": it.route.table,
        });
        if let Some(gateway) = it.route.gateway {
            route["next-hop-address"] = json!(gateway.to_string());
        }
        route
    };
    let routes: Vec<Value> = interfaces.iter().flat_map(|it| it.routes.iter()).map(route).collect();
    let interfaces: Vec<Value> = interfaces.iter().map(interface).collect();
    json!({"interfaces": interfaces, "routes": {"running": routes, "config": routes}})
}

fn interface(of: &InterfaceState) -> Value {
    let family = |is_v4: bool| {
        let all = of.addresses.iter().filter(|it| it.address.addr().is_ipv4() == is_v4);
        family(is_v4, &all.map(|it| (it.address, it.leased)).collect::<Vec<_>>())
    };
    let mut interface = json!({
        "name": of.name,
        "type": kind(of),
        "state": if of.up { "up" } else { "down" },
        "mtu": of.mtu,
        "ipv4": family(true),
        "ipv6": family(false),
    });
    if let Some(mac) = of.mac {
        interface["mac-address"] = json!(mac.to_string().to_uppercase());
    }
    interface
}

/// The addresses of a family, each with the seconds for which it is leased, if it is. A copy of a leased one must not become static, so
/// the state says how long it is valid, by which nmstate knows it, and where it comes from: in IPv6 from DHCP if it is alone in its
/// network, else from a router's announcement.
fn family(is_v4: bool, all: &[(IpNet, Option<u32>)]) -> Value {
    let addresses: Vec<Value> = all.iter().map(|(it, leased)| address(*it, *leased)).collect();
    let leased =
        |alone: bool| all.iter().any(|(it, leased)| leased.is_some() && (it.prefix_len() == 128) == alone);
    let mut family = json!({"enabled": !addresses.is_empty(), "address": addresses});
    if is_v4 {
        family["dhcp"] = json!(leased(false));
    } else {
        (family["dhcp"], family["autoconf"]) = (json!(leased(true)), json!(leased(false)));
    }
    family
}

fn address(of: IpNet, leased: Option<u32>) -> Value {
    let mut address = json!({"ip": of.addr().to_string(), "prefix-length": of.prefix_len()});
    if let Some(seconds) = leased {
        address["valid-life-time"] = json!(format!("{seconds}sec"));
    }
    address
}

/// As policies name it.
fn kind(of: &InterfaceState) -> &'static str {
    match of.kind {
        LinkKind::Device if of.name == "lo" => "loopback",
        LinkKind::Device => "ethernet",
        LinkKind::Veth => "veth",
        LinkKind::Bridge => "linux-bridge",
        LinkKind::Bond => "bond",
        LinkKind::Vlan => "vlan",
        LinkKind::Other => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leased_addresses_are_not_static_ones() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let fixed = family(true, &[(net("10.0.0.1/24"), None)]);
        assert_eq!((&fixed["dhcp"], fixed.get("autoconf")), (&json!(false), None));
        let leased = family(true, &[(net("10.0.0.1/24"), None), (net("10.0.0.2/24"), Some(3_600))]);
        let addresses = json!([
            {"ip": "10.0.0.1", "prefix-length": 24},
            {"ip": "10.0.0.2", "prefix-length": 24, "valid-life-time": "3600sec"},
        ]);
        assert_eq!((&leased["dhcp"], &leased["address"]), (&json!(true), &addresses));
        for (address, leased, dhcp, autoconf) in [
            ("fd00::1/64", None, false, false),
            ("fd00::1/64", Some(60), false, true),
            ("fd00::1/128", Some(60), true, false),
        ] {
            let family = family(false, &[(net(address), leased)]);
            assert_eq!((&family["dhcp"], &family["autoconf"]), (&json!(dhcp), &json!(autoconf)), "{address}");
        }
        let none = family(true, &[]);
        assert_eq!((&none["enabled"], &none["dhcp"]), (&json!(false), &json!(false)));
    }
}
