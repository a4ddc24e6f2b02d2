//! What is heard: one watch for each kind, into one queue.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use crate::cache::Cache;
use crate::health::Health;
use crate::retry::Waits;
use crate::world::World;

/// Something heard from a watch.
#[derive(Debug)]
pub(crate) enum News {
    Pools(Event<AddressPool>),
    Blocks(Event<AddressBlock>),
    Requests(Event<BlockRequest>),
    /// Boxed, because a node is much larger than the others.
    Nodes(Box<Event<Node>>),
}

impl News {
    /// Takes it into the world.
    pub(crate) fn tell(self, world: &mut World) {
        match self {
            Self::Pools(event) => tell(&mut world.pools, event),
            Self::Blocks(event) => tell(&mut world.blocks, event),
            Self::Requests(event) => tell(&mut world.requests, event),
            Self::Nodes(event) => match *event {
                Event::Init => world.begin_nodes(),
                Event::InitApply(node) | Event::Apply(node) => world.apply_node(node),
                Event::InitDone => world.finish_nodes(),
                Event::Delete(node) => world.delete_node(&node),
            },
        }
    }
}

fn tell<K: Resource>(cache: &mut Cache<K>, event: Event<K>) {
    match event {
        Event::Init => cache.begin(),
        Event::InitApply(object) | Event::Apply(object) => cache.apply(object),
        Event::InitDone => cache.finish(),
        Event::Delete(object) => cache.remove(&object.name_any(), &object.uid().unwrap_or_default()),
    }
}

/// Watches everything that the world consists of, for as long as anyone listens.
pub(crate) fn watch_all(
    tasks: &mut JoinSet<()>,
    client: &Client,
    news: &UnboundedSender<News>,
    health: &Arc<Health>,
) {
    tasks.spawn(watch("AddressPool", Api::all(client.clone()), news.clone(), health.clone(), News::Pools));
    tasks.spawn(watch("AddressBlock", Api::all(client.clone()), news.clone(), health.clone(), News::Blocks));
    tasks.spawn(watch(
        "BlockRequest",
        Api::all(client.clone()),
        news.clone(),
        health.clone(),
        News::Requests,
    ));
    // Nodes are large, and all that matters is that they exist and what taints they have.
    let light = |event: Event<Node>| News::Nodes(Box::new(event.modify(|node| node.status = None)));
    tasks.spawn(watch("Node", Api::all(client.clone()), news.clone(), health.clone(), light));
}

async fn watch<K>(
    kind: &'static str,
    api: Api<K>,
    news: UnboundedSender<News>,
    health: Arc<Health>,
    wrap: impl Fn(Event<K>) -> News,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(api, watcher::Config::default()).backoff(Waits::default());
    let mut events =
        events.map_ok(|event| event.modify(|object| object.managed_fields_mut().clear())).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                health.watch_works(kind);
                if news.send(wrap(event)).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(kind, %error, "watching failed; trying again");
                health.watch_failed(kind, error.to_string());
            }
        }
    }
}
