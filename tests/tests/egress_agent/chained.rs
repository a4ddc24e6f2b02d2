//! Pods whose addresses another plugin gives.

use serde_json::{Value, json};
use tenure_tests::agent::{Cluster, Pod};
use tenure_tests::egress::inside::{is_plain, table};

use super::bed::Bed;

/// What a plugin before this one answers, with things that this one does not know.
fn previous(pod: &Pod) -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "cali1", "mac": "0a:00:00:00:00:02", "mtu": 1450},
            {"name": "eth0", "mac": "0a:00:00:00:00:01", "mtu": 1450, "sandbox": pod.path, "socketPath": "/s", "pciID": "0"},
        ],
        "ips": [{"address": "10.77.0.7/32", "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1", "priority": 7}],
        "dns": {"nameservers": ["10.96.0.10"], "search": ["shop.svc"]},
    })
}

fn chained(pod: &Pod) -> Value {
    json!({"cniVersion": "1.1.0", "name": "other", "type": "coil", "prevResult": previous(pod)})
}

/// Does what a plugin before this one does.
fn attach(pod: &Pod) {
    for command in [
        "link add eth0 type veth peer name peer",
        "link set eth0 up",
        "link set peer up",
        "addr add 10.77.0.7/32 dev eth0",
        "route add default dev eth0",
    ] {
        pod.network.ip(command).unwrap();
    }
}

#[test]
fn after_another_plugin_only_egress_is_added_and_the_result_passes_unchanged() {
    let cluster = Cluster::shared();
    let mut bed = Bed::new(&cluster, &["--enable-ipam=false"]);
    bed.egress("internet", &["0.0.0.0/0", "::/0"]);
    let client = bed.pod("client", Some("internet"));
    attach(&client.0);
    let called = bed.call("ADD", &client, &chained(&client.0));
    called.succeeded();
    assert_eq!(called.json, previous(&client.0));
    assert_eq!(table(&client.0, "-4", "118"), ["default"]);
    assert!(table(&client.0, "-6", "118").is_empty(), "the pod has no address of IPv6");
    let expected = vec![("client".to_owned(), vec!["10.77.0.7".to_owned()])];
    bed.machine.until("the client", || (bed.clients("internet") == expected).then_some(()));
    assert!(bed.machine.blocks().is_empty(), "no address was given");
    bed.call("CHECK", &client, &chained(&client.0)).succeeded();
    // What was added is known after a restart.
    bed.machine.kill();
    bed.annotate("client", None);
    bed.machine.start();
    bed.machine.until("the egress to go", || is_plain(&client.0).then_some(()));
    bed.machine.until("the client to go", || bed.clients("internet").is_empty().then_some(()));
    bed.annotate("client", Some("internet"));
    bed.machine
        .until("the egress to come back", || (table(&client.0, "-4", "118") == ["default"]).then_some(()));
    bed.call("DEL", &client, &chained(&client.0)).succeeded();
    bed.machine.until("the client to go", || bed.clients("internet").is_empty().then_some(()));
    assert!(client.0.has_interface(), "it is another plugin's");
    bed.call("DEL", &client, &chained(&client.0)).succeeded();
}

#[test]
fn without_a_result_of_another_plugin_it_is_refused_with_what_to_do() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &["--enable-ipam=false"]);
    let client = bed.pod("client", None);
    let called = bed.add(&client);
    assert_eq!(called.refused(), 7, "{called:?}");
    let said = called.json.to_string();
    assert!(said.contains("prevResult") && said.contains("--enable-ipam"), "{said}");
}
