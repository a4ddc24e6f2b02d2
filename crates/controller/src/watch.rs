//! Watches, one for each kind, which feed one queue of observations ([`tenure_watch`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tenure_api::read::Read;
use tenure_handles::{Clock, Entropy};
use tenure_watch::{Connection, LOOK_FOR_KIND, Listener};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::election::{Role, Term};
use crate::kind::{Kind, Observation};
use crate::unreadable::{Sorted, sort};
use crate::world::World;

/// How a kind is watched.
#[derive(Default)]
pub struct Watch {
    /// Only objects with these fields.
    pub fields: Option<&'static str>,
    /// Only objects with these labels.
    pub labels: Option<&'static str>,
    /// Whether its CRD may be missing: then it is looked for now and then, without an error.
    pub may_be_missing: bool,
    /// Watched only while this holds.
    pub needed: Option<Needed>,
}

/// Whether a kind has to be watched now.
pub type Needed = Box<dyn Fn(&World) -> bool + Send>;

/// What a part's task needs that does something else than write objects.
#[derive(Clone)]
pub struct Lead {
    /// Whether this process leads.
    pub role: watch::Receiver<Role>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    observations: UnboundedSender<Observation>,
}

impl Lead {
    /// For a test, which receives the observations.
    #[cfg(test)]
    pub(crate) fn of_a_test(
        role: watch::Receiver<Role>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        observations: UnboundedSender<Observation>,
    ) -> Self {
        Self { role, clock, entropy, observations }
    }

    /// The end of the term, while this process leads, and the number of the term.
    pub fn term(&self) -> Option<Term> {
        match *self.role.borrow() {
            Role::Leader(term) if self.clock.now() < term.until => Some(term),
            _ => None,
        }
    }

    /// Tells the world. Returns whether anyone listens.
    pub fn tell(&self, tell: impl FnOnce(&mut World) + Send + 'static) -> bool {
        self.observations.send(Observation::new(tell)).is_ok()
    }
}

/// Starts watches, and decides which are needed.
pub struct Watches<'a> {
    connection: &'a Connection,
    lead: Lead,
    observations: &'a UnboundedSender<Observation>,
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
        connection: &'a Connection,
        (role, clock): (watch::Receiver<Role>, Arc<dyn Clock>),
        observations: &'a UnboundedSender<Observation>,
        tasks: &'a mut JoinSet<()>,
    ) -> Self {
        let entropy = Arc::clone(connection.entropy());
        let lead = Lead { role, clock, entropy, observations: observations.clone() };
        Self { connection, lead, observations, tasks, started: BTreeSet::new(), needs: Needs::default() }
    }

    /// Runs a part's task that does something else than write objects. The task itself checks whether this process
    /// leads, and must not end.
    pub fn run<F>(&mut self, task: impl FnOnce(Lead) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task(self.lead.clone()));
    }

    /// The client to watch with.
    pub fn client(&self) -> Client {
        self.connection.client()
    }

    /// Which of the watches are needed.
    pub(crate) fn into_needs(self) -> Needs {
        self.needs
    }

    /// Watches a kind while anyone listens. If several parts want the same kind, the first one's options count.
    pub fn add<K: Kind>(&mut self, api: Api<Read<K>>, watch: Watch) {
        if !self.started.insert(K::NAME) {
            return;
        }
        let Watch { fields, labels, may_be_missing, needed } = watch;
        let config = watcher::Config {
            field_selector: fields.map(str::to_owned),
            label_selector: labels.map(str::to_owned),
            ..Default::default()
        };
        let (connection, observer) = (self.connection.clone(), Observer(self.observations.clone()));
        let following = move || {
            let (connection, observer) = (connection.clone(), observer.clone());
            let (api, config) = (api.clone(), config.clone());
            let look_for_kind = may_be_missing.then_some(LOOK_FOR_KIND);
            async move { connection.watch::<K>(K::NAME, api, config, look_for_kind, observer).await }
        };
        let Some(needed) = needed else { return drop(self.tasks.spawn(following())) };
        let (sender, receiver) = watch::channel(false);
        self.needs.0.push((needed, sender));
        let (connection, observer) = (self.connection.clone(), Observer(self.observations.clone()));
        let ended = move || {
            connection.health().ended(K::NAME);
            observer.send(|world| {
                // Whether the kind exists is not known any more, either.
                world.note_lack(K::NAME, false);
                K::forget(world);
            })
        };
        self.tasks.spawn(follow_while(receiver, following, ended));
    }
}

/// Runs a watch while it is needed, and reports when it has ended, while anyone listens.
async fn follow_while<F: Future<Output = ()>>(
    mut needed: watch::Receiver<bool>,
    following: impl Fn() -> F,
    ended: impl Fn() -> bool,
) {
    while needed.wait_for(|needed| *needed).await.is_ok() {
        tokio::select! {
            () = following() => return,
            _ = needed.wait_for(|needed| !*needed) => {}
        }
        if !ended() {
            return;
        }
    }
    // Whoever decides that it is needed is gone, and so is everybody else.
    std::future::pending::<()>().await;
}

/// Forwards what a watch reports.
#[derive(Clone)]
struct Observer(UnboundedSender<Observation>);

impl Observer {
    /// Whether anyone listens.
    fn send(&self, tell: impl FnOnce(&mut World) + Send + 'static) -> bool {
        self.0.send(Observation::new(tell)).is_ok()
    }
}

impl<K: Kind> Listener<K> for Observer {
    fn hear(&mut self, event: Event<Read<K>>) -> bool {
        let (sorted, stub) = sort::<K>(event);
        let kept = matches!(sorted, Sorted::Unread);
        if let Some(stub) = stub
            && !self.send(move |world| world.observe_unreadable::<K>(stub, kept))
        {
            return false;
        }
        match sorted {
            Sorted::Is(event) => {
                let event = event.modify(K::trim);
                self.send(move |world| world.observe(event))
            }
            Sorted::Unread => true,
        }
    }

    fn readable(&mut self, name: String) {
        self.send(move |world| world.unreadable.forget(K::NAME, &name));
    }

    fn lacks_kind(&mut self, lacks: bool) {
        self.send(move |world| {
            world.note_lack(K::NAME, lacks);
            if lacks {
                K::observe_lack(world);
            }
        });
    }
}
