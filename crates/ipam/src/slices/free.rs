//! Which slices are taken, and which is the next to take.

use crate::cidr::Cidr;
use crate::intervals::IntervalSet;
use crate::slices::Slices;

/// The slices of a network, free and taken. Finding, taking and returning one costs the logarithm of the
/// number of runs of taken slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeSlices {
    slices: Slices,
    taken: IntervalSet,
}

/// Why a slice cannot be taken or returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// Every slice is taken.
    #[error(
        "cannot take a slice of {}: all {} slices of /{} are taken",
        .slices.whole(), .slices.count(), .slices.prefix()
    )]
    Exhausted {
        /// The network and its cut.
        slices: Slices,
    },
    /// It is none of the slices.
    #[error("{slice} is not a slice of {}: accepted are its /{} networks", .slices.whole(), .slices.prefix())]
    NotASlice {
        /// What was given.
        slice: Cidr,
        /// The network and its cut.
        slices: Slices,
    },
    /// Somebody has it.
    #[error("cannot take slice {slice}: it is taken")]
    Taken {
        /// The slice.
        slice: Cidr,
    },
}

impl FreeSlices {
    /// All of them free.
    pub fn new(slices: Slices) -> Self {
        Self { slices, taken: IntervalSet::new() }
    }

    /// The cut.
    pub fn slices(&self) -> Slices {
        self.slices
    }

    /// The lowest free slice.
    pub fn lowest(&self) -> Option<Cidr> {
        self.slices.get(self.taken.next_gap(0)?)
    }

    /// Takes the lowest free slice.
    pub fn take(&mut self) -> Result<Cidr, SliceError> {
        let slice = self.lowest().ok_or(SliceError::Exhausted { slices: self.slices })?;
        self.take_named(&slice)?;
        Ok(slice)
    }

    /// Takes this slice.
    pub fn take_named(&mut self, slice: &Cidr) -> Result<(), SliceError> {
        let index = self.index(slice)?;
        if self.taken.contains(index) {
            return Err(SliceError::Taken { slice: *slice });
        }
        self.taken.insert(index, index);
        Ok(())
    }

    /// Returns a slice; says whether it was taken, so that returning twice is harmless.
    pub fn give_back(&mut self, slice: &Cidr) -> Result<bool, SliceError> {
        let index = self.index(slice)?;
        let was_taken = self.taken.contains(index);
        self.taken.remove(index, index);
        Ok(was_taken)
    }

    /// Whether somebody has it; `false` for what is no slice.
    pub fn is_taken(&self, slice: &Cidr) -> bool {
        self.slices.index_of(slice).is_some_and(|index| self.taken.contains(index))
    }

    /// How many are taken.
    pub fn taken(&self) -> u128 {
        self.taken.len()
    }

    /// How many are free.
    pub fn free(&self) -> u128 {
        self.slices.count() - self.taken.len()
    }

    /// The taken slices, lowest first.
    pub fn iter_taken(&self) -> impl Iterator<Item = Cidr> {
        self.taken.iter().flatten().filter_map(|index| self.slices.get(index))
    }

    fn index(&self, slice: &Cidr) -> Result<u128, SliceError> {
        self.slices.index_of(slice).ok_or(SliceError::NotASlice { slice: *slice, slices: self.slices })
    }
}
