//! The whole simulation: which events are possible in a step, and what the node's actions do.

use std::time::Duration;

use tenure_handles::Timestamp;

use super::agent::{Agent, settings};
use super::api::Api;
use super::checks::Knowledge;
use super::claim;
use super::counts::EventCounts;
use super::dice::Dice;
use super::kernel::Kernel;
use super::runtime::{Container, Runtime, netns};
use crate::journal::Known;
use crate::key::{HoldKey, Pod};
use crate::node::{Action, Consulted, Event, Job, Planted, Report, Use};

#[derive(Debug)]
pub(super) struct World {
    pub(super) dice: Dice,
    /// This node's clock.
    pub(super) now: Timestamp,
    /// A clock that is never set back.
    pub(super) true_now: Timestamp,
    pub(super) agent: Agent,
    pub(super) api: Api,
    pub(super) kernel: Kernel,
    pub(super) runtime: Runtime,
    /// What the agent got at its start and has not read yet.
    reads: Vec<Event>,
    /// Questions to others without an answer yet.
    consults: Vec<Job>,
    asked_pods: Vec<Vec<(HoldKey, Pod)>>,
    pub(super) knowledge: Knowledge,
    pub(super) counts: EventCounts,
    /// Everything that the node did, for comparing runs.
    pub(super) told: Vec<String>,
    log: Log,
}

/// What happens to the log of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    Off,
    Kept,
    Printed,
}

impl World {
    pub(super) fn new(seed: u64, log: Log, api: Api, planted: Option<Planted>) -> Self {
        let mut world = Self {
            dice: Dice::new(seed),
            now: Timestamp::from_millis(1_000_000_000),
            true_now: Timestamp::from_millis(1_000_000_000),
            agent: Agent::new(api.node, planted),
            knowledge: Knowledge::of(api.node),
            api,
            kernel: Kernel::default(),
            runtime: Runtime::default(),
            reads: Vec::new(),
            consults: Vec::new(),
            asked_pods: Vec::new(),
            counts: EventCounts::default(),
            told: Vec::new(),
            log,
        };
        world.begin(crate::journal::Image::default());
        world
    }

    /// One event happens.
    pub(super) fn step(&mut self) {
        self.pass(Duration::from_millis(self.dice.below(30) as u64));
        // Outages and starts end sooner or later; more happens after them.
        self.api.up |= self.dice.percent(8);
        self.api.controller_up |= self.dice.percent(4);
        if !self.agent.node.is_ready() && self.dice.percent(40) {
            return self.let_api_tell();
        }
        match self.dice.below(100) {
            0..32 => {
                self.let_runtime_act();
            }
            32..52 => self.let_kernel_work(),
            52..66 => self.let_journal_work(),
            66..74 => self.api.answer(&self.dice),
            74..84 => self.let_api_tell(),
            // Deletions are slow, and survive the crash of their sender.
            84 => {
                if self.dice.percent(50) {
                    self.let_deletion_arrive();
                }
            }
            85..89 => self.let_time_pass(),
            89 => self.move_claim(),
            90 => self.api.live_elsewhere(&self.dice),
            91 if self.dice.percent(30) => self.look_at_pods(),
            91 => self.leak(),
            92 => {
                let event = self.runtime.gc();
                self.event(event);
            }
            93 => {
                if self.api.take_by_force(&self.dice) {
                    self.counts.count("taken by force");
                }
            }
            94 if self.dice.percent(50) => self.api.mark(&self.dice),
            94 => self.api.change_slice(&self.dice),
            95 => {
                self.api.up = false;
                self.counts.count("outage");
            }
            96 => {
                self.api.controller_up = false;
                self.counts.count("controller away");
            }
            97 => self.crash(),
            98 => match self.dice.below(20) {
                0..2 => self.reboot(),
                2..8 => self.lose_journal(),
                8..14 => self.force_delete(),
                _ => {}
            },
            _ => {
                if self.agent.has_waiting() {
                    self.counts.count("journal failed");
                    self.event(Event::JournalFailed { message: "No space left on device".into() });
                }
            }
        }
    }

    fn let_runtime_act(&mut self) {
        let Some(mut event) = self.runtime.act(&self.dice) else { return };
        if let Event::Add { attach, .. } = &mut event {
            self.kernel.gone.remove(&attach.netns);
            if claim::is_claim_user(&attach.key) {
                self.api.claims.ask(attach, &self.dice);
            }
        }
        self.event(event);
    }

    /// A leak appears, and nobody reports it.
    fn leak(&mut self) {
        let unattended = self.runtime.unattended();
        let one = unattended.get(self.dice.below(unattended.len())).cloned();
        match (self.dice.below(4), one) {
            (0, _) => {
                let key = HoldKey::new("net", format!("x{}", self.dice.below(3)), "eth0").unwrap();
                let address = format!("10.0.0.{}", self.dice.below(16)).parse().unwrap();
                if self.kernel.links.values().all(|link| !link.contains(&address)) {
                    self.kernel.links.insert(key, vec![address]);
                    self.counts.count("a link of nobody");
                }
            }
            (1, Some(key)) => {
                if let Some(addresses) = self.kernel.links.get_mut(&key) {
                    addresses.clear();
                    self.counts.count("a route was cut");
                }
            }
            (_, Some(key)) => {
                self.kernel.links.remove(&key);
                self.kernel.gone.insert(netns(&key));
                self.runtime.containers.insert(key, Container::Vanished);
                self.counts.count("lost its namespace");
            }
            (_, None) => {}
        }
    }

    fn let_kernel_work(&mut self) {
        if let Some(event) = self.kernel.work(&self.dice) {
            match &event {
                Event::WiringFailed { .. } => self.counts.count("wiring failed"),
                Event::UnwiringFailed { .. } => self.counts.count("unwiring failed"),
                _ => {}
            }
            self.event(event);
        }
    }

    fn let_journal_work(&mut self) {
        if let Some(up_to) = self.agent.commit(self.dice.below(1000)) {
            self.knowledge.commit(up_to);
            self.event(Event::Committed { up_to });
        }
    }

    fn let_api_tell(&mut self) {
        if self.dice.percent(20) {
            return self.let_others_answer();
        }
        if let Some(event) = self.dice.pick(&mut self.reads) {
            return self.event(event);
        }
        if self.dice.percent(40)
            && let Some((life, event)) = self.dice.pick(&mut self.api.answers)
        {
            if life == self.agent.life {
                self.event(event);
            }
        } else if let Some(event) = self.api.next_told(&self.dice) {
            self.event(event);
        }
    }

    fn let_deletion_arrive(&mut self) {
        self.api.keep_one(&self.dice);
        if let Some(deleted) = self.api.delete_one(&self.dice, self.true_now) {
            self.counts.count("given back");
            self.check_given_back(&deleted);
        }
    }

    fn let_time_pass(&mut self) {
        let pass = match self.dice.below(10) {
            0..6 => Duration::from_millis(self.dice.below(300) as u64),
            6..9 => Duration::from_millis(self.dice.below(4_000) as u64),
            _ => Duration::from_secs(self.dice.below(60) as u64),
        };
        self.pass(pass);
        self.event(Event::Tick);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.true_now = self.true_now.plus(time);
    }

    /// Somebody sets this node's clock while no agent runs; a running agent does not depend on it.
    fn set_clock(&mut self) {
        let by = Duration::from_millis(self.dice.below(60_000) as u64);
        if self.dice.percent(50) {
            self.counts.count("the clock was set back");
            self.now = Timestamp::default().plus(self.now.since(Timestamp::default().plus(by)));
        } else {
            self.counts.count("the clock was set ahead");
            self.now = self.now.plus(by);
        }
    }

    /// The agent crashes, and its journal is lost or damaged while containers run.
    fn lose_journal(&mut self) {
        self.counts.count("a journal was lost");
        self.kernel.orphan(&self.dice);
        self.runtime.orphan();
        self.write_records();
        let running = self.runtime.containers.iter().filter(|(_, it)| matches!(it, Container::Running(_)));
        self.runtime.forgotten.extend(running.map(|(key, _)| key.clone()));
        self.api.limit_returns(self.true_now.plus(settings(self.api.node).cooling));
        let image = self.agent.lose(&self.dice);
        self.begin(image);
    }

    /// Somebody deletes a running pod by force, and the node is not told.
    fn force_delete(&mut self) {
        let running = self.runtime.unattended();
        if let Some(key) = running.get(self.dice.below(running.len())) {
            self.runtime.deleted.insert(key.clone());
            self.counts.count("a pod was deleted by force");
        }
    }

    /// Somebody takes a block away from this node, and deletes the pods that use it.
    fn take_with_pods(&mut self) {
        if self.api.take_by_force(&self.dice) {
            self.counts.count("taken by force");
        }
        let running = self.runtime.containers.iter().filter(|(_, it)| matches!(it, Container::Running(_)));
        let running: Vec<HoldKey> = running.map(|(key, _)| key.clone()).collect();
        self.runtime.deleted.extend(running);
    }

    /// Others report who uses which addresses, or whether pods exist.
    fn let_others_answer(&mut self) {
        if let Some(job) = self.dice.pick(&mut self.consults) {
            let complete = self.kernel.obedient || self.dice.percent(60);
            self.counts.count(if complete { "others were asked" } else { "others could not all be asked" });
            let mut uses = Vec::new();
            for (key, container) in &self.runtime.containers {
                let Container::Running(addresses) = container else { continue };
                if complete || self.dice.percent(50) {
                    // The runtime reports the owners, or only the namespace is visible.
                    let said = self.dice.percent(50);
                    uses.push(Use {
                        addresses: addresses.iter().collect(),
                        key: said.then(|| key.clone()),
                        pod: Pod::default(),
                        netns: netns(key),
                    });
                }
            }
            self.event(Event::Consulted { job, consulted: Consulted { complete, uses } });
        } else if let Some(holders) = self.dice.pick(&mut self.asked_pods) {
            let asked: Vec<HoldKey> = holders.into_iter().map(|(key, _)| key).collect();
            let missing = asked.iter().filter(|key| self.runtime.deleted.contains(*key)).cloned().collect();
            self.event(Event::PodsAsked { asked, missing });
        }
    }

    fn crash(&mut self) {
        self.counts.count("crash");
        self.kernel.orphan(&self.dice);
        self.runtime.orphan();
        self.write_records();
        if self.dice.percent(30) {
            self.set_clock();
        }
        let image = self.agent.restart(self.dice.below(10_000));
        self.begin(image);
    }

    fn reboot(&mut self) {
        self.counts.count("reboot");
        // A reboot takes longer than any request.
        while self.api.up && !self.api.returns.is_empty() {
            self.let_deletion_arrive();
        }
        self.api.returns.clear();
        self.runtime.forgotten.clear();
        self.runtime.deleted.clear();
        self.kernel.jobs.clear();
        self.kernel.links.clear();
        self.runtime.orphan();
        self.runtime.containers.clear();
        self.write_records();
        self.agent.forget();
        self.knowledge.forget();
        self.begin(crate::journal::Image::default());
    }

    /// The agent starts.
    fn begin(&mut self, image: crate::journal::Image) {
        self.consults.clear();
        self.asked_pods.clear();
        self.api.list();
        self.knowledge.begin();
        self.knowledge.incomplete = image.known() != Known::All;
        if image.known() == Known::Lost {
            self.knowledge.old_links.extend(self.kernel.links.keys().cloned());
        }
        if image.claim_uses().next().is_some() {
            self.counts.count("a claim use came back with a restart");
        }
        self.reads = vec![Event::Journal(image), Event::Kernel(self.kernel.inventory())];
    }

    pub(super) fn event(&mut self, event: Event) {
        self.tell(|now| format!("{} {event:?}", now.as_millis()));
        self.knowledge.tell(&event);
        let actions = self.agent.node.handle(event, self.now);
        for action in actions {
            self.tell(|_| format!("    {action:?}"));
            self.act(action);
        }
        self.check_node();
    }

    /// For comparing runs, and for people who debug one.
    #[expect(clippy::disallowed_macros, reason = "a test's output is for the one who reads it")]
    fn tell(&mut self, what: impl FnOnce(Timestamp) -> String) {
        match self.log {
            Log::Off => {}
            Log::Kept => self.told.push(what(self.now)),
            Log::Printed => println!("{} {}", self.api.node, what(self.now)),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Record { position, record } => {
                self.check_record(position, &record);
                self.agent.append(position, record);
            }
            Action::Wire(_)
            | Action::Unwire { .. }
            | Action::Inspect(_)
            | Action::Look { .. }
            | Action::Reach { .. } => {
                if let Action::Wire(_) | Action::Reach { .. } = &action {
                    self.check_read();
                }
                self.note_reach(&action);
                self.kernel.jobs.push(action);
            }
            Action::Announce { .. } => {
                self.check_read();
                self.note_reach(&action);
            }
            Action::Consult { job } => self.consults.push(job),
            Action::AskAboutPods(holders) => self.asked_pods.push(holders),
            Action::Answer { ticket, outcome } => self.check_answer(ticket, outcome),
            Action::AskForBlock { ask, .. } => self.api.asks.push((self.agent.life, ask)),
            Action::ReturnBlock { name, uid, .. } => self.api.returns.push((name, uid, None)),
            Action::KeepBlock { uid, .. } => self.api.keeps.push(uid),
            Action::Export(networks) => self.knowledge.exported = networks,
            Action::Repair(holds) => {
                self.check_read();
                self.kernel.repair(&holds);
            }
            Action::Report(Report::Leak { key, leak, .. }) => self.check_leak(&key, &leak),
            Action::Report(Report::Routes { .. }) => self.counts.count("routes were put right"),
            Action::Report(_) => {}
        }
    }

    /// Faults end and waiting events arrive: everything must become consistent.
    pub(super) fn put_right(&mut self) {
        self.take_with_pods();
        self.api.put_right();
        self.kernel.obedient = true;
        self.runtime.winding_up = true;
        self.drain();
        self.check_nobody_waits_for_ever();
        self.check_healed();
        // Everything left is deleted, and failed deletions are retried.
        for _ in 0..40 {
            for _ in 0..60 {
                self.let_runtime_act();
            }
            self.drain();
            if self.runtime.containers.values().all(|state| *state == Container::Lost) {
                break;
            }
        }
        let event = self.runtime.gc();
        self.event(event);
        self.drain();
        self.look_at_pods();
        self.drain();
        for _ in 0..6 {
            self.pass(Duration::from_mins(10));
            self.event(Event::Tick);
            self.drain();
        }
        self.check_the_end();
    }

    /// Processes all events in flight.
    pub(super) fn drain(&mut self) {
        for _ in 0..200 {
            let mut quiet = self.kernel.jobs.is_empty() && !self.agent.has_waiting() && self.reads.is_empty();
            quiet &= self.api.watch.is_empty() && self.api.answers.is_empty();
            quiet &= self.api.asks.is_empty() && self.api.returns.is_empty();
            quiet &= self.api.keeps.is_empty();
            quiet &= self.consults.is_empty() && self.asked_pods.is_empty();
            if quiet {
                break;
            }
            self.pass(Duration::from_millis(5));
            self.let_kernel_work();
            self.let_journal_work();
            self.api.answer(&self.dice);
            self.let_api_tell();
            self.let_others_answer();
            self.let_deletion_arrive();
        }
        self.event(Event::Tick);
    }
}
