//! Rounds of calls, and their middle.

use std::time::Duration;

use super::runtime::Timings;
use crate::measure::median;

/// Rounds of calls.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    each: Vec<f64>,
    medians: Vec<f64>,
    walls: Vec<f64>,
    rates: Vec<f64>,
    pub(crate) failures: usize,
}

impl Sampled {
    /// Takes a round into account.
    pub(crate) fn take(&mut self, round: &Timings) {
        let each: Vec<f64> = round.each.iter().map(nanoseconds).collect();
        self.each.extend(&each);
        self.medians.push(median(each));
        self.walls.push(nanoseconds(&round.wall));
        self.rates.push(count(round.each.len() - round.failures.len()) / round.wall.as_secs_f64());
        self.failures += round.failures.len();
    }

    /// The median of the rounds' medians.
    pub(crate) fn p50(&self) -> f64 {
        median(self.medians.clone())
    }

    /// What a call takes when nothing else is in its way.
    pub(crate) fn p10(&self) -> f64 {
        percentile(&self.each, 10)
    }

    /// The percentile of all calls.
    pub(crate) fn p99(&self) -> f64 {
        percentile(&self.each, 99)
    }

    /// From the first start to the last end, in the middle round.
    pub(crate) fn wall(&self) -> f64 {
        median(self.walls.clone())
    }

    /// How many calls succeeded in a second, in the middle round.
    pub(crate) fn rate(&self) -> f64 {
        median(self.rates.clone())
    }

    /// From the first start to the last end, in the slowest round.
    pub(crate) fn worst(&self) -> f64 {
        self.walls.iter().copied().fold(f64::NAN, f64::max)
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> usize {
        self.each.len()
    }
}

/// The value below which `percent` of a hundred are.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn nanoseconds(duration: &Duration) -> f64 {
    duration.as_nanos() as f64
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn count(number: usize) -> f64 {
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
