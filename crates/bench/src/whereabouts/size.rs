//! How much is measured.

use crate::measure::Effort;

/// How much is measured.
pub(super) struct Size {
    pub(super) rounds: usize,
    /// A peer takes seconds for what takes us milliseconds.
    pub(super) peer_rounds: usize,
    pub(super) paces: Vec<Pace>,
    /// How many addresses of a range are held already.
    pub(super) held: Vec<usize>,
    /// What is measured beside those, one at a time and many at once.
    pub(super) beside: Pace,
    pub(super) beside_at_once: Pace,
}

/// How many calls are made, and how many of them are under way at any time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) callers: usize,
    pub(super) calls: usize,
    /// A peer makes fewer.
    pub(super) peer_calls: usize,
}

impl Size {
    pub(super) fn of(effort: Effort) -> Self {
        let pace = |callers, calls, peer_calls| Pace { callers, calls, peer_calls };
        match effort {
            Effort::Full => Self {
                rounds: 5,
                peer_rounds: 2,
                paces: vec![pace(1, 50, 20), pace(20, 400, 40), pace(100, 1_000, 100)],
                held: vec![100, 5_000, 60_000],
                beside: pace(1, 30, 10),
                beside_at_once: pace(100, 300, 0),
            },
            Effort::Quick => Self {
                rounds: 2,
                peer_rounds: 1,
                paces: vec![pace(1, 10, 3), pace(20, 60, 20), pace(100, 200, 100)],
                held: vec![100, 5_000],
                beside: pace(1, 5, 2),
                beside_at_once: pace(100, 100, 0),
            },
        }
    }
}
