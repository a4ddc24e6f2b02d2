//! The history of this node: what the journal committed, told to a log under the state directory ([`tenure_history`]).
//!
//! A record waits here until the journal has committed it, and is then handed over. Nobody waits for the log. If it cannot keep up or
//! cannot be written, records are dropped and counted, and calls go on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_daemon::Refused;
use tenure_handles::{Clock, Timestamp};
pub use tenure_history::Limits;
use tenure_history::{Change, Counts, Directory, History, Origin, Query};
use tenure_ipam::Address;
use tenure_view::{Claim, End, Period};

use crate::inspect::{float, holder};
use crate::journal::{BlockFacts, ClaimUseRecord, Held, Image, Record, Released};
use crate::part::Inspect;

/// The log's directory in the state directory.
const NAME: &str = "history";
/// How many records may wait for the journal. More are dropped.
const MOST_WAITING: usize = 16_384;

/// Tells the log what the journal committed.
pub(crate) struct NodeHistory {
    log: History,
    clock: Arc<dyn Clock>,
    waiting: Mutex<Waiting>,
}

/// What the journal has not committed yet.
#[derive(Debug, Default)]
struct Waiting {
    /// The position of the last record.
    position: u64,
    /// Changes and the positions of their records.
    changes: VecDeque<(u64, Change)>,
    blocks: Blocks,
    dropped: u64,
}

/// Names and pools of blocks, by their UIDs.
#[derive(Debug, Default)]
struct Blocks(HashMap<String, (String, String)>);

impl NodeHistory {
    /// Begins to write the log in the state directory. `image` is what the journal has.
    pub(crate) fn start(
        state: &Path,
        limits: Limits,
        (node, boot): (&str, &str),
        image: &Image,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let mut blocks = Blocks::default();
        for facts in image.blocks().filter_map(|(_, block)| block.facts.as_ref()) {
            blocks.know(facts);
        }
        let holds = image.holds().map(|held| blocks.period(held));
        let held = holds.chain(image.claim_uses().map(claim_period)).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let origin = Origin { node: node.to_owned(), boot: boot.to_owned(), version };
        let path = state.join(NAME);
        let log = History::start(move || Directory::at(&path), limits, origin, held, Arc::clone(&clock))?;
        let waiting = Mutex::new(Waiting { blocks, ..Waiting::default() });
        Ok(Self { log, clock, waiting })
    }

    /// Copies what records say about holders: the journal takes the records themselves.
    pub(crate) fn copy(&self, records: &[Record]) -> Copied {
        let mut waiting = self.waiting();
        let now = self.clock.now();
        let changes = records.iter().zip(1..);
        let changes = changes
            .filter_map(|(record, number)| waiting.blocks.change(record, now).map(|change| (number, change)));
        Copied { changes: changes.collect(), records: records.len() as u64 }
    }

    /// The journal took the records.
    pub(crate) fn taken(&self, copied: Copied) {
        let mut waiting = self.waiting();
        let Waiting { position, changes, dropped, .. } = &mut *waiting;
        for (number, change) in copied.changes {
            if changes.len() < MOST_WAITING {
                changes.push_back((*position + number, change));
            } else {
                *dropped += 1;
            }
        }
        *position += copied.records;
    }

    /// The journal has committed everything up to this position.
    pub(crate) fn committed(&self, up_to: u64) {
        let mut waiting = self.waiting();
        let count = waiting.changes.partition_point(|(position, _)| *position <= up_to);
        let changes: Vec<Change> = waiting.changes.drain(..count).map(|(_, change)| change).collect();
        let dropped = std::mem::take(&mut waiting.dropped);
        drop(waiting);
        self.log.tell(changes);
        self.log.lose(dropped);
    }

    /// Answers questions.
    pub(crate) fn handle(&self) -> HistoryHandle {
        HistoryHandle(self.log.clone())
    }

    /// Writes what waits, and that the agent ends.
    pub(crate) fn stop(&self) {
        self.log.stop();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers questions about the history. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HistoryHandle(History);

impl HistoryHandle {
    /// The answer to the question that a page's query asks.
    pub async fn answer(self, values: BTreeMap<String, String>) -> Result<tenure_view::History, Refused> {
        let query = Query::parse(&values).map_err(|problem| (StatusCode::BAD_REQUEST, problem))?;
        let answered = tokio::task::spawn_blocking(move || self.0.ask(&query)).await;
        let failed = |error: String| (StatusCode::SERVICE_UNAVAILABLE, error);
        answered.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
    }
}

/// What records say about holders.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Each with the number of its record.
    changes: Vec<(u64, Change)>,
    records: u64,
}

impl Blocks {
    fn know(&mut self, facts: &BlockFacts) {
        self.0.insert(facts.uid.clone(), (facts.name.clone(), facts.pool.clone()));
    }

    /// What a record says about a holder, if anything.
    fn change(&mut self, record: &Record, now: Timestamp) -> Option<Change> {
        let (at, period) = match record {
            Record::Owned(facts) => {
                self.know(facts);
                return None;
            }
            Record::Forgotten { uid } => {
                self.0.remove(uid);
                return None;
            }
            Record::Held(held) => (now, self.period(held)),
            Record::Released(Released { hold, at, .. }) => (*at, ended(self.period(hold), *at)),
            Record::ClaimUse(used) => (now, claim_period(used)),
            Record::ClaimUseEnded(used) => (now, ended(claim_period(used), now)),
            Record::Fenced { .. } | Record::Known(_) | Record::Doubted { .. } => return None,
        };
        Some(Change { at: at.to_jiff(), period })
    }

    fn period(&self, held: &Held) -> Period {
        let (block, pool) = self.0.get(&held.block).cloned().unwrap_or_default();
        Period {
            holder: holder(&held.key, &held.pod),
            part: held.key.part_number().into(),
            pool,
            block,
            block_uid: held.block.clone(),
            sequence: held.sequence.as_u64(),
            addresses: held.addresses.iter().map(Address::to_ip).collect(),
            from: (held.since != Timestamp::default()).then(|| held.since.to_jiff()),
            ..Period::default()
        }
    }
}

fn claim_period(used: &ClaimUseRecord) -> Period {
    let claim = Claim { name: used.claim_name.clone(), uid: used.claim.clone(), reached: used.reached };
    Period {
        holder: holder(&used.key, &used.pod),
        part: used.key.part_number().into(),
        pool: used.pool.clone(),
        claim: Some(claim),
        addresses: used.addresses.iter().map(|(address, _)| address.to_ip()).collect(),
        from: (used.since != Timestamp::default()).then(|| used.since.to_jiff()),
        ..Period::default()
    }
}

fn ended(period: Period, at: Timestamp) -> Period {
    Period { to: Some(at.to_jiff()), end: Some(End::Released), ..period }
}

type Numbers = Family<Vec<(&'static str, &'static str)>, Gauge<f64, AtomicU64>>;

/// Shows the log's metrics.
pub(crate) struct HistoryInspector {
    history: Arc<NodeHistory>,
    records: Numbers,
    waiting: Gauge,
    bytes: Gauge,
    begins: Gauge,
}

impl HistoryInspector {
    pub(crate) fn new(history: Arc<NodeHistory>) -> Self {
        let [waiting, bytes, begins] = [(); 3].map(|()| Gauge::default());
        Self { history, records: Family::default(), waiting, bytes, begins }
    }
}

impl Inspect for HistoryInspector {
    fn register(&self, registry: &mut Registry) {
        let help = "Records of the node's history since the start: written, dropped because too many waited, or failed and were lost";
        registry.register("tenure_agent_history_records", help, self.records.clone());
        let help = "Records of the node's history that wait because its log cannot be written";
        registry.register("tenure_agent_history_waiting", help, self.waiting.clone());
        registry.register("tenure_agent_history_bytes", "The size of the node's history", self.bytes.clone());
        let help = "When the oldest record of the node's history was written, in seconds since the epoch; 0 if there is none";
        registry.register("tenure_agent_history_begins_seconds", help, self.begins.clone());
    }

    fn count(&self) {
        let Counts { written, dropped, failed, waiting, bytes, begins } = self.history.log.counts();
        for (outcome, value) in [("written", written), ("dropped", dropped), ("failed", failed)] {
            self.records
                .get_or_create(&vec![("outcome", outcome)])
                .set(float(usize::try_from(value).unwrap_or(usize::MAX)));
        }
        self.waiting.set(waiting.try_into().unwrap_or(i64::MAX));
        self.bytes.set(bytes.try_into().unwrap_or(i64::MAX));
        self.begins.set(begins);
    }
}

#[cfg(test)]
mod tests;
