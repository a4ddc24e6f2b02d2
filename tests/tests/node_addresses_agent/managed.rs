//! Interfaces that the real `NetworkManager` manages: the agent configures them by its helper program, as the image has it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::hosts::Host;
use tenure_testbed::network_manager::Disk;
use tenure_tests::agent::Cluster;
use tenure_tests::node_addresses::{Bed, cluster, interface, texts};

const ONE: (&str, &str, &str) = ("one", "ippool.traffic-1.allocate", "10.10.10.8/24");
const SIX: (&str, &str, &str) = ("six", "ippool.traffic-6.allocate", "fd10::8/64");
const TWO: (&str, &str, &str) = ("two", "ippool.traffic-2.allocate", "10.10.11.9/24");

/// The helper, whose answers the test can hold back: so it knows when a change is applied and not yet confirmed.
struct Helper {
    directory: tempfile::TempDir,
}

impl Helper {
    fn new() -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let program = BUILT.get_or_init(tenure_tests::programs::nmstate);
        let directory = tempfile::tempdir().unwrap();
        let helper = Self { directory };
        let (program, held) = (program.display(), helper.held());
        let held = held.display();
        let relay = format!(
            "#!/bin/sh\n[ \"$1\" = managed ] && exec {program} \"$@\"\n{program} \"$@\" | while read -r line; do\n\
             while [ -e {held} ]; do sleep 0.05; done\necho \"$line\"\ndone\n"
        );
        fs::write(helper.path(), relay).unwrap();
        fs::set_permissions(helper.path(), fs::Permissions::from_mode(0o755)).unwrap();
        helper
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("helper")
    }

    fn held(&self) -> PathBuf {
        self.directory.path().join("hold")
    }

    /// Holds back what the next helpers answer to a change. The question who manages an interface is answered.
    fn hold(&self) {
        fs::write(self.held(), "").unwrap();
    }

    fn let_go(&self) {
        fs::remove_file(self.held()).unwrap();
    }
}

/// A machine whose agent asks `NetworkManager`, and is not started yet.
fn bed<'a>(cluster: &'a Cluster, helper: &Helper) -> (Bed<'a>, Arc<Host>) {
    let mut bed = Bed::new(cluster);
    bed.machine.arguments = vec![
        "--node-probe".into(),
        "2s".into(),
        "--nmstate-helper".into(),
        helper.path().display().to_string(),
    ];
    let host = Arc::clone(&bed.machine.host);
    (bed, host)
}

/// Addresses of both families, a route and an MTU on `eth1`.
fn both() -> Value {
    let mut eth1 = interface("eth1", "one");
    eth1["mtu"] = json!(1400);
    eth1["ipv6"] = json!({"enabled": true, "dhcp": false, "autoconf": false, "address": [
        {"ip": "{{ capture.six.ip }}", "prefix-length": "{{ capture.six.prefix-length }}"}
    ]});
    json!({"interfaces": [eth1], "routes": {"config": [
        {"destination": "198.51.100.0/24", "next-hop-address": "10.10.10.200", "next-hop-interface": "eth1"}
    ]}})
}

fn mode(bed: &Bed<'_>, policy: &str) -> Option<String> {
    bed.enactment(policy).status.and_then(|it| it.applied).and_then(|it| it.mode)
}

fn routes(bed: &Bed<'_>) -> usize {
    let routes = bed.machine.host.namespace().ip_json(&["route", "show", "198.51.100.0/24"]).unwrap();
    routes.as_array().unwrap().len()
}

/// Whether a profile has this text.
fn has_profile(disk: &Disk, text: &str) -> bool {
    disk.profiles().unwrap().iter().any(|(_, profile)| profile.contains(text))
}

#[test]
fn an_interface_of_network_manager_gets_its_addresses_by_profiles_that_outlive_agent_and_node() {
    let (cluster, helper, disk) = (cluster(), Helper::new(), Disk::new(&["uplink"]).unwrap());
    let (mut bed, host) = bed(&cluster, &helper);
    let node = disk.boot(&host).unwrap();
    bed.machine.start();
    let policy = bed.policy("managed", &[ONE, SIX], &both());
    let applied = bed.until_available(&policy).status.unwrap().applied.unwrap();
    assert_eq!(applied.mode.as_deref(), Some("networkManager"));
    let found: Vec<String> =
        applied.addresses.iter().map(|it| format!("{} {}", it.interface, it.address)).collect();
    assert_eq!(found, ["eth1 10.10.10.8/24", "eth1 fd10::8/64"]);
    assert_eq!((bed.addresses("eth1"), routes(&bed)), (texts(&["10.10.10.8/24", "fd10::8/64"]), 1));
    bed.ping("10.10.10.200");
    assert!(has_profile(&disk, "10.10.10.8/24") && has_profile(&disk, "mtu=1400"));

    // Another generation: the other interface, and neither route nor IPv6.
    bed.change(&policy, &json!({"interfaces": [interface("eth2", "one")]}));
    bed.until_addresses("eth2", &["10.10.10.8/24"]);
    bed.until_available(&policy);
    assert_eq!((bed.addresses("eth1"), routes(&bed)), (texts(&[]), 0), "nothing is left behind");
    assert!(!has_profile(&disk, "fd10::8") && !has_profile(&disk, "198.51.100.0"));
    bed.change(&policy, &both());
    bed.until_addresses("eth1", &["10.10.10.8/24", "fd10::8/64"]);
    bed.until_available(&policy);
    assert_eq!((bed.addresses("eth2"), routes(&bed)), (texts(&[]), 1));

    // The node reboots, and its profiles are there before the API server is.
    bed.machine.gate.shut();
    drop(node);
    bed.machine.reboot();
    bed.machine.host.ip("address flush dev eth1\nlink set dev eth1 down").unwrap();
    let mut node = disk.boot(&host).unwrap();
    bed.machine.launch();
    bed.until_addresses("eth1", &["10.10.10.8/24", "fd10::8/64"]);
    bed.machine.gate.reopen();
    bed.until_available(&policy);
    // NetworkManager is restarted, then the agent is.
    node.stop_network_manager().unwrap();
    node.start_network_manager().unwrap();
    bed.until_addresses("eth1", &["10.10.10.8/24", "fd10::8/64"]);
    bed.machine.kill();
    bed.machine.start();
    bed.delete(&policy);
    bed.until_released(&policy);
    assert_eq!((bed.addresses("eth1"), routes(&bed)), (texts(&[]), 0));
    assert!(
        !has_profile(&disk, "10.10.10.8") && !has_profile(&disk, "198.51.100.0"),
        "no boot puts them back"
    );
}

#[test]
fn a_change_of_network_manager_that_cuts_the_node_off_or_loses_its_agent_is_taken_back() {
    let (cluster, helper, disk) = (cluster(), Helper::new(), Disk::new(&["uplink"]).unwrap());
    let (mut bed, host) = bed(&cluster, &helper);
    let _node = disk.boot(&host).unwrap();
    bed.machine.start();
    let policy = bed.policy("cut", &[ONE, TWO], &json!({"interfaces": [interface("eth1", "one")]}));
    bed.until_available(&policy);
    let before = disk.profiles().unwrap();

    // The way to the API server ends with the change.
    let other = json!({"interfaces": [interface("eth1", "two")]});
    helper.hold();
    bed.change(&policy, &other);
    bed.until_addresses("eth1", &["10.10.11.9/24"]);
    bed.machine.gate.freeze();
    helper.let_go();
    bed.until_addresses("eth1", &["10.10.10.8/24"]);
    assert_eq!(disk.profiles().unwrap(), before);
    helper.hold();
    bed.machine.gate.thaw();
    let failing = bed.until_failing(&policy, "out of reach for 2 s, so it was taken back");
    let applied = failing.status.unwrap().applied.unwrap();
    assert_eq!(applied.addresses[0].address, "10.10.10.8/24", "it says what is there");

    // The next attempt loses its agent, and with it its confirmation.
    bed.until_addresses("eth1", &["10.10.11.9/24"]);
    bed.machine.kill();
    bed.until_addresses("eth1", &["10.10.10.8/24"]);
    helper.let_go();
    bed.machine.start();
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.11.9/24"]));
}

#[test]
fn what_network_manager_does_not_manage_or_cannot_do_now_is_told_at_once() {
    let (cluster, helper, disk) = (cluster(), Helper::new(), Disk::new(&["uplink", "eth2"]).unwrap());
    let (mut bed, host) = bed(&cluster, &helper);
    let mut node = disk.boot(&host).unwrap();
    bed.machine.start();
    // One of two is managed.
    let desired = json!({"interfaces": [interface("eth1", "one"), interface("eth2", "two")]});
    let mixed = bed.policy("mixed", &[ONE, TWO], &desired);
    bed.until_failing(&mixed, "NetworkManager manages interface \"eth1\" and not \"eth2\"");
    // One that nothing manages is the agent's, within what the agent can do.
    let mut dynamic = interface("eth2", "two");
    dynamic["ethtool"] = json!({"ring": {"rx": 1024}});
    bed.change(&mixed, &json!({"interfaces": [dynamic]}));
    bed.until_failing(&mixed, "desiredState.interfaces[0].ethtool");
    bed.change(&mixed, &json!({"interfaces": [interface("eth2", "two")]}));
    bed.until_available(&mixed);
    assert_eq!(mode(&bed, &mixed).as_deref(), Some("kernel"));

    // What it has configured is not taken over while it does not run.
    let policy = bed.policy("theirs", &[ONE], &json!({"interfaces": [interface("eth1", "one")]}));
    bed.until_available(&policy);
    assert_eq!(mode(&bed, &policy).as_deref(), Some("networkManager"));
    node.stop_network_manager().unwrap();
    let mut larger = interface("eth1", "one");
    larger["mtu"] = json!(1400);
    bed.change(&policy, &json!({"interfaces": [larger]}));
    bed.until_failing(&policy, "NetworkManager does not run on this host");
    bed.delete(&policy);
    bed.until_failing(&policy, "NetworkManager does not run on this host");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.8/24"]), "its profile would put it back");
    node.start_network_manager().unwrap();
    bed.until_released(&policy);
    assert!(!has_profile(&disk, "10.10.10.8"));
}

#[test]
fn an_address_in_a_profile_that_is_not_active_is_not_given_back() {
    let (cluster, helper, disk) = (cluster(), Helper::new(), Disk::new(&["uplink"]).unwrap());
    let (mut bed, host) = bed(&cluster, &helper);
    let node = disk.boot(&host).unwrap();
    bed.machine.start();
    let policy = bed.policy("asleep", &[ONE], &json!({"interfaces": [interface("eth1", "one")]}));
    bed.until_available(&policy);
    // The interface loses its address, and its profile keeps it.
    node.nmcli(&["device", "disconnect", "eth1"]).unwrap();
    bed.until_addresses("eth1", &[]);
    bed.delete(&policy);
    bed.until_failing(&policy, "has address 10.10.10.8 for eth1 and is not active");
    node.nmcli(&["device", "connect", "eth1"]).unwrap();
    bed.until_released(&policy);
    assert!(!has_profile(&disk, "10.10.10.8"), "{:?}", disk.profiles().unwrap());
}
