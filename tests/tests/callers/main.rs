//! Callers other than a kubelet, on a host without Kubernetes: containerd's CRI, `cnitool`, and the reference plugins with
//! our addresses, in every version that they speak. Needs root; builds or installs the programs that are missing.

mod runtime;

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::alone::{Alone, first_address};

/// Every version that the reference plugins speak.
const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Those that have no CHECK.
const BEFORE_CHECK: [&str; 4] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1"];
/// Long enough for an answer to arrive that must not.
const A_MOMENT: Duration = Duration::from_millis(50);

/// A host with the reference plugins and `cnitool`. Blocks have two addresses, so that pods are of several; what a link
/// keeps for itself is not in the pool.
fn with_reference_plugins() -> (Alone, Binaries) {
    let binaries = Binaries::locate(Program::CNI).unwrap();
    let alone = Alone::running(&json!({
        "blockSizeBits": 1,
        "subnets": [{"ipv4": "10.71.0.0/24", "ipv6": "fd71::/120"}],
        "exclude": ["10.71.0.0/31", "10.71.0.254/31"],
        "cooling": "0s",
    }));
    for plugin in Program::CNI {
        alone.install(plugin.name(), binaries.path(plugin).unwrap());
    }
    (alone, binaries)
}

/// The addresses of a result, with their lengths.
fn ips(result: &Value) -> Vec<String> {
    // Before 0.3.0 there was one of each family.
    let old = ["ip4", "ip6"].iter().map(|family| &result[family]["ip"]).filter(|ip| !ip.is_null());
    let new = result["ips"].as_array().into_iter().flatten().map(|ip| &ip["address"]);
    old.chain(new).map(|ip| ip.as_str().unwrap().to_owned()).collect()
}

fn addresses(result: &Value) -> Vec<IpAddr> {
    ips(result).iter().map(|ip| ip.split('/').next().unwrap().parse().unwrap()).collect()
}

/// Attaches two pods by the configuration, lets them be reached, and takes them away again.
fn attach_two(alone: &Alone, config: &Value, reach: impl Fn(&[tenure_tests::alone::Pod], &[Value])) {
    let version = config["cniVersion"].as_str().unwrap();
    let name =
        |number: u8| format!("{}-{}-{number}", config["type"].as_str().unwrap(), version.replace('.', "-"));
    let pods = [alone.pod(&name(1)), alone.pod(&name(2))];
    let results: Vec<Value> = pods.iter().map(|pod| alone.attach("ADD", pod, config).result()).collect();
    for (pod, result) in pods.iter().zip(&results) {
        assert_eq!(result["cniVersion"], version, "{result}");
        let given = ips(result);
        assert!(given[0].starts_with("10.71.0.") && given[0].ends_with("/24"), "{result}");
        assert!(given[1].starts_with("fd71::") && given[1].ends_with("/120"), "{result}");
        if !BEFORE_CHECK.contains(&version) {
            let mut check = config.clone();
            check["prevResult"] = result.clone();
            alone.attach("CHECK", pod, &check).result();
        }
    }
    let mut held = alone.holds();
    held.sort();
    assert_eq!(held, [name(1), name(2)]);
    reach(&pods, &results);
    for pod in &pods {
        for _ in 0..2 {
            alone.attach("DEL", pod, config).result();
        }
    }
    assert_eq!(alone.holds(), Vec::<String>::new());
    for address in results.iter().map(|result| addresses(result)[0]) {
        assert!(alone.host.ping(address, A_MOMENT).is_err(), "{address} is still there");
    }
}

fn reaches(from: &tenure_testbed::hosts::Host, to: IpAddr) {
    from.ping(to, PATIENCE).unwrap_or_else(|error| panic!("{} to {to}: {error}", from.name()));
}

#[test]
fn ptp_makes_links_for_our_addresses_in_every_version() {
    let (alone, _) = with_reference_plugins();
    for version in VERSIONS {
        let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
        let config = json!({
            "cniVersion": version, "name": "pairs", "type": "ptp", "ipam": {"type": "tenure", "routes": routes},
        });
        attach_two(&alone, &config, |pods, results| {
            for address in addresses(&results[1]) {
                reaches(&alone.host, address);
                reaches(&pods[0].inside, address);
            }
            for outside in ["192.0.2.1", "2001:db8::1"] {
                reaches(&pods[0].inside, outside.parse().unwrap());
            }
        });
    }
}

#[test]
fn bridge_puts_pods_of_all_blocks_on_one_network_in_every_version() {
    let (alone, _) = with_reference_plugins();
    for version in VERSIONS {
        let config = json!({
            "cniVersion": version, "name": "bridged", "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
            "ipam": {"type": "tenure"},
        });
        attach_two(&alone, &config, |pods, results| {
            for address in addresses(&results[1]) {
                reaches(&alone.host, address);
                reaches(&pods[0].inside, address);
            }
            for gateway in ["10.71.0.1", "fd71::1", "192.0.2.1"] {
                reaches(&pods[0].inside, gateway.parse().unwrap());
            }
        });
    }
}

#[test]
fn macvlan_puts_pods_on_the_hosts_own_network_in_every_version() {
    let (alone, _) = with_reference_plugins();
    alone.neighbour.address("eth0", &["10.71.0.254/24", "fd71::fe/120"]).unwrap();
    for version in VERSIONS {
        let ipam = json!({
            "type": "tenure", "gateway": ["10.71.0.254", "fd71::fe"],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        });
        let config =
            json!({"cniVersion": version, "name": "lan", "type": "macvlan", "master": "eth0", "ipam": ipam});
        attach_two(&alone, &config, |pods, results| {
            for address in addresses(&results[1]) {
                reaches(&alone.neighbour, address);
                reaches(&pods[0].inside, address);
            }
            for beyond in ["192.0.2.2", "2001:db8::2"] {
                reaches(&pods[0].inside, beyond.parse().unwrap());
            }
        });
    }
}

#[test]
fn a_pool_that_would_give_a_pod_the_gateways_address_is_refused_with_what_to_exclude() {
    let alone = Alone::running(&json!({"subnets": [{"ipv4": "10.72.0.0/24"}]}));
    let binaries = Binaries::locate(Program::CNI).unwrap();
    alone.install("bridge", binaries.path(Program::Bridge).unwrap());
    let config = json!({
        "cniVersion": "1.0.0", "name": "bridged", "type": "bridge", "isGateway": true, "ipam": {"type": "tenure"},
    });
    let said = alone.attach("ADD", &alone.pod("one"), &config);
    assert_eq!(said.json["code"], 7, "{said:?}");
    let words = r#"exclude: ["10.72.0.0", "10.72.0.1", "10.72.0.255"]"#;
    assert!(said.json["details"].as_str().unwrap_or_default().contains(words), "{said:?}");
}

#[test]
fn the_status_reaches_us_through_the_plugin_in_front_and_garbage_is_collected_for_it() {
    let (mut alone, _) = with_reference_plugins();
    let mut config =
        json!({"cniVersion": "1.1.0", "name": "bridged", "type": "bridge", "ipam": {"type": "tenure"}});
    let (kept, gone) = (alone.pod("kept"), alone.pod("gone"));
    for pod in [&kept, &gone] {
        alone.attach("ADD", pod, &config).result();
    }
    alone.call("STATUS", "", None, &config).result();
    config["cni.dev/valid-attachments"] = json!([{"containerID": "kept", "ifname": "eth0"}]);
    // The reference plugins do not pass it on, so it is for those who know of us.
    alone.call_as("tenure", "GC", "", None, &config).result();
    assert_eq!(alone.holds(), ["kept"]);
    alone.kill();
    let down = alone.call("STATUS", "", None, &config);
    assert_eq!(down.json["code"], 50, "{down:?}");
}

/// Runs `cnitool`; what it printed, or what it complained about.
fn cnitool(
    alone: &Alone,
    verb: &str,
    network: &str,
    pod: &tenure_tests::alone::Pod,
) -> Result<String, String> {
    let command = alone.host.command("/opt/cni/bin/cnitool").args([verb, network]).arg(&pod.path);
    let command = command.env("NETCONFPATH", "/etc/cni/net.d").env("CNI_PATH", "/opt/cni/bin");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(said + &String::from_utf8_lossy(&output.stderr)) }
}

#[test]
fn cnitool_adds_checks_deletes_and_collects() {
    // With the files that people are told to begin with.
    let mut alone = Alone::new();
    alone.write("/etc/tenure/pools/default.yaml", include_str!("../../../deploy/standalone/default.yaml"));
    alone.write(
        "/etc/cni/net.d/10-tenure.conflist",
        include_str!("../../../deploy/standalone/10-tenure.conflist"),
    );
    let binaries = Binaries::locate([Program::Cnitool]).unwrap();
    alone.install("cnitool", binaries.path(Program::Cnitool).unwrap());
    alone.start();
    let pod = alone.pod("tool");
    until("a pool", || cnitool(&alone, "status", "pods", &pod).ok());
    let added: Value = serde_json::from_str(&cnitool(&alone, "add", "pods", &pod).unwrap()).unwrap();
    reaches(&alone.host, first_address(&added));
    cnitool(&alone, "check", "pods", &pod).unwrap();
    pod.inside.ip("address flush dev eth0").unwrap();
    let told = cnitool(&alone, "check", "pods", &pod).unwrap_err();
    assert!(told.contains(&first_address(&added).to_string()), "CHECK names what is missing: {told}");
    cnitool(&alone, "del", "pods", &pod).unwrap();
    assert_eq!(alone.holds(), Vec::<String>::new());

    // It deletes all that it knows of, and then asks for a collection without saying who is alive.
    cnitool(&alone, "add", "pods", &pod).unwrap();
    let told = cnitool(&alone, "gc", "pods", &pod).unwrap_err();
    assert!(told.contains("cni.dev/valid-attachments is missing"), "{told}");
    assert_eq!(alone.holds(), Vec::<String>::new());
}

#[test]
fn after_another_main_plugin_we_say_how_it_should_be() {
    let (alone, _) = with_reference_plugins();
    let first = json!({"type": "ptp", "ipam": {"type": "tenure"}});
    let list = json!({"cniVersion": "1.0.0", "name": "both", "plugins": [first, {"type": "tenure"}]});
    alone.write("/etc/cni/net.d/10-both.conflist", &list.to_string());
    let pod = alone.pod("both");
    let told = cnitool(&alone, "add", "both", &pod).unwrap_err();
    assert!(
        told.contains("prevResult is set: another plugin of network \"both\" made an interface"),
        "{told}"
    );
    cnitool(&alone, "del", "both", &pod).unwrap();
    assert_eq!(alone.holds(), Vec::<String>::new());
}
