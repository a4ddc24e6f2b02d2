//! Who stays listed as a client while something about it is wrong or not known, and who is told that it is none.

use k8s_openapi::api::core::v1::{Namespace, Pod as PodObject};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tenure_api::coil::egress::clients_name;
use tenure_api::coil::{AddressPool, EgressClients};
use tenure_tests::agent::{Cluster, config};
use tenure_tests::egress::inside::{is_plain, rules, table};

use super::bed::Bed;

/// Waits until an Egress has exactly these pods as clients.
fn until_listed(bed: &Bed<'_>, egress: &str, pods: &[&str]) {
    bed.machine.until(&format!("{egress} to have {pods:?}"), || {
        let mut listed: Vec<String> = bed.clients(egress).into_iter().map(|(pod, _)| pod).collect();
        listed.sort();
        (listed == pods).then_some(())
    });
}

#[test]
fn a_client_stays_one_while_another_of_its_egresses_has_no_service_and_while_its_annotation_cannot_be_read() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("a", &["198.51.100.0/24"]);
    bed.egress("b", &["0.0.0.0/0"]);
    bed.delete_service("a");
    let (client, last) = (bed.pod("client", Some("b")), bed.pod("last", None));
    bed.add(&client).succeeded();
    bed.add(&last).succeeded();
    until_listed(&bed, "b", &["client"]);
    bed.annotate("client", Some("a,b"));
    // The client is listed for the one without a Service as well, which shows that the change was seen.
    until_listed(&bed, "a", &["client"]);
    assert_eq!(bed.clients("b").len(), 1, "it goes on to use the other one");
    assert_eq!(table(&client.0, "-4", "118"), ["default"]);
    bed.service("a");
    bed.machine.until("both ways", || (table(&client.0, "-4", "118").len() == 2).then_some(()));
    bed.annotate("client", Some("a,,b"));
    bed.machine.until("an event", || {
        bed.events("client")
            .into_iter()
            .find(|(reason, text)| reason == "EgressFailed" && text.contains("a,,b"))
    });
    // Whoever comes later is written after what is said of the client.
    bed.annotate("last", Some("b"));
    until_listed(&bed, "b", &["client", "last"]);
    assert_eq!(bed.clients("a").len(), 1);
    assert_eq!(table(&client.0, "-4", "118").len(), 2, "it keeps the egress that it had");
    // It ends, and nobody keeps its address.
    bed.call("DEL", &client, &config()).succeeded();
    until_listed(&bed, "b", &["last"]);
    until_listed(&bed, "a", &[]);
}

#[test]
fn an_object_whose_labels_somebody_took_away_gets_them_back() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let (first, second) = (bed.pod("first", Some("internet")), bed.pod("second", None));
    bed.add(&first).succeeded();
    bed.add(&second).succeeded();
    until_listed(&bed, "internet", &["first"]);
    let api: Api<EgressClients> = Api::namespaced(cluster.client.clone(), &bed.namespace);
    let name = clients_name("internet", &bed.machine.name).unwrap();
    let strip = Patch::Merge(json!({"metadata": {"labels": null}}));
    cluster.runtime.block_on(api.patch(&name, &PatchParams::default(), &strip)).unwrap();
    until_listed(&bed, "internet", &["first"]);
    // What changes later is written as before.
    bed.annotate("second", Some("internet"));
    until_listed(&bed, "internet", &["first", "second"]);
}

#[test]
fn an_agent_that_lost_its_journal_keeps_running_clients_listed() {
    let cluster = Cluster::shared();
    let mut bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let (client, later) = (bed.pod("client", Some("internet")), bed.pod("later", Some("internet")));
    bed.add(&client).succeeded();
    until_listed(&bed, "internet", &["client"]);
    bed.machine.kill();
    std::fs::remove_file(bed.machine.file("journal")).unwrap();
    bed.machine.start();
    // The next client is written together with those that are known by then.
    bed.machine.until("the next ADD", || (bed.add(&later).code == 0).then_some(()));
    until_listed(&bed, "internet", &["client", "later"]);
    assert!(!rules(&client.0, "-4").is_empty(), "it has the egress that it had");
}

#[test]
fn a_pod_whose_interface_another_plugin_made_is_told_that_its_annotation_has_no_effect() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[]);
    bed.egress("internet", &["0.0.0.0/0"]);
    let client = bed.pod("client", Some("internet"));
    let addresses_only = json!({
        "cniVersion": "1.0.0", "name": "k8s", "type": "ptp", "ipam": {"type": "tenure"},
    });
    // The other plugin takes the first address for itself.
    let spec = json!({"blockSizeBits": 2, "subnets": [{"ipv4": "10.77.0.0/24"}], "exclude": ["10.77.0.1"]});
    let pool = AddressPool::new("addresses-only", serde_json::from_value(spec).unwrap());
    cluster.runtime.block_on(cluster.pools().create(&PostParams::default(), &pool)).unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let of_pool =
        Patch::Merge(json!({"metadata": {"annotations": {"coil.cybozu.com/pool": "addresses-only"}}}));
    let plain = PatchParams::default();
    cluster.runtime.block_on(namespaces.patch(&bed.namespace, &plain, &of_pool)).unwrap();
    let added = bed.machine.until("an address", || {
        Some(bed.call("ADD", &client, &addresses_only)).filter(|called| called.code == 0)
    });
    let mut checked = addresses_only.clone();
    checked["prevResult"] = added.json;
    bed.call("CHECK", &client, &checked).succeeded();
    let pods: Api<PodObject> = Api::namespaced(cluster.client.clone(), &bed.namespace);
    let status = Patch::Merge(json!({"status": {"phase": "Running", "podIP": "10.1.0.1"}}));
    cluster.runtime.block_on(pods.patch_status("client", &PatchParams::default(), &status)).unwrap();
    let told = bed
        .machine
        .until("an event", || bed.events("client").into_iter().find(|(reason, _)| reason == "EgressIgnored"));
    assert!(told.1.contains("eth0") && told.1.contains("--enable-ipam=false"), "{told:?}");
    assert!(is_plain(&client.0) && bed.clients("internet").is_empty());
}
