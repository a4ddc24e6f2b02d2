//! A hundred thousand addresses on a real API server: every one is on the map, and a change costs what changed. How long it takes, the
//! browser measures; the figures are kept under `target/ui`, and nothing is asserted about them.

use futures::StreamExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_tests::agent::Cluster;

use super::bed::{Pages, browser, go, keep, was_content};

/// Slices of 1024 addresses each, one for each node.
const NODES: u32 = 128;
/// How many addresses of a slice are held.
const HELD: u32 = 800;
/// How many changes are measured.
const CHANGES: u32 = 40;

fn slice(node: u32) -> String {
    format!("10.{}.{}.0/22", 64 + node / 64, node % 64 * 4)
}

fn record(node: u32, number: u32) -> Value {
    json!({"id": format!("c-{node}-{number}"), "podref": format!("shop/web-{node}-{number}"), "ifname": "net1"})
}

fn ledger(node: u32) -> IPPool {
    let records: serde_json::Map<String, Value> =
        (1..=HELD).map(|number| (number.to_string(), record(node, number))).collect();
    let network = slice(node).replace('/', "-");
    serde_json::from_value(json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
        "metadata": {
            "name": format!("node{node}-{network}"), "namespace": "kube-system",
            "labels": {"whereabouts.cni.cncf.io/node": format!("node{node}")},
            "annotations": {"whereabouts.cni.cncf.io/state": "owned"},
        },
        "spec": {"range": slice(node), "allocations": records},
    }))
    .unwrap()
}

/// The middle and the largest of durations in milliseconds.
fn figures(mut all: Vec<f64>) -> Value {
    all.sort_by(f64::total_cmp);
    json!({"count": all.len(), "median": all.get(all.len() / 2), "most": all.last()})
}

fn durations(measured: &Value) -> Vec<f64> {
    measured.as_array().unwrap().iter().map(|it| it["ms"].as_f64().unwrap()).collect()
}

#[test]
fn a_hundred_thousand_addresses_are_drawn_and_a_change_costs_what_changed() {
    let cluster = Cluster::without_controller(ControlPlaneOptions::default().without_controller_manager());
    let ledgers: Api<IPPool> = Api::namespaced(cluster.client.clone(), "kube-system");
    cluster.runtime.block_on(async {
        let pools: Api<NodeSlicePool> = Api::namespaced(cluster.client.clone(), "kube-system");
        let pool: NodeSlicePool = serde_json::from_value(json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
            "metadata": {"name": "net", "annotations": {"whereabouts.cni.cncf.io/network": ""}},
            "spec": {"range": "10.64.0.0/15", "sliceSize": "/22"},
        }))
        .unwrap();
        pools.create(&PostParams::default(), &pool).await.unwrap();
        let given: Vec<Value> = (0..NODES)
            .map(|node| json!({"nodeName": format!("node{node}"), "sliceRange": slice(node)}))
            .collect();
        let status = Patch::Merge(json!({"status": {"allocations": given}}));
        // Whereabouts has no subresource for it.
        pools.patch("net", &PatchParams::default(), &status).await.unwrap();
        let created = futures::stream::iter(0..NODES).map(|node| {
            let ledgers = ledgers.clone();
            async move { ledgers.create(&PostParams::default(), &ledger(node)).await.unwrap() }
        });
        created.buffer_unordered(8).collect::<Vec<_>>().await;
    });
    let kubeconfig = cluster.kubeconfig_file();
    let pages = Pages::start(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    let browser = browser(&pages);
    browser.until("the pool is listed", "document.body.innerText.includes('102 400 used') || document.body.innerText.includes('102\\u202f400 used')").unwrap();

    let mut kept = serde_json::Map::new();
    let held = |number: u32| {
        format!("document.querySelector('[data-state=held]')?.textContent.replace(/\\D/g, '') === '{number}'")
    };
    // The first ones add addresses, and the others take them away.
    for (name, fine, cells, before) in
        [("coarse", "", 4096, NODES * HELD), ("fine", "/fine", 131_072, NODES * HELD + CHANGES)]
    {
        go(&browser, &format!("/map/NodeSlicePool/net//{fine}"));
        let first = format!(
            "performance.getEntriesByName('tenure:first-map').some((it) => it.detail.cells === {cells})"
        );
        browser.until("the map is drawn", &first).unwrap();
        browser.until("all are held", &held(before)).unwrap();
        let first = browser
            .value("performance.getEntriesByName('tenure:first-map').map((it) => ({ms: it.duration, cells: it.detail.cells}))")
            .unwrap();
        keep(&browser, &format!("crowd-{name}"));
        browser.value("performance.clearMeasures('tenure:update')").unwrap();
        for change in 0..CHANGES {
            let (key, node) = ((HELD + 1 + change).to_string(), change % NODES);
            let added = if fine.is_empty() { record(node, HELD + 1 + change) } else { Value::Null };
            let patch = Patch::Merge(json!({"spec": {"allocations": {key: added}}}));
            let name = ledger(node).name_any();
            cluster.runtime.block_on(ledgers.patch(&name, &PatchParams::default(), &patch)).unwrap();
            let now = if fine.is_empty() { before + change + 1 } else { before - change - 1 };
            browser.until("the change", &held(now)).unwrap();
        }
        let updates = browser
            .value("performance.getEntriesByName('tenure:update').map((it) => ({ms: it.duration, cells: it.detail.cells}))")
            .unwrap();
        let updates_list = updates.as_array().unwrap();
        assert!(!updates_list.is_empty());
        for update in updates_list {
            let cells = update["cells"].as_u64().unwrap();
            assert!((1..=u64::from(CHANGES)).contains(&cells), "an update of one address has {cells} cells");
        }
        kept.insert(name.to_owned(), json!({"firstMap": first, "updates": figures(durations(&updates))}));
    }
    was_content(&browser, &pages);
    let directory = std::env::current_exe().unwrap();
    let target = directory.ancestors().find(|it| it.ends_with("target")).unwrap().join("ui");
    std::fs::create_dir_all(&target).unwrap();
    std::fs::write(target.join("measured.json"), serde_json::to_string_pretty(&kept).unwrap()).unwrap();
}
