//! The program itself, on the embedded API: over a kubeconfig as on a cluster, and over sockets as on one host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_daemon::Pages;
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Server};

/// Runs the program; gives its exit code, what it said, and what it noted.
async fn tenure(arguments: &[&str]) -> (i32, String, String) {
    let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
    let run = move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        let command = command.args(arguments).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
        command.env("HOME", "/nowhere").output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

async fn create<K>(client: &Client, object: Value) -> K
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &object).await.unwrap()
}

/// A pool of 64 addresses, and a node with one block of 16.
async fn system() -> (LocalApi, AddressBlock) {
    let api = LocalApi::temporary(SystemClock, Arc::new(SeededEntropy::new(4)));
    let client = api.client();
    for definition in tenure_api::crds() {
        Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
    }
    create::<Node>(&client, json!({"metadata": {"name": "node1"}})).await;
    let pool: AddressPool = create(
        &client,
        json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool",
            "metadata": {"name": "default", "finalizers": ["coil.cybozu.com"]},
            "spec": {"blockSizeBits": 4, "subnets": [{"ipv4": "10.64.0.0/26"}]},
        }),
    )
    .await;
    let block = AddressBlock::carve(&pool, 0, "node1", None).unwrap();
    let block = Api::all(client).create(&PostParams::default(), &block).await.unwrap();
    (api, block)
}

fn kubeconfig(directory: &Path, server: &str) -> String {
    let path = directory.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "local",
        "clusters": [{"name": "local", "cluster": {"server": server}}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What an agent with this block would tell.
fn told(block: &AddressBlock) -> Value {
    let addresses = json!({"capacity": 16, "held": 1, "cooling": 0, "reserved": 0, "free": 15});
    json!({
        "node": "node1", "version": "0.1.0", "time": "2026-11-15T12:00:00Z", "ready": true,
        "pools": [{"name": "default", "blocks": 1, "addresses": addresses}],
        "blocks": [{
            "name": "default-0", "uid": block.uid().unwrap(), "pool": "default", "networks": ["10.64.0.0/28"],
            "addresses": addresses, "usable": true,
        }],
        "holds": [{
            "network": "net", "container": "c1", "interface": "eth0", "pool": "default", "block": "default-0",
            "addresses": ["10.64.0.3"],
        }],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_looked_at_by_its_kubeconfig_also_where_no_agent_runs() {
    let (api, _) = system().await;
    let client = api.client();
    let serving = Server::loopback(api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = kubeconfig(directory.path(), &format!("http://{}", serving.address().unwrap()));
    let (code, text, notes) = tenure(&["pools", "--kubeconfig", &config]).await;
    let expected = "\
POOL      SIZE   USED   COOLING   FREE   BLOCKS   BLOCKS PER NODE   CONDITIONS
default   64     0+?    0+?       64-?   1/4      node1 1           -
";
    let note = "? node1: no pod with the label app.kubernetes.io/name=tenured runs on node \"node1\"\n";
    assert_eq!((code, text.as_str(), notes.as_str()), (0, expected, note));
    let (code, text, _) = tenure(&["blocks", "--kubeconfig", &config, "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &shown[0]["node"], &shown[0]["addresses"]), (0, &json!("node1"), &Value::Null));
    let (code, text, _) = tenure(&["claims", "--kubeconfig", &config]).await;
    assert_eq!((code, text.as_str()), (0, "There are no claims.\n"));
    create::<Namespace>(&client, json!({"metadata": {"name": "shop"}})).await;
    let claims: Api<IPAMClaim> = Api::namespaced(client, "shop");
    for (name, network) in [("printer", "blue"), ("web", "green")] {
        let claim = IPAMClaim::new(
            name,
            serde_json::from_value(json!({"network": network, "interface": "net1"})).unwrap(),
        );
        claims.create(&PostParams::default(), &claim).await.unwrap();
    }
    let (code, text, _) =
        tenure(&["claims", "-n", "shop", "--network", "blue", "--kubeconfig", &config]).await;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (code, lines.len(), &lines[1][..4]),
        (0, 2, &["shop", "printer", "blue", "net1"][..]),
        "{text}"
    );
    let (code, text, _) = tenure(&["claims", "-o", "json", "--kubeconfig", &config]).await;
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &shown[1]["name"], &shown[1]["onRecord"]), (0, &json!("web"), &json!(false)));
    let (code, text, _) = tenure(&["who", "10.64.0.60", "--kubeconfig", &config]).await;
    assert_eq!(code, 0);
    assert!(
        text.starts_with("nobody has 10.64.0.60: no node owns its block default-3 of pool default\n"),
        "{text}"
    );
    let (code, text, _) = tenure(&["who", "10.64.0.3", "--kubeconfig", &config]).await;
    assert_eq!(code, 2, "who would know could not be asked: {text}");
    let (code, text, notes) = tenure(&["check", "--settle", "1ms", "--kubeconfig", &config]).await;
    assert_eq!(code, 2, "{text}{notes}");
    assert!(text.contains("No differences, but 1 could not be looked at."), "{text}");
    let (code, _, notes) = tenure(&["pools", "typo", "--kubeconfig", &config]).await;
    assert_eq!((code, notes.as_str()), (2, "tenure: there is no pool \"typo\"; there are default\n"));
    serving.stop().await;
    let (code, _, notes) = tenure(&["pools", "--kubeconfig", &config]).await;
    assert_eq!(code, 2);
    assert!(notes.contains("cannot list ") && notes.contains("the API server does not answer"), "{notes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_host_is_looked_at_by_its_sockets() {
    let (directory, client, serving, state) = host().await;
    let run = directory.path().to_str().unwrap().to_owned();
    let (code, text, notes) = tenure(&["pools", "--run-dir", &run]).await;
    let expected = "\
POOL      SIZE   USED   COOLING   FREE   BLOCKS   BLOCKS PER NODE   CONDITIONS
default   64     1      0         63     1/4      node1 1           -
";
    assert_eq!((code, text.as_str(), notes.as_str()), (0, expected, ""));
    let (code, text, _) = tenure(&["blocks", "--run-dir", &run]).await;
    let expected = "\
BLOCK       POOL      NODE    IPV4           IPV6   USED   COOLING   FREE   STATE
default-0   default   node1   10.64.0.0/28   -      1      0         15     ok
";
    assert_eq!((code, text.as_str()), (0, expected));
    let (code, text, _) = tenure(&["who", "10.64.0.3", "--run-dir", &run]).await;
    let expected = "\
10.64.0.3 is held by container c1 eth0 on node node1
interface:    eth0 of container c1, network net
node:         node1
block:        default-0
pool:         default
";
    assert_eq!((code, text.as_str()), (0, expected));
    let (code, text, _) = tenure(&["node", "--run-dir", &run]).await;
    assert!(code == 0 && text.starts_with("node:         node1\n"), "{text}");
    let (code, _, notes) = tenure(&["node", "other", "--run-dir", &run]).await;
    assert!(code == 2 && notes.contains("this host is node \"node1\", not \"other\""), "{notes}");
    let (code, text, notes) = tenure(&["check", "--run-dir", &run]).await;
    assert_eq!(
        (code, text.as_str(), notes.as_str()),
        (0, "Compared 1 pools, 1 blocks, 0 requests, 1 holds of 1 nodes, and 0 pods. No differences.\n", "")
    );
    // A block that the agent has not heard of.
    let pool = Api::<AddressPool>::all(client.clone()).get("default").await.unwrap();
    let second = AddressBlock::carve(&pool, 1, "node1", None).unwrap();
    Api::<AddressBlock>::all(client).create(&PostParams::default(), &second).await.unwrap();
    let (code, text, _) = tenure(&["check", "--settle", "1ms", "--run-dir", &run, "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &shown["differences"][0]["kind"]), (1, &json!("block-unknown-to-agent")));
    assert_eq!(shown["differences"].as_array().map(Vec::len), Some(1), "{text}");
    state.abort();
    serving.stop().await;
}

/// A host with the embedded API and an agent that answers at its socket: its run directory, the API's client, and what serves.
async fn host() -> (tempfile::TempDir, Client, Server, tokio::task::JoinHandle<()>) {
    let (api, block) = system().await;
    let directory = tempfile::tempdir().unwrap();
    let client = api.client();
    let serving = Server::unix(api, directory.path().join("api.sock")).await.unwrap();
    let view = told(&block);
    let pages = Pages::default().json("/v1/node", move || std::future::ready(Ok::<_, String>(view.clone())));
    let state = tenure_daemon::listen_unix(&directory.path().join("state.sock")).unwrap();
    let state = tokio::spawn(tenure_daemon::serve(state, pages));
    (directory, client, serving, state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_check_finds_is_planned_made_and_gone() {
    let (directory, client, serving, state) = host().await;
    let run = directory.path().to_str().unwrap();
    let pools: Api<AddressPool> = Api::all(client.clone());
    let blocks: Api<AddressBlock> = Api::all(client.clone());
    // A pool without its finalizer, a request of a node that is gone, and a block that nobody has.
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let pool = pools.patch("default", &PatchParams::default(), &bare).await.unwrap();
    let request = json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "BlockRequest", "metadata": {"name": "req-default-gone"},
        "spec": {"nodeName": "gone", "poolName": "default"},
    });
    create::<BlockRequest>(&client, request).await;
    let mut stray = AddressBlock::carve(&pool, 2, "nobody", None).unwrap();
    stray.labels_mut().remove("coil.cybozu.com/node");
    blocks.create(&PostParams::default(), &stray).await.unwrap();
    let found = |text: &str, field: &str| -> Vec<Value> {
        let shown: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        shown[field].as_array().unwrap().iter().map(|it| it["kind"].clone()).collect()
    };
    let kinds = ["block-without-node", "pool-unprotected", "request-without-node"];
    let (code, text, _) = tenure(&["check", "--settle", "1ms", "--run-dir", run, "-o", "json"]).await;
    assert_eq!((code, found(&text, "differences")), (1, kinds.map(Value::from).into()));

    // Nobody can be asked here, and a plan changes nothing.
    let (code, _, notes) = tenure(&["repair", "--settle", "1ms", "--run-dir", run]).await;
    assert!(code == 2 && notes.contains("accepted is --yes"), "{notes}");
    let (code, text, _) = tenure(&["repair", "--dry-run", "--settle", "1ms", "--run-dir", run]).await;
    assert_eq!(code, 1);
    assert!(
        text.contains("    repair: AddressBlock default-2: delete\n    safe: every node was asked"),
        "{text}"
    );
    assert!(blocks.get_opt("default-2").await.unwrap().is_some());

    // One kind, and then the rest.
    let quick = ["--yes", "--settle", "1ms", "--wait", "1s", "--run-dir", run, "-o", "json"];
    let (code, text, notes) = tenure(&[&["repair", "pool-unprotected"], &quick[..]].concat()).await;
    assert_eq!((code, found(&text, "done"), notes.as_str()), (0, vec![json!("pool-unprotected")], ""));
    assert_eq!(pools.get("default").await.unwrap().finalizers(), ["coil.cybozu.com"]);
    let (code, text, _) = tenure(&[&["repair"], &quick[..]].concat()).await;
    assert_eq!((code, found(&text, "remaining")), (0, Vec::new()), "{text}");
    assert!(blocks.get_opt("default-2").await.unwrap().is_none());
    let (code, text, _) = tenure(&["check", "--run-dir", run]).await;
    assert_eq!(code, 0, "{text}");

    // Of the block that its agent knows, the label is put back, and its holder goes on.
    let bare = Patch::Merge(json!({"metadata": {"labels": {"coil.cybozu.com/node": null}}}));
    blocks.patch("default-0", &PatchParams::default(), &bare).await.unwrap();
    let (code, text, _) = tenure(&[&["repair"], &quick[..]].concat()).await;
    assert_eq!((code, found(&text, "done")), (0, vec![json!("block-without-node")]), "{text}");
    assert_eq!(blocks.get("default-0").await.unwrap().node(), Some("node1"));
    state.abort();
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_is_drained_and_no_longer_and_what_is_in_use_is_not_released() {
    let (directory, client, serving, state) = host().await;
    let run = directory.path().to_str().unwrap();
    let blocks: Api<AddressBlock> = Api::all(client);
    let (code, text, notes) = tenure(&["drain", "default-0", "--run-dir", run]).await;
    let expected = "block default-0 of node node1 drains: 1 holders, 0 addresses cool: container c1 eth0 has an address\n";
    assert_eq!((code, text.as_str()), (0, expected), "{notes}");
    let drains = |block: AddressBlock| block.annotations().contains_key("tenure/drain");
    assert!(drains(blocks.get("default-0").await.unwrap()));
    let (code, _, notes) = tenure(&["drain", "default-0", "--wait", "1s", "--run-dir", run]).await;
    assert!(code == 1 && notes.starts_with("block default-0 of node node1 drains"), "{notes}");
    let (code, text, _) = tenure(&["drain", "default-0", "--undo", "--run-dir", run]).await;
    assert_eq!((code, text.as_str()), (0, "block default-0 is not drained: node node1 assigns from it\n"));
    assert!(!drains(blocks.get("default-0").await.unwrap()));
    let (code, _, notes) = tenure(&["drain", "typo", "--run-dir", run]).await;
    assert!(code == 2 && notes.contains("accepted is a name that `tenure blocks` prints"), "{notes}");

    let (code, text, _) = tenure(&["release", "10.64.0.3", "--run-dir", run]).await;
    let expected =
        "10.64.0.3 is not released, because it is in use:\n    node node1 holds it for container c1 eth0\n";
    assert_eq!((code, text.as_str()), (1, expected));
    let (code, text, _) = tenure(&["release", "10.64.0.4", "--run-dir", run]).await;
    assert_eq!((code, text.as_str()), (0, "nobody has 10.64.0.4: there is nothing to release\n"));
    state.abort();
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_explained_without_a_cluster() {
    let (code, text, _) = tenure(&["explain", "AddressPool \"x\" is gone"]).await;
    assert!(code == 0 && text.starts_with("The pool was deleted while the pod waited"), "{text}");
    let (code, _, _) = tenure(&["explain", "something", "else"]).await;
    assert_eq!(code, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_words_are_answered_with_what_would_be_accepted() {
    let (code, _, notes) = tenure(&["who", "10.64.0"]).await;
    assert!(code == 2 && notes.contains("invalid value '10.64.0'"), "{notes}");
    let (code, _, notes) = tenure(&["pools", "--kubeconfig", "/nowhere/at/all"]).await;
    assert!(code == 2 && notes.contains("reading /nowhere/at/all"), "{notes}");
    let (code, _, notes) = tenure(&["node", "--run-dir", "/nowhere"]).await;
    assert!(code == 2 && notes.contains("state.sock: it is not there; is tenured running?"), "{notes}");
    let (code, _, notes) = tenure(&["pools", "--run-dir", "/nowhere"]).await;
    assert!(code == 2 && notes.contains("accepted is --kubeconfig FILE"), "{notes}");
}
