//! A set of 128-bit numbers stored as intervals: exclusions, reservations and full chunks.
//!
//! It promises that a query or a change takes logarithmic time in the number of *intervals*, whatever the
//! number of members. Intervals that overlap or touch are merged, so two sets with the same members are
//! equal.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::RangeInclusive;

/// A set of `u128`s. Ends are inclusive, so the whole number line fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// First member → last member of each interval; no two overlap or touch.
    intervals: BTreeMap<u128, u128>,
    /// Number of members modulo 2^128: zero both for the empty set and for the whole line.
    members: u128,
}

impl IntervalSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { intervals: BTreeMap::new(), members: 0 }
    }

    /// Adds `first` to `last`; does nothing if `first` is above `last`.
    pub fn insert(&mut self, mut first: u128, mut last: u128) {
        if first > last {
            return;
        }
        if let Some((&before, &end)) = self.intervals.range(..=first).next_back()
            && touches(end, first)
        {
            if end >= last {
                return;
            }
            first = before;
        }
        while let Some((&next, &end)) = self.intervals.range((Excluded(first), Unbounded)).next()
            && touches(last, next)
        {
            self.forget(next, end);
            last = last.max(end);
        }
        if let Some(end) = self.intervals.insert(first, last) {
            self.members = self.members.wrapping_sub(end - first).wrapping_sub(1);
        }
        self.members = self.members.wrapping_add(last - first).wrapping_add(1);
    }

    /// Removes `first` to `last`; does nothing if `first` is above `last`.
    pub fn remove(&mut self, first: u128, last: u128) {
        if first > last {
            return;
        }
        if let Some((_, end)) = self.intervals.range_mut(..first).next_back()
            && *end >= first
        {
            let cut = std::mem::replace(end, first - 1);
            self.members = self.members.wrapping_sub(cut - first).wrapping_sub(1);
            if cut > last {
                self.remember(last + 1, cut);
                return;
            }
        }
        while let Some((&next, &end)) = self.intervals.range(first..=last).next() {
            self.forget(next, end);
            if end > last {
                self.remember(last + 1, end);
            }
        }
    }

    /// Whether `value` is a member.
    pub fn contains(&self, value: u128) -> bool {
        self.interval_of(value).is_some()
    }

    /// Whether all of `first` to `last` are members.
    pub fn covers(&self, first: u128, last: u128) -> bool {
        self.interval_of(first).is_some_and(|interval| *interval.end() >= last)
    }

    /// The interval that `value` is in.
    pub fn interval_of(&self, value: u128) -> Option<RangeInclusive<u128>> {
        let (&first, &last) = self.intervals.range(..=value).next_back()?;
        (last >= value).then_some(first..=last)
    }

    /// The lowest number from `from` on that is *not* a member.
    pub fn next_gap(&self, from: u128) -> Option<u128> {
        match self.interval_of(from) {
            Some(interval) => interval.end().checked_add(1),
            None => Some(from),
        }
    }

    /// How many members it has, 2^128 - 1 at most.
    pub fn len(&self) -> u128 {
        if self.members == 0 && !self.is_empty() { u128::MAX } else { self.members }
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Its intervals, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = RangeInclusive<u128>> {
        self.intervals.iter().map(|(&first, &last)| first..=last)
    }

    /// The parts of its intervals that lie in `first` to `last`, lowest first.
    pub fn within(&self, first: u128, last: u128) -> impl Iterator<Item = RangeInclusive<u128>> {
        let start = self.interval_of(first).map_or(first, |interval| *interval.start());
        let intervals = (start <= last).then(|| self.intervals.range(start..=last));
        intervals.into_iter().flatten().map(move |(&from, &to)| from.max(first)..=to.min(last))
    }

    /// The numbers of `first` to `last` that are *not* members, as intervals, lowest first.
    pub fn gaps_within(&self, first: u128, last: u128) -> impl Iterator<Item = RangeInclusive<u128>> {
        // `None` after the last gap.
        let mut from = self.next_gap(first).filter(|gap| *gap <= last);
        std::iter::from_fn(move || {
            let gap = from?;
            match self.intervals.range(gap..=last).next() {
                None => {
                    from = None;
                    Some(gap..=last)
                }
                Some((&member, &end)) => {
                    from = end.checked_add(1).filter(|next| *next <= last);
                    Some(gap..=member - 1)
                }
            }
        })
    }

    /// Bytes used, estimated from above: tree nodes are at least half full.
    pub(crate) fn memory(&self) -> usize {
        tree_memory::<u128, u128>(self.intervals.len())
    }

    fn remember(&mut self, first: u128, last: u128) {
        self.members = self.members.wrapping_add(last - first).wrapping_add(1);
        self.intervals.insert(first, last);
    }

    fn forget(&mut self, first: u128, last: u128) {
        self.members = self.members.wrapping_sub(last - first).wrapping_sub(1);
        self.intervals.remove(&first);
    }
}

/// Whether an interval that ends at `end` overlaps or touches one that starts at `start`. `start` is not
/// below the first one's start.
fn touches(end: u128, start: u128) -> bool {
    start <= end.saturating_add(1)
}

/// Bytes of a `BTreeMap<K, V>` with `len` entries, from above: nodes hold 5 to 11 entries, 6 after ascending
/// inserts, and inner nodes are a sixth of the leaves.
pub(crate) fn tree_memory<K, V>(len: usize) -> usize {
    let leaf = 11 * (size_of::<K>() + size_of::<V>()) + 16;
    let inner = leaf + 12 * size_of::<usize>();
    let leaves = len.div_ceil(6);
    leaves * leaf + if leaves > 1 { leaves.div_ceil(6) * inner } else { 0 }
}

impl Extend<RangeInclusive<u128>> for IntervalSet {
    fn extend<I: IntoIterator<Item = RangeInclusive<u128>>>(&mut self, intervals: I) {
        for interval in intervals {
            self.insert(*interval.start(), *interval.end());
        }
    }
}

impl FromIterator<RangeInclusive<u128>> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = RangeInclusive<u128>>>(intervals: I) -> Self {
        let mut set = Self::new();
        set.extend(intervals);
        set
    }
}

#[cfg(test)]
mod proptests;
