//! A controller on the embedded API server: requests, pools, nodes, health, metrics and events.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::*;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::coil::FINALIZER;
use tenure_api::release::mark_of;
use tenure_controller_testbed as bed;
use tenure_testbed::faults::{Calls, Faults, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(start_paused = true)]
async fn a_request_is_served_from_asking_to_answer() {
    let client = server(1).await.client();
    pool(&client, "default", 5, "10.2.0.0/16").await;
    node(&client, "node1").await;
    let early = ask(&client, "early", "node1", "default").await;
    let controller = start(client.clone(), "a");
    assert_eq!(answer(&client, "early").await, Ok("default-0".to_owned()), "also one that was there before");
    let block = blocks(&client).get("default-0").await.unwrap();
    assert_eq!((block.node(), block.pool()), (Some("node1"), Some("default")));
    assert_eq!(block.request_uid(), early.uid().as_deref());
    assert_eq!(
        (block.finalizers(), block.spec.ipv4.as_deref()),
        (&[FINALIZER.to_owned()][..], Some("10.2.0.0/27"))
    );
    ask(&client, "next", "node1", "default").await;
    assert_eq!(answer(&client, "next").await, Ok("default-1".to_owned()));
    let usage = until("the pool's status", async || {
        let usage = pools(&client).get("default").await.unwrap().status?.blocks?;
        (usage.allocated == "2").then_some(usage)
    });
    let usage = usage.await;
    assert_eq!((usage.capacity.as_str(), usage.free.as_str()), ("2048", "2046"));
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiting_requests_are_served_without_waste() {
    let client = server(2).await.client();
    pool(&client, "default", 5, "10.0.0.0/8").await;
    for number in 0..1000 {
        ask(&client, &format!("r{number}"), &format!("n{}", number % 100), "default").await;
    }
    let controller = start(client.clone(), "a");
    all_served(&client, 1000).await;
    assert_eq!(check_blocks(&client).await, 1000);
    let text = controller.metrics.text().unwrap();
    assert!(
        text.contains("tenure_controller_writes_total{write=\"create\",outcome=\"done\"} 1000"),
        "{text}"
    );
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_deleted_goes_when_its_last_block_does() {
    let client = server(3).await.client();
    node(&client, "node1").await;
    pool(&client, "used", 0, "10.3.0.0/31").await;
    pool(&client, "unused", 0, "10.4.0.0/31").await;
    let controller = start(client.clone(), "a");
    ask(&client, "r", "node1", "used").await;
    answer(&client, "r").await.unwrap();
    for name in ["used", "unused"] {
        let kept =
            async || (pools(&client).get(name).await.unwrap().finalizers() == [FINALIZER]).then_some(());
        until("the finalizer", kept).await;
        pools(&client).delete(name, &DeleteParams::default()).await.unwrap();
    }
    let gone = async |name: &str| pools(&client).get_opt(name).await.unwrap().is_none().then_some(());
    until("the unused pool to go", || gone("unused")).await;
    ask(&client, "late", "node1", "used").await;
    assert_eq!(answer(&client, "late").await, Err("Deleting".to_owned()));
    assert!(pools(&client).get("used").await.is_ok(), "its block is still there");
    return_block(&client, "used-0").await;
    until("the used pool to go", || gone("used")).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn blocks_go_with_their_node_after_a_rest_when_no_pod_is_bound_to_it_and_others_stay() {
    let client = server(4).await.client();
    pool(&client, "default", 0, "10.5.0.0/30").await;
    for name in ["node1", "node2"] {
        node(&client, name).await;
    }
    let settings = tenure_controller::Settings { missing_node_rest: Duration::from_secs(1), ..settings("a") };
    let controller = start_with(client.clone(), settings);
    for (request, node) in [("r1", "node1"), ("r2", "node2")] {
        ask(&client, request, node, "default").await;
        answer(&client, request).await.unwrap();
    }
    pod(&client, "runs", Some("10.5.0.0")).await;
    delete_node(&client, "node1").await;
    let look = async || blocks(&client).get_opt("default-0").await.unwrap();
    // Several rests long.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let block = look().await.expect("a pod uses it");
    assert!(mark_of(&block).is_none(), "and nobody means to release it");
    Api::<Pod>::namespaced(client.clone(), "default")
        .delete("runs", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    until("the block to be marked", async || {
        look().await.is_none_or(|it| mark_of(&it).is_some()).then_some(())
    })
    .await;
    until("the block to go", async || look().await.is_none().then_some(())).await;
    assert!(blocks(&client).get("default-1").await.is_ok());
    let told = async || {
        let events =
            Api::<Event>::namespaced(client.clone(), "default").list(&ListParams::default()).await.unwrap();
        events.items.into_iter().find(|event| event.reason.as_deref() == Some("BlockReleased"))
    };
    let event = until("an event", told).await;
    assert_eq!(event.involved_object.name.as_deref(), Some("node1"));
    let message = "AddressBlock \"default-0\" was taken back: the node is gone and no pod is bound to it";
    assert_eq!(event.message.as_deref(), Some(message));
    controller.stop().await;
}

async fn pod(client: &Client, name: &str, ip: Option<&str>) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ips: Vec<_> = ip.iter().map(|ip| json!({"ip": ip})).collect();
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": ips}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_out_of_service_gives_back_what_no_pod_can_use() {
    let client = server(5).await.client();
    pool(&client, "default", 0, "10.6.0.0/30").await;
    node(&client, "node1").await;
    let controller = start(client.clone(), "a");
    for request in ["r0", "r1"] {
        ask(&client, request, "node1", "default").await;
        answer(&client, request).await.unwrap();
    }
    pod(&client, "keeper", Some("10.6.0.1")).await;
    let taint = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}]}});
    Api::<Node>::all(client.clone())
        .patch("node1", &PatchParams::default(), &Patch::Merge(taint))
        .await
        .unwrap();
    let gone = async |name: &str| blocks(&client).get_opt(name).await.unwrap().is_none().then_some(());
    until("the unused block to go", || gone("default-0")).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(blocks(&client).get("default-1").await.is_ok(), "a pod has its address");
    let now = DeleteParams::default().grace_period(0);
    Api::<Pod>::namespaced(client.clone(), "default").delete("keeper", &now).await.unwrap();
    until("the other block to go", || gone("default-1")).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_ran_out_is_told_on_pool_request_and_node() {
    let client = server(6).await.client();
    pool(&client, "tiny", 0, "10.7.0.0/32").await;
    node(&client, "node1").await;
    let controller = start(client.clone(), "a");
    ask(&client, "first", "node1", "tiny").await;
    answer(&client, "first").await.unwrap();
    for name in ["second", "third"] {
        ask(&client, name, "node1", "tiny").await;
        assert_eq!(answer(&client, name).await, Err("OutOfBlocks".to_owned()));
    }
    let about = async || {
        let events =
            Api::<Event>::namespaced(client.clone(), "default").list(&ListParams::default()).await.unwrap();
        let mut about: Vec<_> =
            events.iter().filter(|event| event.reason.as_deref() == Some("OutOfBlocks")).collect();
        about.sort_by_key(|event| event.name_any());
        let about: Vec<_> = about.iter().map(|event| event.involved_object.name.clone().unwrap()).collect();
        (about.len() >= 4).then_some(about)
    };
    assert_eq!(until("four events", about).await, ["node1", "second", "third", "tiny"], "and none twice");
    controller.stop().await;
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn health_and_metrics_are_served_and_say_what_is() {
    let api = server(7).await;
    let client = api.client();
    pool(&client, "default", 5, "10.8.0.0/24").await;
    node(&client, "node1").await;
    let faults = Faults::seeded(7);
    let controller = start(faults.client(api.clone(), "default"), "a");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(tenure_daemon::serve(listener, controller.pages.clone()));
    ask(&client, "r", "node1", "default").await;
    answer(&client, "r").await.unwrap();
    let counted = async || {
        let text = get(address, "/metrics").await;
        text.contains("coil_controller_allocated_blocks{pool=\"default\"} 1").then_some(text)
    };
    let text = until("the metrics", counted).await;
    for line in [
        "coil_controller_max_blocks{pool=\"default\"} 8",
        "tenure_pool_blocks{pool=\"default\",state=\"free\"} 7",
        "tenure_pool_addresses{pool=\"default\",state=\"allocated\"} 32",
        "tenure_node_blocks{node=\"node1\",pool=\"default\"} 1",
        "tenure_controller_leader 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let ready = get(address, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("role: leader"), "{ready}");
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/other").await.starts_with("HTTP/1.1 404"));
    // The API server goes away, and the truth changes.
    faults.add(Rule::lose_request());
    faults.cut_watches(&Calls::all());
    let unready = async || get(address, "/readyz").await.starts_with("HTTP/1.1 503").then_some(());
    until("unreadiness", unready).await;
    serving.abort();
    controller.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_told_to_stop_releases_its_lease() {
    let client = server(8).await.client();
    let controller = start(client.clone(), "a");
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let holder = async || leases.get_opt("coil-ipam-leader").await.unwrap()?.spec?.holder_identity;
    assert_eq!(until("a leader", holder).await, "a", "under the name that Coil's tests look for");
    controller.stop().await;
    assert_eq!(holder().await, None);
}
