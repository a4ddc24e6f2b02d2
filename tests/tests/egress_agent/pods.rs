//! Pods whose addresses the agent gives.

use std::time::Duration;

use serde_json::json;
use tenure_tests::agent::{Cluster, config};
use tenure_tests::chaos::looks::view_of;
use tenure_tests::egress::inside::{is_plain, rules, table};

use super::bed::Bed;

#[test]
fn a_pod_has_its_egress_when_the_add_is_answered_and_its_gateways_know_it() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("wide", &["0.0.0.0/0", "::/0"]);
    bed.egress("narrow", &["10.9.0.0/16", "fd09::/64"]);
    let (client, plain) = (bed.pod("client", Some("wide,narrow")), bed.pod("plain", None));
    let addresses = bed.add(&client).addresses();
    let direct = ["2000 to 192.168.0.0/16 main", "2001 to 172.16.0.0/12 main", "2002 to 10.0.0.0/8 main"];
    let expected = [&["1800 to 169.254.0.0/16 main", "1900 117"][..], &direct, &["2100 118"]].concat();
    assert_eq!(rules(&client.0, "-4"), expected);
    assert_eq!(
        rules(&client.0, "-6"),
        ["1800 to fe80::/10 main", "1900 117", "2000 to fc00::/7 main", "2100 118"]
    );
    assert_eq!(
        (table(&client.0, "-4", "117"), table(&client.0, "-4", "118")),
        (vec!["10.9.0.0/16".into()], vec!["default".into()])
    );
    assert_eq!(
        (table(&client.0, "-6", "117"), table(&client.0, "-6", "118")),
        (vec!["fd09::/64".into()], vec!["default".into()])
    );
    // A repeated ADD changes nothing.
    assert_eq!(bed.add(&client).addresses(), addresses);
    bed.add(&plain).succeeded();
    assert!(is_plain(&plain.0));
    bed.call("CHECK", &client, &with_result(&bed, &client)).succeeded();
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    for egress in ["wide", "narrow"] {
        let expected = vec![("client".to_owned(), texts.clone())];
        bed.machine.until("the client to be listed", || (bed.clients(egress) == expected).then_some(()));
    }
    bed.call("DEL", &client, &config()).succeeded();
    bed.machine.until("no client to be listed", || bed.clients("wide").is_empty().then_some(()));
}

fn with_result(bed: &Bed<'_>, pod: &(tenure_tests::agent::Pod, String)) -> serde_json::Value {
    let mut config = config();
    config["prevResult"] = bed.add(pod).json;
    config
}

#[test]
fn an_add_names_an_egress_or_service_that_is_missing_and_succeeds_when_it_is_there() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    let client = bed.pod("client", Some("late"));
    let called = bed.add(&client);
    assert_eq!(called.refused(), 11, "{called:?}");
    let wanted = format!("there is no Egress {}/late", bed.namespace);
    assert!(called.json["msg"].as_str().unwrap().contains(&wanted), "{called:?}");
    assert!(!client.0.has_interface());
    bed.egress("late", &["192.0.2.0/24"]);
    bed.delete_service("late");
    let called = bed.machine.until("the Service to be missed", || {
        let called = bed.add(&client);
        let missed = called.code != 0 && called.json["msg"].as_str().unwrap().contains("has no Service");
        missed.then_some(called)
    });
    assert_eq!(called.refused(), 11, "{called:?}");
    bed.service("late");
    bed.machine.until("the ADD to succeed", || (bed.add(&client).code == 0).then_some(()));
    // The Egress is of IPv4 alone.
    assert!(rules(&client.0, "-6").is_empty());
    assert_eq!(table(&client.0, "-4", "118"), ["192.0.2.0/24"]);
}

#[test]
fn an_annotation_that_names_no_egress_is_refused_with_its_value() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    let client = bed.pod("client", Some("a,,b"));
    let called = bed.add(&client);
    assert_eq!(called.refused(), 7, "{called:?}");
    let message = called.json["msg"].as_str().unwrap();
    assert!(message.contains("a,,b") && message.contains("accepted are names of Egresses"), "{message}");
    assert!(!client.0.has_interface());
}

#[test]
fn changes_of_egresses_services_and_annotations_reach_running_pods() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let (client, other) = (bed.pod("client", Some("internet")), bed.pod("other", None));
    let addresses = bed.add(&client).addresses();
    bed.add(&other).succeeded();
    let until = |what: &str, is_so: &dyn Fn() -> bool| bed.machine.until(what, || is_so().then_some(()));
    bed.change_egress("internet", &json!({"destinations": ["198.51.100.0/24", "2001:db8:9::/64"]}));
    until("the new destinations", &|| table(&client.0, "-4", "118") == ["198.51.100.0/24"]);
    until("those of IPv6", &|| table(&client.0, "-6", "118") == ["2001:db8:9::/64"]);
    // Another pod becomes a client while it runs.
    bed.annotate("other", Some("internet"));
    until("the other pod's egress", &|| table(&other.0, "-4", "118") == ["198.51.100.0/24"]);
    until("both to be listed", &|| bed.clients("internet").len() == 2);
    // One pod that cannot be changed holds up no other.
    drop(bed.machine.host.ip("netns del other"));
    bed.delete_service("internet");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(table(&client.0, "-4", "118"), ["198.51.100.0/24"], "while there is no Service, all stays");
    bed.service("internet");
    bed.change_egress("internet", &json!({"destinations": ["203.0.113.0/24"]}));
    until("the next destinations", &|| table(&client.0, "-4", "118") == ["203.0.113.0/24"]);
    until("IPv6 to go", &|| rules(&client.0, "-6").is_empty());
    // Its other traffic is as before.
    bed.machine.assert_reached(&client.0, &addresses);
    bed.annotate("client", None);
    until("the egress to go", &|| is_plain(&client.0));
    until("the client to go", &|| bed.clients("internet").iter().all(|(pod, _)| pod != "client"));
    bed.annotate("client", Some("internet"));
    until("the egress to come back", &|| !rules(&client.0, "-4").is_empty());
    bed.delete_egress("internet");
    until("all of it to go", &|| is_plain(&client.0));
}

#[test]
fn an_egress_for_originated_connections_alone_lets_answers_leave_as_connections_came() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0", "::/0"]);
    bed.change_egress("internet", &json!({"originatingOnly": true}));
    let client = bed.pod("client", Some("internet"));
    let addresses = bed.add(&client).addresses();
    assert_eq!(table(&client.0, "-4", "118"), ["default"]);
    // The host's addresses are public ones, to which everything would go through gateways, and there are none.
    for address in addresses {
        bed.machine.host.ping(address, tenure_testbed::wait::PATIENCE).unwrap();
    }
}

#[test]
fn a_restarted_agent_repairs_what_is_missing_and_removes_what_should_not_be() {
    let cluster = Cluster::shared();
    let mut bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let pods = ["repaired", "removed", "added"];
    let pods = pods.map(|name| bed.pod(name, (name != "added").then_some("internet")));
    for pod in &pods {
        bed.add(pod).succeeded();
    }
    bed.machine.until("two clients", || (bed.clients("internet").len() == 2).then_some(()));
    bed.machine.kill();
    pods[0].0.network.ip("rule del priority 2100").unwrap();
    pods[0].0.network.ip("route flush table 118").unwrap();
    bed.annotate("removed", None);
    bed.annotate("added", Some("internet"));
    bed.machine.start();
    bed.machine.until("the repair", || (table(&pods[0].0, "-4", "118") == ["default"]).then_some(()));
    bed.machine.until("the removal", || is_plain(&pods[1].0).then_some(()));
    bed.machine.until("the addition", || (table(&pods[2].0, "-4", "118") == ["default"]).then_some(()));
    bed.machine.until("the clients", || {
        let mut clients: Vec<String> = bed.clients("internet").into_iter().map(|(pod, _)| pod).collect();
        clients.sort();
        (clients == ["added", "repaired"]).then_some(())
    });
    // Somebody else writes the object: it is put right.
    let api: kube::Api<tenure_api::coil::EgressClients> =
        kube::Api::namespaced(cluster.client.clone(), &bed.namespace);
    let name = tenure_api::coil::egress::clients_name("internet", &bed.machine.name).unwrap();
    cluster.runtime.block_on(api.delete(&name, &kube::api::DeleteParams::default())).unwrap();
    bed.machine
        .until("the object to be written again", || (bed.clients("internet").len() == 2).then_some(()));
}

#[test]
fn a_pod_on_the_nodes_own_network_is_told_that_its_annotation_has_no_effect() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let before = bed.machine.table(254);
    let annotations = json!({super::bed::annotation(&bed.namespace): "internet"});
    bed.object("system", &json!({"annotations": annotations}), &json!({"hostNetwork": true}));
    let told = bed
        .machine
        .until("an event", || bed.events("system").into_iter().find(|(reason, _)| reason == "EgressIgnored"));
    assert!(told.1.contains("hostNetwork"), "{told:?}");
    assert_eq!(bed.machine.table(254), before);
    assert!(bed.clients("internet").is_empty());
}

#[test]
fn without_the_api_server_known_clients_get_egress_and_unknown_pods_an_address_and_egress_later() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let (first, known) = (bed.pod("first", None), bed.pod("known", Some("internet")));
    bed.add(&first).succeeded();
    // What is seen of the first pod was written after the other one, so that one is known, too.
    bed.annotate("first", Some("internet"));
    let has_egress = |pod: &tenure_tests::agent::Pod| table(pod, "-4", "118") == ["default"];
    bed.machine.until("the first pod's egress", || has_egress(&first.0).then_some(()));
    bed.machine.gate.shut();
    let unknown = bed.pod("unknown", Some("internet"));
    bed.add(&known).succeeded();
    assert!(has_egress(&known.0), "the watch knew the pod and its Egress");
    // Most pods use no Egress, and nobody can say that this one does.
    bed.add(&unknown).succeeded();
    assert!(is_plain(&unknown.0));
    bed.machine.gate.reopen();
    bed.machine.until("the egress to follow", || has_egress(&unknown.0).then_some(()));
    bed.machine.until("all three to be listed", || (bed.clients("internet").len() == 3).then_some(()));
}

#[test]
fn after_a_reboot_nothing_of_a_client_is_left_until_its_next_add() {
    let cluster = Cluster::shared();
    let mut bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let client = bed.pod("client", Some("internet"));
    let listed = |bed: &Bed<'_>, addresses: &[std::net::IpAddr]| {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        bed.clients("internet") == [("client".to_owned(), texts)]
    };
    let addresses = bed.add(&client).addresses();
    bed.machine.until("the client", || listed(&bed, &addresses).then_some(()));
    bed.machine.reboot();
    drop(client);
    bed.machine.start();
    // The object of the pod says that it is a client, and it has no interface.
    bed.machine.until("no client", || bed.clients("internet").is_empty().then_some(()));
    let again = (bed.machine.pod_in(&bed.namespace, "client"), bed.uid("client"));
    let addresses = bed.add(&again).addresses();
    assert_eq!(table(&again.0, "-4", "118"), ["default"]);
    bed.machine.until("the client to be back", || listed(&bed, &addresses).then_some(()));
}

#[test]
fn the_datapath_is_said_in_the_log_in_a_metric_and_in_the_nodes_state() {
    let cluster = Cluster::shared();
    let mut bed = Bed::new(&cluster, &["--egress-datapath", "bpf"]);
    let state = bed.machine.until("a datapath", || {
        let state = view_of(&bed.machine).ok()?["egress"].clone();
        (state["datapath"] != "").then_some(state)
    });
    assert_eq!((&state["datapath"], &state["reason"]), (&json!("bpf"), &json!("asked for")), "{state}");
    assert_eq!(bed.metric("tenure_agent_egress_datapath{datapath=\"bpf\"}").as_deref(), Some("1.0"));
    let log = bed.machine.log();
    let line = log.lines().find(|line| line.contains("egress can be served")).expect("a line in the log");
    assert!(line.contains("bpf") && line.contains("asked for"), "{line}");
    // A kernel that cannot do what was asked for says why, and pods without egress do without.
    if tenure_linux::egress::Datapath::kernel().is_err() {
        bed.machine.kill();
        bed.machine.arguments = ["--egress-datapath", "kernel"].map(str::to_owned).to_vec();
        bed.machine.start();
        bed.egress("internet", &["0.0.0.0/0"]);
        let (client, plain) = (bed.pod("client", Some("internet")), bed.pod("plain", None));
        let called = bed.add(&client);
        assert_eq!(called.refused(), 11, "{called:?}");
        let said = called.json["msg"].as_str().unwrap();
        assert!(said.contains("this node cannot serve egress: ") && said.contains("module fou"), "{said}");
        bed.add(&plain).succeeded();
        assert_eq!(bed.metric("tenure_agent_egress_datapath{datapath=\"kernel\"}"), None);
    }
}
