//! What is kept over a restart, and what a damaged file leads to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests and their helpers may")]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, OpenError};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

fn open(path: &std::path::Path, seed: u64) -> LocalApi {
    LocalApi::open(path, SystemClock, SeededEntropy::new(seed)).unwrap()
}

#[tokio::test]
async fn objects_versions_and_watches_survive_a_restart() {
    use futures::{StreamExt, TryStreamExt};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let api = open(&path, 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    let kept = maps.create(&PostParams::default(), &map("kept")).await.unwrap();
    maps.create(&PostParams::default(), &map("gone")).await.unwrap();
    maps.delete("gone", &DeleteParams::default()).await.unwrap();
    let version = api.resource_version();
    assert!(matches!(
        LocalApi::open(&path, SystemClock, SeededEntropy::new(2)),
        Err(OpenError::AlreadyOpen { .. })
    ));
    api.close();

    let api = open(&path, 2);
    assert_eq!(api.resource_version(), version);
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items, std::slice::from_ref(&kept));
    let mut events = maps
        .watch(&WatchParams::default(), kept.metadata.resource_version.as_ref().unwrap())
        .await
        .unwrap()
        .boxed();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
    let namespaces: Api<Namespace> = Api::all(api.client());
    assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 4);
}

#[tokio::test]
async fn a_closed_api_refuses_writes_and_answers_reads() {
    let directory = tempfile::tempdir().unwrap();
    let api = open(&directory.path().join("api.redb"), 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    api.close();
    assert!(maps.get_opt("a").await.unwrap().is_some());
    let refused = maps.create(&PostParams::default(), &map("b")).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 503));
}

#[tokio::test]
async fn garbage_left_by_a_crash_is_collected_after_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let api = open(&path, 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "never"}]);
    let orphan: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "child", "ownerReferences": owner}})).unwrap();
    maps.create(&PostParams::default(), &orphan).await.unwrap();
    // Closed before the garbage collector ran, or after: both are right.
    api.close();
    let api = open(&path, 2);
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    maps.create(&PostParams::default(), &map("any write wakes the collector".replace(' ', "-").as_str()))
        .await
        .unwrap();
    for _ in 0..500 {
        if maps.get_opt("child").await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the child of nobody is still there");
}

#[tokio::test]
async fn a_file_with_flipped_bytes_is_opened_or_refused_but_never_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let api = open(&path, 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    for index in 0..20 {
        maps.create(&PostParams::default(), &map(&format!("m{index}"))).await.unwrap();
    }
    api.close();
    let whole = std::fs::read(&path).unwrap();
    let damaged = directory.path().join("damaged.redb");
    std::panic::set_hook(Box::new(|_| {}));
    let mut refused = 0;
    for round in 0..60_usize {
        let mut bytes = whole.clone();
        if round % 3 == 0 {
            bytes.truncate(bytes.len() * (round + 1) / 64);
        } else {
            let at = (round * 7919 * 13) % bytes.len().min(64 << 10);
            bytes[at] ^= 0x55;
            bytes[(at + 4096) % whole.len()] ^= 0xaa;
        }
        std::fs::write(&damaged, bytes).unwrap();
        match LocalApi::open(&damaged, SystemClock, SeededEntropy::new(3)) {
            Ok(api) => api.close(),
            Err(error) => {
                assert!(error.to_string().contains("damaged.redb"), "{error}");
                refused += 1;
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(refused > 20, "only {refused} of 60 damaged files were noticed");
}
