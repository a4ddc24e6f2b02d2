//! A facet that is added late, and one that changes.

use kube::ResourceExt;
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tenure_handles::SeededEntropy;
use tenure_localapi::{LocalApi, Options as ServerOptions};
use tenure_testbed::clock::RuntimeClock;

use super::*;
use crate::testing::until;

#[derive(Debug, PartialEq)]
struct Colour(Option<String>);

impl Facet for Colour {
    fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        Self(pod.annotations().get("colour").cloned())
    }
}

fn pods(server: &LocalApi) -> Api<Pod> {
    Api::namespaced(server.client(), "default")
}

async fn server_with_a_pod() -> LocalApi {
    let server = ServerOptions::default().temporary(RuntimeClock, SeededEntropy::new(3));
    let pod = json!({
        "metadata": {"name": "web", "annotations": {"colour": "red"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]},
    });
    pods(&server).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    server
}

/// What the watch knows of the pod's colour.
fn colour(pods: &Pods<Colour>) -> Option<String> {
    pods.all()?.remove(&("default".to_owned(), "web".to_owned()))?.facet.0.clone()
}

#[tokio::test(start_paused = true)]
async fn a_facet_that_is_added_after_the_watch_began_is_known_of_every_pod() {
    let (server, stop) = (server_with_a_pod().await, CancellationToken::new());
    let all = Pods::new(server.client(), "node-1", RuntimeClock, stop.clone());
    let changed = Arc::new(Notify::new());
    all.tell(Arc::clone(&changed));
    until("the watch", async || all.all().filter(|pods| pods.len() == 1)).await;
    let coloured = all.clone().keep::<Colour>();
    assert!(coloured.all().is_none(), "the new watch has not listed yet");
    until("the colour", async || colour(&coloured).filter(|colour| colour == "red")).await;
    assert_eq!(all.all().unwrap().len(), 1, "earlier handles see the same pods");
    let again = all.keep::<Colour>();
    assert_eq!(colour(&again).as_deref(), Some("red"), "a known facet does not begin the watch again");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_changed_facet_is_told_to_everybody() {
    let (server, stop) = (server_with_a_pod().await, CancellationToken::new());
    let coloured = Pods::new(server.client(), "node-1", RuntimeClock, stop.clone()).keep::<Colour>();
    let changed = Arc::new(Notify::new());
    coloured.tell(Arc::clone(&changed));
    until("the watch", async || colour(&coloured)).await;
    changed.notified().await;
    let patch = json!({"metadata": {"annotations": {"colour": "blue"}}});
    pods(&server).patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    changed.notified().await;
    assert_eq!(colour(&coloured).as_deref(), Some("blue"));
    stop.cancel();
}
