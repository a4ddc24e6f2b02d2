//! What is heard: one watch for each kind, into one queue. Objects are read one by one, so that none hides another.
//!
//! The waits between failures are our own: kube's would begin anew with each list that is tried, and an API server that is
//! away would be asked twenty times a second.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::read::Read;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::attachment::Attachment;
use crate::cache::{Cache, Known};
use crate::claims::{Claim, NamespaceSeen, namespace_seen};
use crate::health::Health;
use crate::makers::{
    CLAIM, INSTANCE, MACHINE, MachineSeen, STATEFUL_SET, StatefulSeen, VirtualMachine,
    VirtualMachineInstance, WEBHOOK, WebhookSeen, instance_seen, machine_seen, stateful_seen, webhook_seen,
};
use crate::plan::keep_only_pods;
use crate::pods::{PodBrief, PodSeen};
use crate::retry::wait_after;
use crate::unreadable::{Sorted, StandIn, Stub, full_name, sort};
use crate::world::World;

/// What a watch is told that begins where the server does not remember any more.
const GONE: u16 = 410;
/// What is told of a kind that is not defined.
const NOT_FOUND: u16 = 404;
/// How often a kind that is not defined is looked for.
const LOOK_FOR_KIND: Duration = Duration::from_secs(2);

/// Something heard from a watch.
#[derive(Debug)]
pub(crate) enum News {
    Pools(Event<AddressPool>),
    Blocks(Event<AddressBlock>),
    Requests(Event<BlockRequest>),
    /// Boxed, because a node is much larger than the others.
    Nodes(Box<Event<Node>>),
    Attachments(Event<Attachment>),
    Slices(Event<NodeSlicePool>),
    Ledgers(Box<Event<IPPool>>),
    Reservations(Event<OverlappingRangeIPReservation>),
    Pods(Event<PodSeen>),
    /// Pods are not watched any more.
    NoPods,
    Claims(Box<Event<Claim>>),
    /// Whether the API server does not know this kind.
    Lacks(&'static str, bool),
    Machines(Event<MachineSeen>),
    Instances(Event<MachineSeen>),
    StatefulSets(Event<StatefulSeen>),
    Webhooks(Event<WebhookSeen>),
    /// Of those for whom claims are made, this kind is not watched any more.
    NoMakers(&'static str),
    Namespaces(Event<NamespaceSeen>),
    /// Namespaces are not watched any more.
    NoNamespaces,
    /// An object of a kind that is there, or was, and cannot be read; and whether it counts as what was last read of it.
    Unreadable(&'static str, Event<Stub>, bool),
    /// An object of a kind that could not be read and can by now, or is gone.
    Readable(&'static str, String),
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
            Self::Attachments(event) => {
                tell(&mut world.ledgers.attachments, event);
                world.ledgers.changed();
            }
            Self::Slices(event) => {
                tell(&mut world.ledgers.slices, event);
                world.ledgers.changed();
            }
            Self::Ledgers(event) => match *event {
                Event::InitApply(pool) | Event::Apply(pool) => world.apply_ledger(pool),
                Event::Init => world.ledgers.pools.begin(),
                Event::InitDone => {
                    world.ledgers.pools.finish();
                    world.ledgers.changed();
                }
                Event::Delete(pool) => {
                    world.ledgers.pools.remove(&pool.name_any(), &pool.uid().unwrap_or_default());
                    world.ledgers.changed();
                }
            },
            Self::Reservations(event) => tell(&mut world.ledgers.reservations, event),
            Self::Pods(event) => match event {
                Event::Init => world.ledgers.pods.begin(),
                Event::InitApply(pod) | Event::Apply(pod) => world.ledgers.pods.apply(pod),
                Event::InitDone => world.ledgers.pods.finish(),
                Event::Delete(pod) => world.ledgers.pods.remove(&pod.podref),
            },
            Self::NoPods => world.ledgers.pods.forget(),
            Self::Claims(event) => tell(&mut world.claims.all, *event),
            Self::Lacks(kind, lacks) => world.note_lack(kind, lacks),
            Self::Machines(event) => tell(&mut world.makers.machines, event),
            Self::Instances(event) => tell(&mut world.makers.instances, event),
            Self::StatefulSets(event) => tell(&mut world.makers.stateful_sets, event),
            Self::Webhooks(event) => tell(&mut world.makers.webhooks, event),
            Self::NoMakers(kind) => {
                // Whether the kind is there is not known any more, either.
                world.note_lack(kind, false);
                world.makers.forget(kind);
            }
            Self::Namespaces(event) => tell(&mut world.claims.namespaces, event),
            Self::NoNamespaces => world.claims.namespaces = Cache::default(),
            Self::Unreadable(kind, event, kept) => world.hear_unreadable(kind, event, kept),
            Self::Readable(kind, name) => world.unreadable.forget(kind, &name),
        }
    }
}

fn tell<K: Known>(cache: &mut Cache<K>, event: Event<K>) {
    match event {
        Event::Init => cache.begin(),
        Event::InitApply(object) | Event::Apply(object) => cache.apply(object),
        Event::InitDone => cache.finish(),
        Event::Delete(object) => cache.remove(&object.key(), &object.known_uid().unwrap_or_default()),
    }
}

/// The event with what is kept of its object.
fn kept<K, T>(event: Event<K>, keep: impl Fn(&K) -> T) -> Event<T> {
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(keep(&object)),
        Event::Apply(object) => Event::Apply(keep(&object)),
        Event::Delete(object) => Event::Delete(keep(&object)),
    }
}

/// What is watched, and where it is told.
pub(crate) struct Watches<'a> {
    pub(crate) client: &'a Client,
    /// The namespace of Whereabouts' objects.
    pub(crate) namespace: &'a str,
    pub(crate) news: &'a UnboundedSender<News>,
    pub(crate) health: &'a Arc<Health>,
    /// Whether pods matter at present; nobody listens where they never do.
    pub(crate) pods: Receiver<bool>,
    /// Whether namespaces matter at present.
    pub(crate) namespaces: Receiver<bool>,
    /// Whether those for whom claims are made matter at present.
    pub(crate) makers: Receiver<bool>,
}

impl Watches<'_> {
    /// Watches everything that the world consists of, for as long as anyone listens.
    pub(crate) fn start(self, tasks: &mut JoinSet<()>) {
        let client = || self.client.clone();
        tasks.spawn(self.watch("AddressPool", Api::all(client()), false, News::Pools));
        tasks.spawn(self.watch("AddressBlock", Api::all(client()), false, News::Blocks));
        tasks.spawn(self.watch("BlockRequest", Api::all(client()), false, News::Requests));
        // Nodes are large, and all that matters is that they exist, what taints they have and how many pods they may run.
        let light = |event: Event<Node>| News::Nodes(Box::new(event.modify(keep_only_pods)));
        tasks.spawn(self.watch("Node", Api::all(client()), false, light));

        let of_namespace = || (client(), self.namespace);
        let (of_slices, of_pools, of_reservations) = (of_namespace(), of_namespace(), of_namespace());
        let attached = |event| News::Attachments(kept(event, Attachment::of));
        let attachments: Api<Read<NetworkAttachmentDefinition>> = Api::all(client());
        tasks.spawn(self.watch("NetworkAttachmentDefinition", attachments, true, attached));
        let slices = Api::namespaced(of_slices.0, of_slices.1);
        tasks.spawn(self.watch("NodeSlicePool", slices, true, News::Slices));
        let pools = Api::namespaced(of_pools.0, of_pools.1);
        tasks.spawn(self.watch("IPPool", pools, true, |event| News::Ledgers(Box::new(event))));
        let reservations = Api::namespaced(of_reservations.0, of_reservations.1);
        tasks.spawn(self.watch("OverlappingRangeIPReservation", reservations, true, News::Reservations));
        let claims: Api<Read<IPAMClaim>> = Api::all(client());
        let claimed =
            |event| News::Claims(Box::new(kept(event, |claim: &IPAMClaim| Claim::of(claim.clone()))));
        tasks.spawn(self.watch(CLAIM, claims, true, claimed));

        let living = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let pods: Api<Read<PodBrief>> = Api::all(client());
        let seen = |event| News::Pods(kept(event, PodSeen::of));
        tasks.spawn(self.watch_while("Pod", pods, living, &self.pods, seen, |_| News::NoPods));
        let namespaces: Api<Read<PartialObjectMeta<Namespace>>> = Api::all(client());
        let (all, seen) = (watcher::Config::default(), |event| News::Namespaces(kept(event, namespace_seen)));
        let matter = &self.namespaces;
        tasks.spawn(self.watch_while("Namespace", namespaces, all, matter, seen, |_| News::NoNamespaces));
        self.start_makers(tasks);
    }

    /// Those for whom claims are made. KubeVirt's kinds may be missing.
    fn start_makers(&self, tasks: &mut JoinSet<()>) {
        let (client, all, matter) = (|| self.client.clone(), watcher::Config::default, &self.makers);
        let machines: Api<Read<VirtualMachine>> = Api::all(client());
        let seen = |event| News::Machines(kept(event, machine_seen));
        tasks.spawn(self.watch_while(MACHINE, machines, all(), matter, seen, News::NoMakers));
        let instances: Api<Read<VirtualMachineInstance>> = Api::all(client());
        let seen = |event| News::Instances(kept(event, instance_seen));
        tasks.spawn(self.watch_while(INSTANCE, instances, all(), matter, seen, News::NoMakers));
        let sets: Api<Read<StatefulSet>> = Api::all(client());
        let seen = |event| News::StatefulSets(kept(event, stateful_seen));
        tasks.spawn(self.watch_while(STATEFUL_SET, sets, all(), matter, seen, News::NoMakers));
        let webhooks: Api<Read<MutatingWebhookConfiguration>> = Api::all(client());
        let seen = |event| News::Webhooks(kept(event, webhook_seen));
        tasks.spawn(self.watch_while(WEBHOOK, webhooks, all(), matter, seen, News::NoMakers));
    }

    /// Watches objects while they matter; of pods those that have ended are not even sent. A definition that is missing is looked
    /// for every now and then.
    fn watch_while<K, W>(
        &self,
        kind: &'static str,
        api: Api<Read<K>>,
        config: watcher::Config,
        matter: &Receiver<bool>,
        wrap: W,
        ended: fn(&'static str) -> News,
    ) -> impl Future<Output = ()> + use<K, W>
    where
        W: Fn(Event<K>) -> News,
        K: Resource<DynamicType = ()> + StandIn + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let mut matter = matter.clone();
        let (news, health) = (self.news.clone(), self.health.clone());
        async move {
            while matter.wait_for(|matter| *matter).await.is_ok() {
                let (news, health) = (news.clone(), health.clone());
                let following =
                    Following { kind, may_be_missing: true, news: news.clone(), health: health.clone() };
                let events = watcher(api.clone(), config.clone()).boxed();
                tokio::select! {
                    () = follow(following, events, &wrap) => return,
                    _ = matter.wait_for(|matter| !*matter) => {}
                }
                health.watch_ended(kind);
                if news.send(ended(kind)).is_err() {
                    return;
                }
            }
            // Whoever decided that they matter is gone, and so is everybody else.
            std::future::pending::<()>().await;
        }
    }

    fn watch<K, W>(
        &self,
        kind: &'static str,
        api: Api<Read<K>>,
        may_be_missing: bool,
        wrap: W,
    ) -> impl Future<Output = ()> + use<K, W>
    where
        W: Fn(Event<K>) -> News,
        K: Resource<DynamicType = ()> + StandIn + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let events = watcher(api, watcher::Config::default());
        let (news, health) = (self.news.clone(), self.health.clone());
        follow(Following { kind, may_be_missing, news, health }, events.boxed(), wrap)
    }
}

struct Following {
    kind: &'static str,
    /// Whether its definition may be missing: it is looked for every now and then, and nobody complains.
    may_be_missing: bool,
    news: UnboundedSender<News>,
    health: Arc<Health>,
}

async fn follow<K>(
    Following { kind, may_be_missing, news, health }: Following,
    mut events: BoxStream<'static, Result<Event<Read<K>>, watcher::Error>>,
    wrap: impl Fn(Event<K>) -> News,
) where
    K: Resource<DynamicType = ()> + StandIn,
{
    let mut failures = 0;
    let mut missing = false;
    let mut unreadable = Names::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // At the beginning of a list nobody has answered yet.
                if !matches!(event, Event::Init) {
                    health.watch_works(kind);
                    if missing {
                        _ = news.send(News::Lacks(kind, false));
                    }
                    (failures, missing) = (0, false);
                }
                let readable = unreadable.hear(&event);
                let (sorted, stub) = sort(event);
                let kept = matches!(sorted, Sorted::Unread);
                let told = readable.into_iter().map(|name| News::Readable(kind, name));
                let told = told.chain(stub.map(|stub| News::Unreadable(kind, stub, kept)));
                let object = if let Sorted::Is(event) = sorted { Some(wrap(event)) } else { None };
                if !told.chain(object).all(|told| news.send(told).is_ok()) {
                    return;
                }
            }
            Err(error) if may_be_missing && is_not_there(&error) => {
                if !missing {
                    tracing::info!(kind, "the API server does not know this kind; looking for it again");
                    _ = news.send(News::Lacks(kind, true));
                }
                missing = true;
                health.watch_lacks_kind(kind);
                sleep(LOOK_FOR_KIND).await;
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

/// The names of those that could not be read, as far as this watch has said.
#[derive(Default)]
struct Names {
    names: BTreeSet<String>,
    /// While a list comes in, those that it has not mentioned yet.
    unseen: BTreeSet<String>,
}

impl Names {
    /// Takes in an event, and names those that can be read by now, or are gone.
    fn hear<K: Resource<DynamicType = ()>>(&mut self, event: &Event<Read<K>>) -> Vec<String> {
        let (read, gone) = match event {
            Event::Init => {
                self.unseen.clone_from(&self.names);
                return Vec::new();
            }
            Event::InitDone => {
                let vanished = std::mem::take(&mut self.unseen);
                self.names.retain(|name| !vanished.contains(name));
                return vanished.into_iter().collect();
            }
            Event::InitApply(read) | Event::Apply(read) => (read, false),
            Event::Delete(read) => (read, true),
        };
        let is_unreadable = read.as_result().is_err() && !gone;
        if !is_unreadable && self.names.is_empty() {
            return Vec::new();
        }
        let name = full_name(read);
        self.unseen.remove(&name);
        if is_unreadable {
            self.names.insert(name);
            return Vec::new();
        }
        if self.names.remove(&name) { vec![name] } else { Vec::new() }
    }
}

/// Whether the server does not know the kind.
fn is_not_there(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == NOT_FOUND,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
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
        let (_matter, pods) = tokio::sync::watch::channel(false);
        let watches = Watches {
            client: &client,
            namespace: "kube-system",
            news: &news,
            health: &health,
            namespaces: pods.clone(),
            makers: pods.clone(),
            pods,
        };
        let watch = watches.watch("Node", Api::all(client.clone()), false, |event: Event<Node>| {
            News::Nodes(Box::new(event))
        });
        // Asked after 0, 50, 150, 350 and 750 ms.
        assert!(tokio::time::timeout(Duration::from_millis(1_200), watch).await.is_err());
        let asked = faults.tally(&Calls::all()).asked;
        assert!((2..=5).contains(&asked), "it was asked {asked} times within a second");
        assert!(health.ready().1.contains("never answered"), "{:?}", health.ready());
    }
}
