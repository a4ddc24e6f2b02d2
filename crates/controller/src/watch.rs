//! What is heard: one watch for each kind, into one queue.
//!
//! The waits between failures are our own: kube's would begin anew with each list that is tried, and an API server that is
//! away would be asked twenty times a second.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cache::Cache;
use crate::health::Health;
use crate::retry::wait_after;
use crate::world::World;

/// What a watch is told that begins where the server does not remember any more.
const GONE: u16 = 410;

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
    let events = watcher(api, watcher::Config::default());
    let mut events =
        events.map_ok(|event| event.modify(|object| object.managed_fields_mut().clear())).boxed();
    let mut failures = 0;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // At the beginning of a list nobody has answered yet.
                if !matches!(event, Event::Init) {
                    health.watch_works(kind);
                    failures = 0;
                }
                if news.send(wrap(event)).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(kind, %error, "watching failed; trying again");
                health.watch_failed(kind, error.to_string());
                // A server that has forgotten where the watch was is there, as after its restart: all is listed soon.
                let is_there = matches!(&error, watcher::Error::WatchError(status) if status.code == GONE);
                failures = if is_there { 1 } else { failures + 1 };
                sleep(wait_after(failures)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_handles::{SeededEntropy, SystemClock};
    use tenure_localapi::LocalApi;
    use tenure_testbed::faults::{Calls, Faults, Rule};
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn an_api_server_that_is_away_is_asked_more_and_more_seldom_and_nobody_says_that_it_answers() {
        let faults = Faults::seeded(1);
        faults.add(Rule::lose_request());
        let client = faults.client(LocalApi::temporary(SystemClock, SeededEntropy::new(1)), "default");
        let health = Arc::new(Health::new(Arc::new(SystemClock)));
        let (news, _heard) = mpsc::unbounded_channel();
        let watch = watch("Node", Api::all(client), news, Arc::clone(&health), |event: Event<Node>| {
            News::Nodes(Box::new(event))
        });
        // Asked after 0, 50, 150, 350 and 750 ms.
        assert!(tokio::time::timeout(Duration::from_millis(1_200), watch).await.is_err());
        let asked = faults.tally(&Calls::all()).asked;
        assert!((2..=5).contains(&asked), "it was asked {asked} times within a second");
        assert!(health.ready().1.contains("never answered"), "{:?}", health.ready());
    }
}
