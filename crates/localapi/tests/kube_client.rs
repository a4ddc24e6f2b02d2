//! The API through `kube`: typed objects, watchers, a controller, leases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests and their helpers may")]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use harness::{Host, crd, widget};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::controller::Action;
use kube::runtime::watcher::{self, InitialListStrategy};
use kube::runtime::{Controller, WatchStreamExt, reflector};
use kube::{Api, ResourceExt};
use serde_json::json;

fn map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": value}})).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("it takes too long")
}

#[tokio::test]
async fn typed_objects_live_through_their_verbs() {
    let client = Host::new().api.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let made = maps.create(&PostParams::default(), &map("a", "1")).await.unwrap();
    let mut changed = made.clone();
    changed.data.as_mut().unwrap().insert("k".into(), "2".into());
    let changed = maps.replace("a", &PostParams::default(), &changed).await.unwrap();
    let stale = maps.replace("a", &PostParams::default(), &made).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"));
    let patch = Patch::Merge(json!({"metadata": {"labels": {"l": "x"}}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((patched.labels()["l"].as_str(), patched.uid()), ("x", changed.uid()));
    assert_eq!(maps.list(&ListParams::default().labels("l=x")).await.unwrap().items.len(), 1);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_reflector_follows_with_both_ways_to_start() {
    for strategy in [InitialListStrategy::ListWatch, InitialListStrategy::StreamingList] {
        let client = Host::new().api.client();
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        for index in 0..3 {
            maps.create(&PostParams::default(), &map(&format!("m{index}"), "1")).await.unwrap();
        }
        let (store, writer) = reflector::store();
        let config = watcher::Config { initial_list_strategy: strategy, ..watcher::Config::default() };
        let stream =
            watcher::watcher(maps.clone(), config).default_backoff().reflect(writer).applied_objects();
        let task = tokio::spawn(stream.for_each(|event| async move {
            event.unwrap();
        }));
        soon(store.wait_until_ready()).await.unwrap();
        assert_eq!(store.len(), 3);
        maps.create(&PostParams::default(), &map("late", "1")).await.unwrap();
        maps.delete("m0", &DeleteParams::default()).await.unwrap();
        soon(async {
            while store.len() != 3 || store.find(|one| one.name_any() == "late").is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        task.abort();
    }
}

#[tokio::test]
async fn a_watch_resumes_where_a_list_ended() {
    let client = Host::new().api.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    maps.create(&PostParams::default(), &map("a", "1")).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    assert!(
        matches!(soon(events.try_next()).await.unwrap(), Some(WatchEvent::Added(one)) if one.name_any() == "a")
    );
    assert!(
        matches!(soon(events.try_next()).await.unwrap(), Some(WatchEvent::Deleted(one)) if one.name_any() == "a")
    );
}

#[tokio::test]
async fn a_controller_reconciles_custom_resources_and_writes_their_status() {
    let host = Host::new();
    let client = host.api.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &serde_json::from_value(crd()).unwrap()).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let reconciled = Arc::new(AtomicUsize::new(0));
    let counter = reconciled.clone();
    let api = widgets.clone();
    let controller = Controller::new_with(widgets.clone(), watcher::Config::default(), kind.clone()).run(
        move |widget: Arc<DynamicObject>, _: Arc<()>| {
            let (api, counter) = (api.clone(), counter.clone());
            async move {
                counter.fetch_add(1, Ordering::Relaxed);
                let patch = Patch::Merge(json!({"status": {"ready": true}}));
                api.patch_status(&widget.name_any(), &PatchParams::default(), &patch).await?;
                Ok::<_, kube::Error>(Action::await_change())
            }
        },
        |_, _, _| Action::requeue(Duration::from_millis(10)),
        Arc::new(()),
    );
    let task = tokio::spawn(controller.for_each(|_| async {}));
    let object: DynamicObject = serde_json::from_value(widget("a", &json!({"size": 1}))).unwrap();
    widgets.create(&PostParams::default(), &object).await.unwrap();
    soon(async {
        while widgets.get("a").await.unwrap().data["status"]["ready"] != true {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(reconciled.load(Ordering::Relaxed) >= 1);
    task.abort();
}

#[tokio::test]
async fn only_one_of_many_wins_a_lease() {
    let host = Host::new();
    let leases: Api<Lease> = Api::default_namespaced(host.api.client());
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "l"}, "spec": {}})).unwrap();
    let lease = leases.create(&PostParams::default(), &lease).await.unwrap();
    let attempts = (0..8).map(|index| {
        let (leases, mut lease) = (leases.clone(), lease.clone());
        lease.spec.get_or_insert_default().holder_identity = Some(format!("h{index}"));
        async move { leases.replace("l", &PostParams::default(), &lease).await.is_ok() }
    });
    let won = futures::future::join_all(attempts).await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_run() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let client = Host::new().api.client();
        let pods: Api<Pod> = Api::default_namespaced(client);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap();
        let made = pods.create(&PostParams::default(), &pod).await.unwrap();
        runs.push((made.name_any(), made.uid(), made.resource_version()));
    }
    assert_eq!(runs[0], runs[1]);
}
