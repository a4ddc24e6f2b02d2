//! The loop: hear, plan, write, hear what came of it, and again.
//!
//! Writes are under way for each object by itself ([`Flights`]). Usually all answers come within milliseconds, and the next
//! plan is made when the last one is written: it is made of all that is known. When some are slow, the next plan is made
//! [`STRAGGLERS`] later without them, and leaves out the objects that they are about. So that a new request does not wait for a
//! thousand others, one plan writes at most [`Settings::round`].

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
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
use crate::flight::{Flights, Landed, Sent};
use crate::health::Health;
use crate::lead::Campaign;
use crate::metrics::Metrics;
use crate::plan::{ClaimSettings, Planner, Whereabouts};
use crate::release::MissingNodeRest;
use crate::retry::Retry;
use crate::watch::{News, Watches};
use crate::world::World;
use crate::write::Write;

/// How long a plan waits for the last answers to the writes of the one before.
const STRAGGLERS: Duration = Duration::from_millis(250);
/// In a large world a plan takes its time: so many times as long is left for writing before the next.
const PLANNING: u32 = 4;
/// How long writes that are under way have when the controller is told to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How often what is known is counted at least, while there is much to do.
const COUNT: Duration = Duration::from_secs(1);

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
    /// How many writes are under way at once, unless they are slow.
    pub workers: usize,
    /// How many writes are planned at once.
    pub round: usize,
    /// What is heard is planned for at once, unless the last plan is not so old yet: then what comes meanwhile is heard, too.
    pub debounce: Duration,
    /// How long a write may take. It is given up at the end of the term in any case.
    pub patience: Duration,
    /// How often to plan even if nothing is heard.
    pub tick: Duration,
    /// How long a node has to be missing, and no pod bound to it, before what it had is released.
    pub missing_node_rest: Duration,
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
            patience: Duration::from_secs(30),
            tick: Duration::from_secs(10),
            missing_node_rest: crate::MISSING_NODE_REST,
            whereabouts: Whereabouts::default(),
            claims: ClaimSettings::default(),
            cluster_network: None,
        }
    }

    /// A planner that has seen nothing yet.
    fn planner(&self) -> Planner {
        Planner::new(&self.whereabouts).with_claims(&self.claims).with_rest(self.missing_node_rest)
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
        let mut world = World::of_cluster_network(self.settings.cluster_network.clone());
        world.missing_node_rest = MissingNodeRest(self.settings.missing_node_rest);
        let mut desk = Desk {
            actor: Arc::new(Actor::new(self.client.clone(), namespace)),
            flights: Flights::new(self.settings.workers),
            planned: VecDeque::new(),
            plan: 0,
            planned_at: None,
            stragglers: STRAGGLERS,
            counted_at: Duration::ZERO,
            clock: self.clock.clone(),
            health: self.health,
            metrics: self.metrics,
            world,
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
    actor: Arc<Actor>,
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
    flights: Flights,
    /// What is planned and has not begun.
    planned: VecDeque<Write>,
    /// The number of the last plan.
    plan: u64,
    /// When it was made, while something has happened since that the next one should know of.
    planned_at: Option<Duration>,
    /// How long the next one waits for writes of the last.
    stragglers: Duration,
    counted_at: Duration,
}

impl Desk {
    async fn work(&mut self, mut news: UnboundedReceiver<News>) {
        let stop = self.stop.clone();
        let mut last_plan = Duration::ZERO;
        loop {
            let rest = self.rest();
            let mut answered = false;
            tokio::select! {
                () = stop.cancelled() => return self.finish(&mut news).await,
                heard = news.recv() => {
                    let Some(heard) = heard else { return pending().await };
                    heard.tell(&mut self.world);
                    let old = self.clock.elapsed().saturating_sub(last_plan);
                    if let Some(young) = self.settings.debounce.checked_sub(old) {
                        sleep(young).await;
                    }
                }
                landed = self.flights.next() => {
                    self.land(landed, &mut news);
                    answered = true;
                }
                _ = self.role.changed() => {}
                () = sleep(rest) => {}
            }
            // Whatever is here by now: the next plan is made of all of it, and a term that ends gives up no answer that came.
            while let Some(landed) = self.flights.next().now_or_never() {
                self.land(landed, &mut news);
            }
            self.hear(&mut news);
            self.lead();
            let due = !answered || self.flights.is_empty() && self.planned.is_empty();
            let now = self.clock.elapsed();
            let busy = !self.flights.is_empty() || !self.planned.is_empty();
            let patient = busy && now.saturating_sub(last_plan) < self.stragglers;
            if patient || !due {
                self.planned_at.get_or_insert(last_plan);
            } else {
                self.say_what_matters();
                self.health.beat(self.world.is_complete());
                self.plan();
                last_plan = self.clock.elapsed();
                self.stragglers = STRAGGLERS.max(last_plan.saturating_sub(now) * PLANNING);
                self.planned_at = None;
            }
            self.begin();
            self.count();
        }
    }

    /// What is worth watching.
    fn say_what_matters(&mut self) {
        let pods_are_here = self.settings.whereabouts.release_after.is_some();
        let matter = pods_are_here && self.world.needs_pods();
        self.pods_matter.send_if_modified(|before| std::mem::replace(before, matter) != matter);
        let matter = self.world.claims.needs_namespaces();
        self.namespaces_matter.send_if_modified(|before| std::mem::replace(before, matter) != matter);
        let matter = self.world.needs_makers();
        self.makers_matter.send_if_modified(|before| std::mem::replace(before, matter) != matter);
    }

    /// Waits for what is under way, for a while and within the term.
    async fn finish(&mut self, news: &mut UnboundedReceiver<News>) {
        let term = self.term_end().map(|end| end.since(self.clock.now())).unwrap_or_default();
        let answers = async {
            while !self.flights.is_empty() {
                let landed = self.flights.next().await;
                self.land(landed, news);
            }
        };
        _ = tokio::time::timeout(term.min(LAST_ANSWERS), answers).await;
        self.flights.clear();
    }

    /// Counts what is known, when there is nothing to do or it was long ago.
    fn count(&mut self) {
        let now = self.clock.elapsed();
        if !self.flights.is_empty() && now.saturating_sub(self.counted_at) < COUNT {
            return;
        }
        self.counted_at = now;
        let (leads, now) = (self.term_end().is_some(), self.clock.now());
        self.metrics.observe(&self.world, leads);
        self.metrics.observe_ledgers(&self.world.ledgers, leads, self.planner.suspects(), now);
    }

    /// Takes in what has been heard so far.
    fn hear(&mut self, news: &mut UnboundedReceiver<News>) {
        while let Ok(heard) = news.try_recv() {
            heard.tell(&mut self.world);
        }
    }

    /// How long there is nothing to do if nothing is heard and no answer comes.
    fn rest(&self) -> Duration {
        let now = self.clock.now();
        let next = [self.planner.next_look(), self.retry.next(), self.term_end()].into_iter().flatten().min();
        let mut rest = next.map_or(self.settings.tick, |next| next.since(now));
        if let Some(planned) = self.planned_at {
            rest = rest.min((planned + self.stragglers).saturating_sub(self.clock.elapsed()));
        }
        if !self.planned.is_empty() {
            rest = rest.min(STRAGGLERS);
        }
        rest.clamp(Duration::from_millis(1), self.settings.tick)
    }

    /// The end of the term, while there is one.
    fn term_end(&self) -> Option<Timestamp> {
        match *self.role.borrow() {
            Role::Leader(term) if self.clock.now() < term.until => Some(term.until),
            _ => None,
        }
    }

    /// Takes note of whether this one leads. One that does not gives up what is under way.
    fn lead(&mut self) {
        let leads = self.term_end().is_some();
        if leads != self.led {
            // What an earlier term suspected is too long ago to count as a first look, and one that stands by waits for
            // nothing.
            (self.planner, self.retry) = (self.settings.planner(), Retry::default());
            self.led = leads;
        }
        if !leads {
            self.planned.clear();
            self.flights.clear();
        }
    }

    /// Plans, if this one leads.
    fn plan(&mut self) {
        if !self.led {
            return;
        }
        let now = self.clock.now();
        self.world.under_way = self.flights.blocks();
        let mut plan = self.planner.plan(&self.world, now);
        for event in self.planner.take_events() {
            self.tell(events::of_slices(&event, &self.world));
        }
        let notes = self.planner.take_notes();
        self.tell(notes);
        let notes = self.world.unreadable.untold();
        self.tell(notes);
        self.retry.keep(plan.iter().map(Write::subject));
        self.plan += 1;
        plan.retain(|write| {
            self.retry.may_try(write.subject(), now) && self.flights.may_begin(write, self.plan)
        });
        plan.truncate(self.settings.round);
        self.planned = plan.into();
    }

    /// Begins what is planned, as far as there is room.
    fn begin(&mut self) {
        let now = self.clock.elapsed();
        while self.flights.has_room(now) {
            let Some(write) = self.planned.pop_front() else { return };
            // Two writes of one plan may be about one object; the other one is planned again.
            if !self.flights.may_begin(&write, self.plan) {
                continue;
            }
            // Events are about what is different now, so they are made before anything else is heard.
            let notes = match write {
                Write::Ledger(_) => Vec::new(),
                _ => events::notes(&write, &self.world),
            };
            let (actor, patience) = (Arc::clone(&self.actor), self.settings.patience);
            let sent = Sent { write, known: self.world.changes(), notes };
            self.flights.begin(
                sent,
                self.plan,
                now,
                |write| async move { actor.act(&write, patience).await },
            );
        }
    }

    /// Takes in what became of a write.
    fn land(&mut self, landed: Landed, news: &mut UnboundedReceiver<News>) {
        let Landed { sent: Sent { write, known, notes }, outcome, learned } = landed;
        if matches!(outcome, Outcome::Done) {
            self.tell(notes);
        }
        // First what was heard meanwhile: a list that began before an object was made does not mention it, and one of which
        // the answer tells only afterwards is not taken for vanished.
        self.hear(news);
        let superseded = matches!((&outcome, &learned), (Outcome::Superseded, Some(_)));
        self.settle(&write, (outcome, learned));
        // Without news the next plan would be the same: wait for some.
        if superseded && self.world.changes() == known {
            self.retry.failed(write.subject(), self.clock.now());
        }
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
            Outcome::Busy(error, wait) => {
                self.health.answered();
                tracing::warn!(write = verb, subject, error, ?wait, "the API server has too much to do");
                self.retry.busy(subject, now, *wait);
                "failed"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_an_api_server_that_takes_ten_seconds_for_a_write_goes_on_leading_and_writing() {
        let (settings, slow) = (Settings::new("a"), Duration::from_secs(10));
        assert!(settings.patience > slow, "a write is given up before it is answered");
        assert!(settings.timing.check().is_ok());
        assert!(settings.timing.renew_deadline > slow * 2, "the next renewal is answered after the term");
        assert!(settings.timing.renew_deadline / 2 > slow, "a renewal is given up before it is answered");
    }
}
