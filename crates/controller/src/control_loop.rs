//! The control loop: observe, plan, write, observe what came of it, and again.
//!
//! Writes are in flight for each object by itself ([`Executor`]), and no plan waits for an answer: it leaves out the objects whose
//! writes are in flight, and what they need next is planned when they are answered. So a slow write delays its own object and
//! nothing else. What happens within [`Settings::debounce`] of a plan shares the next one, and a plan that takes long is followed
//! by a longer pause ([`PLANNING`]). So that a new request does not wait for a thousand others, one plan writes at most
//! [`Settings::round`]. If there was more, the next plan is made as soon as all of these have begun.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tenure_handles::{Clock, Timestamp};
use tenure_watch::{CallError, Connection, ErrorKind, Retry};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::election::Role;
use crate::events::Note;
use crate::executor::{Answered, Executor, InFlight, Outcome};
use crate::health::Health;
use crate::kind::Observation;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::part::Part;
use crate::plan::Planner;
use crate::run::Settings;
use crate::watch::Needs;
use crate::world::{Lists, World};
use crate::write::Write;

/// When many writes wait, a plan takes its time: so many times as long is left for writing before the next.
const PLANNING: u32 = 4;
/// How often to look whether a write in flight has become slow, while others wait for room.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(250);
/// How long writes that are in flight have when the controller is told to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How often what is known is counted at most.
const COUNT: Duration = Duration::from_secs(1);

type Observations = UnboundedReceiver<Observation>;

/// The control loop.
pub(crate) struct ControlLoop {
    clock: Arc<dyn Clock>,
    settings: Settings,
    parts: Vec<Arc<dyn Part>>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    world: World,
    planner: Planner,
    retry: Retry,
    pace: Pace,
    role: watch::Receiver<Role>,
    led: bool,
    notes: mpsc::Sender<Note>,
    /// Which watches are needed.
    needs: Needs,
    executor: Executor,
    /// What is planned and has not begun.
    planned: VecDeque<Write>,
    /// The number of the last plan.
    plan: u64,
    /// When it was made; `None` if there is none yet.
    planned_at: Option<Duration>,
    /// The time that it was made for.
    planned_for: Timestamp,
    /// How long it took.
    planning: Duration,
    /// How long to pause after it.
    pause: Duration,
    /// How many writes it had beyond what one plan writes.
    left_out: usize,
    /// Whether something has happened since that the next one should know of.
    unplanned: bool,
    counted_at: Duration,
    /// Whether something has happened since.
    uncounted: bool,
}

impl ControlLoop {
    pub(crate) fn new(
        connection: &Connection,
        clock: Arc<dyn Clock>,
        settings: Settings,
        parts: Vec<Arc<dyn Part>>,
        (health, metrics): (Arc<Health>, Arc<Metrics>),
        world: World,
        (role, needs, notes): (watch::Receiver<Role>, Needs, mpsc::Sender<Note>),
    ) -> Self {
        let performers = parts.iter().map(|part| part.performer(&connection.client())).collect();
        Self {
            executor: Executor::new(performers, settings.workers, settings.patience),
            planner: Planner::of(&parts),
            clock,
            settings,
            parts,
            health,
            metrics,
            world,
            retry: Retry::new(Arc::clone(connection.entropy())),
            pace: Pace::default(),
            role,
            led: false,
            notes,
            needs,
            planned: VecDeque::new(),
            plan: 0,
            planned_at: None,
            planned_for: Timestamp::default(),
            planning: Duration::ZERO,
            pause: Duration::ZERO,
            left_out: 0,
            unplanned: true,
            counted_at: Duration::ZERO,
            uncounted: true,
        }
    }

    /// Runs until `stop`; then waits for what is in flight.
    pub(crate) async fn run(&mut self, mut observations: Observations, stop: CancellationToken) {
        loop {
            let rest = self.rest();
            let mut woken = false;
            tokio::select! {
                () = stop.cancelled() => return self.finish(&mut observations).await,
                observed = observations.recv() => {
                    let Some(observed) = observed else { return pending().await };
                    observed.tell(&mut self.world);
                }
                answer = self.executor.next() => self.take_answer(answer, &mut observations),
                _ = self.role.changed() => {}
                () = sleep(rest) => woken = true,
            }
            self.uncounted |= !woken;
            // Whatever is here by now: the next plan is made of all of it, and a term that ends gives up no answer that came.
            while let Some(answer) = self.executor.next().now_or_never() {
                self.take_answer(answer, &mut observations);
            }
            self.observe(&mut observations);
            self.lead();
            self.unplanned = true;
            if self.until_plan().is_zero() {
                self.needs.tell(&self.world);
                self.health.beat(self.planner.is_ready(&self.world));
                self.plan();
            }
            self.begin();
            self.count();
        }
    }

    /// How long the next plan is not made, whatever happens.
    fn until_plan(&self) -> Duration {
        let pause =
            if self.left_out > 0 && self.planned.is_empty() { self.settings.debounce } else { self.pause };
        let next = self.planned_at.map(|planned_at| planned_at + pause).unwrap_or_default();
        next.saturating_sub(self.clock.elapsed())
    }

    /// Waits for what is in flight, for a while and within the term.
    async fn finish(&mut self, observations: &mut Observations) {
        let term = self.term_end().map(|end| end.since(self.clock.now())).unwrap_or_default();
        let answers = async {
            while !self.executor.is_idle() {
                let answer = self.executor.next().await;
                self.take_answer(answer, observations);
            }
        };
        _ = tokio::time::timeout(term.min(LAST_ANSWERS), answers).await;
        self.executor.clear();
    }

    /// Counts what is known, if it was long ago: counting walks over everything.
    fn count(&mut self) {
        let now = self.clock.elapsed();
        if !self.uncounted || now.saturating_sub(self.counted_at) < COUNT {
            return;
        }
        (self.counted_at, self.uncounted) = (now, false);
        let (leads, now) = (self.term_end().is_some(), self.clock.now());
        self.metrics.count(&self.world, leads, &self.planner, now);
    }

    /// Takes in what has been observed so far.
    fn observe(&mut self, observations: &mut Observations) {
        while let Ok(observed) = observations.try_recv() {
            observed.tell(&mut self.world);
        }
    }

    /// How long there is nothing to do if nothing is heard and no answer comes.
    fn rest(&self) -> Duration {
        let now = self.clock.now();
        // What might have been tried already when the last plan was made is in flight, or waits for a write that is.
        let retry = self.retry.next(self.planned_for);
        let pace = self.pace.next().filter(|next| *next > self.planned_for);
        let next = [self.planner.next_look(), retry, pace, self.term_end()].into_iter().flatten().min();
        let mut rest = next.map_or(self.settings.tick, |next| next.since(now));
        if self.unplanned {
            rest = rest.min(self.until_plan());
        }
        if !self.planned.is_empty() {
            rest = rest.min(LOOK_FOR_ROOM);
        }
        if self.uncounted {
            rest = rest.min((self.counted_at + COUNT).saturating_sub(self.clock.elapsed()));
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

    /// Takes note of whether this one leads. One that does not gives up what is in flight.
    fn lead(&mut self) {
        let leads = self.term_end().is_some();
        if leads != self.led {
            // What an earlier term suspected is too long ago to count as a first look, and one that stands by waits for
            // nothing.
            self.planner = Planner::of(&self.parts);
            self.retry.clear();
            self.pace.clear();
            (self.led, self.uncounted) = (leads, true);
        }
        if !leads {
            self.planned.clear();
            self.executor.clear();
        }
    }

    /// Plans, if this one leads.
    fn plan(&mut self) {
        let began = self.clock.elapsed();
        if self.led {
            self.plan_writes();
        }
        let ended = self.clock.elapsed();
        // A single plan that takes long, such as that of everything, says nothing about the next one.
        let planning = ended.saturating_sub(began);
        let usual = planning.min(std::mem::replace(&mut self.planning, planning));
        self.pause = self.settings.debounce.max(usual * PLANNING);
        (self.planned_at, self.unplanned) = (Some(ended), false);
    }

    fn plan_writes(&mut self) {
        let now = self.clock.now();
        self.planned_for = now;
        self.world.in_flight = self.executor.in_flight();
        let mut plan = self.planner.plan(&self.world, now);
        let notes = self.planner.take_notes(&self.world);
        self.tell(notes);
        let notes = self.world.unreadable.untold();
        self.tell(notes);
        self.retry.keep(self.world.in_flight.iter().chain(&plan).map(|write| write.subject()));
        self.plan += 1;
        self.pace.begin(now);
        plan.retain(|write| {
            self.retry.may_try(write.subject(), now)
                && self.executor.may_begin(write, self.plan)
                && self.pace.allows(write, &self.world)
        });
        self.left_out = plan.len().saturating_sub(self.settings.round);
        plan.truncate(self.settings.round);
        self.planned = plan.into();
    }

    /// Begins what is planned, as far as there is room.
    fn begin(&mut self) {
        let now = self.clock.elapsed();
        while self.executor.has_room(now) {
            let Some(write) = self.planned.pop_front() else { return };
            // Two writes of one plan may be about one object; the other one is planned again.
            if !self.executor.may_begin(&write, self.plan) {
                continue;
            }
            // Notes are about what is different now, so they are made before anything else is observed.
            let notes = write.notes(&self.world);
            let (known, lists) = (self.world.changes(), self.world.lists());
            let begun = InFlight { write, known, lists, notes };
            self.executor.begin(begun, self.plan, now);
        }
    }

    /// Takes in what became of a write.
    fn take_answer(&mut self, answer: Answered, observations: &mut Observations) {
        let Answered { of: InFlight { write, known, lists, notes }, outcome, observed } = answer;
        if matches!(outcome, Ok(Outcome::Done)) {
            self.tell(notes);
        }
        // First what was observed meanwhile: whether a list came between decides whether the answer counts.
        self.observe(observations);
        let superseded = matches!((&outcome, &observed), (Ok(Outcome::Superseded), Some(_)));
        self.settle(&write, &outcome, observed, lists);
        // Without a change the next plan would be the same: wait for one.
        if superseded && self.world.changes() == known {
            self.retry.failed(write.subject(), self.clock.now(), Duration::ZERO);
        }
    }

    fn settle(
        &mut self,
        write: &Write,
        outcome: &Result<Outcome, CallError>,
        observed: Option<Observation>,
        sent: Lists,
    ) {
        let now = self.clock.now();
        let (verb, subject) = (write.verb(), write.subject());
        let word = match outcome {
            Ok(Outcome::Done) => {
                self.health.answered();
                self.retry.worked(subject);
                self.pace.wrote(subject, write.pace(&self.world), now);
                "done"
            }
            Ok(Outcome::Superseded) => {
                self.health.answered();
                if observed.is_none() {
                    self.retry.failed(subject, now, Duration::ZERO);
                }
                "superseded"
            }
            Ok(Outcome::Failed(_)) => "failed",
            Err(error) => {
                if error.code().is_some() {
                    self.health.answered();
                }
                // What is refused is planned again: the world may change, and nobody else would notice.
                let least = if let ErrorKind::Retry(least) = error.kind() { least } else { Duration::ZERO };
                tracing::warn!(%error, "a write failed; trying again");
                self.retry.failed(subject, now, least);
                "failed"
            }
        };
        self.metrics.wrote(verb, word);
        if let Some(observed) = observed {
            self.metrics.answered(write, &observed);
            self.world.answer(observed, sent);
        }
        if matches!(outcome, Ok(Outcome::Done)) {
            self.tell(write.notes_after(&self.world));
        }
    }

    /// Events are help for people; they never hold up the work.
    fn tell(&self, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            _ = self.notes.try_send(note);
        }
    }
}
