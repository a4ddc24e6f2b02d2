//! Random choices from the run's seed.

use tenure_handles::{Entropy, SeededEntropy};

#[derive(Debug)]
pub(super) struct Dice(SeededEntropy);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }

    /// A number below `end`; 0 if there is none.
    pub(super) fn below(&self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap().max(1);
        usize::try_from(self.0.next_u64() % end).unwrap()
    }

    /// True in this many of a hundred cases.
    pub(super) fn percent(&self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// Removes a random item of a list.
    pub(super) fn pick<T>(&self, list: &mut Vec<T>) -> Option<T> {
        (!list.is_empty()).then(|| list.remove(self.below(list.len())))
    }
}
