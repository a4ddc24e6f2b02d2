//! Captures on a node with two interfaces and a default route.

use super::*;

fn state() -> Value {
    json!({
        "interfaces": [
            {"name": "eth0", "type": "ethernet", "mac-address": "02:00:00:00:00:01", "mtu": 1500,
             "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.5", "prefix-length": 24}]}},
            {"name": "eth1", "type": "ethernet", "mac-address": "02:00:00:00:00:02", "mtu": 9000,
             "ipv4": {"enabled": false}},
        ],
        "routes": {
            "running": [
                {"destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1"},
                {"destination": "10.0.0.0/8", "next-hop-interface": "eth1", "next-hop-address": "192.0.2.2"},
            ],
            "config": [],
        },
    })
}

fn held(captures: &[(&str, &str)], allocated: &[(&str, &str)]) -> Result<BTreeMap<String, Value>, Refusal> {
    let texts: BTreeMap<String, String> =
        captures.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let allocated = allocated
        .iter()
        .map(|(name, address)| ((*name).to_owned(), Allocated(address.parse().unwrap())))
        .collect();
    evaluate(&Captures::parse(&texts)?, &allocated, &state())
}

#[test]
fn an_address_has_a_text_and_a_number() {
    let found = held(
        &[("v4", "ippool.a.allocate"), ("v6", "ippool.b.allocate")],
        &[("v4", "10.10.10.8/24"), ("v6", "fd00::f/116")],
    );
    let found = found.unwrap();
    assert_eq!(found["v4"], json!({"ip": "10.10.10.8", "prefix-length": 24}));
    assert_eq!(found["v6"], json!({"ip": "fd00::f", "prefix-length": 116}));
}

#[test]
fn an_address_that_is_not_allocated_yet_may_come_later() {
    let refusal = held(&[("v4", "ippool.a.allocate")], &[]).unwrap_err();
    assert_eq!(refusal.kind, crate::Kind::NotFound);
    assert!(refusal.to_string().contains("NodeIPPool \"a\""), "{refusal}");
}

#[test]
fn the_interface_of_the_default_route_is_found_and_its_routes_are_moved() {
    let found = held(
        &[
            ("gw", "routes.running.destination == \"0.0.0.0/0\""),
            ("nic", "interfaces.name == capture.gw.routes.running.0.next-hop-interface"),
            ("moved", "capture.gw | routes.running.next-hop-interface := \"br1\""),
            ("mtu", "interfaces.mtu == 9000"),
            ("mac", "interfaces.mac-address == \"02:00:00:00:00:02\""),
            ("by-address", "interfaces.ipv4.address.ip == \"192.0.2.5\""),
            ("all", "routes.running"),
            ("copy", "capture.gw"),
        ],
        &[],
    );
    let found = found.unwrap();
    assert_eq!(found["nic"]["interfaces"][0]["name"], "eth0");
    assert_eq!(found["by-address"]["interfaces"][0]["name"], "eth0");
    assert_eq!(found["mtu"]["interfaces"], found["mac"]["interfaces"]);
    assert_eq!(
        found["moved"],
        json!({"routes": {"running": [
            {"destination": "0.0.0.0/0", "next-hop-interface": "br1", "next-hop-address": "192.0.2.1"}
        ]}})
    );
    assert_eq!(found["all"], json!({"routes": {"running": state()["routes"]["running"]}}));
    assert_eq!(found["copy"], found["gw"]);
}

#[test]
fn what_the_node_does_not_have_is_named_and_may_come_later() {
    let refusal = held(&[("nic", "interfaces.name == \"eth7\"")], &[]).unwrap_err();
    assert_eq!(refusal.kind, crate::Kind::NotFound);
    assert!(refusal.to_string().contains("interfaces.name = \"eth7\""), "{refusal}");
    let refusal =
        held(&[("a", "routes.running"), ("b", "interfaces.name == capture.a.routes.running.9.x")], &[]);
    assert!(refusal.unwrap_err().to_string().contains("item 9"));
}

#[test]
fn values_are_replaced_in_all_items_and_made_where_they_are_missing() {
    let found =
        held(&[("x", "interfaces.ipv4.dhcp := false"), ("y", "interfaces.a.b := null")], &[]).unwrap();
    assert_eq!(found["x"]["interfaces"][1]["ipv4"], json!({"enabled": false, "dhcp": "false"}));
    assert_eq!(found["y"]["interfaces"][0]["a"], json!({"b": null}));
}
