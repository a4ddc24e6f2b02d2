//! Bugs that tests plant, to prove that the checks find them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_api::coil::AddressBlock;
use tenure_handles::Timestamp;

use super::Planner;
use crate::claims::{ClaimSettings, ClaimWrite, ClaimsPlanner, MoveWrite, OwnerWrite};
use crate::coil::{Because, BlockWrite, CoilPlanner, release_block};
use crate::release::MISSING_NODE_REST;
use crate::whereabouts::{LedgerWrite, Whereabouts, WhereaboutsPlanner};
use crate::world::World;
use crate::write::{Operation, Write};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A pool looks only at the numbers of its own blocks, and yields only to older pools.
    OwnNumbersOnly,
    /// Pools look at each other's blocks, but nobody occupies the names of younger pools' blocks.
    NoLocks,
    /// A block is released because its node's object is gone, whatever runs there.
    NodeGoneIsEnough,
    /// A block is released without a mark, so that its owner cannot object.
    NoMark,
}

impl Planted {
    pub(crate) const ALL: [Self; 4] =
        [Self::OwnNumbersOnly, Self::NoLocks, Self::NodeGoneIsEnough, Self::NoMark];

    /// The message of the check that finds it.
    pub(crate) fn symptom(self) -> &'static str {
        match self {
            Self::OwnNumbersOnly | Self::NoLocks => "share addresses",
            Self::NodeGoneIsEnough | Self::NoMark => "was deleted while",
        }
    }
}

impl Planner {
    /// The built-in parts with this bug.
    pub(crate) fn with_planted(planted: Option<Planted>) -> Self {
        let mut coil = CoilPlanner::new(MISSING_NODE_REST);
        coil.planted = planted;
        let claims = ClaimsPlanner::new(&ClaimSettings::default(), true);
        let whereabouts = WhereaboutsPlanner::new(&Whereabouts::default());
        Self::new(vec![Box::new(coil), Box::new(claims), Box::new(whereabouts)])
    }

    /// The built-in parts. Their plans are not compared, for tests of something else.
    pub(crate) fn uncompared() -> Self {
        Self::with_planted(None)
    }

    /// The built-in parts with a bug in what they write; plans are not compared.
    pub(crate) fn comparing_unless(planted: bool) -> Self {
        if planted { Self::uncompared() } else { Self::default() }
    }

    /// A program has one world while it runs. A test that shows a planner another world means one in which anything
    /// may have changed.
    pub(super) fn recognize(&mut self, world: &World) {
        if self.world.replace(world.identity) != Some(world.identity) {
            self.look_at_all();
        }
    }

    /// An incremental plan must equal the full plan.
    pub(super) fn compare(&mut self, world: &World, writes: &[Write], now: Timestamp) {
        let Some(full) = &mut self.full else { return };
        full.look_at_all();
        let all = full.plan_parts(world, now);
        // Usually they are equal, and comparing texts takes longer than planning.
        let by_subject: BTreeMap<&str, &Write> = all.iter().map(|write| (write.subject(), write)).collect();
        let is_planned = |write: &Write| by_subject.get(write.subject()).is_some_and(|it| is_same(write, it));
        if writes.len() == all.len() && writes.iter().all(is_planned) {
            return;
        }
        let sorted = |writes: &[Write]| {
            let mut texts: Vec<String> = writes.iter().map(|write| timeless(&format!("{write:?}"))).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(writes), sorted(&all), "what changed, and everything, at {now:?}");
    }
}

/// Whether both are the same write of a built-in part.
fn is_same(one: &Write, other: &Write) -> bool {
    fn both<O: Operation + PartialEq>(one: &Write, other: &Write) -> bool {
        one.of::<O>().is_some_and(|one| other.of::<O>() == Some(one))
    }
    both::<BlockWrite>(one, other)
        || both::<ClaimWrite>(one, other)
        || both::<MoveWrite>(one, other)
        || both::<OwnerWrite>(one, other)
        || both::<LedgerWrite>(one, other)
}

/// The text of a write without the times of condition changes: a write that was planned before and is not done yet
/// keeps its time.
fn timeless(text: &str) -> String {
    let mut parts = text.split("last_transition_time: Time(");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        all.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    all
}

/// Tells worlds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorldIdentity(u64);

impl Default for WorldIdentity {
    /// Another one each time.
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Planner {
    /// The built-in parts. Each plan is compared with a full one.
    fn default() -> Self {
        Self { full: Some(Box::new(Self::uncompared())), ..Self::uncompared() }
    }
}

/// What a planner with this bug releases.
pub(crate) fn plant(planted: Option<Planted>, world: &World, released: Vec<BlockWrite>) -> Vec<BlockWrite> {
    if !matches!(planted, Some(Planted::NodeGoneIsEnough | Planted::NoMark)) {
        return released;
    }
    let missing = |block: &&AddressBlock| block.node().is_some_and(|node| world.nodes().get(node).is_none());
    let blocks = world.coil().blocks.iter().filter(missing);
    blocks.map(|block| release_block(block, block.node().unwrap_or_default(), Because::NodeIsGone)).collect()
}
