//! What a node does: assign addresses of its blocks, remember who holds them, and keep itself stocked.
//!
//! A state machine without I/O. [`Event`]s and the time go in, [`Action`]s come out; whoever carries actions out sends
//! what became of them back as events. The same events give the same actions in every process, so that a run replays
//! from its seed.
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
//! - An answer leaves only after what it says is committed to the journal, and the interface is in place or gone.
//! - ADD is idempotent by key, also while the first is under way. DEL succeeds when there is nothing to do.
//! - Nothing is assigned before journal, kernel and API have all been read ([`replay`]).
//! - Nothing is assigned from a block any more once its object is gone, has another UID or names another node, and
//!   nothing ever again ([`fence`]).
//! - Who waits for an address is served in order as addresses come, whatever makes them come: every event ends with
//!   looking at who waits and what there is, so no wake-up can be lost ([`serve`]).
//! - The addresses of claims are here as long as somebody uses them here, and packets for them arrive here exactly as
//!   long as the claim says so ([`claim_use`], [`reach`]).
//! - What was left over is put away, after it was seen twice ([`leaks`]).
//! - Nothing is assigned from a block whose holds may be forgotten before others were asked who uses its addresses ([`doubt`]).
//! - Packets do not arrive at a pod that is gone for an address that may be somebody else's ([`bereft`]).
//! - The API is needed for new blocks only.

mod action;
mod adopt;
mod attach;
mod attachment;
mod bereft;
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
use bereft::Bereft;
use block::Owned;
use commit::Commits;
use detach::Sweep;
use doubt::Doubt;
pub use doubt::{Consulted, Use};
use fence::Lost;
use leaks::Suspicions;
use pool::Pool;
use reach::Reach;
use replay::Start;
use slices::Tenants;
use stock::Ask;

/// Room for actions that is kept. Hardly an event has more, and those that have are of a start.
const ACTIONS_KEPT: usize = 64;

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something that was given to the kernel to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u64);

/// A wish for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// A node.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    /// This node's own time, which never goes back; and what the clock lacks of it.
    now: Timestamp,
    ahead: Duration,
    /// What has been read so far of journal, kernel and API; nothing once all is replayed.
    start: Option<Start>,
    pools: BTreeMap<String, Pool>,
    /// By UID.
    blocks: BTreeMap<String, Owned>,
    /// UIDs that were fenced and forgotten, in case a late event speaks of one.
    lost: Lost,
    attachments: BTreeMap<HolderId, Attachment>,
    /// Who held what cools.
    former: BTreeMap<HolderId, Former>,
    /// Who has something of a slice.
    tenants: Tenants,
    /// Where the addresses of claims are.
    reach: Reach,
    jobs: BTreeMap<Job, attach::Purpose>,
    sweeps: BTreeMap<Ticket, Sweep>,
    asks: BTreeMap<AskId, Ask>,
    suspicions: Suspicions,
    /// Blocks of which holds may be forgotten.
    doubt: Doubt,
    /// Pods that may be gone while their containers run.
    bereft: Bereft,
    commits: Commits,
    exported: Option<BTreeSet<Cidr>>,
    /// Pools to look at before the event is over.
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
            tenants: Tenants::default(),
            reach: Reach::default(),
            jobs: BTreeMap::new(),
            sweeps: BTreeMap::new(),
            asks: BTreeMap::new(),
            suspicions: Suspicions::default(),
            doubt: Doubt::default(),
            bereft: Bereft::default(),
            commits: Commits::default(),
            exported: None,
            touched: BTreeSet::new(),
            last_number: 0,
            actions: Vec::new(),
        }
    }

    /// Takes an event in and says what is to be done, in this order.
    pub fn handle(&mut self, event: Event, clock: Timestamp) -> Vec<Action> {
        self.notice(clock);
        match event {
            Event::Journal(image) => self.read_journal(image),
            Event::Kernel(found) => self.read_kernel(found),
            Event::ApiRead => self.read_api(),
            Event::SlicesRead => self.read_slices(),
            Event::PoolChanged { name, facts } => self.pool_changed(&name, Some(facts)),
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

    /// Takes the memory of actions back that were carried out: to make room anew at every event would take almost as long as
    /// to decide.
    pub fn reuse(&mut self, mut actions: Vec<Action>) {
        actions.clear();
        if self.actions.is_empty() && actions.capacity() <= ACTIONS_KEPT {
            self.actions = actions;
        }
    }

    /// Looks at every pool that the event may have changed anything for.
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
            self.give_back(&pool);
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

    /// Writes a record down and says its position.
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
