//! Defects that tests switch on, to see whether the checkers find them.

use tenure_api::coil::AddressBlock;

use super::{Planner, garbage};
use crate::world::World;
use crate::write::{Because, Write};

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// D1: a pool looks only at the numbers of its own blocks, and is withheld only what an older pool has.
    OwnNumbersOnly,
    /// D1: pools look at each other's blocks, but nobody occupies the names of younger pools' blocks.
    NoLocks,
    /// D2: a block is released because its node's object is gone, whatever runs there.
    NodeGoneIsEnough,
    /// D13: a block is released without a mark, so that its owner cannot object.
    NoMark,
}

impl Planted {
    pub(crate) const ALL: [Self; 4] =
        [Self::OwnNumbersOnly, Self::NoLocks, Self::NodeGoneIsEnough, Self::NoMark];

    /// What a checker says that finds it.
    pub(crate) fn symptom(self) -> &'static str {
        match self {
            Self::OwnNumbersOnly | Self::NoLocks => "share addresses",
            Self::NodeGoneIsEnough | Self::NoMark => "was deleted while",
        }
    }
}

impl Planner {
    /// One with this defect.
    pub(crate) fn with_planted(mut self, planted: Option<Planted>) -> Self {
        self.planted = planted;
        self
    }

    pub(super) fn plant(&self, world: &World, garbage: Vec<Write>) -> Vec<Write> {
        if !matches!(self.planted, Some(Planted::NodeGoneIsEnough | Planted::NoMark)) {
            return garbage;
        }
        let missing =
            |block: &&AddressBlock| block.node().is_some_and(|node| world.nodes().get(node).is_none());
        let blocks = world.blocks.iter().filter(missing);
        blocks
            .map(|block| garbage::release(block, block.node().unwrap_or_default(), Because::NodeIsGone))
            .collect()
    }
}
