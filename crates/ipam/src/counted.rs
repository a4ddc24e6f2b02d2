//! Numbers that several intervals may cover: each interval is put in and taken out by itself.
//!
//! A set forgets how often a number was put in, so an interval cannot be taken out of it while another one shares numbers with
//! it. This counts. A change costs the logarithm of the number of steps, and those within the interval that changes.

use std::collections::BTreeMap;

use crate::intervals::IntervalSet;

/// How many intervals cover each number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedIntervals {
    /// From each of these numbers on, up to the next, so many intervals cover a number. None do before the first, and no two
    /// neighbours are equal.
    steps: BTreeMap<u128, usize>,
    /// The numbers that any covers.
    covered: IntervalSet,
}

impl CountedIntervals {
    /// Puts one interval in, `first` to `last`; nothing if `first` is above `last`.
    pub fn insert(&mut self, first: u128, last: u128) {
        self.change(first, last, |count| count.saturating_add(1));
    }

    /// Takes one interval out that was put in. Where none is, none is left.
    pub fn remove(&mut self, first: u128, last: u128) {
        self.change(first, last, |count| count.saturating_sub(1));
    }

    /// The numbers that at least one interval covers.
    pub fn covered(&self) -> &IntervalSet {
        &self.covered
    }

    /// How many intervals cover a number.
    pub fn count(&self, value: u128) -> usize {
        self.steps.range(..=value).next_back().map_or(0, |(_, count)| *count)
    }

    fn change(&mut self, first: u128, last: u128, change: impl Fn(usize) -> usize) {
        if first > last {
            return;
        }
        let behind = last.checked_add(1);
        for edge in [Some(first), behind].into_iter().flatten() {
            let count = self.count(edge);
            self.steps.entry(edge).or_insert(count);
        }
        let Self { steps, covered } = self;
        let mut within = steps.range_mut(first..=last).peekable();
        while let Some((start, count)) = within.next() {
            let end = within.peek().map_or(last, |(next, _)| **next - 1);
            let before = std::mem::replace(count, change(*count));
            match (before, *count) {
                (0, 1..) => covered.insert(*start, end),
                (1.., 0) => covered.remove(*start, end),
                _ => {}
            }
        }
        self.join(first, behind);
    }

    /// Drops steps from `first` to `last` that are none.
    fn join(&mut self, first: u128, last: Option<u128>) {
        let mut before = self.steps.range(..first).next_back().map_or(0, |(_, count)| *count);
        let mut flat = Vec::new();
        for (edge, count) in self.steps.range(first..=last.unwrap_or(u128::MAX)) {
            if *count == before {
                flat.push(*edge);
            }
            before = *count;
        }
        for edge in flat {
            self.steps.remove(&edge);
        }
    }
}

#[cfg(test)]
mod proptests;
