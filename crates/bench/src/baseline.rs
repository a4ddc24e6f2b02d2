//! The straightforward allocator that the engine is measured against: a sorted map of what is held,
//! walked from the bottom, address by address, past a list of exclusions.

use std::collections::BTreeMap;

/// Addresses as offsets from the bottom of a range, each with its holder.
pub(crate) struct SortedMap {
    size: u64,
    held: BTreeMap<u64, u128>,
    excluded: Vec<(u64, u64)>,
}

impl SortedMap {
    /// A range of `size` addresses of which `excluded` (first and last) are never handed out.
    pub(crate) fn new(size: u64, excluded: Vec<(u64, u64)>) -> Self {
        Self { size, held: BTreeMap::new(), excluded }
    }

    /// Holds the lowest address that is neither held nor excluded.
    pub(crate) fn hold(&mut self, holder: u128) -> Option<u64> {
        let mut held = self.held.keys().peekable();
        let free = (0..self.size).find(|offset| {
            if held.peek() == Some(&offset) {
                held.next();
                return false;
            }
            !self.excluded.iter().any(|(first, last)| (first..=last).contains(&offset))
        })?;
        self.held.insert(free, holder);
        Some(free)
    }

    /// Holds a named address.
    pub(crate) fn hold_at(&mut self, offset: u64, holder: u128) {
        self.held.insert(offset, holder);
    }

    /// Gives the address of `holder` back.
    pub(crate) fn release(&mut self, holder: u128) -> Option<u64> {
        let offset = self.held.iter().find_map(|(offset, by)| (*by == holder).then_some(*offset))?;
        self.held.remove(&offset);
        Some(offset)
    }
}
