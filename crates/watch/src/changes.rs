//! Which objects changed, for readers that each remember how far they have read.
//!
//! A reader that has read nothing yet, or that is further behind than is remembered, looks at everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// So many changes are remembered. A reader that missed more has as much to do as one that looks at everything.
const REMEMBERED: usize = 16_384;

/// Keys of objects in the order in which they changed.
#[derive(Debug, Default)]
pub struct ChangeLog {
    /// The number of the first change that is remembered.
    first: u64,
    keys: VecDeque<Arc<str>>,
}

/// How far a reader has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(Option<u64>);

/// What has changed since a reader last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Anything may have.
    All,
    /// These have, and nothing else.
    Keys(BTreeSet<Arc<str>>),
}

/// How far one reader has read several logs. If it has missed changes of one log, it looks at everything.
#[derive(Debug, Default)]
pub struct Cursors {
    logs: BTreeMap<&'static str, Cursor>,
    missed: bool,
}

impl Cursors {
    /// What has changed in the log of this name; nothing if anything may have, which [`Self::take_missed`] says.
    pub fn read(
        &mut self,
        log: &'static str,
        since: impl FnOnce(&mut Cursor) -> Changed,
    ) -> BTreeSet<Arc<str>> {
        match since(self.logs.entry(log).or_default()) {
            Changed::Keys(keys) => keys,
            Changed::All => {
                self.missed = true;
                BTreeSet::new()
            }
        }
    }

    /// Whether anything may have changed in one of the logs since this was last asked.
    pub fn take_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }
}

impl ChangeLog {
    /// How many changes there were.
    pub fn count(&self) -> u64 {
        self.first + self.keys.len() as u64
    }

    /// An object has changed, has come or is gone.
    pub fn note(&mut self, key: &str) {
        if self.keys.len() >= REMEMBERED {
            self.keys.pop_front();
            self.first += 1;
        }
        self.keys.push_back(key.into());
    }

    /// Anything may have changed.
    pub fn note_all(&mut self) {
        self.first = self.count() + 1;
        self.keys.clear();
    }

    /// What has changed since `cursor` was here.
    pub fn since(&self, cursor: &mut Cursor) -> Changed {
        let before = cursor.0.replace(self.count());
        let unread = before.and_then(|before| usize::try_from(before.checked_sub(self.first)?).ok());
        match unread {
            Some(unread) if unread <= self.keys.len() => {
                Changed::Keys(self.keys.range(unread..).cloned().collect())
            }
            _ => Changed::All,
        }
    }
}

impl Changed {
    /// Whether nothing has changed.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Keys(keys) if keys.is_empty())
    }

    /// Whether anything may have changed.
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(changed: &Changed) -> Option<Vec<&str>> {
        match changed {
            Changed::All => None,
            Changed::Keys(keys) => Some(keys.iter().map(AsRef::as_ref).collect()),
        }
    }

    #[test]
    fn each_reader_reads_each_change_once() {
        let (mut log, mut one, mut other) = (ChangeLog::default(), Cursor::default(), Cursor::default());
        log.note("a");
        assert_eq!(keys(&log.since(&mut one)), None, "a new reader looks at everything");
        log.note("b");
        log.note("c");
        log.note("b");
        assert_eq!(keys(&log.since(&mut one)), Some(vec!["b", "c"]));
        assert!(log.since(&mut one).is_nothing());
        assert!(log.since(&mut other).is_all());
        log.note("d");
        assert_eq!(keys(&log.since(&mut other)), Some(vec!["d"]));
        assert_eq!(keys(&log.since(&mut one)), Some(vec!["d"]));
        assert_eq!(log.count(), 5);
    }

    #[test]
    fn a_reader_that_is_too_far_behind_looks_at_everything() {
        let (mut log, mut cursor) = (ChangeLog::default(), Cursor::default());
        log.since(&mut cursor);
        for _ in 0..REMEMBERED {
            log.note("a");
        }
        assert_eq!(keys(&log.since(&mut cursor.clone())), Some(vec!["a"]));
        log.note("a");
        assert!(log.since(&mut cursor).is_all());
        assert!(log.since(&mut cursor).is_nothing());
        log.note_all();
        assert!(log.since(&mut cursor).is_all());
    }

    #[test]
    fn a_reader_of_several_logs_that_has_missed_changes_of_one_looks_at_everything() {
        let [mut one, mut other] = [ChangeLog::default(), ChangeLog::default()];
        let mut cursors = Cursors::default();
        let mut read = |one: &ChangeLog, other: &ChangeLog| {
            let keys = [("one", one), ("other", other)]
                .map(|(name, log)| cursors.read(name, |at| log.since(at)).len());
            (keys, cursors.take_missed())
        };
        assert_eq!(read(&one, &other), ([0, 0], true), "a new reader");
        one.note("a");
        assert_eq!(read(&one, &other), ([1, 0], false));
        other.note_all();
        one.note("b");
        assert_eq!(read(&one, &other), ([1, 0], true));
        assert_eq!(read(&one, &other), ([0, 0], false));
    }
}
