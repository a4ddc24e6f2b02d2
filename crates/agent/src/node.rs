//! The node: assigns addresses of its blocks, records who holds them, and requests blocks before it runs out.
//!
//! A state machine without I/O. [`Event`]s and the time go in, [`Action`]s come out. The executor performs the actions and
//! reports the results as events. The same events give the same actions in every process, so a run replays from its seed.
//!
//! ```text
//!              Add                      an address                    recorded and wired
//!   nothing ─────────▶ waiting for one ─────────────▶ being set up ──────────────────────▶ held
//!      ▲                     │                            │                                 │
//!      │   deadline, Del     │       Del, wiring failed,  │                     Del, Gc     │
//!      ├─────────────────────┘       block taken away     ▼                                 │
//!      │                                              being unwired ◀───────────────────────┘
//!      │             recorded                             │
//!      └──────────────────────────── being released ◀─────┘
//! ```
//!
//! What it promises:
//!
//! - A call is answered only after its result is committed to the journal, and the interface is in place or gone.
//! - ADD is idempotent by key, even while the first is in progress. DEL succeeds when there is nothing to do.
//! - Nothing is assigned before journal, kernel and API have all been read ([`replay`]).
//! - Once a block's object is gone, has another UID or names another node, nothing is ever assigned from it again
//!   ([`fence`]).
//! - Waiting calls get addresses in order, however addresses become free: every event ends with a check of who waits and
//!   what is free, so no wake-up can be lost ([`serve`]).
//! - The addresses of claims are on this node as long as a pod here uses them, and packets for them arrive here exactly
//!   as long as the claim says so ([`claim_use`], [`reach`]).
//! - Leaks are repaired after two observations ([`leaks`]).
//! - If holds of a block may be lost, nothing is assigned from it before other sources were asked who uses its addresses
//!   ([`doubt`]).
//! - Packets for an address that may have another holder do not arrive at a pod that is gone ([`missing_pods`]).
//! - The API is needed for new blocks only.

mod action;
mod adopt;
mod attach;
mod attachment;
mod block;
mod claim_use;
mod commit;
mod detach;
mod doubt;
mod error;
mod event;
mod fence;
mod holding;
mod keep;
mod leaks;
mod missing_pods;
mod planted;
mod pool;
mod reach;
mod replay;
mod returns;
mod serve;
mod settings;
mod slices;
mod stock;
mod timing;
pub mod view;
mod wish;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

pub use action::{Action, Done, Fence, Leak, Report, Urgency, WireJob};
pub use error::{CallError, ClaimError, Full, KernelError, KernelErrorKind, PoolError};
pub use event::{
    Attach, ClaimUse, Event, Found, Link, Look, PoolFacts, Recorded, Refusal, RefusalKind, SeenBlock,
    SeenSlice, Wiring, Wish,
};
pub use holding::Holding;
use planted::Planted;
pub use settings::Settings;
pub use slices::{SliceHold, SliceView};

use crate::journal::Record;
use crate::key::HolderId;
use attachment::{Attachment, Former};
use block::Owned;
use commit::Commits;
use detach::Sweep;
use doubt::Doubt;
pub use doubt::{Consulted, Use};
use fence::Lost;
use leaks::Suspicions;
use missing_pods::MissingPods;
use pool::Pool;
use reach::Reach;
use replay::Start;
use slices::SliceHolders;
use stock::Ask;

/// How many actions a kept buffer has room for. Events with more are rare and happen at a start.
const ACTIONS_KEPT: usize = 64;

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something that was given to the kernel to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u64);

/// A request for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// A node.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    /// This node's own time, which never goes back, and how far the clock is behind it.
    now: Timestamp,
    ahead: Duration,
    /// What was read so far of journal, kernel and API; `None` once all is replayed.
    start: Option<Start>,
    pools: BTreeMap<String, Pool>,
    /// By UID.
    blocks: BTreeMap<String, Owned>,
    /// UIDs that were fenced and forgotten, in case a late event names one.
    lost: Lost,
    attachments: BTreeMap<HolderId, Attachment>,
    /// The last holders of cooling addresses.
    former: BTreeMap<HolderId, Former>,
    /// Holders of slice addresses.
    slice_holders: SliceHolders,
    /// Which claim users packets arrive at.
    reach: Reach,
    jobs: BTreeMap<Job, attach::Purpose>,
    sweeps: BTreeMap<Ticket, Sweep>,
    asks: BTreeMap<AskId, Ask>,
    suspicions: Suspicions,
    /// Blocks whose holds may be incomplete.
    doubt: Doubt,
    /// Pods that may be gone while their containers run.
    missing_pods: MissingPods,
    commits: Commits,
    exported: Option<BTreeSet<Cidr>>,
    /// Pools to process before the event ends.
    touched: BTreeSet<String>,
    last_number: u64,
    actions: Vec<Action>,
}

impl Node {
    /// A node that knows nothing yet and assigns nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Timestamp::default(),
            ahead: Duration::ZERO,
            start: Some(Start::default()),
            pools: BTreeMap::new(),
            blocks: BTreeMap::new(),
            lost: Lost::default(),
            attachments: BTreeMap::new(),
            former: BTreeMap::new(),
            slice_holders: SliceHolders::default(),
            reach: Reach::default(),
            jobs: BTreeMap::new(),
            sweeps: BTreeMap::new(),
            asks: BTreeMap::new(),
            suspicions: Suspicions::default(),
            doubt: Doubt::default(),
            missing_pods: MissingPods::default(),
            commits: Commits::default(),
            exported: None,
            touched: BTreeSet::new(),
            last_number: 0,
            actions: Vec::new(),
        }
    }

    /// Handles an event and returns the actions to perform, in this order.
    pub fn handle(&mut self, event: Event, clock: Timestamp) -> Vec<Action> {
        self.notice(clock);
        match event {
            Event::Journal(image) => self.read_journal(image),
            Event::Kernel(found) => self.read_kernel(found),
            Event::ApiRead => self.read_api(),
            Event::SourceRead { source } => self.read_source(source),
            Event::PoolChanged { name, facts } => self.pool_changed(&name, Some(facts)),
            Event::PodsExpected { pool, pods } => self.pods_expected(&pool, pods),
            Event::PoolGone { name } => self.pool_changed(&name, None),
            Event::BlockSeen(block) => self.block_seen(block.into()),
            Event::SliceSeen(slice) => self.block_seen(slice),
            Event::BlockGone { uid, .. } => self.block_gone(&uid),
            Event::BlockGranted { ask, block } => self.block_granted(ask, block),
            Event::BlockRefused { ask, refusal } => self.block_refused(ask, refusal),
            Event::Add { ticket, attach } => self.add(ticket, attach),
            Event::Del { ticket, key, interface } => self.del(ticket, key, interface),
            Event::Detach { ticket, key } => self.detach(ticket, &key),
            Event::Gc { ticket, network, alive } => self.gc(ticket, &network, &alive),
            Event::Check { ticket, attach, expected } => self.check(ticket, attach, &expected),
            Event::Committed { up_to } => self.committed(up_to),
            Event::JournalFailed { message } => self.journal_failed(&message),
            Event::Wired { job, link } => self.wired(job, link),
            Event::WiringFailed { job, error } => self.wiring_failed(job, error),
            Event::Unwired { job } => self.unwired(job),
            Event::UnwiringFailed { job, error } => self.unwiring_failed(job, error),
            Event::Inspected { job, differences } => self.inspected(job, differences),
            Event::Looked { job, look } => self.looked(job, look),
            Event::Consulted { job, consulted } => self.consulted(job, consulted),
            Event::PodsAsked { asked, missing } => self.pods_asked(&asked, &missing),
            Event::ClaimSeen { uid, active_pod, contested } => self.claim_seen(&uid, active_pod, contested),
            Event::ClaimGone { uid } => self.claim_gone(&uid),
            Event::ClaimsRead => self.judge_all(),
            Event::Tick => self.tick(),
        }
        self.settle();
        std::mem::take(&mut self.actions)
    }

    /// Reuses the memory of performed actions: allocating it anew for every event would take almost as long
    /// as deciding.
    pub fn reuse(&mut self, mut actions: Vec<Action>) {
        actions.clear();
        if self.actions.is_empty() && actions.capacity() <= ACTIONS_KEPT {
            self.actions = actions;
        }
    }

    /// Processes every pool that the event may have affected.
    fn settle(&mut self) {
        if self.start.is_some() {
            return;
        }
        while let Some(pool) = self.touched.pop_first() {
            self.advance(&pool);
            self.serve(&pool);
            self.stock(&pool);
            self.fail_hopeless(&pool);
            self.keep(&pool);
            self.return_blocks(&pool);
        }
        self.export();
    }

    fn touch(&mut self, pool: &str) {
        if !self.touched.contains(pool) {
            self.touched.insert(pool.to_owned());
        }
    }

    fn answer(&mut self, ticket: Ticket, outcome: Result<Done, CallError>) {
        self.actions.push(Action::Answer { ticket, outcome });
    }

    fn report(&mut self, report: Report) {
        self.actions.push(Action::Report(report));
    }

    /// Adds a record to the journal and returns its position.
    fn record(&mut self, record: Record) -> u64 {
        let position = self.commits.next_position();
        self.actions.push(Action::Record { position, record });
        position
    }

    /// A number that this node has not used before.
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
