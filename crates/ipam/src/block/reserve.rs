//! Reserving addresses without a holder.

use std::ops::RangeInclusive;

use crate::address::Address;
use crate::block::chunk::POSITION_BITS;
use crate::block::{Block, NotInSpace, ReserveError};
use crate::intervals::IntervalSet;
use crate::range::RangeError;

impl<K> Block<K> {
    /// Reserves the addresses `first` to `last`: they are not assigned until they are unreserved, not even by
    /// name. A hold on one of them stays until it is released. Addresses that are unusable or outside the
    /// space do not change; if all are outside, that is an error.
    pub fn reserve(&mut self, first: Address, last: Address) -> Result<(), ReserveError> {
        let (low, high) = self.offsets_between(first, last)?;
        for run in self.usable_within(low, high) {
            self.reserved.insert(*run.start(), *run.end());
            self.vacancy.block(*run.start(), *run.end());
        }
        self.blocked_changed(low, high);
        Ok(())
    }

    /// Removes the reservation of the addresses `first` to `last`. Addresses without a reservation do not
    /// change.
    pub fn unreserve(&mut self, first: Address, last: Address) -> Result<(), ReserveError> {
        let (low, high) = self.offsets_between(first, last)?;
        for run in self.reserved.within(low, high) {
            self.vacancy.unblock(*run.start(), *run.end());
        }
        self.reserved.remove(low, high);
        self.blocked_changed(low, high);
        Ok(())
    }

    /// The reserved addresses as intervals of offsets, lowest first.
    pub fn reserved(&self) -> &IntervalSet {
        &self.reserved
    }

    fn offsets_between(&self, first: Address, last: Address) -> Result<(u128, u128), ReserveError> {
        if !first.is_between(first, last) {
            return Err(RangeError::Inverted { first, last }.into());
        }
        let outside = || NotInSpace { address: first, space: self.space.to_string() };
        Ok(self.space.offsets_between(first, last).ok_or_else(outside)?)
    }

    fn usable_within(&self, low: u128, high: u128) -> Vec<RangeInclusive<u128>> {
        let runs = self.space.runs().iter_from(low).take_while(|run| *run.start() <= high);
        runs.map(|run| *run.start()..=(*run.end()).min(high)).collect()
    }

    /// Updates chunks and counts after blocked offsets in `low` to `high` changed.
    pub(super) fn blocked_changed(&mut self, low: u128, high: u128) {
        let (vacancy, more) = (&self.vacancy, &mut self.occupied_reserved);
        self.chunks.change_each(low >> POSITION_BITS..=high >> POSITION_BITS, |chunk| {
            let blocked = vacancy.blocked_bits(chunk.number);
            let occupied = chunk.occupied();
            *more += (blocked & !chunk.blocked & occupied).count_ones() as usize;
            *more -= (!blocked & chunk.blocked & occupied).count_ones() as usize;
            chunk.blocked = blocked;
        });
        self.vacancy.refill(low, high, &self.chunks);
    }
}
