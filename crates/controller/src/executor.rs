//! The executor: performs writes, one at a time for each object, so that a slow one delays its own object and nothing else.
//!
//! The API server may take ten seconds for a write and none for the next. What has been in flight for [`SLOW`] does not count
//! against the usual number of writes at once, so that others go on; all together are bounded.
//!
//! Objects are independent but for those writes that say otherwise ([`crate::write::Operation::sequence`]).

mod requests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tenure_watch::CallError;
use tokio::time::timeout;

use crate::events::Note;
use crate::kind::Observation;
use crate::part::Perform;
use crate::world::Lists;
use crate::write::Write;
pub(crate) use requests::{all_of, discard};
pub use requests::{create, delete, every, exactly, finalize, settle};
pub(crate) use tenure_watch::unread;
pub use tenure_watch::{Every, json_patch};

/// How long a write takes at least that is called slow.
const SLOW: Duration = Duration::from_secs(1);
/// So many times the usual number of writes are in flight at most.
const MOST: usize = 8;

/// What performing a write came to, and what was observed.
pub type Answer = Result<(Outcome, Option<Observation>), kube::Error>;

/// What became of a write.
#[derive(Debug)]
pub enum Outcome {
    /// It is written.
    Done,
    /// The world has moved on since it was planned, and nothing was written.
    Superseded,
    /// Whoever should perform it cannot.
    Failed(String),
}

/// A write that is performed, and what is needed when its answer comes.
pub(crate) struct InFlight {
    pub(crate) write: Write,
    /// How often the world had changed when it began.
    pub(crate) known: u64,
    /// The lists that there had been.
    pub(crate) lists: Lists,
    /// What people are told once it is done.
    pub(crate) notes: Vec<Note>,
}

/// A write that was answered.
pub(crate) struct Answered {
    pub(crate) of: InFlight,
    /// An error says that it failed, or that nobody knows.
    pub(crate) outcome: Result<Outcome, CallError>,
    pub(crate) observed: Option<Observation>,
}

struct Slot {
    since: Duration,
    /// The number of the plan that it is of.
    plan: u64,
    write: Write,
}

/// Performs writes. Dropping it gives up those that are in flight.
pub(crate) struct Executor {
    performers: HashMap<&'static str, Arc<dyn Perform>>,
    /// How many at once, unless they are slow.
    usual: usize,
    /// How long one may take.
    patience: Duration,
    in_flight: HashMap<String, Slot>,
    answers: FuturesUnordered<BoxFuture<'static, Answered>>,
}

impl Executor {
    /// Writes of each part are performed by the performer of its name.
    pub(crate) fn new(
        performers: HashMap<&'static str, Arc<dyn Perform>>,
        usual: usize,
        patience: Duration,
    ) -> Self {
        let (in_flight, answers) = (HashMap::new(), FuturesUnordered::new());
        Self { performers, usual: usual.max(1), patience, in_flight, answers }
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether one more may begin.
    pub(crate) fn has_room(&self, now: Duration) -> bool {
        let fresh = self.in_flight.values().filter(|it| now.saturating_sub(it.since) < SLOW);
        self.in_flight.len() < self.usual * MOST && fresh.count() < self.usual
    }

    /// Whether this write of this plan may begin beside those that are in flight.
    pub(crate) fn may_begin(&self, write: &Write, plan: u64) -> bool {
        let earlier = |it: &Slot| it.write.sequence() == write.sequence() && it.plan != plan;
        let waits = write.sequence().is_some() && self.in_flight.values().any(earlier);
        !waits && !self.in_flight.contains_key(write.subject())
    }

    /// Begins to perform a write.
    pub(crate) fn begin(&mut self, begun: InFlight, plan: u64, now: Duration) {
        let write = begun.write.clone();
        self.in_flight.insert(write.subject().to_owned(), Slot { since: now, plan, write: write.clone() });
        let (performer, patience) = (self.performers.get(write.part()).cloned(), self.patience);
        let performing = async move {
            let act = || format!("write {:?} of {:?}", write.verb(), write.subject());
            let Some(performer) = performer else {
                let why = format!("nobody performs writes of {}", write.part());
                return (Err(CallError::refused(act(), why)), None);
            };
            match timeout(patience, performer.perform(&*write)).await {
                Ok(Ok((Outcome::Failed(why), observed))) => (Err(CallError::refused(act(), why)), observed),
                Ok(Ok((outcome, observed))) => (Ok(outcome), observed),
                Ok(Err(error)) => (Err(CallError::of(act(), &error)), None),
                Err(_) => (Err(CallError::unanswered(act(), patience)), None),
            }
        };
        let answered = performing.map(|(outcome, observed)| Answered { of: begun, outcome, observed });
        self.answers.push(answered.boxed());
    }

    /// The next that is answered; for ever if nothing is in flight.
    pub(crate) async fn next(&mut self) -> Answered {
        loop {
            match self.answers.next().await {
                Some(answered) => {
                    self.in_flight.remove(answered.of.write.subject());
                    return answered;
                }
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Gives up all that is in flight.
    pub(crate) fn clear(&mut self) {
        self.in_flight.clear();
        self.answers.clear();
    }

    /// All that is in flight.
    pub(crate) fn in_flight(&self) -> Vec<Write> {
        self.in_flight.values().map(|it| it.write.clone()).collect()
    }
}
