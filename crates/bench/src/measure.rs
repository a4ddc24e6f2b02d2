//! How a figure comes about: ours and the peer take turns, and the median round counts.

use std::time::{Duration, Instant};

/// How much time a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A few rounds: does it run at all?
    Quick,
    /// Enough rounds for a median that means something.
    Full,
}

impl Effort {
    /// Rounds that ours and the peer each get.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Quick => 3,
            Self::Full => 15,
        }
    }
}

/// Runs both sides alternately, `effort.rounds()` times each; a side returns how long its round took and
/// how many operations that were. Gives the median nanoseconds an operation of each side.
pub(crate) fn alternate(
    effort: Effort,
    mut ours: impl FnMut() -> (Duration, u64),
    mut peer: impl FnMut() -> (Duration, u64),
) -> (f64, f64) {
    let (mut our_rounds, mut peer_rounds) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds() {
        our_rounds.push(per_operation(ours()));
        peer_rounds.push(per_operation(peer()));
    }
    (median(our_rounds), median(peer_rounds))
}

/// How long `work` took, which did `operations` operations.
pub(crate) fn time(operations: u64, work: impl FnOnce()) -> (Duration, u64) {
    let start = Instant::now();
    work();
    (start.elapsed(), operations)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn per_operation((took, operations): (Duration, u64)) -> f64 {
    took.as_nanos() as f64 / operations.max(1) as f64
}

/// The middle one.
pub(crate) fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
}
