//! What the plugin answers, verb by verb.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use tenure_tests::agent::{Cluster, Machine, assert_distinct, config};

#[test]
fn an_add_without_a_pod_or_without_half_its_name_is_refused() {
    let cluster = Cluster::shared();
    let machine = Machine::running(&cluster);
    let pod = machine.pod("web");
    for (args, missing) in [
        ("IgnoreUnknown=1", "K8S_POD_NAMESPACE"),
        ("K8S_POD_NAMESPACE=default", "K8S_POD_NAME"),
        ("K8S_POD_NAME=web", "K8S_POD_NAMESPACE"),
    ] {
        let called = machine.exec("ADD", &pod.container, &pod.path, args, &config());
        assert_eq!(called.refused(), 4, "{called:?}");
        assert!(called.json["msg"].as_str().unwrap().contains(missing), "{called:?}");
    }
    let nowhere = "K8S_POD_NAMESPACE=nowhere;K8S_POD_NAME=web";
    let called = machine.exec("ADD", &pod.container, &pod.path, nowhere, &config());
    assert_eq!(called.refused(), 11, "{called:?}");
    assert!(called.json["msg"].as_str().unwrap().contains("nowhere"), "{called:?}");
    assert!(!pod.has_interface());
}

#[test]
fn an_add_gives_both_families_and_an_annotated_namespace_uses_its_pool() {
    let cluster = Cluster::shared();
    cluster.tenant("s2", 4, json!([{"ipv4": "10.80.0.0/24"}]));
    let machine = Machine::running(&cluster);
    let (web, other) = (machine.pod("web"), machine.pod_in("s2", "other"));
    let called = machine.call("ADD", &web);
    let addresses = called.addresses();
    assert!(addresses.len() == 2 && addresses[0].is_ipv4() && addresses[1].is_ipv6(), "{called:?}");
    assert_eq!(called.json["cniVersion"], "1.1.0");
    let interfaces = called.json["interfaces"].as_array().unwrap();
    let sandbox = |interface: &Value| interface["sandbox"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (interfaces[0]["name"].as_str(), sandbox(&interfaces[0])),
        (Some("eth0"), "/run/netns/web".to_owned())
    );
    assert!(machine.links().iter().any(|link| interfaces[1]["name"] == json!(link)), "{called:?}");
    assert_eq!(sandbox(&interfaces[1]), "");
    let addresses = machine.add(&other);
    let first: IpAddr = "10.80.0.0".parse().unwrap();
    assert_eq!(addresses, [first]);
    // Every version gets its own shape, and the same address: it is the same ADD.
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let mut config = config();
        config["cniVersion"] = json!(version);
        let again = machine.call_with("ADD", &other, &config);
        assert_eq!((again.json["cniVersion"].as_str(), again.addresses()), (Some(version), vec![first]));
    }
}

#[test]
fn a_log_line_says_verb_namespace_container_interface_and_pod() {
    let cluster = Cluster::shared();
    let machine = Machine::running(&cluster);
    let pod = machine.pod("web");
    machine.add(&pod);
    let log = machine.log();
    let line = log.lines().find(|line| line.contains("cni{")).unwrap_or_else(|| panic!("{log}"));
    for said in ["ADD", "web-sandbox", "eth0", "/run/netns/web", "namespace=\"default\"", "pod=\"web\""] {
        assert!(line.contains(said), "{said} is not in {line}");
    }
}

#[test]
fn a_failed_setup_is_retried_with_success_and_a_failed_allocation_is_told() {
    let cluster = Cluster::shared();
    cluster.namespace("s4", Some("s4-is-not-there"));
    let machine = Machine::running(&cluster);
    let pod = machine.pod("web");
    let args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web";
    let failed = machine.exec("ADD", &pod.container, Path::new("/run/netns/nowhere"), args, &config());
    assert_eq!(failed.refused(), 3, "{failed:?}");
    assert_eq!(machine.table(116), Vec::<String>::new(), "a failed ADD left routes");
    // Something of the pod's own is in the way.
    pod.network.ip("link add eth0 type veth peer name eth1").unwrap();
    let failed = machine.call("ADD", &pod);
    assert_ne!(failed.code, 0, "{failed:?}");
    pod.network.ip("link del eth0").unwrap();
    let addresses = machine.add(&pod);
    machine.assert_reached(&pod, &addresses);
    let other = machine.pod_in("s4", "other");
    let refused = machine.call("ADD", &other);
    assert_eq!(refused.refused(), 11, "{refused:?}");
    assert!(refused.json["msg"].as_str().unwrap().contains("s4-is-not-there"), "{refused:?}");
}

#[test]
fn check_tells_what_is_wrong_and_del_succeeds_however_often() {
    let cluster = Cluster::shared();
    let machine = Machine::running(&cluster);
    let pod = machine.pod("web");
    assert_ne!(machine.call("CHECK", &pod).code, 0, "nothing was added");
    let added = machine.call("ADD", &pod);
    added.succeeded();
    let mut check = config();
    check["prevResult"] = added.json.clone();
    machine.call_with("CHECK", &pod, &check).succeeded();
    pod.network.ip("link set eth0 down").unwrap();
    let wrong = machine.call_with("CHECK", &pod, &check);
    assert!(wrong.code != 0 && wrong.stderr.contains("eth0"), "{wrong:?}");
    pod.network.ip("link set eth0 up").unwrap();
    for _ in 0..2 {
        machine.del(&pod);
        machine.until_gone(&pod);
        assert_ne!(machine.call_with("CHECK", &pod, &check).code, 0);
    }
    // The namespace is gone before the DEL: nothing to do is success.
    let gone = machine.pod("gone");
    machine.add(&gone);
    machine.host.command("ip").args(["netns", "del", "gone"]).succeed().unwrap();
    machine.del(&gone);
    assert_eq!(machine.table(116), Vec::<String>::new());
}

#[test]
fn gc_ends_what_is_not_alive_and_leaves_the_rest() {
    let cluster = Cluster::shared();
    let machine = Machine::running(&cluster);
    let (stays, goes) = (machine.pod("stays"), machine.pod("goes"));
    let (kept, freed) = (machine.add(&stays), machine.add(&goes));
    let mut gc = config();
    gc["cni.dev/valid-attachments"] = json!([{"containerID": stays.container, "ifname": "eth0"}]);
    machine.exec("GC", "", Path::new(""), "", &gc).succeeded();
    machine.until_gone(&goes);
    assert!(stays.has_interface());
    let routes = machine.table(116);
    assert!(kept.iter().all(|address| routes.contains(&address.to_string())), "{routes:?}");
    assert!(!freed.iter().any(|address| routes.contains(&address.to_string())), "{routes:?}");
    // Who does not say who is alive gets nothing done.
    assert_eq!(machine.exec("GC", "", Path::new(""), "", &config()).refused(), 7);
    assert!(stays.has_interface());
}

#[test]
fn the_socket_is_for_root_alone() {
    let cluster = Cluster::shared();
    let mut machine = Machine::running(&cluster);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&machine.file("")), mode(&machine.file("tenured.sock"))), (0o700, 0o600));
    let pod = machine.pod("web");
    machine.add(&pod);
    assert_eq!(mode(&machine.file("journal")), 0o600);
    machine.kill();
    machine.del(&pod);
    let entries = std::fs::read_dir(machine.file("tombstones")).unwrap();
    let modes: Vec<u32> = entries.map(|entry| mode(&entry.unwrap().path())).collect();
    assert_eq!((mode(&machine.file("tombstones")), modes), (0o700, vec![0o600]));
}

#[test]
fn an_add_or_del_in_a_known_namespace_asks_the_api_server_nothing() {
    let cluster = Cluster::shared();
    cluster.tenant("quiet", 8, json!([{"ipv4": "10.81.0.0/20"}]));
    let machine = Machine::running(&cluster);
    // The first one brings the block.
    machine.add(&machine.pod_in("quiet", "first"));
    let pods: Vec<_> = (0..20).map(|number| machine.pod_in("quiet", &format!("pod{number}"))).collect();
    // What comes after the block has passed when the request is gone and nothing was said for a while.
    machine.until("the request to go", || cluster.requests_of(&machine.name).is_empty().then_some(()));
    let mut before = machine.gate.sent();
    machine.until("silence", || {
        std::thread::sleep(tenure_tests::agent::A_MOMENT * 3);
        let said = std::mem::replace(&mut before, machine.gate.sent());
        (said == before).then_some(())
    });
    let addresses: Vec<_> = pods.iter().flat_map(|pod| machine.add(pod)).collect();
    assert_distinct(&addresses);
    for pod in &pods {
        machine.del(pod);
    }
    assert_eq!(machine.gate.sent(), before, "bytes were sent to the API server");
}
