//! A log: what is read of it at a start, and what is written to it.
//!
//! What is known of it is behind a lock that is never held during I/O, so that questions wait for no write.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tenure_view::{History, Period};

use crate::gaps::{Gaps, is_unseen};
use crate::line::{self, Entry, Line, What};
use crate::query::{Collector, MOST_PERIODS, Query};
use crate::recorder::{Change, Recorder};
use crate::segments::{Limits, Segment, Segments};
use crate::storage::Storage;

/// How many entries are kept while the log cannot be written. More are lost, the oldest first.
const MOST_KEPT: usize = 1_000;

/// What is known of a log.
#[derive(Clone, Debug)]
struct State {
    recorder: Recorder,
    segments: Segments,
    gaps: Gaps,
    /// What is not written yet.
    waiting: VecDeque<Entry>,
    /// How much is missing before that, and since when.
    lost: Option<(u64, Timestamp)>,
}

/// A log.
#[derive(Debug)]
pub struct Log<S> {
    storage: S,
    state: Mutex<State>,
}

/// What became of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How many were written.
    pub entries: u64,
    /// How many were lost, because too many wait.
    pub lost: u64,
    /// Why not all were written.
    pub problem: Option<String>,
}

impl<S: Storage> Log<S> {
    /// Reads a log.
    pub fn open(storage: S, limits: Limits) -> io::Result<Self> {
        let (mut recorder, mut gaps, mut found) = (Recorder::default(), Gaps::default(), Vec::new());
        let numbers: BTreeSet<u64> = storage.list()?.into_iter().collect();
        for number in numbers {
            let bytes = match storage.read(number) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            let mut segment = Segment { number, bytes: bytes.len() as u64, span: None };
            for line in line::lines(&bytes) {
                match line {
                    Line::Whole(text) => {
                        if let Some(entry) = line::entry(text) {
                            segment.include(entry.at);
                            gaps.entry(&entry);
                            recorder.replay(entry.what);
                        }
                    }
                    Line::Damaged => gaps.damaged(),
                    // What a crash tore is written over.
                    Line::Torn(len) => segment.bytes -= len as u64,
                }
            }
            found.push(segment);
        }
        let segments = Segments::new(limits, found);
        let state = State { recorder, segments, gaps, waiting: VecDeque::new(), lost: None };
        Ok(Self { storage, state: Mutex::new(state) })
    }

    /// Writes changes.
    pub fn take(&self, changes: Vec<Change>, now: Timestamp) -> Written {
        let entries = {
            let mut state = self.state();
            changes.into_iter().flat_map(|change| state.recorder.take(change)).collect()
        };
        self.write(entries, now)
    }

    /// An agent starts, as `started` says: writes how all that is held differs from what is open.
    ///
    /// The mark comes after all ends. So if only a part is written, the next start does not take it for a sign that the rest was open.
    pub fn start(&self, started: What, held: Vec<Period>, now: Timestamp) -> Written {
        let entries = {
            let mut state = self.state();
            let seen = state.gaps.last();
            let mut entries = state.recorder.compare(held, now, seen);
            let ends = entries.iter().take_while(|entry| is_unseen(&entry.what)).count();
            entries.insert(ends, Entry { at: now, what: started });
            entries
        };
        self.write(entries, now)
    }

    /// Writes something about the agent.
    pub fn mark(&self, what: What, now: Timestamp) -> Written {
        self.write(vec![Entry { at: now, what }], now)
    }

    /// Notes that changes were lost before they came here.
    pub fn lose(&self, count: u64, now: Timestamp) {
        self.state().lose(count, now);
    }

    /// How many entries wait because the log cannot be written.
    pub fn waiting(&self) -> usize {
        let state = self.state();
        state.waiting.len() + usize::from(state.lost.is_some())
    }

    /// Waits until what was written survives a power failure.
    pub fn sync(&self) -> io::Result<()> {
        self.storage.sync()
    }

    /// The size of all files, and when the oldest entry was written.
    pub fn extent(&self) -> (u64, Option<Timestamp>) {
        let state = self.state();
        (state.segments.bytes(), state.segments.begins())
    }

    /// Answers a question. Reads the files that may have an answer, and writes nothing.
    pub fn ask(&self, query: &Query, node: &str, now: Timestamp) -> io::Result<History> {
        let mut answers = Collector::new(query.clone(), MOST_PERIODS);
        let (segments, gaps, begins) = {
            let state = self.state();
            for open in state.recorder.open() {
                answers.take(open.clone());
            }
            for entry in &state.waiting {
                if let What::Ended(period) = &entry.what {
                    answers.take(period.clone());
                }
            }
            let begins = state.segments.begins();
            let mut gaps = state.gaps.clone();
            if let Some((count, from)) = state.lost {
                gaps.entry(&Entry { at: now, what: What::Lost { count, from } });
            }
            for entry in &state.waiting {
                gaps.entry(entry);
            }
            let gaps = gaps.of((query.from, query.to), begins, now);
            // A period is written when it ends: earlier files have nothing that ended later.
            (state.segments.since(query.from), gaps, begins)
        };
        let needle = query.needle();
        for segment in segments {
            let bytes = match self.storage.read(segment.number) {
                // It went meanwhile, because it was the oldest.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            for line in line::lines(&bytes) {
                if let Line::Whole(text) = line
                    && text.contains(&needle)
                    && let Some(Entry { what: What::Ended(period), .. }) = line::entry(text)
                {
                    answers.take(period);
                }
            }
        }
        let (periods, more) = answers.finish();
        Ok(History { node: node.to_owned(), time: now, begins, periods, more, gaps })
    }

    /// Writes what waits and these entries. What cannot be written waits, for the next time.
    fn write(&self, entries: Vec<Entry>, now: Timestamp) -> Written {
        self.state().waiting.extend(entries);
        let mut written = Written::default();
        loop {
            // They stay among what waits until they are in a file: whoever asks meanwhile must find them somewhere.
            let (batch, missing) = {
                let state = self.state();
                let missing =
                    state.lost.map(|(count, from)| Entry { at: now, what: What::Lost { count, from } });
                let count = usize::from(missing.is_some());
                (missing.into_iter().chain(state.waiting.iter().cloned()).collect::<Vec<_>>(), count)
            };
            if batch.is_empty() {
                return written;
            }
            match self.write_some(&batch, now) {
                Ok(count) => {
                    written.entries += count as u64;
                    let mut state = self.state();
                    state.lost = None;
                    state.waiting.drain(..count - missing);
                }
                Err(error) => {
                    written.problem = Some(error.to_string());
                    let mut state = self.state();
                    let surplus = state.waiting.len().saturating_sub(MOST_KEPT);
                    state.waiting.drain(..surplus);
                    written.lost = surplus as u64;
                    if surplus > 0 {
                        state.lose(surplus as u64, now);
                    }
                    return written;
                }
            }
        }
    }

    /// Writes as many entries as fit into one file; at least one.
    fn write_some(&self, entries: &[Entry], now: Timestamp) -> io::Result<usize> {
        let mut bytes = Vec::new();
        let Some((first, more)) = entries.split_first() else { return Ok(0) };
        line::put(first, &mut bytes);
        let (place, room) = {
            let mut state = self.state();
            (state.segments.place(bytes.len() as u64, now), state.segments.room())
        };
        let mut count = 1;
        for entry in more {
            let before = bytes.len();
            line::put(entry, &mut bytes);
            if bytes.len() as u64 > room {
                bytes.truncate(before);
                break;
            }
            count += 1;
        }
        let expired = || self.state().segments.expired(bytes.len() as u64, now);
        while let Some(number) = expired() {
            match self.storage.remove(number) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.state().segments.removed(number),
            }
        }
        self.storage.write(place.number, place.bytes, &bytes)?;
        let mut state = self.state();
        let written = &entries[..count];
        state.segments.appended(bytes.len() as u64, written.iter().map(|entry| entry.at));
        for entry in written {
            state.gaps.entry(entry);
        }
        Ok(count)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lose(&mut self, count: u64, now: Timestamp) {
        // After what was written last, nothing is certain.
        let (before, since) = self.lost.unwrap_or_else(|| (0, self.gaps.last().unwrap_or(now).min(now)));
        self.lost = Some((before + count, since));
    }
}

#[cfg(test)]
mod tests;
