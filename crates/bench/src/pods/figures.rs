//! What was measured of one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::runtime::Timings;
use crate::measure::median;

/// All of it; times in nanoseconds, memory in bytes.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) add: Sampled,
    pub(super) del: Sampled,
    pub(super) add_at_once: Sampled,
    pub(super) del_at_once: Sampled,
    /// From the first DEL of many until the last interface was gone.
    pub(super) gone: Vec<f64>,
    /// Many ADDs at once on a node without blocks.
    pub(super) crowd: Sampled,
    /// One ADD on a node without blocks.
    pub(super) single: Sampled,
    /// ADD and DEL by how many pods were there already.
    pub(super) beside: BTreeMap<usize, (Sampled, Sampled)>,
    /// Of the agent, before and after pods came to other nodes.
    pub(super) memory: Option<(f64, f64)>,
}

/// Rounds of calls.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    each: Vec<f64>,
    medians: Vec<f64>,
    walls: Vec<f64>,
    pub(super) failures: usize,
}

impl Sampled {
    /// Takes a round into account.
    pub(super) fn take(&mut self, round: &Timings) {
        let each: Vec<f64> = round.each.iter().map(nanoseconds).collect();
        self.each.extend(&each);
        self.medians.push(median(each));
        self.walls.push(nanoseconds(&round.wall));
        self.failures += round.failures.len();
    }

    /// The median of the rounds' medians.
    pub(super) fn p50(&self) -> f64 {
        median(self.medians.clone())
    }

    /// What a call takes when nothing else is in its way.
    pub(super) fn p10(&self) -> f64 {
        percentile(&self.each, 10)
    }

    /// The percentile of all calls.
    pub(super) fn p99(&self) -> f64 {
        percentile(&self.each, 99)
    }

    /// From the first start to the last end, in the middle round.
    pub(super) fn wall(&self) -> f64 {
        median(self.walls.clone())
    }

    /// The same in the slowest round.
    pub(super) fn worst(&self) -> f64 {
        self.walls.iter().copied().fold(f64::NAN, f64::max)
    }

    /// How many calls there were.
    pub(super) fn calls(&self) -> usize {
        self.each.len()
    }
}

/// The value below which `percent` of a hundred are.
pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(super) fn nanoseconds(duration: &Duration) -> f64 {
    duration.as_nanos() as f64
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(super) fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert!((percentile(&values, 99) - 199.0).abs() < f64::EPSILON);
        assert!((percentile(&[7.0], 99) - 7.0).abs() < f64::EPSILON);
        assert!(percentile(&[], 99).is_nan());
    }
}
