//! The worker of one network: gathers all waiting requests, plans, writes, and plans the rest again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation};
use tenure_cni::{Code, Failure};
use tenure_watch::{Backoff, CallError, ErrorKind};
use tenure_whereabouts::ledger::{
    Act, Answer, Network, Outcome, Plan, PoolId, Request, Settled, Spread, Who,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Shared;
use super::calls::is_hopeless;

/// The most requests in one batch: a JSON patch may have 10,000 operations, and each request takes a few.
const MOST_AT_ONCE: usize = 500;
/// After this long without a request the cached state of a network is dropped: it may be megabytes, and
/// outdated.
const IDLE: Duration = Duration::from_mins(10);
/// How long to wait at most after a round that met trouble: pods wait for the next.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// So many ADDs that were given up are remembered until they are taken back.
const MOST_LEFTOVERS: usize = 1_000;

/// A waiting request.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) purpose: Purpose,
    /// The elapsed time of the clock at arrival.
    pub(super) arrived: Duration,
    /// Whether it was part of a round.
    pub(super) tried: bool,
    /// `None` for our own requests: nobody waits for them.
    pub(super) answer: Option<oneshot::Sender<Result<Answer, Failure>>>,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It changes something.
    Change,
    /// It changes something that must exist: if it does not, everything is read first.
    Certain,
    /// It only reads.
    Look,
}

/// The worker of one network.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) name: String,
    pub(super) pools: Api<IPPool>,
    pub(super) reservations: Api<OverlappingRangeIPReservation>,
    pub(super) network: Network,
    pub(super) spread: Spread,
    /// When everything was read, if it was.
    pub(super) read: Option<Duration>,
    /// When each object's records were last known for certain.
    pub(super) seen: HashMap<String, Duration>,
    /// When each pool's full objects were last confirmed.
    pub(super) swept: BTreeMap<PoolId, Duration>,
    /// Waiting holders that had no address when they were first planned: what they have since belongs to the
    /// ADD in progress.
    newcomers: BTreeSet<Who>,
    /// Failed ADDs that may have left something.
    leftovers: BTreeSet<Who>,
    inbox: mpsc::UnboundedReceiver<Job>,
    /// Since when every round meets trouble, and which.
    pub(super) trouble: Option<(Duration, CallError)>,
    failures: u32,
    backoff: Backoff,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, name: &str, inbox: mpsc::UnboundedReceiver<Job>) -> Self {
        let (client, options) = (shared.connection.client(), &shared.options);
        Self {
            name: name.to_owned(),
            pools: Api::namespaced(client.clone(), &options.namespace),
            reservations: Api::namespaced(client, &options.namespace),
            network: Self::nothing(&shared, name),
            spread: Spread::of(&options.node),
            read: None,
            seen: HashMap::new(),
            swept: BTreeMap::new(),
            newcomers: BTreeSet::new(),
            leftovers: BTreeSet::new(),
            inbox,
            trouble: None,
            failures: 0,
            backoff: shared.connection.backoff().at_most(LONGEST_PAUSE),
            shared,
        }
    }

    fn nothing(shared: &Shared, name: &str) -> Network {
        Network::new(name).reserving_always(shared.options.reserving_always).written_by(&shared.options.node)
    }

    /// Works until all senders are gone.
    pub(super) async fn run(mut self) {
        let mut waiting: Vec<Job> = Vec::new();
        loop {
            if waiting.is_empty() && self.leftovers.is_empty() {
                match timeout(IDLE, self.inbox.recv()).await {
                    Ok(Some(job)) => waiting.push(job),
                    Ok(None) => return,
                    Err(_) => {
                        self.forget_all();
                        continue;
                    }
                }
            }
            while waiting.len() < MOST_AT_ONCE
                && let Ok(job) = self.inbox.try_recv()
            {
                waiting.push(job);
            }
            self.give_up(&mut waiting);
            waiting = self.round(waiting).await;
            self.pause(&waiting).await;
        }
    }

    /// Does everything possible with one read of the state; returns the requests to plan again.
    async fn round(&mut self, mut waiting: Vec<Job>) -> Vec<Job> {
        self.trouble_may_pass();
        self.take_along_leftovers(&mut waiting);
        let (jobs, requests): (Vec<Job>, Vec<Request>) = waiting
            .into_iter()
            .map(|mut job| {
                let who = job.request.who.clone();
                let act = Act::Release { pools: Vec::new() };
                let request = std::mem::replace(&mut job.request, Request { who, act });
                job.tried = true;
                (job, request)
            })
            .unzip();
        if let Err(trouble) = self.prepare(&jobs, &requests).await {
            self.meet(trouble);
            return rejoin(jobs, requests);
        }
        if jobs.iter().any(|job| job.purpose == Purpose::Look) {
            return self.look(jobs, requests);
        }
        for request in requests.iter().filter(|request| matches!(request.act, Act::Hold { .. })) {
            if self.network.held_by(&request.who).is_empty() {
                self.newcomers.insert(request.who.clone());
            }
        }
        let mut plan = self.network.plan(requests, &self.spread, self.shared.clock.now());
        let written = self.carry_out(&mut plan).await;
        let again = settle(jobs, &plan, |name| written.get(name).copied().unwrap_or(Outcome::Conflict));
        let waiting: BTreeSet<&Who> = again.iter().map(|job| &job.request.who).collect();
        self.newcomers.retain(|who| waiting.contains(who));
        again
    }

    /// Answers queries from what was just read; the other requests wait for the next round.
    fn look(&mut self, jobs: Vec<Job>, requests: Vec<Request>) -> Vec<Job> {
        let (looks, others): (Vec<_>, Vec<_>) =
            jobs.into_iter().zip(requests).partition(|(job, _)| job.purpose == Purpose::Look);
        for (job, request) in looks {
            let held = self.network.held_by(&request.who).into_iter();
            let own = held.filter(|(pool, address)| {
                let mut records = self.network.records(pool);
                records.any(|(_, _, at, record)| at == *address && record.id == request.who.id)
            });
            let addresses = own.map(|(_, address)| address).collect();
            job.tell(Ok(Answer::Held(addresses)));
        }
        let (jobs, requests) = others.into_iter().unzip();
        rejoin(jobs, requests)
    }

    /// Fails requests that waited too long, and schedules the cleanup of their ADDs.
    fn give_up(&mut self, waiting: &mut Vec<Job>) {
        let now = self.shared.clock.elapsed();
        let options = &self.shared.options;
        let (mut out, mut stay) = (Vec::new(), Vec::new());
        for job in waiting.drain(..) {
            let waited = now.saturating_sub(job.arrived);
            let troubled = self.trouble.as_ref().is_some_and(|(since, trouble)| {
                is_hopeless(trouble) || now.saturating_sub(job.arrived.max(*since)) > options.patience
            });
            let alone = job.answer.as_ref().is_some_and(oneshot::Sender::is_closed);
            let too_long = job.tried && (troubled || waited > options.longest);
            if job.answer.is_some() && (too_long || alone) {
                out.push(job);
            } else {
                stay.push(job);
            }
        }
        *waiting = stay;
        for job in out {
            // A holder that had addresses before it asked again keeps them in any case.
            if self.newcomers.remove(&job.request.who) {
                self.leave(job.request.who.clone());
            }
            let failure = self.too_late(&job);
            job.tell(Err(failure));
        }
        if self.trouble.as_ref().is_some_and(|(_, trouble)| is_hopeless(trouble)) {
            // Whoever comes next asks anew.
            self.trouble = None;
        }
    }

    fn too_late(&self, job: &Job) -> Failure {
        let what = match (&job.request.act, job.purpose) {
            (_, Purpose::Look) => "looking up",
            (Act::Hold { .. }, _) => "holding",
            _ => "releasing",
        };
        let (why, detail) = match &self.trouble {
            Some((_, trouble)) => {
                (trouble.to_string(), "the API server must answer before shared ranges can be changed")
            }
            None => (
                format!("other nodes were quicker for {} s", self.shared.options.longest.as_secs()),
                "trying again will help, and so will node_slice_size",
            ),
        };
        let Who { podref, ifname, id, .. } = &job.request.who;
        let message = format!("{what} addresses for {podref} interface {ifname} of container {id}: {why}");
        Failure::new(Code::TryAgainLater, message).detail(detail)
    }

    fn leave(&mut self, who: Who) {
        if self.leftovers.len() < MOST_LEFTOVERS {
            self.leftovers.insert(who);
        } else {
            warn!(pod = who.podref, "an ADD was given up, and the controller will find what is left of it");
        }
    }

    /// Undoes failed ADDs together with the next batch, unless the same interface asks again.
    fn take_along_leftovers(&mut self, waiting: &mut Vec<Job>) {
        for job in waiting.iter().filter(|job| matches!(job.request.act, Act::Hold { .. })) {
            self.leftovers.remove(&job.request.who);
        }
        let arrived = self.shared.clock.elapsed();
        for who in std::mem::take(&mut self.leftovers) {
            let request = Request { who, act: Act::Abandon };
            waiting.push(Job { request, purpose: Purpose::Change, arrived, tried: false, answer: None });
        }
    }

    /// Remembers trouble; what follows waits for it to pass.
    pub(super) fn meet(&mut self, trouble: CallError) {
        debug!(network = self.name, %trouble, "a round met trouble");
        self.failures = self.failures.saturating_add(1);
        let since = self.trouble.take().map_or_else(|| self.shared.clock.elapsed(), |(since, _)| since);
        self.trouble = Some((since, trouble));
    }

    fn trouble_may_pass(&mut self) {
        if self.failures == 0 {
            self.trouble = None;
        }
        self.failures = 0;
    }

    async fn pause(&mut self, waiting: &[Job]) {
        if self.failures == 0 {
            self.backoff.reset();
        } else if !waiting.is_empty() || !self.leftovers.is_empty() {
            let kind = self.trouble.as_ref().map(|(_, trouble)| trouble.kind());
            let least = if let Some(ErrorKind::Retry(least)) = kind { least } else { Duration::ZERO };
            tokio::time::sleep(self.backoff.fail().max(least)).await;
        }
    }

    fn forget_all(&mut self) {
        self.network = Self::nothing(&self.shared, &self.name);
        self.read = None;
        self.seen = HashMap::new();
        self.swept = BTreeMap::new();
    }
}

impl Job {
    fn tell(self, answer: Result<Answer, Failure>) {
        if let Some(waiting) = self.answer {
            // A caller that no longer waits asks again or gives up.
            let _ = waiting.send(answer);
        }
    }
}

fn rejoin(jobs: Vec<Job>, requests: Vec<Request>) -> Vec<Job> {
    jobs.into_iter().zip(requests).map(|(job, request)| Job { request, ..job }).collect()
}

/// Answers the finished requests; returns the others to be planned again.
fn settle(jobs: Vec<Job>, plan: &Plan, outcome: impl Fn(&str) -> Outcome) -> Vec<Job> {
    let mut again = Vec::new();
    for (mut job, settled) in jobs.into_iter().zip(plan.settle(outcome)) {
        match settled {
            Settled::Again(request) => {
                job.request = request;
                again.push(job);
            }
            Settled::Done(answer) => job.tell(Ok(answer)),
        }
    }
    again
}
