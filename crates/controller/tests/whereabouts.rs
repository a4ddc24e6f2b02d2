//! A controller on the embedded API server, and Whereabouts' ranges: slices for nodes, and what nobody uses any more.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::ranges::*;
use bed::*;
use kube::api::{DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tenure_controller::Whereabouts;
use tenure_controller_testbed as bed;
use tenure_testbed::faults::{Calls, Faults, Verb};

fn sliced(range: &str, size: &str) -> Value {
    json!({"range": range, "node_slice_size": size})
}

async fn started(seed: u64, nodes: &[&str]) -> (Client, Running) {
    let client = server(seed).await.client();
    define_attachments(&client).await;
    for name in nodes {
        node(&client, name).await;
    }
    let controller = start(client.clone(), "a");
    (client, controller)
}

#[tokio::test(start_paused = true)]
async fn a_definition_becomes_a_pool_with_a_slice_for_each_node() {
    let (client, controller) = started(51, &["node1", "node2"]).await;
    attach(&client, "apps", "net", &sliced("10.0.0.0/24", "/26")).await;
    let pool = slices(&client, "net", &["node1", "node2"]).await;
    assert_eq!((pool.spec.range.as_str(), pool.spec.slice_size.as_str()), ("10.0.0.0/24", "/26"));
    let all = &pool.status.as_ref().unwrap().allocations;
    assert_eq!((all.len(), all[3].slice_range.as_str()), (4, "10.0.0.192/26"));
    assert_eq!(condition(&pool, "Ready").0, "True");
    let guard = ledgers(&client).get("10.0.0.0-24").await.unwrap();
    assert_eq!((state(&guard).as_deref(), guard.spec.allocations.len()), (Some("sliced"), 0));
    node(&client, "node3").await;
    let grown = slices(&client, "net", &["node1", "node2", "node3"]).await;
    assert_eq!(given(&grown)[..2], given(&pool)[..]);
    detach(&client, "apps", "net").await;
    until("the pool to go", async || {
        slice_pools(&client).get_opt("net").await.unwrap().is_none().then_some(())
    })
    .await;
    until("the range to be whole again", async || {
        (state(&ledgers(&client).get("10.0.0.0-24").await.unwrap()).as_deref() == Some("unique"))
            .then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_of_definitions_that_comes_late_is_found_within_seconds_and_nobody_complains() {
    let client = server(52).await.client();
    node(&client, "node1").await;
    let controller = start(client.clone(), "a");
    until("it to lead", async || controller.leads().then_some(())).await;
    let ready =
        async || controller.pages.answer(&http::Method::GET, "/readyz", None).await.status().is_success();
    until("readiness without the kind", async || ready().await.then_some(())).await;
    define_attachments(&client).await;
    attach(&client, "apps", "net", &sliced("10.0.0.0/24", "/26")).await;
    slices(&client, "net", &["node1"]).await;
    assert!(ready().await);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_nodes_slice_is_reused_only_when_nothing_is_held_in_it() {
    let (client, controller) = started(53, &["node1", "node2"]).await;
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/24", "/25")).await;
    let before = slices(&client, "net", &["node1", "node2"]).await;
    let slice = given(&before).into_iter().find(|(node, _)| node == "node1").unwrap().1;
    let name = format!("node1-{}", slice.replace('/', "-"));
    pod(&client, "stays", None).await;
    let held = [("3", "default/stays"), ("4", "default/gone")];
    ledger(&client, &name, &slice, Some("node1"), Some("owned"), &held).await;
    node(&client, "node3").await;
    let event = told(&client, "default", "NoSliceFree", "node3").await;
    assert!(event.message.unwrap().contains("net has no slice left for this node"));
    told(&client, "kube-system", "NoSliceFree", "net").await;
    delete_node(&client, "node1").await;
    until("the record of the pod that is gone to go", async || {
        (records(&client, &name).await == [("3".to_owned(), "default/stays".to_owned())]).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let waiting = slice_pools(&client).get("net").await.unwrap();
    assert_eq!(given(&waiting), given(&before), "an address of the slice is held");
    let without = condition(&waiting, "NodesWithoutSlice");
    assert!(without.0 == "True" && without.2.contains("node3"), "{without:?}");
    delete_pod(&client, "stays").await;
    let after = slices(&client, "net", &["node2", "node3"]).await;
    assert!(given(&after).contains(&("node3".to_owned(), slice)), "{after:?}");
    assert_eq!(condition(&after, "NodesWithoutSlice").0, "False");
    until("the dead node's ledger to go", async || {
        ledgers(&client).get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_nodes_slice_and_ledger_go_after_its_pods_and_a_mark_that_nobody_removed() {
    let (client, controller) = started(63, &["node1", "node2"]).await;
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/24", "/25")).await;
    let before = slices(&client, "net", &["node1", "node2"]).await;
    let slice = given(&before).into_iter().find(|(node, _)| node == "node1").unwrap().1;
    let name = format!("node1-{}", slice.replace('/', "-"));
    // No record is of this pod, but it is on the node.
    pod(&client, "runs", None).await;
    ledger(&client, &name, &slice, Some("node1"), Some("owned"), &[]).await;
    node(&client, "node3").await;
    delete_node(&client, "node1").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let there = ledgers(&client).get(&name).await.unwrap();
    assert!(!there.annotations().contains_key("tenure/releasing"), "a pod of the node runs");
    assert_eq!(given(&slice_pools(&client).get("net").await.unwrap()), given(&before));
    delete_pod(&client, "runs").await;
    until("the mark", async || {
        let there = ledgers(&client).get_opt(&name).await.unwrap();
        there.is_none_or(|there| there.annotations().contains_key("tenure/releasing")).then_some(())
    })
    .await;
    until("the ledger to go", async || {
        ledgers(&client).get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    let after = slices(&client, "net", &["node2", "node3"]).await;
    assert!(given(&after).contains(&("node3".to_owned(), slice)), "{after:?}");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_slice_of_a_node_that_is_out_of_service_does_not_rest_but_waits_for_its_pods() {
    let client = server(64).await.client();
    define_attachments(&client).await;
    let mut settings = settings("a");
    settings.whereabouts.node_gone_after = Duration::from_mins(5);
    let controller = start_with(client.clone(), settings);
    for name in ["node1", "node2"] {
        node(&client, name).await;
    }
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/24", "/25")).await;
    let before = slices(&client, "net", &["node1", "node2"]).await;
    let slice = given(&before).into_iter().find(|(node, _)| node == "node1").unwrap().1;
    let name = format!("node1-{}", slice.replace('/', "-"));
    pod(&client, "runs", None).await;
    ledger(&client, &name, &slice, Some("node1"), Some("owned"), &[("3", "default/gone")]).await;
    node(&client, "node3").await;
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"});
    let patch = kube::api::Patch::Merge(json!({"spec": {"taints": [taint]}}));
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client.clone());
    nodes.patch("node1", &kube::api::PatchParams::default(), &patch).await.unwrap();
    until("the record of the pod that is gone to go", async || {
        records(&client, &name).await.is_empty().then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        given(&slice_pools(&client).get("net").await.unwrap()),
        given(&before),
        "a pod of the node runs"
    );
    delete_pod(&client, "runs").await;
    let after = slices(&client, "net", &["node2", "node3"]).await;
    assert!(given(&after).contains(&("node3".to_owned(), slice)), "{after:?}");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_away_for_a_moment_keeps_its_slice() {
    let client = server(54).await.client();
    define_attachments(&client).await;
    let mut settings = settings("a");
    settings.whereabouts.node_gone_after = Duration::from_secs(5);
    let controller = start_with(client.clone(), settings);
    for name in ["node1", "node2"] {
        node(&client, name).await;
    }
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/24", "/25")).await;
    let before = slices(&client, "net", &["node1", "node2"]).await;
    node(&client, "node3").await;
    delete_node(&client, "node1").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    node(&client, "node1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = slice_pools(&client).get("net").await.unwrap();
    assert_eq!(given(&after), given(&before));
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_range_in_use_is_sealed_before_its_slices_are_given_away() {
    let (client, controller) = started(55, &["node1"]).await;
    pod(&client, "old", Some(&["10.0.0.1"])).await;
    ledger(&client, "10.0.0.0-24", "10.0.0.0/24", None, Some("unique"), &[("1", "default/old")]).await;
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/24", "/26")).await;
    let pool = slices(&client, "net", &["node1"]).await;
    let sealed = ledgers(&client).get("10.0.0.0-24").await.unwrap();
    assert_eq!(state(&sealed).as_deref(), Some("sliced"));
    let version = |version: Option<String>| version.unwrap().parse::<u64>().unwrap();
    let (seal, slices) = (version(sealed.resource_version()), version(pool.resource_version()));
    assert!(seal < slices, "sealed at {seal}, given away at {slices}");
    assert_eq!(records(&client, "10.0.0.0-24").await.len(), 1, "who runs keeps what it has");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ranges_that_overlap_what_is_cut_are_sealed_before_slices_are_given_and_opened_again() {
    let (client, controller) = started(62, &["node1"]).await;
    pod(&client, "old", Some(&["10.0.7.1"])).await;
    ledger(&client, "10.0.7.0-24", "10.0.7.0/24", None, Some("unique"), &[]).await;
    ledger(&client, "10.0.0.0-12", "10.0.0.0/12", None, Some("overlapping"), &[]).await;
    ledger(&client, "10.0.8.0-24", "10.0.8.0/24", None, None, &[]).await;
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/16", "/24")).await;
    let pool = slices(&client, "net", &["node1"]).await;
    let version = |version: Option<String>| version.unwrap().parse::<u64>().unwrap();
    for name in ["10.0.0.0-16", "10.0.7.0-24", "10.0.0.0-12"] {
        let sealed = ledgers(&client).get(name).await.unwrap();
        assert_eq!(state(&sealed).as_deref(), Some("sliced"), "{name}");
        assert!(
            version(sealed.resource_version()) < version(pool.resource_version()),
            "{name} came too late"
        );
    }
    let outside = ledgers(&client).get("10.0.8.0-24").await.unwrap();
    assert_eq!(state(&outside), None, "it heeds nobody");
    // One that was made by who did not know is sealed, too.
    ledger(&client, "10.0.9.0-24", "10.0.9.0/24", None, Some("unique"), &[]).await;
    let is = async |name: &str, wanted: &str| {
        (state(&ledgers(&client).get(name).await.unwrap()).as_deref() == Some(wanted)).then_some(())
    };
    until("the seal", async || is("10.0.9.0-24", "sliced").await).await;
    detach(&client, "kube-system", "net").await;
    for name in ["10.0.0.0-16", "10.0.7.0-24", "10.0.0.0-12", "10.0.9.0-24"] {
        until("it to be opened", async || is(name, "unique").await).await;
        let opened = ledgers(&client).get(name).await.unwrap();
        assert!(opened.annotations().contains_key("whereabouts.cni.cncf.io/opened"), "{name}");
    }
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_over_what_others_use_closes_nothing_and_says_so() {
    let (client, controller) = started(62, &["node1"]).await;
    pod(&client, "runs", Some(&["10.7.0.1"])).await;
    ledger(&client, "10.7.0.0-24", "10.7.0.0/24", None, Some("unique"), &[("1", "default/runs")]).await;
    attach(&client, "apps", "garbage", &json!({"range": "10.0.0.0/8", "node_slice_size": "/x"})).await;
    attach(&client, "apps", "wide", &sliced("10.0.0.0/8", "/22")).await;
    let event = told(&client, "apps", "Overlapping", "wide").await;
    assert!(event.message.unwrap().contains("10.7.0.0-24"));
    let pool = slice_pools(&client).get("wide").await.unwrap();
    assert_eq!(condition(&pool, "Ready").0, "False");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = ledgers(&client).get("10.7.0.0-24").await.unwrap();
    assert_eq!(state(&used).as_deref(), Some("unique"), "its pods are served");
    assert!(ledgers(&client).get_opt("10.0.0.0-8").await.unwrap().is_none(), "nothing keeps others out");
    // When nobody uses it any more, the range is cut.
    delete_pod(&client, "runs").await;
    slices(&client, "wide", &["node1"]).await;
    detach(&client, "apps", "wide").await;
    until("it to be opened", async || {
        let opened = ledgers(&client).get("10.7.0.0-24").await.unwrap();
        (state(&opened).as_deref() == Some("unique")).then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn definitions_that_contradict_each_other_are_a_condition_and_an_event() {
    let (client, controller) = started(56, &["node1"]).await;
    let of = |size: &str| json!({"range": "10.0.0.0/24", "node_slice_size": size, "network_name": "blue"});
    attach(&client, "kube-system", "first", &of("/26")).await;
    slices(&client, "blue", &["node1"]).await;
    attach(&client, "apps", "second", &of("/27")).await;
    let pool = until("the condition", async || {
        let pool = slice_pools(&client).get("blue").await.unwrap();
        (condition(&pool, "Conflict").0 == "True").then_some(pool)
    })
    .await;
    assert_eq!(pool.spec.slice_size, "/26", "what is there is kept");
    let event = told(&client, "apps", "Conflict", "second").await;
    assert!(event.message.unwrap().contains("/27"));
    attach(&client, "apps", "wrong", &json!({"range": "10.0.0.0/24", "node_slice_size": "/x"})).await;
    let event = told(&client, "apps", "Refused", "wrong").await;
    assert!(event.message.unwrap().contains("node_slice_size"));
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_nodes_that_join_are_a_few_writes_and_nothing_is_written_when_nothing_changes() {
    let api = server(57).await;
    let client = api.client();
    define_attachments(&client).await;
    let faults = Faults::seeded(57);
    let controller = start(faults.client(api.clone(), "default"), "a");
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/8", "/20")).await;
    slices(&client, "net", &[]).await;
    let names: Vec<String> = (0..400).map(|number| format!("node-{number:04}")).collect();
    for name in &names {
        node(&client, name).await;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    slices(&client, "net", &names).await;
    let calls = || faults.tally(&Calls::writes().to("nodeslicepools")).asked;
    let written = calls();
    assert!(written <= 20, "{written} writes for four hundred nodes");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = calls();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(calls(), before, "nothing changes, and nothing is written");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_forgot_is_released_after_two_looks_and_a_successors_is_not() {
    let (client, controller) = started(58, &["node1"]).await;
    for (name, addresses) in
        [("web-0", Some(&["10.9.0.1"][..])), ("silent", None), ("moved", Some(&["10.9.0.4"][..]))]
    {
        pod(&client, name, addresses).await;
    }
    pod(&client, "ended", None).await;
    phase(&client, "ended", "Succeeded").await;
    let held = [
        ("1", "default/web-0"),
        ("2", "default/silent"),
        ("3", "default/gone"),
        ("4", "default/moved"),
        ("5", "default/moved"),
        ("6", "default/ended"),
    ];
    ledger(&client, "10.9.0.0-24", "10.9.0.0/24", None, Some("overlapping"), &held).await;
    for (key, podref) in held {
        reserve(&client, &format!("10.9.0.{key}"), podref).await;
    }
    reserve(&client, "10.9.0.77", "default/gone").await;
    let left = [("1", "default/web-0"), ("2", "default/silent"), ("4", "default/moved")];
    let left: Vec<(String, String)> = left.map(|(key, podref)| (key.to_owned(), podref.to_owned())).into();
    until("what nobody uses to go", async || (records(&client, "10.9.0.0-24").await == left).then_some(()))
        .await;
    until("their reservations to go", async || {
        let all = reservations(&client).list(&ListParams::default()).await.unwrap();
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        (names == ["10.9.0.1", "10.9.0.2", "10.9.0.4"]).then_some(())
    })
    .await;
    let event = told(&client, "kube-system", "AddressReleased", "10.9.0.0-24").await;
    assert!(event.message.unwrap().contains("default/gone"));
    // A StatefulSet's pod is made anew: its record is gone for one look and there at the next.
    delete_pod(&client, "web-0").await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    pod(&client, "web-0", None).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(records(&client, "10.9.0.0-24").await, left);
    let text = controller.metrics.text().unwrap();
    for line in [
        "tenure_whereabouts_released_total{kind=\"record\"} 3",
        "tenure_whereabouts_pool_addresses{pool=\"10.9.0.0-24\",range=\"10.9.0.0/24\",state=\"used\"} 3",
        "tenure_whereabouts_pool_addresses{pool=\"10.9.0.0-24\",range=\"10.9.0.0/24\",state=\"free\"} 253",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_living_nodes_ledger_is_its_agents_and_nobody_elses() {
    let (client, controller) = started(59, &["node1"]).await;
    let held = [("1", "default/gone")];
    ledger(&client, "node1-10.0.0.0-26", "10.0.0.0/26", Some("node1"), Some("owned"), &held).await;
    ledger(&client, "node2-10.0.0.64-26", "10.0.0.64/26", Some("node2"), Some("owned"), &held).await;
    until("the record of the node that is gone to go", async || {
        let there = ledgers(&client).get_opt("node2-10.0.0.64-26").await.unwrap();
        there.is_none_or(|pool| pool.spec.allocations.is_empty()).then_some(())
    })
    .await;
    assert_eq!(records(&client, "node1-10.0.0.0-26").await.len(), 1);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_live_look_at_the_pod_keeps_what_a_late_watch_would_release() {
    let api = server(60).await;
    let client = api.client();
    let faults = Faults::seeded(60);
    let controller = start(faults.client(api.clone(), "default"), "a");
    let asked = |verb: Verb| faults.tally(&Calls::of(verb).to("pods")).asked;
    ledger(&client, "10.9.0.0-24", "10.9.0.0/24", None, Some("unique"), &[]).await;
    until("pods to be watched", async || (asked(Verb::Watch) > 0).then_some(())).await;
    let _held = faults.hold_watches(Calls::of(Verb::Watch).to("pods"));
    pod(&client, "lives", None).await;
    let patch =
        kube::api::Patch::Merge(json!({"spec": {"allocations": {"1": record("default/lives", "net1")}}}));
    ledgers(&client).patch("10.9.0.0-24", &kube::api::PatchParams::default(), &patch).await.unwrap();
    until("a live look", async || (asked(Verb::Get) > 0).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(records(&client, "10.9.0.0-24").await.len(), 1);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_pods_are_not_in_the_api_nothing_is_ever_released() {
    let client = server(61).await.client();
    ledger(&client, "10.9.0.0-24", "10.9.0.0/24", None, Some("unique"), &[("1", "default/unknown")]).await;
    let mut settings = settings("a");
    settings.whereabouts = Whereabouts { release_after: None, ..settings.whereabouts };
    let controller = start_with(client.clone(), settings);
    until("it to lead", async || controller.leads().then_some(())).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(records(&client, "10.9.0.0-24").await.len(), 1);
    ledgers(&client).delete("10.9.0.0-24", &DeleteParams::default()).await.unwrap();
    controller.stop().await;
}
