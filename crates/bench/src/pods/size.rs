//! How much is measured.

use super::cluster::Pools;
use crate::measure::Effort;

/// How much is measured.
pub(super) struct Size {
    /// How many pods come and go in a round.
    pub(super) pods: usize,
    pub(super) rounds: usize,
    /// Rounds on a node without blocks.
    pub(super) crowds: usize,
    /// Single ADDs on a node without blocks.
    pub(super) singles: usize,
    /// How many pods are there already.
    pub(super) levels: Vec<usize>,
    /// At which of these memory is looked at.
    pub(super) memory_at: usize,
    /// Pods of other nodes.
    pub(super) strangers: usize,
}

impl Size {
    pub(super) fn of(effort: Effort, long: bool) -> Self {
        let full = Self {
            pods: 100,
            rounds: 7,
            crowds: 10,
            singles: 15,
            levels: vec![1, 100, 250, 1_000],
            memory_at: 250,
            strangers: 5_000,
        };
        match effort {
            // 10,000 ADDs.
            Effort::Full if long => Self { crowds: 100, ..full },
            Effort::Full => full,
            Effort::Quick => Self {
                pods: 20,
                rounds: 2,
                crowds: if long { 100 } else { 2 },
                singles: 3,
                levels: vec![1, 20],
                memory_at: 20,
                strangers: 100,
            },
        }
    }

    pub(super) fn pools(&self) -> Pools {
        Pools { crowds: self.crowds, singles: self.singles }
    }
}
