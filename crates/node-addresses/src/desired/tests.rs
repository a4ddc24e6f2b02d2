//! What is read, and what is refused with its path.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(value: &Value) -> Result<DesiredState, String> {
    DesiredState::parse(value).map_err(|refusal| refusal.to_string())
}

/// An interface with this in it.
fn with(more: Value) -> Value {
    let mut interface = json!({"name": "eth1"});
    if let (Some(into), Value::Object(from)) = (interface.as_object_mut(), more) {
        into.extend(from);
    }
    json!({"interfaces": [interface]})
}

#[test]
fn the_policy_of_the_seed_is_understood() {
    let state = json!({"interfaces": [
        {"name": "eth1", "type": "ethernet", "state": "up",
         "ipv4": {"address": [{"ip": "10.10.10.8", "prefix-length": 24}], "dhcp": false, "enabled": true}},
        {"name": "eth2", "type": "ethernet", "state": "up", "mtu": 1400,
         "ipv4": {"address": [{"ip": "10.10.11.9", "prefix-length": "24"}], "dhcp": "false", "enabled": true},
         "ipv6": {"address": [{"ip": "fd00::9", "prefix-length": 64}], "autoconf": false, "enabled": true}},
    ], "routes": {"config": [
        {"destination": "198.51.100.0/24", "next-hop-interface": "eth1", "next-hop-address": "10.10.10.1"},
        {"destination": "::/0", "next-hop-interface": "eth2", "next-hop-address": "fd00::1", "metric": 50, "table-id": 254},
    ]}});
    let read = parse(&state).unwrap();
    let addresses: Vec<String> = read.addresses().map(|(name, it)| format!("{name} {it}")).collect();
    assert_eq!(addresses, ["eth1 10.10.10.8/24", "eth2 10.10.11.9/24", "eth2 fd00::9/64"]);
    assert_eq!(read.interfaces[1].mtu, Some(1400));
    assert_eq!(read.interfaces[0].kind, Some(InterfaceKind::Ethernet));
    assert_eq!((read.routes[0].metric, read.routes[1].metric), (None, Some(50)));
    let again: DesiredState = serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
    assert_eq!(again, read, "the state file keeps it");
}

#[test]
fn every_other_key_is_refused_with_its_path() {
    let v4 = |more: Value| with(json!({"ipv4": more}));
    for (state, path) in [
        (json!({"dns-resolver": {}, "interfaces": []}), "desiredState.dns-resolver"),
        (json!({"interfaces": []}), "desiredState.interfaces"),
        (json!([]), "desiredState"),
        (json!({"interfaces": {}}), "desiredState.interfaces"),
        (json!({"interfaces": [{}]}), "desiredState.interfaces[0].name"),
        (json!({"interfaces": [{"name": "lo"}]}), "desiredState.interfaces[0].name"),
        (json!({"interfaces": [{"name": "a/b"}]}), "desiredState.interfaces[0].name"),
        (json!({"interfaces": [{"name": "a"}, {"name": "a"}]}), "desiredState.interfaces[1].name"),
        (with(json!({"type": "ovs-bridge"})), "desiredState.interfaces[0].type"),
        (with(json!({"state": "absent"})), "desiredState.interfaces[0].state"),
        (with(json!({"mtu": 60})), "desiredState.interfaces[0].mtu"),
        (with(json!({"mac-address": "02:00:00:00:00:01"})), "desiredState.interfaces[0].mac-address"),
        (with(json!({"ethernet": {"sr-iov": {}}})), "desiredState.interfaces[0].ethernet"),
        (with(json!({"vlan": {"id": 7}})), "desiredState.interfaces[0].vlan"),
        (v4(json!({"dhcp": true})), "desiredState.interfaces[0].ipv4.dhcp"),
        (v4(json!({"enabled": false})), "desiredState.interfaces[0].ipv4.enabled"),
        (v4(json!({"autoconf": false})), "desiredState.interfaces[0].ipv4.autoconf"),
        (v4(json!({"auto-dns": false})), "desiredState.interfaces[0].ipv4.auto-dns"),
        (
            v4(json!({"address": [{"ip": "fd00::1", "prefix-length": 64}]})),
            "desiredState.interfaces[0].ipv4.address[0].ip",
        ),
        (
            v4(json!({"address": [{"ip": "224.0.0.1", "prefix-length": 24}]})),
            "desiredState.interfaces[0].ipv4.address[0].ip",
        ),
        (
            v4(json!({"address": [{"ip": "10.0.0.1", "prefix-length": 33}]})),
            "desiredState.interfaces[0].ipv4.address[0].prefix-length",
        ),
        (
            v4(json!({"address": [{"ip": "10.0.0.1"}]})),
            "desiredState.interfaces[0].ipv4.address[0].prefix-length",
        ),
        (
            v4(json!({"address": [{"ip": "10.0.0.1", "prefix-length": 24, "valid-left": "9s"}]})),
            "desiredState.interfaces[0].ipv4.address[0].valid-left",
        ),
        (
            v4(
                json!({"address": [{"ip": "10.0.0.1", "prefix-length": 24}, {"ip": "10.0.0.1", "prefix-length": 25}]}),
            ),
            "desiredState.interfaces[0].ipv4.address[1].ip",
        ),
    ] {
        let refusal = parse(&state).unwrap_err();
        assert!(refusal.starts_with(&format!("{path}: ")), "{path}: {refusal}");
        assert!(refusal.contains("accepted "), "{refusal}");
    }
}

#[test]
fn routes_are_of_the_policys_interfaces_and_of_one_family() {
    let route = |more: Value| {
        let mut state = with(json!({}));
        state["routes"] = json!({"config": [more]});
        parse(&state)
    };
    let whole = json!({"destination": "10.0.0.0/8", "next-hop-interface": "eth1"});
    assert!(route(whole).is_ok());
    for (more, key) in [
        (json!({"next-hop-interface": "eth1"}), "destination"),
        (json!({"destination": "10.0.0.1/8", "next-hop-interface": "eth1"}), "destination"),
        (json!({"destination": "10.0.0.0/8", "next-hop-interface": "eth0"}), "next-hop-interface"),
        (
            json!({"destination": "10.0.0.0/8", "next-hop-interface": "eth1", "next-hop-address": "fd00::1"}),
            "next-hop-address",
        ),
        (json!({"destination": "10.0.0.0/8", "next-hop-interface": "eth1", "state": "absent"}), "state"),
        (json!({"destination": "10.0.0.0/8", "next-hop-interface": "eth1", "metric": -1}), "metric"),
    ] {
        let refusal = route(more).unwrap_err();
        assert!(refusal.starts_with(&format!("desiredState.routes.config[0].{key}: ")), "{key}: {refusal}");
    }
    let mut state = with(json!({}));
    state["routes"] = json!({"running": []});
    assert!(parse(&state).unwrap_err().starts_with("desiredState.routes.running: "));
}

/// Any JSON of the words that the schema has, and others.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "interfaces",
        "routes",
        "config",
        "name",
        "type",
        "state",
        "mtu",
        "ipv4",
        "ipv6",
        "address",
        "ip",
        "eth1",
        "prefix-length",
        "enabled",
        "dhcp",
        "up",
        "ethernet",
        "10.0.0.1",
        "fd00::1",
        "24",
        "true",
        "other",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..5).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    /// No state makes it panic, and a refusal names a path and says what is accepted.
    #[test]
    fn invariant_10_no_desired_state_makes_it_panic(state in any_json()) {
        if let Err(refusal) = parse(&state) {
            prop_assert!(refusal.starts_with("desiredState") && refusal.contains("accepted "), "{}", refusal);
        }
    }

    /// A key that is not of the schema is refused wherever it stands.
    #[test]
    fn no_key_is_passed_over(key in "[a-z]{3,9}x", place in 0..5_usize) {
        let mut state = json!({"interfaces": [{"name": "eth1", "ipv4": {"address": [{"ip": "10.0.0.1", "prefix-length": 24}]}}],
            "routes": {"config": [{"destination": "10.0.0.0/8", "next-hop-interface": "eth1"}]}});
        prop_assert!(parse(&state).is_ok());
        let pointer = ["", "/interfaces/0", "/interfaces/0/ipv4", "/interfaces/0/ipv4/address/0", "/routes/config/0"][place];
        state.pointer_mut(pointer).unwrap().as_object_mut().unwrap().insert(key.clone(), json!(1));
        let refusal = parse(&state).unwrap_err();
        prop_assert!(refusal.contains(&format!(".{key}: ")), "{}", refusal);
    }
}
