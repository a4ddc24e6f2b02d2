//! The loop: hear, plan, write, hear what came of it, and again.
//!
//! A plan is made only when no write of the last one is under way: what is planned never contradicts what is being
//! written. So that a new request does not wait for a thousand others, one round writes at most [`Settings::round`].

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use kube::Client;
use tenure_daemon::Pages;
use tenure_handles::{Clock, Timestamp};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::act::{Actor, Outcome};
use crate::election::{Role, Timing};
use crate::events::{self, Note};
use crate::health::Health;
use crate::lead::Campaign;
use crate::metrics::Metrics;
use crate::plan::{ClaimSettings, Planner, Whereabouts};
use crate::retry::Retry;
use crate::watch::{News, Watches};
use crate::world::World;
use crate::write::Write;

/// How a controller runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its own name in the election, shared with nobody.
    pub identity: String,
    /// The namespace of the lease.
    pub lease_namespace: String,
    /// The name of the lease.
    pub lease_name: String,
    /// How long things last in the election.
    pub timing: Timing,
    /// How many writes are under way at once.
    pub workers: usize,
    /// How many writes are planned at once.
    pub round: usize,
    /// What is heard is planned for at once, unless the last plan is not so old yet: then what comes meanwhile is heard, too.
    pub debounce: Duration,
    /// How long a write may take.
    pub patience: Duration,
    /// How often to plan even if nothing is heard.
    pub tick: Duration,
    /// How Whereabouts' ranges are looked after.
    pub whereabouts: Whereabouts,
    /// How claims are looked after.
    pub claims: ClaimSettings,
    /// The name of the cluster's default network, as in its configuration, if it lets addresses outlive pods.
    pub cluster_network: Option<String>,
}

impl Settings {
    /// The usual ones. The lease is the one that Coil's controller uses, so that of the two systems only one leads.
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_namespace: "kube-system".to_owned(),
            lease_name: "coil-ipam-leader".to_owned(),
            timing: Timing::default(),
            workers: 32,
            round: 256,
            debounce: Duration::from_millis(3),
            patience: Duration::from_secs(5),
            tick: Duration::from_secs(10),
            whereabouts: Whereabouts::default(),
            claims: ClaimSettings::default(),
            cluster_network: None,
        }
    }

    /// A planner that has seen nothing yet.
    fn planner(&self) -> Planner {
        Planner::new(&self.whereabouts).with_claims(&self.claims)
    }
}

/// Why a controller ended though nobody told it to.
#[derive(Debug, thiserror::Error)]
#[error("running the controller: a part of it ended: {0}")]
pub struct RunError(String);

/// A controller that is ready to run.
pub struct Controller {
    client: Client,
    clock: Arc<dyn Clock>,
    settings: Settings,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Controller").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Controller {
    /// A controller of the API that `client` reaches.
    pub fn new(client: Client, clock: impl Clock, settings: Settings) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let health = Arc::new(Health::new(clock.clone()));
        Self { client, clock, settings, health, metrics: Arc::default() }
    }

    /// How it is.
    pub fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// What it tells over HTTP: `/healthz`, `/readyz`, `/metrics`.
    pub fn pages(&self) -> Pages {
        let (live, ready, metrics) = (self.health(), self.health(), self.metrics());
        Pages::default()
            .verdict("/healthz", move || std::future::ready(live.live()))
            .verdict("/readyz", move || std::future::ready(ready.ready()))
            .metrics(move || std::future::ready(metrics.text()))
    }

    /// Runs until `stop`; then finishes what is under way and releases the lease. Dropping the future ends it at once,
    /// as a crash would.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let mut tasks = JoinSet::new();
        let (sender, news) = mpsc::unbounded_channel();
        let (pods_matter, pods) = watch::channel(false);
        let (namespaces_matter, namespaces) = watch::channel(false);
        let (makers_matter, makers) = watch::channel(false);
        let (client, namespace) = (&self.client, self.settings.whereabouts.namespace.as_str());
        Watches { client, namespace, news: &sender, health: &self.health, pods, namespaces, makers }
            .start(&mut tasks);
        let (notes, noted) = mpsc::channel(256);
        let instance = self.settings.identity.clone();
        tasks.spawn(events::publish(self.client.clone(), self.clock.clone(), instance, noted));
        let (role, heard_role) = watch::channel(Role::Standby);
        let campaign = Campaign {
            leases: Campaign::leases(&self.client, &self.settings.lease_namespace),
            name: self.settings.lease_name.clone(),
            clock: self.clock.clone(),
            timing: self.settings.timing,
            role,
            health: self.health.clone(),
        };
        let resign = CancellationToken::new();
        let mut campaign = JoinSet::from_iter([campaign.run(self.settings.identity.clone(), resign.clone())]);
        let mut desk = Desk {
            actor: Actor::new(self.client.clone(), namespace),
            clock: self.clock.clone(),
            health: self.health,
            metrics: self.metrics,
            world: World::of_cluster_network(self.settings.cluster_network.clone()),
            planner: self.settings.planner(),
            settings: self.settings,
            retry: Retry::default(),
            role: heard_role,
            pods_matter,
            namespaces_matter,
            makers_matter,
            led: false,
            notes,
            stop: stop.clone(),
        };
        let ended = tokio::select! {
            () = desk.work(news) => None,
            ended = tasks.join_next() => Some(format!("{ended:?}")),
            ended = campaign.join_next() => Some(format!("{ended:?}")),
        };
        resign.cancel();
        match ended {
            None => {
                _ = campaign.join_next().await;
                Ok(())
            }
            Some(what) => Err(RunError(what)),
        }
    }
}

/// Where the work is done.
struct Desk {
    actor: Actor,
    clock: Arc<dyn Clock>,
    settings: Settings,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    world: World,
    planner: Planner,
    retry: Retry,
    role: watch::Receiver<Role>,
    led: bool,
    notes: mpsc::Sender<Note>,
    /// Whether pods are worth watching.
    pods_matter: watch::Sender<bool>,
    /// Whether namespaces are.
    namespaces_matter: watch::Sender<bool>,
    /// Whether those for whom claims are made are.
    makers_matter: watch::Sender<bool>,
    stop: CancellationToken,
}

impl Desk {
    async fn work(&mut self, mut news: UnboundedReceiver<News>) {
        let stop = self.stop.clone();
        let mut planned = Duration::ZERO;
        loop {
            let rest = self.rest();
            tokio::select! {
                () = stop.cancelled() => return,
                heard = news.recv() => {
                    let Some(heard) = heard else { return pending().await };
                    heard.tell(&mut self.world);
                    let old = self.clock.elapsed().saturating_sub(planned);
                    if let Some(young) = self.settings.debounce.checked_sub(old) {
                        sleep(young).await;
                    }
                }
                _ = self.role.changed() => {}
                () = sleep(rest) => {}
            }
            while !stop.is_cancelled() {
                self.hear(&mut news);
                let pods_are_here = self.settings.whereabouts.release_after.is_some();
                let matter = pods_are_here && self.world.needs_pods();
                self.pods_matter.send_if_modified(|before| std::mem::replace(before, matter) != matter);
                let matter = self.world.claims.needs_namespaces();
                self.namespaces_matter.send_if_modified(|before| std::mem::replace(before, matter) != matter);
                let matter = self.world.needs_makers();
                self.makers_matter.send_if_modified(|before| std::mem::replace(before, matter) != matter);
                self.health.beat(self.world.is_complete());
                if !self.round(&mut news).await {
                    break;
                }
            }
            planned = self.clock.elapsed();
            let (leads, now) = (self.term_end().is_some(), self.clock.now());
            self.metrics.observe(&self.world, leads);
            self.metrics.observe_ledgers(&self.world.ledgers, leads, self.planner.suspects(), now);
        }
    }

    /// Takes in what has been heard so far.
    fn hear(&mut self, news: &mut UnboundedReceiver<News>) {
        while let Ok(heard) = news.try_recv() {
            heard.tell(&mut self.world);
        }
    }

    /// How long there is nothing to do if nothing is heard.
    fn rest(&self) -> Duration {
        let now = self.clock.now();
        let next = [self.planner.next_look(), self.retry.next()].into_iter().flatten().min();
        let rest = next.map_or(self.settings.tick, |next| next.since(now));
        rest.clamp(Duration::from_millis(1), self.settings.tick)
    }

    /// The end of the term, while there is one.
    fn term_end(&self) -> Option<Timestamp> {
        match *self.role.borrow() {
            Role::Leader(term) if self.clock.now() < term.until => Some(term.until),
            _ => None,
        }
    }

    /// Plans and writes once, if this one leads; whether there was anything to do.
    async fn round(&mut self, news: &mut UnboundedReceiver<News>) -> bool {
        let leads = self.term_end().is_some();
        if leads != self.led {
            // What an earlier term suspected is too long ago to count as a first look, and one that stands by waits for
            // nothing.
            (self.planner, self.retry) = (self.settings.planner(), Retry::default());
            self.led = leads;
        }
        if !leads {
            return false;
        }
        let (now, known) = (self.clock.now(), self.world.changes());
        let mut plan = self.planner.plan(&self.world, now);
        for event in self.planner.take_events() {
            self.tell(events::of_slices(&event, &self.world));
        }
        let notes = self.planner.take_notes();
        self.tell(notes);
        self.retry.keep(plan.iter().map(Write::subject));
        plan.retain(|write| self.retry.may_try(write.subject(), now));
        plan.truncate(self.settings.round);
        if plan.is_empty() {
            return false;
        }
        let desk = &*self;
        let writes = stream::iter(plan).map(|write| async move {
            let done = desk.write(&write).await;
            (write, done)
        });
        let done: Vec<_> = writes.buffer_unordered(self.settings.workers.max(1)).collect().await;
        // Events are about what is different now, so they come before anything else is heard.
        for (write, (outcome, _)) in &done {
            if matches!(outcome, Outcome::Done) && !matches!(write, Write::Ledger(_)) {
                self.tell(events::notes(write, &self.world));
            }
        }
        // Then what was heard meanwhile: a list that began before an object was made does not mention it, and one of which
        // the answer tells only afterwards is not taken for vanished.
        self.hear(news);
        let mut superseded = Vec::new();
        for (write, done) in done {
            if matches!(done, (Outcome::Superseded, Some(_))) {
                superseded.push(write.subject().to_owned());
            }
            self.settle(&write, done);
        }
        // Without news the next plan would be the same: wait for some.
        if self.world.changes() == known {
            for subject in superseded {
                self.retry.failed(&subject, now);
            }
        }
        true
    }

    /// Writes, within the term and no longer.
    async fn write(&self, write: &Write) -> (Outcome, Option<crate::act::Learned>) {
        let Some(end) = self.term_end() else {
            return (Outcome::Failed("this one does not lead any more".to_owned()), None);
        };
        let patience = end.since(self.clock.now()).min(self.settings.patience);
        self.actor.act(write, patience).await
    }

    fn settle(&mut self, write: &Write, (outcome, learned): (Outcome, Option<crate::act::Learned>)) {
        let now = self.clock.now();
        let (verb, subject) = (write.verb(), write.subject());
        let word = match &outcome {
            Outcome::Done => {
                self.health.answered();
                self.retry.worked(subject);
                "done"
            }
            Outcome::Superseded => {
                self.health.answered();
                if learned.is_none() {
                    self.retry.failed(subject, now);
                }
                "superseded"
            }
            Outcome::Failed(error) => {
                tracing::warn!(write = verb, subject, error, "a write failed; trying again");
                self.retry.failed(subject, now);
                "failed"
            }
        };
        self.metrics.wrote(verb, word);
        if let Some(learned) = learned {
            if let Write::Ledger(write) = write {
                self.metrics.released(write, &learned);
            }
            learned.tell(&mut self.world);
        }
        if let (Write::Ledger(_), Outcome::Done) = (write, &outcome) {
            self.tell(events::notes(write, &self.world));
        }
    }

    /// Events are help for people; they never hold up the work.
    fn tell(&self, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            _ = self.notes.try_send(note);
        }
    }
}
