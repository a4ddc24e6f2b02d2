//! `tenure import`, the program, with what it reads: a real etcd filled as Coil v1 fills it, directories as host-local leaves them,
//! and Calico's objects. It imports into a cluster whose controller runs all the while, on both API servers.
//! Needs etcd; the tests on the real server need kube-apiserver, too.

mod bed;
mod etcd;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_controller_testbed as controllers;
use tenure_testbed::wait::eventually;
use tenure_tests::definitions::define;

use bed::{Bed, ended};
use etcd::Etcd;

/// Waits so long that other blocks could be seen as unused, and no longer.
const SOON: [&str; 4] = ["--rest", "1s", "--poll", "200ms"];

/// The addresses in use, with namespace, pod and node.
const USED: [(&str, &str, &str, &str); 5] = [
    ("web", "a", "node1", "10.60.0.1"),
    ("web", "b", "node1", "10.60.0.7"),
    ("web", "c", "node2", "10.60.0.16"),
    ("team", "d", "node2", "10.61.0.5"),
    // Its block is on the free list: Coil v1 had lost it.
    ("web", "e", "node1", "10.60.0.63"),
];

fn addresses() -> Vec<&'static str> {
    USED.iter().map(|used| used.3).collect()
}

/// Two pools with their blocks and addresses: values of both formats.
async fn fill(etcd: &Etcd) -> Result<()> {
    etcd.put("pool/default", r#"{"subnets":["10.60.0.0/26"],"block_size":3}"#).await?;
    etcd.put("pool/team", r#"{"subnets":["10.61.0.0/28"],"block_size":2}"#).await?;
    etcd.put("pool/nobodys", r#"{"subnets":["10.62.0.0/28"],"block_size":2}"#).await?;
    etcd.put("subnet/10.60.0.0", "").await?;
    etcd.put("subnet/10.61.0.0", "").await?;
    etcd.put("subnet/10.62.0.0", "").await?;
    let blocks = json!({
        "free": ["10.60.0.24/29", "10.60.0.32/29", "10.60.0.40/29", "10.60.0.48/29", "10.60.0.56/29"],
        "nodes": {"node1": ["10.60.0.0/29", "10.60.0.8/29"], "node2": ["10.60.0.16/29"]},
    });
    etcd.put("block/default/10.60.0.0", &blocks.to_string()).await?;
    let blocks = json!({
        "free": ["10.61.0.0/30", "10.61.0.8/30", "10.61.0.12/30"], "nodes": {"node2": ["10.61.0.4/30"]},
    });
    etcd.put("block/team/10.61.0.0", &blocks.to_string()).await?;
    etcd.put("block/nobodys/10.62.0.0", r#"{"free":["10.62.0.0/30"],"nodes":{}}"#).await?;
    etcd.put("ip/10.60.0.0/1", "web/a").await?;
    for (key, pod) in [("ip/10.60.0.0/7", "b"), ("ip/10.60.0.16/0", "c"), ("ip/10.60.0.56/7", "e")] {
        let value = json!({
            "namespace": "web", "pod": pod, "container_id": "6dd56e8b-2c74-4c92-bf31-fd3576ed5b03",
            "created_at": "2019-08-25T00:00:00+09:00",
        });
        etcd.put(key, &value.to_string()).await?;
    }
    etcd.put("ip/10.61.0.4/1", r#"{"namespace":"team","pod":"d","container_id":"x"}"#).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_read_page_by_page_over_tls_with_a_password_and_from_a_dump() -> Result<()> {
    let (etcd, bed) = (Etcd::start().await?, Bed::embedded().await?);
    fill(&etcd).await?;
    // More keys than a page has.
    for block in 0..30 {
        for offset in 0..8 {
            let key = format!("ip/10.63.{block}.0/{offset}");
            etcd.put(&key, "many/pods").await?;
        }
    }
    let pool: Vec<String> = (0..30).map(|third| format!("10.63.{third}.0/29")).collect();
    etcd.put("pool/many", &json!({"subnets": pool, "block_size": 3}).to_string()).await?;
    let import = ["coil-v1", "--offline"];
    let plain = bed.import(&[&import[..], &["--etcd-endpoints", &etcd.plain]].concat()).await?.ok()?;
    ensure!(plain.matches("kind: AddressBlock").count() == 35, "{plain}");

    let dump = etcd.dump().await?.display().to_string();
    ensure!(bed.import(&[&import[..], &["--etcd-dump", &dump]].concat()).await?.ok()? == plain);

    let (ca, certificate, key) = (etcd.file("ca.crt"), etcd.file("client.crt"), etcd.file("client.key"));
    // The first member does not answer.
    let members = format!("https://127.0.0.1:9,{}", etcd.secure);
    let tls = [
        "--etcd-endpoints",
        &members,
        "--etcd-tls-ca",
        &ca,
        "--etcd-tls-cert",
        &certificate,
        "--etcd-tls-key",
        &key,
    ];
    ensure!(bed.import(&[&import[..], &tls].concat()).await?.ok()? == plain);
    let without = bed.import(&[&import[..], &tls[..4]].concat()).await?;
    ensure!(without.code == 2 && without.text.is_empty(), "no client certificate: {without:?}");

    etcd.demand_passwords().await?;
    let refused = bed.import(&[&import[..], &tls].concat()).await?;
    ensure!(refused.code == 2 && refused.notes.contains("--etcd-username"), "{refused:?}");
    let password = etcd.file("password");
    let user = ["--etcd-username", "coil", "--etcd-password-file", &password];
    std::fs::write(&password, "coil-secret\n")?;
    ensure!(bed.import(&[&import[..], &tls, &user].concat()).await?.ok()? == plain);
    let named = [etcd.file("named.crt"), etcd.file("named.key")];
    let mut with_name = [&import[..], &tls, &user].concat();
    (with_name[7], with_name[9]) = (&named[0], &named[1]);
    let refused = bed.import(&with_name).await?;
    ensure!(
        refused.code == 2 && refused.notes.contains("that has no common name; give --etcd-dump"),
        "{refused:?}"
    );
    std::fs::write(&password, "wrong")?;
    let refused = bed.import(&[&import[..], &tls, &user].concat()).await?;
    ensure!(refused.code == 2 && refused.notes.contains("authenticating"), "{refused:?}");
    Ok(())
}

/// The whole way: import, apply while the controller works, new blocks, a second import, pods that go, the end.
async fn coil_v1(bed: &Bed) -> Result<()> {
    let etcd = Etcd::start().await?;
    fill(&etcd).await?;
    for node in ["node1", "node2", "node3"] {
        bed.node(node).await?;
    }
    for (namespace, pod, node, address) in USED {
        bed.pod(namespace, pod, node, address).await?;
    }
    let controller = controllers::start(bed.client.clone(), "test");
    let import = ["coil-v1", "--etcd-endpoints", &etcd.plain];

    let first = bed.import(&import).await?;
    for note in [
        "namespace team uses pool team\n",
        "note: /coil/ip/10.60.0.56/7: 10.60.0.63 of pod web/e (container 6dd56e8b-2c74-4c92-bf31-fd3576ed5b03) is in block \
         10.60.0.56/29, which no node has; the block is reserved\n",
        "note: Namespace \"nobodys\": it is not there",
    ] {
        ensure!(first.notes.contains(note), "{note}: {}", first.notes);
    }
    let yaml = first.ok()?;
    let dry = bed.import(&[&import[..], &["--dry-run", "-o", "json"]].concat()).await?.ok()?;
    let dry: Value = serde_json::from_str(&dry)?;
    ensure!(
        dry["pools"][0]
            == json!({
                "pool": "default", "subnets": ["10.60.0.0/26"], "blockSizeBits": 3, "reservedBlocks": 4, "usedAddresses": 4,
            }),
        "{dry}"
    );
    ensure!(bed.blocks().await?.is_empty(), "importing changes nothing");

    bed.apply(&yaml).await?;
    let reserved =
        BTreeSet::from(["default-0", "default-1", "default-2", "default-7", "team-1"].map(str::to_owned));
    ensure!(bed.reserved().await? == reserved);
    let namespaces: Api<Namespace> = Api::all(bed.client.clone());
    let annotated = namespaces.get("team").await?;
    ensure!(annotated.annotations().get("coil.cybozu.com/pool").map(String::as_str) == Some("team"));
    ensure!(bed.import(&import).await?.ok()? == yaml, "a second import gives the same");
    bed.apply(&yaml).await?;

    // Everything else of the pools can be carved, and nothing of what is reserved.
    for (pool, free) in [("default", 4), ("team", 3)] {
        for number in 0..=free {
            let block = bed.ask(&format!("{pool}-request-{number}"), "node3", pool).await?;
            ensure!(block.is_some() == (number < free), "{pool}: request {number} got {block:?}");
        }
    }
    bed.check(&addresses()).await?;

    finish(bed).await?;

    // A carved block is not taken back.
    let again = bed.import(&import).await?;
    ensure!(again.code == 1 && again.text.is_empty(), "{again:?}");
    ensure!(
        again.notes.contains(
            "error: AddressBlock default-1: it is there already, is node node3's, and is not reserved"
        ),
        "{}",
        again.notes
    );
    controller.stop().await;
    Ok(())
}

/// `import finish`, as pods go.
async fn finish(bed: &Bed) -> Result<()> {
    let everything = addresses();
    let shown = bed.import(&["finish", "--dry-run", "-o", "json"]).await?.ok()?;
    let shown: Value = serde_json::from_str(&shown)?;
    let state =
        |name: &str| shown["left"].as_array()?.iter().find(|row| row["name"] == name)?["state"].as_str();
    ensure!((state("default-0"), state("default-1")) == (Some("used"), Some("unused")), "{shown}");
    let unasked = bed.import(&["finish"]).await?;
    ensure!(unasked.code == 2 && unasked.notes.contains("--yes"), "nobody is at the terminal: {unasked:?}");
    ensure!(bed.reserved().await?.len() == 5);

    // The block that node1 had, and nobody used.
    let some = bed.import(&[&["finish", "--yes"], &SOON[..]].concat()).await?;
    ensure!(some.code == 1 && some.text.contains("1 reserved blocks are removed.\n"), "{some:?}");
    ensure!(some.notes.contains("removed default-1 (10.60.0.8/29)"), "{some:?}");
    ensure!(!bed.reserved().await?.contains("default-1") && bed.reserved().await?.len() == 4);
    let carved = bed.ask("default-again", "node3", "default").await?;
    ensure!(carved.as_deref() == Some("default-1"), "{carved:?}");
    bed.check(&everything).await?;

    // Of two pods in a block one stays.
    bed.delete_pod("web", "a").await?;
    bed.delete_pod("web", "c").await?;
    let some = bed.import(&[&["finish", "--yes"], &SOON[..]].concat()).await?;
    ensure!(
        some.notes.contains("removed default-2") && !some.notes.contains("removed default-0"),
        "{some:?}"
    );
    bed.check(&["10.60.0.7", "10.61.0.5", "10.60.0.63"]).await?;

    let waiting = bed.start(&[&["finish", "--yes", "--wait"], &SOON[..]].concat())?;
    bed.delete_pod("web", "b").await?;
    eventually("default-0 to go", async || Ok((!bed.reserved().await?.contains("default-0")).then_some(())))
        .await?;
    bed.check(&["10.61.0.5", "10.60.0.63"]).await?;
    bed.delete_pod("team", "d").await?;
    bed.delete_pod("web", "e").await?;
    let all = ended(waiting).await?;
    ensure!(
        all.code == 0 && all.text.ends_with("3 reserved blocks are removed.\nNo reserved block is left.\n"),
        "{all:?}"
    );
    ensure!(bed.reserved().await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coil_v1_is_imported_on_the_embedded_server_and_its_blocks_go_with_its_pods() -> Result<()> {
    coil_v1(&Bed::embedded().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coil_v1_is_imported_on_the_real_server_and_its_blocks_go_with_its_pods() -> Result<()> {
    coil_v1(&Bed::real().await?).await
}

/// A definition of a kind of Calico that keeps whatever is written.
fn calicos(kind: &str, plural: &str) -> Result<CustomResourceDefinition> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.crd.projectcalico.org")},
        "spec": {
            "group": "crd.projectcalico.org", "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    }))?)
}

async fn create(bed: &Bed, kind: &str, name: &str, spec: &Value) -> Result<()> {
    let gvk = GroupVersionKind::gvk("crd.projectcalico.org", "v1", kind);
    let api: Api<DynamicObject> = Api::all_with(bed.client.clone(), &ApiResource::from_gvk(&gvk));
    let object = json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Calico's objects become a pool; a tunnel's address stays reserved as long as its node has it.
async fn calico(bed: &Bed) -> Result<()> {
    for node in ["node1", "node2"] {
        bed.node(node).await?;
    }
    let absent = bed.import(&["calico"]).await?;
    ensure!(absent.code == 2 && absent.notes.contains("does not have Calico's IPAM"), "{absent:?}");
    let definitions = [("IPPool", "ippools"), ("IPAMBlock", "ipamblocks"), ("IPAMHandle", "ipamhandles")];
    for (kind, plural) in definitions {
        define(&bed.client, [calicos(kind, plural)?]).await?;
    }
    let pool = json!({"cidr": "10.64.0.0/27", "blockSize": 29, "ipipMode": "Always", "natOutgoing": true});
    create(bed, "IPPool", "default-ipv4-ippool", &pool).await?;
    let block = json!({
        "cidr": "10.64.0.8/29", "affinity": "host:node1", "strictAffinity": false, "deleted": false,
        "allocations": [0, null, 1, null, null, null, null, null], "unallocated": [1, 3, 4, 5, 6, 7],
        "attributes": [
            {"handle_id": "ipip-tunnel-addr-node1", "secondary": {"node": "node1", "type": "ipipTunnelAddress"}},
            {"handle_id": "k8s-pod-network.c0ffee", "secondary": {"namespace": "web", "pod": "a", "node": "node1"}},
        ],
    });
    create(bed, "IPAMBlock", "10-64-0-8-29", &block).await?;
    let handle =
        json!({"handleID": "k8s-pod-network.c0ffee", "deleted": false, "block": {"10.64.0.8/29": 1}});
    create(bed, "IPAMHandle", "k8s-pod-network.c0ffee", &handle).await?;
    bed.pod("web", "a", "node1", "10.64.0.10").await?;

    let controller = controllers::start(bed.client.clone(), "test");
    let import = ["calico", "--rename", "default-ipv4-ippool=default"];
    let imported = bed.import(&import).await?;
    ensure!(!imported.notes.contains("note: ") && !imported.notes.contains("error: "), "{imported:?}");
    let yaml = imported.ok()?;
    bed.apply(&yaml).await?;
    ensure!(bed.import(&import).await?.ok()? == yaml);
    for number in 0..=3 {
        let block = bed.ask(&format!("request-{number}"), "node2", "default").await?;
        ensure!(block.is_some() == (number < 3), "request {number} got {block:?}");
    }
    bed.check(&["10.64.0.8", "10.64.0.10"]).await?;
    bed.delete_pod("web", "a").await?;
    let done = bed.import(&[&["finish", "--yes", "--wait"], &SOON[..]].concat()).await?.ok()?;
    ensure!(done.ends_with("No reserved block is left.\n"), "{done}");
    controller.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calicos_objects_are_imported_on_the_embedded_server() -> Result<()> {
    calico(&Bed::embedded().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calicos_objects_are_imported_on_the_real_server() -> Result<()> {
    calico(&Bed::real().await?).await
}

/// Directories of two nodes become one pool of both families.
async fn host_local(bed: &Bed) -> Result<()> {
    let trees = tempfile::tempdir()?;
    let files = [
        ("node1/k8s/10.65.0.2", "c1\r\neth0"),
        ("node1/k8s/fd65::2", "c1\r\neth0"),
        ("node1/k8s/lock", ""),
        ("node1/k8s/last_reserved_ip.0", "10.65.0.2"),
        ("node2/k8s/10.65.0.18", "c2"),
    ];
    for (path, content) in files {
        let path = trees.path().join(path);
        std::fs::create_dir_all(path.parent().context("a directory")?)?;
        std::fs::write(path, content)?;
    }
    for node in ["node1", "node2"] {
        bed.node(node).await?;
    }
    bed.pod("web", "a", "node1", "10.65.0.2").await?;
    bed.pod("web", "b", "node2", "10.65.0.18").await?;
    let controller = controllers::start(bed.client.clone(), "test");
    let directory = |node: &str| format!("{node}={}", trees.path().join(node).display());
    let (one, two) = (directory("node1"), directory("node2"));
    let import = [
        "host-local",
        "--node",
        &one,
        "--node",
        &two,
        "--subnet",
        "10.65.0.0/27,fd65::/123",
        "--block-size-bits",
        "3",
    ];
    let imported = bed.import(&import).await?;
    ensure!(!imported.notes.contains("note: ") && !imported.notes.contains("error: "), "{imported:?}");
    let yaml = imported.ok()?;
    bed.apply(&yaml).await?;
    ensure!(bed.import(&import).await?.ok()? == yaml);
    ensure!(bed.reserved().await? == BTreeSet::from(["default-0", "default-2"].map(str::to_owned)));
    for number in 0..=2 {
        let block = bed.ask(&format!("request-{number}"), "node2", "default").await?;
        ensure!(block.is_some() == (number < 2), "request {number} got {block:?}");
    }
    bed.check(&["10.65.0.2", "fd65::2", "10.65.0.18"]).await?;
    bed.delete_pod("web", "a").await?;
    bed.delete_pod("web", "b").await?;
    bed.import(&[&["finish", "--yes", "--wait"], &SOON[..]].concat()).await?.ok()?;
    ensure!(bed.reserved().await?.is_empty());
    controller.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_host_local_are_imported_on_the_embedded_server() -> Result<()> {
    host_local(&Bed::embedded().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_host_local_are_imported_on_the_real_server() -> Result<()> {
    host_local(&Bed::real().await?).await
}
