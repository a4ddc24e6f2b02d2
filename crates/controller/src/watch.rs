//! Watches: one for each kind, into one queue. Objects are read one by one, so that none hides another.
//!
//! The waits between failures are our own: kube's would begin anew with each list that is tried, and an API server that is
//! away would be asked twenty times a second.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tenure_api::read::Read;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::health::Health;
use crate::kind::{Kind, Observation};
use crate::retry::wait_after;
use crate::unreadable::{Sorted, full_name, sort};
use crate::world::World;

/// What a watch is told that begins where the server does not remember any more.
const GONE: u16 = 410;
/// What is told of a kind that is not defined.
const NOT_FOUND: u16 = 404;
/// How often a kind that is not defined is looked for.
const LOOK_FOR_KIND: Duration = Duration::from_secs(2);

/// How a kind is watched.
#[derive(Default)]
pub struct Watch {
    /// Only objects that these fields select.
    pub fields: Option<&'static str>,
    /// Whether its definition may be missing: it is looked for every now and then, and nobody complains.
    pub may_be_missing: bool,
    /// Watched only while this is so.
    pub needed: Option<Needed>,
}

/// Whether a kind is worth watching at present.
pub type Needed = Box<dyn Fn(&World) -> bool + Send>;

/// Starts watches, and says which of them are needed.
pub struct Watches<'a> {
    client: &'a Client,
    observations: &'a UnboundedSender<Observation>,
    health: &'a Arc<Health>,
    tasks: &'a mut JoinSet<()>,
    started: BTreeSet<&'static str>,
    needs: Needs,
}

/// Which watches are needed at present.
#[derive(Default)]
pub(crate) struct Needs(Vec<(Needed, watch::Sender<bool>)>);

impl Needs {
    /// Looks at the world, and tells the watches.
    pub(crate) fn tell(&self, world: &World) {
        for (needed, sender) in &self.0 {
            let needed = needed(world);
            sender.send_if_modified(|before| std::mem::replace(before, needed) != needed);
        }
    }
}

impl<'a> Watches<'a> {
    pub(crate) fn new(
        client: &'a Client,
        observations: &'a UnboundedSender<Observation>,
        health: &'a Arc<Health>,
        tasks: &'a mut JoinSet<()>,
    ) -> Self {
        Self { client, observations, health, tasks, started: BTreeSet::new(), needs: Needs::default() }
    }

    /// The client to watch with.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Which of the watches are needed.
    pub(crate) fn into_needs(self) -> Needs {
        self.needs
    }

    /// Watches a kind for as long as anyone listens. Of several parts that want the same kind, the first says how.
    pub fn add<K: Kind>(&mut self, api: Api<Read<K>>, watch: Watch) {
        if !self.started.insert(K::NAME) {
            return;
        }
        let Watch { fields, may_be_missing, needed } = watch;
        let config = watcher::Config { field_selector: fields.map(str::to_owned), ..Default::default() };
        let following = Following {
            kind: K::NAME,
            may_be_missing,
            observations: self.observations.clone(),
            health: self.health.clone(),
        };
        match needed {
            None => drop(self.tasks.spawn(async move {
                follow::<K>(&following, watcher(api, config).boxed()).await;
            })),
            Some(needed) => {
                let (sender, receiver) = watch::channel(false);
                self.needs.0.push((needed, sender));
                self.tasks.spawn(follow_while::<K>(following, api, config, receiver));
            }
        }
    }
}

/// Follows a watch while it is needed.
async fn follow_while<K: Kind>(
    following: Following,
    api: Api<Read<K>>,
    config: watcher::Config,
    mut needed: watch::Receiver<bool>,
) {
    while needed.wait_for(|needed| *needed).await.is_ok() {
        let events = watcher(api.clone(), config.clone()).boxed();
        tokio::select! {
            () = follow::<K>(&following, events) => return,
            _ = needed.wait_for(|needed| !*needed) => {}
        }
        following.health.watch_ended(K::NAME);
        let ended = Observation::new(|world| {
            // Whether the kind is there is not known any more, either.
            world.note_lack(K::NAME, false);
            K::forget(world);
        });
        if following.observations.send(ended).is_err() {
            return;
        }
    }
    // Whoever decided that it is needed is gone, and so is everybody else.
    std::future::pending::<()>().await;
}

struct Following {
    kind: &'static str,
    may_be_missing: bool,
    observations: UnboundedSender<Observation>,
    health: Arc<Health>,
}

impl Following {
    /// Whether anyone listens.
    fn send(&self, observation: Observation) -> bool {
        self.observations.send(observation).is_ok()
    }
}

async fn follow<K: Kind>(
    following: &Following,
    mut events: BoxStream<'static, Result<Event<Read<K>>, watcher::Error>>,
) {
    let Following { kind, may_be_missing, health, .. } = following;
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
                        following.send(Observation::new(|world| world.note_lack(K::NAME, false)));
                    }
                    (failures, missing) = (0, false);
                }
                if !observe(following, &mut unreadable, event) {
                    return;
                }
            }
            Err(error) if *may_be_missing && is_not_there(&error) => {
                if !missing {
                    tracing::info!(kind, "the API server does not know this kind; looking for it again");
                    following.send(Observation::new(|world| {
                        world.note_lack(K::NAME, true);
                        K::observe_lack(world);
                    }));
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

/// Sends on what an event says. Returns whether anyone listens.
fn observe<K: Kind>(following: &Following, unreadable: &mut Names, event: Event<Read<K>>) -> bool {
    for name in unreadable.hear(&event) {
        if !following.send(Observation::new(move |world| world.unreadable.forget(K::NAME, &name))) {
            return false;
        }
    }
    let (sorted, stub) = sort::<K>(event);
    let kept = matches!(sorted, Sorted::Unread);
    if let Some(stub) = stub
        && !following.send(Observation::new(move |world| world.observe_unreadable::<K>(stub, kept)))
    {
        return false;
    }
    match sorted {
        Sorted::Is(event) => {
            let event = event.modify(K::trim);
            following.send(Observation::new(move |world| K::observe(world, event)))
        }
        Sorted::Unread => true,
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
    use k8s_openapi::api::core::v1::Node;
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
        let (observations, _observed) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let mut watches = Watches::new(&client, &observations, &health, &mut tasks);
        let nodes = Api::all(watches.client());
        watches.add::<Node>(nodes, Watch::default());
        // Asked after 0, 50, 150, 350 and 750 ms.
        assert!(tokio::time::timeout(Duration::from_millis(1_200), tasks.join_next()).await.is_err());
        let asked = faults.tally(&Calls::all()).asked;
        assert!((2..=5).contains(&asked), "it was asked {asked} times within a second");
        assert!(health.ready().1.contains("never answered"), "{:?}", health.ready());
    }
}
