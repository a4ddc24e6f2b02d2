//! The helper of `NetworkManager` against the real one: what it applies, keeps, takes back and refuses. Needs root.

mod bed;

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure_testbed::network_manager::Disk;
use tenure_testbed::wait::{PATIENCE, until};

use bed::{Change, NEIGHBOUR, Wire, commit, managed, refusal, with_addresses};

/// Long enough for an answer that must not come.
const A_MOMENT: Duration = Duration::from_millis(500);

#[test]
fn addresses_are_applied_changed_and_removed_and_the_profile_follows() -> Result<()> {
    let (disk, wire) = (Disk::new(&["eth9"])?, Wire::new()?);
    let node = disk.boot(&wire.node)?;
    let answer = managed(&node, &["eth1", "eth9", "eth7"])?;
    assert_eq!(answer["interfaces"], json!({"eth1": "managed", "eth9": "unmanaged", "eth7": "absent"}));
    assert_eq!(answer["networkManager"]["running"], true);
    assert_eq!(answer["networkManager"]["supported"], true);

    let mut order = with_addresses(&["192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64"]);
    order["interfaces"][0]["mtu"] = json!(1400);
    order["routes"] = json!({"config": [
        {"destination": "198.51.100.0/24", "next-hop-address": NEIGHBOUR, "next-hop-interface": "eth1"}]});
    commit(&node, "apply", &order)?;
    assert_eq!(wire.addresses("eth1")?, ["192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64"]);
    assert_eq!(wire.mtu("eth1")?, 1400);
    assert!(wire.reaches("192.0.2.10", PATIENCE) && wire.reaches("2001:db8::10", PATIENCE));
    let profiles = disk.profiles()?;
    assert_eq!(profiles.len(), 1);
    for part in ["192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64", "mtu=1400", "198.51.100.0/24"] {
        assert!(profiles[0].1.contains(part), "{part} is in the profile: {profiles:?}");
    }

    // The first address of a subnet goes, and its neighbour in it stays.
    commit(&node, "apply", &with_addresses(&["192.0.2.11/24", "192.0.2.12/24", "2001:db8::10/64"]))?;
    assert_eq!(wire.addresses("eth1")?, ["192.0.2.11/24", "192.0.2.12/24", "2001:db8::10/64"]);
    assert!(wire.reaches("192.0.2.12", PATIENCE) && !wire.reaches("192.0.2.10", A_MOMENT));
    assert_eq!(wire.mtu("eth1")?, 1400, "what is not desired stays");

    let remove = |addresses: &[&str]| {
        let addresses: Vec<Value> =
            addresses.iter().map(|address| json!({"interface": "eth1", "address": address})).collect();
        json!({ "addresses": addresses })
    };
    commit(&node, "remove", &remove(&["192.0.2.11/24"]))?;
    assert_eq!(wire.addresses("eth1")?, ["192.0.2.12/24", "2001:db8::10/64"]);
    let mut all = remove(&["192.0.2.12/24", "2001:db8::10/64"]);
    all["routes"] = json!([{"destination": "198.51.100.0/24", "next-hop-interface": "eth1"}]);
    commit(&node, "remove", &all)?;
    assert_eq!(wire.addresses("eth1")?, [""; 0]);
    let profiles = disk.profiles()?;
    assert!(
        !profiles.iter().any(|(_, text)| text.contains("192.0.2.") || text.contains("2001:db8")),
        "{profiles:?}"
    );
    // Once more: what is gone is gone.
    commit(&node, "remove", &remove(&["192.0.2.12/24"]))?;
    Ok(())
}

#[test]
fn a_bridge_of_the_full_schema_is_made_and_taken_away() -> Result<()> {
    let (disk, wire) = (Disk::new(&[])?, Wire::new()?);
    let node = disk.boot(&wire.node)?;
    let order = json!({"interfaces": [
        {"name": "br1", "type": "linux-bridge", "state": "up",
         "bridge": {"options": {"stp": {"enabled": false}}, "port": [{"name": "eth1"}]},
         "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.20", "prefix-length": 24}]},
         "ipv6": {"enabled": false}},
    ]});
    commit(&node, "apply", &order)?;
    assert_eq!(wire.addresses("br1")?, ["192.0.2.20/24"]);
    assert!(wire.reaches("192.0.2.20", PATIENCE));
    commit(
        &node,
        "apply",
        &json!({"interfaces": [{"name": "br1", "type": "linux-bridge", "state": "absent"}]}),
    )?;
    assert!(!wire.has("br1")?);
    Ok(())
}

#[test]
fn a_rollback_after_a_failing_probe_restores_addresses_and_profile() -> Result<()> {
    let (disk, wire) = (Disk::new(&[])?, Wire::new()?);
    let node = disk.boot(&wire.node)?;
    commit(&node, "apply", &with_addresses(&["192.0.2.10/24", "2001:db8::10/64"]))?;
    let before = disk.profiles()?;
    let probe = |limit| wire.node.ping(NEIGHBOUR.parse().unwrap(), limit).is_ok();
    assert!(probe(PATIENCE));

    let mut change = Change::start(&node, "apply", &with_addresses(&["203.0.113.10/24"]), 300)?;
    assert_eq!(change.line()?, json!({"applied": true}));
    assert_eq!(wire.addresses("eth1")?, ["203.0.113.10/24"]);
    assert!(!probe(A_MOMENT), "the change cuts the node off");
    assert_eq!(change.decide("rollback")?, (json!({"rolledBack": true}), true));

    assert_eq!(wire.addresses("eth1")?, ["192.0.2.10/24", "2001:db8::10/64"]);
    assert!(probe(PATIENCE));
    assert_eq!(disk.profiles()?, before);
    Ok(())
}

#[test]
fn a_change_whose_caller_or_helper_is_killed_or_that_nobody_decides_is_rolled_back() -> Result<()> {
    let (disk, wire) = (Disk::new(&[])?, Wire::new()?);
    let node = disk.boot(&wire.node)?;
    commit(&node, "apply", &with_addresses(&["192.0.2.10/24"]))?;
    let before = disk.profiles()?;
    let other = with_addresses(&["192.0.2.11/24"]);
    let is_back = || (wire.addresses("eth1").unwrap() == ["192.0.2.10/24"]).then_some(());

    // The caller: a process that has told the order and holds the helper's input.
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("order");
    writeln!(File::create(&file)?, "{other}")?;
    let caller = node.host().command("cat").arg(&file).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut caller = caller.spawn()?;
    let mut change = Change::start_reading(&node, "apply", 300, caller.stdout.take().expect("a pipe"))?;
    assert_eq!(change.line()?, json!({"applied": true}));
    assert_eq!(wire.addresses("eth1")?, ["192.0.2.11/24"]);
    caller.kill()?;
    assert_eq!(change.line()?, json!({"rolledBack": true}));
    assert!(change.process.wait().success());
    assert_eq!(wire.addresses("eth1")?, ["192.0.2.10/24"]);
    assert_eq!(disk.profiles()?, before);

    // The helper: NetworkManager itself rolls back.
    let mut change = Change::start(&node, "apply", &other, 3)?;
    assert_eq!(change.line()?, json!({"applied": true}));
    change.process.kill()?;
    until("NetworkManager's own rollback", is_back);

    // Nobody decides.
    let mut change = Change::start(&node, "apply", &other, 3)?;
    assert_eq!(change.line()?, json!({"applied": true}));
    let error = change.line()?["error"].clone();
    assert_eq!(error["reason"], "timedOut", "{error}");
    assert!(!change.process.wait().success());
    until("the rollback after the timeout", is_back);

    // A word that is no decision.
    let mut change = Change::start(&node, "apply", &other, 300)?;
    assert_eq!(change.line()?, json!({"applied": true}));
    // One change at a time.
    let error = refusal(&node, "apply", &with_addresses(&["192.0.2.12/24"]))?;
    assert_eq!((&error["reason"], &error["retry"]), (&json!("checkpointOpen"), &json!(true)), "{error}");
    let (answer, success) = change.decide("perhaps")?;
    assert_eq!(answer["error"]["reason"], "usage", "{answer}");
    assert!(!success);
    assert_eq!(wire.addresses("eth1")?, ["192.0.2.10/24"]);
    Ok(())
}

#[test]
fn a_result_that_is_not_as_desired_is_rolled_back() -> Result<()> {
    let (disk, wire) = (Disk::new(&[])?, Wire::new()?);
    let node = disk.boot(&wire.node)?;
    commit(&node, "apply", &with_addresses(&["192.0.2.10/24"]))?;
    let before = disk.profiles()?;
    // NetworkManager takes it for granted; a veth has no rings.
    let mut order = with_addresses(&["192.0.2.11/24"]);
    order["interfaces"][0]["ethtool"] = json!({"ring": {"rx": 1024}});
    let error = refusal(&node, "apply", &order)?;
    assert_eq!((&error["reason"], &error["retry"]), (&json!("verificationFailed"), &json!(true)), "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("eth1: ") && message.contains("ethtool.ring"), "{error}");
    until("the state before", || (wire.addresses("eth1").unwrap() == ["192.0.2.10/24"]).then_some(()));
    assert_eq!(disk.profiles()?, before);
    Ok(())
}

#[test]
fn what_was_committed_survives_a_restart_of_network_manager_and_a_reboot() -> Result<()> {
    let disk = Disk::new(&[])?;
    let expected = ["192.0.2.10/24", "2001:db8::10/64"];
    let wire = Wire::new()?;
    let mut node = disk.boot(&wire.node)?;
    commit(&node, "apply", &with_addresses(&expected))?;

    node.stop_network_manager()?;
    assert_eq!(wire.addresses("eth1")?, expected);
    node.start_network_manager()?;
    assert_eq!(wire.addresses("eth1")?, expected);
    commit(&node, "apply", &with_addresses(&expected))?;
    drop(node);
    drop(wire);

    // After a power cut only the disk is left, and nobody calls the helper.
    let wire = Wire::new()?;
    assert_eq!(wire.addresses("eth1")?, [""; 0]);
    let node = disk.boot(&wire.node)?;
    until("the addresses of the profile", || (wire.addresses("eth1").unwrap() == expected).then_some(()));
    assert!(wire.reaches("192.0.2.10", PATIENCE));
    let order = json!({"addresses": [{"interface": "eth1", "address": "192.0.2.10"}]});
    commit(&node, "remove", &order)?;
    assert_eq!(wire.addresses("eth1")?, ["2001:db8::10/64"]);
    Ok(())
}

#[test]
fn without_network_manager_the_answers_say_so() -> Result<()> {
    let (disk, wire) = (Disk::new(&[])?, Wire::new()?);
    let mut node = disk.mount(&wire.node)?;
    let order = with_addresses(&["192.0.2.10/24"]);
    let check_missing = |node: &_| -> Result<()> {
        let answer = managed(node, &["eth1"])?;
        assert_eq!(answer["networkManager"]["running"], false, "{answer}");
        assert_eq!(answer["interfaces"]["eth1"], "unmanaged");
        let reason = answer["networkManager"]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("NetworkManager does not run on this host"), "{reason}");
        for (verb, order) in [("apply", &order), ("remove", &json!({"addresses": []}))] {
            let error = refusal(node, verb, order)?;
            assert_eq!(error["reason"], "networkManagerMissing", "{error}");
            assert_eq!(error["message"], reason);
        }
        Ok(())
    };
    check_missing(&node)?;

    // One that is there and does not answer is not a missing one: nobody may take its interfaces meanwhile.
    node.start_network_manager()?;
    let process = node.network_manager().expect("it was started");
    process.signal(Signal::SIGSTOP)?;
    let answer = managed(&node, &["eth1"])?;
    assert_eq!(answer["interfaces"]["eth1"], "unknown", "{answer}");
    process.signal(Signal::SIGCONT)?;
    until("NetworkManager's answer", || {
        (managed(&node, &["eth1"]).unwrap()["interfaces"]["eth1"] == "managed").then_some(())
    });
    node.stop_network_manager()?;

    // Without D-Bus.
    check_missing(&node)?;
    node.stop_bus()?;
    check_missing(&node)?;
    let reason = managed(&node, &["eth1"])?["networkManager"]["reason"].to_string();
    assert!(reason.contains("`unix:path=/run/dbus/system_bus_socket`"), "{reason}");
    assert_eq!(wire.addresses("eth1")?, [""; 0]);
    Ok(())
}

#[test]
fn what_network_manager_would_not_do_is_refused_by_name_before_anything_changes() -> Result<()> {
    let (disk, wire) = (Disk::new(&["eth9"])?, Wire::new()?);
    let node = disk.boot(&wire.node)?;
    let eth1 = |key: &str, value: Value| {
        let mut order = with_addresses(&["192.0.2.10/24"]);
        order["interfaces"][0][key] = value;
        order
    };
    let bond = json!({"interfaces": [{"name": "bond0", "type": "bond", "state": "up",
        "link-aggregation": {"mode": "active-backup", "port": ["eth1", "eth9"]}}]});
    for (order, reason, interface, named) in [
        (eth1("name", json!("eth9")), "unmanaged", json!("eth9"), "does not manage eth9"),
        (bond, "unmanaged", json!("eth9"), "does not manage eth9"),
        (eth1("name", json!("eth7")), "interfaceAbsent", json!("eth7"), "eth7 does not exist"),
        (eth1("wireless", json!({})), "unsupported", json!("eth1"), "wireless"),
        (eth1("mtu", json!(9_999_999)), "unsupported", Value::Null, "9999999"),
        (
            eth1("ipv4", json!({"enabled": true, "address": [{"ip": "192.0.2.300"}]})),
            "unsupported",
            json!("eth1"),
            "192.0.2.300",
        ),
        (json!({"interfaces": [], "wireless": []}), "unsupported", Value::Null, "wireless"),
    ] {
        let error = refusal(&node, "apply", &order)?;
        assert_eq!((&error["reason"], &error["interface"]), (&json!(reason), &interface), "{error}");
        assert_eq!(error["retry"], reason == "interfaceAbsent");
        assert!(error["message"].as_str().unwrap_or_default().contains(named), "{error}");
    }
    assert_eq!(wire.addresses("eth1")?, [""; 0]);
    assert_eq!(disk.profiles()?, []);
    Ok(())
}
