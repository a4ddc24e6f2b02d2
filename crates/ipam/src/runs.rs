//! The usable numbers of a range, as a fixed, sorted list of runs with counts.
//!
//! [`IntervalSet`] is made for changes, this is made for queries: how many numbers there are, which is the
//! n-th, and the rank of a number. Each takes one binary search over the runs.

use std::ops::RangeInclusive;

use crate::intervals::IntervalSet;

/// Sorted, disjoint, non-touching runs of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(Box<[Run]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u128,
    last: u128,
    /// How many numbers the runs below this one have.
    before: u128,
}

impl Runs {
    /// What remains of `first` to `last` without `excluded`.
    pub(crate) fn new(first: u128, last: u128, excluded: &IntervalSet) -> Self {
        let mut before = 0_u128;
        let run = |run: RangeInclusive<u128>| {
            let (first, last) = run.into_inner();
            let run = Run { first, last, before };
            before = before.saturating_add(last - first).saturating_add(1);
            run
        };
        Self(excluded.gaps_within(first, last).map(run).collect())
    }

    /// How many numbers there are, 2^128 - 1 at most.
    pub(crate) fn count(&self) -> u128 {
        self.0.last().map_or(0, |run| run.before.saturating_add(run.last - run.first).saturating_add(1))
    }

    /// Whether the number is in a run.
    pub(crate) fn contains(&self, number: u128) -> bool {
        self.run_from(number).is_some_and(|run| run.first <= number)
    }

    /// The number with `rank` others below it.
    pub(crate) fn nth(&self, rank: u128) -> Option<u128> {
        let after = self.0.partition_point(|run| run.before <= rank);
        let run = self.0.get(after.checked_sub(1)?)?;
        let within = rank - run.before;
        (within <= run.last - run.first).then(|| run.first + within)
    }

    /// How many numbers are below this one, if it is in a run.
    pub(crate) fn rank(&self, number: u128) -> Option<u128> {
        let run = self.run_from(number).filter(|run| run.first <= number)?;
        Some(run.before + (number - run.first))
    }

    /// The runs, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RangeInclusive<u128>> {
        self.0.iter().map(|run| run.first..=run.last)
    }

    /// The runs from `number` on, the first one cut to start there if `number` is inside it.
    pub(crate) fn iter_from(&self, number: u128) -> impl Iterator<Item = RangeInclusive<u128>> {
        let start = self.0.partition_point(|run| run.last < number);
        self.0[start..].iter().map(move |run| run.first.max(number)..=run.last)
    }

    /// The first run that reaches up to `number` or beyond.
    fn run_from(&self, number: u128) -> Option<&Run> {
        self.0.get(self.0.partition_point(|run| run.last < number))
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        size_of_val::<[Run]>(&self.0)
    }
}
