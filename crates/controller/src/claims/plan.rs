//! Plans claims: each gets its addresses as soon as it exists, and returns them when it is gone *and* no pod uses
//! them.
//!
//! ```text
//!    claim ──record (many in one write: a floating block, a ledger)──▶ status: ips, IPsAllocated, Held
//!    claim gone ∧ no pod uses it ──freed: it cools──▶ free ──nothing on record for a while──▶ the block goes back
//! ```
//!
//! Plans depend on the state, not on events: a claim without a record gets one, a record without a claim is removed,
//! and a status that differs from the records is written. So a missed event does no harm. Events only tell which
//! claims a plan may skip: those without changes since nothing was left to do.
//!
//! - The oldest claim is served first; those that wish for certain addresses before those that take any.
//! - A claim keeps what it has on record, whatever becomes of its network. If `spec.network` is changed so that the addresses
//!   are none of the network's, they stay on record but are not the claim's to use until it is changed back.
//! - A record whose claim nobody has seen being deleted goes after a second look, and after a live one.
//! - A record names the pods that were given its address, by UID, and stays while one of them is alive. Annotations of pods only
//!   add to that.

mod blocks;
mod coming;
mod freed;
mod ledgers;
mod line;
mod moves;
mod networks;
mod owners;
mod ranges;
mod recorded;
mod served;
mod slices;
mod wishes;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tenure_claims::status::{Reason, RecordLocation};
use tenure_handles::Timestamp;
use tenure_ipam::Address;
use tenure_whereabouts::slices::Floating;

use super::index::{Index, Look};
use super::records::RecordKey;
use super::sets::Names;
use crate::coil::Carving;
use crate::suspicions::Suspicions;
use crate::world::World;
use crate::write::Write;
use blocks::{Blocks, KnownBlocks};
use coming::Coming;
use ledgers::LedgerIndex;
use line::Line;
pub(super) use moves::MovePlanner;
use moves::Naming;
pub(super) use networks::Networks;
pub(crate) use networks::speaks_for_cluster;
pub(super) use owners::OwnerPlanner;
pub(super) use ranges::record_at;
use ranges::{RangeRecord, Resting};
use slices::{ClaimSlices, KnownSlices};

/// How long a claim must be gone before its addresses are freed. Pods and claims come from two watches, so a pod that
/// uses the claim may be reported a little later.
const GONE: Duration = Duration::from_secs(2);
/// How long a network, slice or namespace must be missing before a claim reports it: it may just be late.
const MISSING: Duration = Duration::from_secs(3);

/// How to manage claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSettings {
    /// How long a floating block or slice must be empty before it is returned.
    pub empty_after: Duration,
    /// How long a freed address cools if its pool does not say.
    pub cooling: Duration,
}

impl Default for ClaimSettings {
    fn default() -> Self {
        Self { empty_after: Duration::from_mins(5), cooling: Duration::from_secs(30) }
    }
}

/// The input of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs<'a> {
    pub(super) world: &'a World,
    pub(super) index: &'a Index,
    pub(super) look: &'a Look,
    pub(super) now: Timestamp,
}

/// Why a claim has no addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    reason: Reason,
    words: String,
}

impl Refused {
    pub(super) fn new(reason: Reason, words: String) -> Self {
        Self { reason, words }
    }
}

/// Plans the records of claims.
#[derive(Debug)]
pub(super) struct RecordPlanner {
    settings: ClaimSettings,
    /// Whether this API has pods. Without pods, nothing can use a claim.
    pods_are_known: bool,
    /// Records whose claims are gone: since when, and the same by the name of the claim.
    gone: Suspicions,
    suspected: HashMap<Arc<str>, Names>,
    /// Claims that lack something: since when by UID, and the same by name.
    missing: Suspicions,
    lacking: HashMap<Arc<str>, String>,
    /// Ledgers of slices that are empty.
    idle: Suspicions,
    resting: Resting,
    line: Line,
    coming: Coming,
    /// The statuses that claims need, by name. Each stays until something about the claim changes.
    statuses: BTreeMap<Arc<str>, Write>,
    blocks: KnownBlocks,
    ledgers: LedgerIndex,
    slices: KnownSlices,
    /// How many claims, blocks and ledgers the last plan looked at.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

/// The outcome for a claim.
enum Verdict {
    /// It has these addresses, recorded there.
    Has(Vec<(Address, u8)>, Vec<RecordLocation>),
    /// It gets addresses, or what it gets is not known yet.
    Waits,
    No(Refused),
}

/// A plan in progress.
struct Round<'a> {
    inputs: Inputs<'a>,
    blocks: Blocks<'a>,
    cut: ClaimSlices<'a>,
    /// Records that claims have and do not need.
    strays: Vec<RangeRecord<'a>>,
    writes: Vec<Write>,
    statuses: BTreeMap<Arc<str>, Write>,
    /// Names of claims for which something else is planned.
    pending: &'a mut Names,
}

impl Round<'_> {
    /// Notes that something is planned for the claim of this name.
    fn is_pending(&mut self, name: &str) {
        self.pending.insert(name.into());
    }
}

impl RecordPlanner {
    pub(super) fn new(settings: &ClaimSettings, pods_are_known: bool) -> Self {
        Self {
            settings: settings.clone(),
            pods_are_known,
            gone: Suspicions::lasting(GONE),
            suspected: HashMap::new(),
            missing: Suspicions::lasting(MISSING),
            lacking: HashMap::new(),
            idle: Suspicions::lasting(settings.empty_after),
            resting: Resting::default(),
            line: Line::default(),
            coming: Coming::default(),
            statuses: BTreeMap::new(),
            blocks: KnownBlocks::default(),
            ledgers: LedgerIndex::default(),
            slices: KnownSlices::default(),
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// When to plan again without an event.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let looks = [&self.gone, &self.missing, &self.idle].map(Suspicions::next);
        looks.into_iter().chain([self.blocks.next(), self.slices.next()]).flatten().min()
    }

    /// What claims need of slices.
    pub(super) fn needs(&self) -> &BTreeMap<String, Floating> {
        self.slices.needs()
    }

    /// Adds the names of claims whose time has come.
    pub(super) fn note_due(&mut self, index: &Index, names: &mut Names, now: Timestamp) {
        names.extend(self.gone.due(now).map(|key| key.split_once('\0').unwrap_or_default().0.into()));
        names.extend(self.missing.due(now).filter_map(|uid| index.claims.of_uid(&uid).cloned()));
    }

    /// Returns the writes that claims need; none while claims are not known. Adds to `pending` the names of claims to
    /// look at again because something is planned in an object that others write, too.
    pub(super) fn plan(
        &mut self,
        inputs: Inputs<'_>,
        naming: &Naming,
        carving: &Carving,
        pending: &mut Names,
    ) -> Vec<Write> {
        let Inputs { world, look, now, .. } = inputs;
        if !world.claims().all.is_complete() || !knows_records(world) {
            return Vec::new();
        }
        let rest = self.settings.cooling;
        self.resting.advance(rest, now);
        if look.all {
            self.forget();
        }
        let mut names = look.names.clone();
        self.refresh(inputs, carving, &mut names);
        let places = places_of(inputs, &names);
        let ledgers = std::mem::take(&mut self.ledgers);
        let mut round = Round {
            inputs,
            blocks: Blocks::of(inputs, carving, rest, std::mem::take(&mut self.blocks)),
            cut: ClaimSlices::of(inputs, &ledgers, rest, std::mem::take(&mut self.slices)),
            strays: Vec::new(),
            writes: Vec::new(),
            statuses: std::mem::take(&mut self.statuses),
            pending,
        };
        self.free(&mut round, &names, &places);
        self.name(&mut round, naming, &places);
        self.serve(&mut round, &ledgers, names);
        let Round { blocks, cut, mut writes, statuses, .. } = round;
        writes.extend(statuses.values().cloned());
        self.statuses = statuses;
        let (of_slices, slices) = cut.into_writes(&mut self.idle, &mut self.line);
        writes.extend(of_slices);
        self.slices = slices;
        let (of_blocks, blocks) = blocks.into_writes(self.settings.empty_after);
        writes.extend(of_blocks);
        self.blocks = blocks;
        self.ledgers = ledgers;
        #[cfg(test)]
        {
            self.looked_at += self.blocks.looked_at + self.slices.looked_at;
        }
        writes
    }

    /// Only the times of suspicion carry over.
    fn forget(&mut self) {
        for suspicions in [&mut self.gone, &mut self.missing, &mut self.idle] {
            suspicions.look_again();
        }
        self.suspected.clear();
        self.lacking.clear();
        self.line = Line::default();
        self.coming = Coming::default();
        self.statuses.clear();
        self.blocks = KnownBlocks::default();
        self.ledgers = LedgerIndex::default();
        self.slices = KnownSlices::default();
    }

    /// Reads what changed, and adds the names of claims that wait for it.
    fn refresh(&mut self, inputs: Inputs<'_>, carving: &Carving, names: &mut Names) {
        let Inputs { world, index, look, now } = inputs;
        self.blocks.refresh(look);
        self.coming.refresh(world, index, names);
        self.line.pools_changed(world, look, carving);
        self.line.namespaces_changed(&look.namespaces);
        self.ledgers.refresh(world, &look.ledgers, &mut self.line);
        if look.reservations || !look.nodes.is_empty() || !look.slices.is_empty() {
            self.line.all_shared_changed();
        }
        self.slices.refresh(world, look, &mut self.line, now);
        #[cfg(test)]
        if world.claims().planted == Some(super::Planted::Overlooks(super::records::Overlooked::Waiting)) {
            self.line.take_changed(&mut Names::new());
        }
        self.line.take_changed(names);
    }
}

/// Where something is recorded under these names.
fn places_of(inputs: Inputs<'_>, names: &Names) -> Vec<RecordKey> {
    let records = &inputs.index.records;
    let mut places: Vec<RecordKey> = names.iter().flat_map(|name| records.of_name(name)).cloned().collect();
    places.sort_unstable();
    places
}

/// Whether all records are known.
pub(super) fn knows_records(world: &World) -> bool {
    world.ledgers().pools.is_complete() || world.ledgers().pools.is_empty()
}

/// Whether everything that ranges depend on has been listed.
fn knows_ranges(world: &World) -> bool {
    world.ledgers().pools.is_complete()
        && world.ledgers().reservations.is_complete()
        && world.ledgers().slices.is_complete()
}

#[cfg(test)]
mod crowds;
#[cfg(test)]
mod duplicates;
#[cfg(test)]
mod everything;
#[cfg(test)]
mod proptests;
