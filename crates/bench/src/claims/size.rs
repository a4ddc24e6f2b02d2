//! How much is measured.

use crate::measure::Effort;

/// How much is measured.
pub(super) struct Size {
    /// Claims that are made at once.
    pub(super) claims: usize,
    pub(super) rounds: usize,
    /// Pods of each kind.
    pub(super) pods: usize,
    pub(super) pod_rounds: usize,
    pub(super) moves: usize,
}

impl Size {
    /// That of an effort, with another number of claims if one is given.
    pub(super) fn of(effort: Effort, claims: Option<usize>) -> Self {
        let size = match effort {
            Effort::Full => Self { claims: 5_000, rounds: 3, pods: 100, pod_rounds: 5, moves: 50 },
            Effort::Quick => Self { claims: 500, rounds: 1, pods: 20, pod_rounds: 2, moves: 10 },
        };
        Self { claims: claims.unwrap_or(size.claims), ..size }
    }
}
