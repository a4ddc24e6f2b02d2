//! What was seen of each object at the last look, and when to look again.
//!
//! [`Sightings::look_again_at`] begins to look at an object, [`Sightings::look_again`] at all of them. What is not
//! noted again in that look is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use tenure_handles::Timestamp;

/// What was seen, by the key of the object.
#[derive(Debug)]
pub(crate) struct Sightings<T> {
    /// What earlier looks have seen.
    before: BTreeMap<String, T>,
    now: BTreeMap<String, (T, Timestamp)>,
    /// When to look again at what.
    due: BTreeSet<(Timestamp, String)>,
}

impl<T> Default for Sightings<T> {
    fn default() -> Self {
        Self { before: BTreeMap::new(), now: BTreeMap::new(), due: BTreeSet::new() }
    }
}

impl<T> Sightings<T> {
    /// Begins to look at everything.
    pub(crate) fn look_again(&mut self) {
        self.before = mem::take(&mut self.now).into_iter().map(|(key, (seen, _))| (key, seen)).collect();
        self.due.clear();
    }

    /// Begins to look at one object.
    pub(crate) fn look_again_at(&mut self, key: &str) {
        match self.now.remove_entry(key) {
            Some((key, (seen, due))) => {
                let due = (due, key);
                self.due.remove(&due);
                self.before.insert(due.1, seen);
            }
            None => drop(self.before.remove(key)),
        }
    }

    /// What the previous look has seen of an object.
    pub(crate) fn before(&self, key: &str) -> Option<&T> {
        self.before.get(key)
    }

    /// Notes what was seen at `now`, to look again at `due`. What is already due wakes nobody.
    pub(crate) fn note(&mut self, key: String, seen: T, due: Timestamp, now: Timestamp) {
        if due > now {
            self.due.insert((due, key.clone()));
        }
        self.now.insert(key, (seen, due));
    }

    /// The objects that are due, each once.
    pub(crate) fn due(&mut self, now: Timestamp) -> impl Iterator<Item = String> + use<T> {
        let later = self.due.split_off(&(now.plus(std::time::Duration::from_millis(1)), String::new()));
        mem::replace(&mut self.due, later).into_iter().map(|(_, key)| key)
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn what_a_look_does_not_note_again_is_forgotten_and_others_stay() {
        let mut seen = Sightings::default();
        seen.look_again();
        seen.note("a".into(), 1, at(10), at(0));
        seen.note("b".into(), 2, at(20), at(0));
        seen.look_again_at("a");
        assert_eq!((seen.before("a"), seen.before("b"), seen.next()), (Some(&1), None, Some(at(20))));
        seen.look_again_at("a");
        assert_eq!(seen.before("a"), None, "the look before noted nothing");
        seen.look_again();
        assert_eq!((seen.before("b"), seen.next()), (Some(&2), None));
    }

    #[test]
    fn each_is_due_once_at_its_time() {
        let mut seen = Sightings::default();
        seen.note("a".into(), (), at(10), at(0));
        seen.note("b".into(), (), at(20), at(0));
        seen.note("late".into(), (), at(5), at(5));
        let mut due = |now| seen.due(at(now)).collect::<Vec<_>>();
        assert_eq!((due(9), due(10), due(10)), (vec![], vec!["a".to_owned()], vec![]));
        assert_eq!(due(30), ["b"]);
    }
}
