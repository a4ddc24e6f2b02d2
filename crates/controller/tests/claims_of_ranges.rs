//! Claims of Whereabouts' ranges, shared by all nodes and cut into slices, on the embedded API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use bed::claims::*;
use bed::ranges::{
    define_attachments, delete_pod, ledger, ledgers, pod, record, reservations, slice_pools, slices, state,
};
use bed::*;
use http::StatusCode;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tenure_controller_testbed as bed;
use tenure_testbed::faults::{Calls, Faults, Rule, Verb};

async fn attach(client: &Client, name: &str, ipam: &Value) {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth0", "allowPersistentIPs": true, "ipam": ipam,
    });
    config["ipam"]["type"] = json!("whereabouts");
    bed::machines::attachment(client, name, &config.to_string()).await;
}

async fn started(seed: u64, nodes: &[&str]) -> (Client, Running) {
    let client = server(seed).await.client();
    define_attachments(&client).await;
    for name in nodes {
        node(&client, name).await;
    }
    let controller = start_with(client.clone(), claiming("a"));
    (client, controller)
}

/// What ledgers have on record for claims: address to claim. That no address is there twice.
async fn recorded(client: &Client) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for pool in ledgers(client).list(&ListParams::default()).await.unwrap() {
        let first = pool.spec.cidr().unwrap();
        for (key, record) in &pool.spec.allocations {
            let address = first.nth(key.parse().unwrap()).unwrap().to_string();
            assert_eq!(
                found.insert(address.clone(), record.id.clone()),
                None,
                "{address} is on record twice"
            );
        }
    }
    found.retain(|_, id| id.starts_with("claim/"));
    found
}

#[tokio::test(start_paused = true)]
async fn claims_of_a_shared_range_are_on_record_beside_pods_and_nobody_releases_them() {
    let (client, controller) = started(121, &[]).await;
    pod(&client, "web-0", Some(&["10.0.0.1"])).await;
    ledger(&client, "10.0.0.0-24", "10.0.0.0/24", None, Some("unique"), &[("1", "default/web-0")]).await;
    attach(&client, "net", &json!({"range": "10.0.0.0/24"})).await;
    // Named like the pod.
    let made = claim(&client, "web-0", "net").await;
    assert_eq!(given(&client, "web-0").await, ["10.0.0.2/24"]);
    let pool = ledgers(&client).get("10.0.0.0-24").await.unwrap();
    let on_record = &pool.spec.allocations["2"];
    assert_eq!(on_record.id, format!("claim/{}", made.uid().unwrap()));
    assert_eq!((on_record.podref.as_str(), on_record.ifname.as_deref()), ("default/web-0", Some("net1")));
    assert_eq!(pool.spec.allocations["1"], record("default/web-0", "net1"));
    for number in 0..30 {
        claim(&client, &format!("c{number}"), "net").await;
    }
    for number in 0..30 {
        given(&client, &format!("c{number}")).await;
    }
    assert_eq!(recorded(&client).await.len(), 31);
    delete_pod(&client, "web-0").await;
    until("the pod's record to go", async || {
        (!ledgers(&client).get("10.0.0.0-24").await.unwrap().spec.allocations.contains_key("1")).then_some(())
    })
    .await;
    assert_eq!(recorded(&client).await.len(), 31, "no pod is called like most claims, and nobody minds");
    for number in 0..30 {
        delete_claim(&client, &format!("c{number}")).await;
    }
    until("what belonged to claims that are gone to go", async || {
        (recorded(&client).await.len() == 1).then_some(())
    })
    .await;
    assert_eq!(given(&client, "web-0").await, ["10.0.0.2/24"]);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_claims_and_pods_left_behind_goes_on_cooling_when_another_controller_leads() {
    for (seed, range) in [
        (131, json!({"range": "10.0.0.0/24"})),
        (132, json!({"range": "10.0.0.0/24", "node_slice_size": "/26"})),
    ] {
        let client = server(seed).await.client();
        define_attachments(&client).await;
        let settings = |name: &str| {
            let mut settings = claiming(name);
            settings.claims.cooling = Duration::from_mins(10);
            settings
        };
        let first = start_with(client.clone(), settings("a"));
        attach(&client, "net", &range).await;
        claim(&client, "a", "net").await;
        claim(&client, "stays", "net").await;
        let had = [given(&client, "a").await, given(&client, "stays").await].concat();
        delete_claim(&client, "a").await;
        until("its record to go", async || (recorded(&client).await.len() == 1).then_some(())).await;
        first.stop().await;
        let second = start_with(client.clone(), settings("b"));
        claim(&client, "b", "net").await;
        let now = given(&client, "b").await;
        assert!(!had.contains(&now[0]), "{now:?} has not cooled: {had:?}");
        second.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_an_address_of_each_range_or_none_and_wishes_are_kept() {
    let (client, controller) = started(122, &[]).await;
    let ranges = json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/126"}]});
    attach(&client, "dual", &ranges).await;
    claim(&client, "a", "dual").await;
    assert_eq!(given(&client, "a").await, ["10.0.0.1/24", "fd00::1/126"]);
    claim_with(&client, "b", "dual", Some("fd00::2,10.0.0.77")).await;
    assert_eq!(given(&client, "b").await, ["10.0.0.77/24", "fd00::2/126"]);
    claim_with(&client, "c", "dual", Some("10.0.0.77")).await;
    let (reason, message) = refused(&client, "c").await;
    assert_eq!(reason, "IPAddressConflict", "{message}");
    claim(&client, "d", "dual").await;
    let (reason, message) = refused(&client, "d").await;
    assert!(reason == "SubnetExhausted" && message.contains("make the range larger"), "{reason}: {message}");
    let held = recorded(&client).await;
    assert_eq!(held.len(), 4, "nobody has half of what it needs: {held:?}");
    delete_claim(&client, "b").await;
    assert_eq!(given(&client, "c").await[0], "10.0.0.77/24");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_of_ranges_that_overlap_is_given_once_and_its_reservation_goes_with_it() {
    let (client, controller) = started(123, &[]).await;
    attach(&client, "wide", &json!({"range": "10.0.0.0/24"})).await;
    attach(&client, "narrow", &json!({"range": "10.0.0.0/28"})).await;
    for number in 0..6 {
        claim(&client, &format!("w{number}"), "wide").await;
        claim(&client, &format!("n{number}"), "narrow").await;
    }
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..6 {
        for name in ["w", "n"] {
            let ip = given(&client, &format!("{name}{number}")).await.remove(0);
            assert!(seen.insert(ip.split_once('/').unwrap().0.to_owned()), "{ip} is given twice");
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let reserved = async || reservations(&client).list(&ListParams::default()).await.unwrap().items.len();
    assert!(reserved().await > 0, "and nobody takes them for a pod's that is gone");
    for number in 0..6 {
        delete_claim(&client, &format!("w{number}")).await;
        delete_claim(&client, &format!("n{number}")).await;
    }
    until("all to go", async || (recorded(&client).await.is_empty() && reserved().await == 0).then_some(()))
        .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_of_a_cut_range_get_slices_of_their_own_which_go_back_when_nobody_needs_them() {
    let (client, controller) = started(124, &["node1", "node2"]).await;
    attach(&client, "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/28"})).await;
    slices(&client, "net", &["node1", "node2"]).await;
    claim(&client, "a", "net").await;
    assert_eq!(given(&client, "a").await, ["10.0.0.33/24"]);
    let pool = slices(&client, "net", &["node1", "node2", "tenure:claims"]).await;
    assert_eq!(bed::ranges::condition(&pool, "Ready").2, "2 of 16 slices have a node, 1 are for claims");
    let floating = ledgers(&client).get("tenure-claims-10.0.0.32-28").await.unwrap();
    assert_eq!(state(&floating).as_deref(), Some("owned"));
    assert_eq!(floating.labels().get("tenure/floating").map(String::as_str), Some("true"));
    for number in 0..20 {
        claim(&client, &format!("c{number}"), "net").await;
    }
    for number in 0..20 {
        given(&client, &format!("c{number}")).await;
    }
    assert_eq!(recorded(&client).await.len(), 21);
    claim_with(&client, "wish", "net", Some("10.0.0.200")).await;
    assert_eq!(given(&client, "wish").await, ["10.0.0.200/24"]);
    claim_with(&client, "of-node", "net", Some("10.0.0.5")).await;
    let (reason, message) = refused(&client, "of-node").await;
    assert!(
        reason == "IPAddressConflict" && message.contains("belongs to node node1"),
        "{reason}: {message}"
    );
    delete_claim(&client, "of-node").await;
    node(&client, "node3").await;
    until("the new node's slice", async || {
        let pool = slice_pools(&client).get("net").await.unwrap();
        bed::ranges::given(&pool).iter().any(|(node, _)| node == "node3").then_some(())
    })
    .await;
    for name in (0..20).map(|number| format!("c{number}")).chain(["a".to_owned(), "wish".to_owned()]) {
        delete_claim(&client, &name).await;
    }
    slices(&client, "net", &["node1", "node2", "node3"]).await;
    until("ledgers of claims to go", async || {
        let all = ledgers(&client).list(&ListParams::default().labels("tenure/floating")).await.unwrap();
        all.items.is_empty().then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_range_without_a_slice_left_says_so_and_gives_one_when_a_node_goes() {
    let (client, controller) = started(125, &["node1", "node2"]).await;
    attach(&client, "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/25"})).await;
    slices(&client, "net", &["node1", "node2"]).await;
    claim(&client, "a", "net").await;
    let (reason, message) = refused(&client, "a").await;
    assert!(
        reason == "SubnetExhausted" && message.contains("node_slice_size smaller"),
        "{reason}: {message}"
    );
    delete_node(&client, "node2").await;
    given(&client, "a").await;
    // A claim that is in use by its record only: the definition may go and come back.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    claims(&client).patch("a", &PatchParams::default(), &patch).await.unwrap();
    let before = recorded(&client).await;
    bed::ranges::detach(&client, "default", "net").await;
    until("the slices to go", async || {
        slice_pools(&client).get_opt("net").await.unwrap().is_none().then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(recorded(&client).await, before);
    controller.stop().await;
}

/// A slice of one range does not go back while the other range's is still to come.
#[tokio::test(start_paused = true)]
async fn a_slice_waits_for_the_other_range_of_a_claim_and_its_ledger_is_made_once() {
    let server = server(129).await;
    let client = server.client();
    define_attachments(&client).await;
    node(&client, "node1").await;
    let faults = Faults::seeded(129);
    let controller = start_with(faults.client(server.clone(), "default"), claiming("a"));
    let ranges =
        json!({"range": "10.4.0.0/24", "ipRanges": [{"range": "fd04::/120"}], "node_slice_size": "/26"});
    attach(&client, "dual", &ranges).await;
    slices(&client, "dual", &["node1"]).await;
    let second = "dual-fd04---120";
    slices(&client, second, &["node1"]).await;
    let writes = Calls::of(Verb::Patch).to("nodeslicepools").named(second);
    let failing = faults.add(Rule::fail(StatusCode::INTERNAL_SERVER_ERROR).on(writes).times(6));
    faults.reset_tallies();
    claim(&client, "one", "dual").await;
    assert_eq!(given(&client, "one").await.len(), 2);
    assert_eq!(faults.struck(failing), 6);
    assert_eq!(faults.tally(&Calls::of(Verb::Delete).to("ippools")).asked, 0);
    assert_eq!(faults.tally(&Calls::of(Verb::Create).to("ippools")).asked, 2);
    controller.stop().await;
}
