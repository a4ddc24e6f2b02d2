//! Which file is written, and which ones go.
//!
//! A log is a row of files. Only the newest is written; the oldest go as wholes, when the log would be larger than its limit or
//! when nothing in them is young enough. So size and age are kept in steps of a sixteenth.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

/// How many files a full log has.
const STEPS: u32 = 16;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of all files.
    pub bytes: u64,
    /// The greatest age.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 20, age: Duration::from_hours(30 * 24) }
    }
}

/// One file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Its number; a younger one has a larger number.
    pub number: u64,
    /// How many of its bytes count.
    pub bytes: u64,
    /// When its entries were written.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// All files, oldest first.
#[derive(Clone, Debug)]
pub struct Segments {
    limits: Limits,
    all: VecDeque<Segment>,
}

impl Segment {
    /// Notes an entry of this time.
    pub fn include(&mut self, at: Timestamp) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
    }
}

impl Segments {
    /// The files that were found.
    pub fn new(limits: Limits, found: impl IntoIterator<Item = Segment>) -> Self {
        let mut all: Vec<Segment> = found.into_iter().collect();
        all.sort_by_key(|segment| segment.number);
        Self { limits, all: all.into() }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.all.iter().map(|segment| segment.bytes).sum()
    }

    /// When the oldest entry was written.
    pub fn begins(&self) -> Option<Timestamp> {
        self.all.iter().find_map(|segment| segment.span).map(|(first, _)| first)
    }

    /// The files that may have something written at this time or later.
    pub fn since(&self, from: Option<Timestamp>) -> Vec<Segment> {
        let late =
            |segment: &&Segment| segment.span.is_some_and(|(_, last)| from.is_none_or(|from| last >= from));
        self.all.iter().filter(late).copied().collect()
    }

    /// The file to append this many bytes to at this time; a new one if none has room.
    pub fn place(&mut self, bytes: u64, now: Timestamp) -> Segment {
        let step = self.limits.bytes / u64::from(STEPS);
        let age = self.limits.age / STEPS;
        let is_full = |segment: &Segment| {
            let old = segment.span.is_some_and(|(first, _)| older(first, now, age));
            segment.bytes > 0 && (old || segment.bytes + bytes > step)
        };
        match self.all.back() {
            Some(newest) if !is_full(newest) => *newest,
            newest => {
                let number = newest.map_or(1, |newest| newest.number + 1);
                let segment = Segment { number, ..Segment::default() };
                self.all.push_back(segment);
                segment
            }
        }
    }

    /// How many bytes the newest file has room for.
    pub fn room(&self) -> u64 {
        let taken = self.all.back().map_or(0, |newest| newest.bytes);
        (self.limits.bytes / u64::from(STEPS)).saturating_sub(taken)
    }

    /// A file that must go before this many bytes are appended.
    pub fn expired(&self, bytes: u64, now: Timestamp) -> Option<u64> {
        let oldest = self.all.front().filter(|_| self.all.len() > 1)?;
        let old = oldest.span.is_none_or(|(_, last)| older(last, now, self.limits.age));
        (old || self.bytes() + bytes > self.limits.bytes).then_some(oldest.number)
    }

    /// A file is gone.
    pub fn removed(&mut self, number: u64) {
        self.all.retain(|segment| segment.number != number);
    }

    /// Entries of these times were appended to the newest file.
    pub fn appended(&mut self, bytes: u64, times: impl IntoIterator<Item = Timestamp>) {
        if let Some(newest) = self.all.back_mut() {
            newest.bytes += bytes;
            for at in times {
                newest.include(at);
            }
        }
    }
}

/// Whether a moment is longer ago than this.
fn older(then: Timestamp, now: Timestamp, age: Duration) -> bool {
    Duration::try_from(now.duration_since(then)).is_ok_and(|passed| passed > age)
}

#[cfg(test)]
mod tests;
