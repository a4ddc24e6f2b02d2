//! Conditions that are reported once, when they begin.

use std::collections::{BTreeSet, HashMap};
use std::mem;

use super::Note;

/// Current conditions, by the key of the object. Each is reported when it begins; one that has ended is forgotten,
/// and would be reported again.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// What the previous look found.
    told: HashMap<String, BTreeSet<String>>,
    now: HashMap<String, BTreeSet<String>>,
    new: Vec<Note>,
}

impl Standing {
    /// Begins to look at everything.
    pub(crate) fn look_again(&mut self) {
        self.told = mem::take(&mut self.now);
    }

    /// Begins to look at one object.
    pub(crate) fn look_again_at(&mut self, key: &str) {
        self.told.remove(key);
        if let Some((key, names)) = self.now.remove_entry(key) {
            self.told.insert(key, names);
        }
    }

    /// Notes a condition of this object. Returns whether it is new.
    pub(crate) fn say(&mut self, key: &str, note: Note) -> bool {
        let name = note.name(None);
        let told = self.told.get(key).is_some_and(|told| told.contains(&name));
        if !self.now.contains_key(key) {
            self.now.insert(key.to_owned(), BTreeSet::new());
        }
        let new = self.now.get_mut(key).is_some_and(|now| now.insert(name)) && !told;
        if new {
            self.new.push(note);
        }
        new
    }

    /// The conditions that have begun.
    pub(crate) fn take(&mut self) -> Vec<Note> {
        mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn note() -> Note {
        Note::warning(ObjectReference::default(), "Reason", "words")
    }

    #[test]
    fn what_stays_so_is_told_once_and_again_after_it_had_stopped() {
        for at_all in [true, false] {
            let mut standing = Standing::default();
            let mut told = Vec::new();
            for is_so in [true, true, false, true] {
                if at_all {
                    standing.look_again();
                } else {
                    standing.look_again_at("a");
                }
                if is_so {
                    standing.say("a", note());
                    standing.say("a", note());
                }
                told.push(standing.take().len());
            }
            assert_eq!(told, [1, 0, 0, 1]);
        }
    }

    #[test]
    fn what_is_not_looked_at_again_stays_told() {
        let mut standing = Standing::default();
        standing.look_again();
        standing.say("a", note());
        standing.say("b", note());
        assert_eq!(standing.take().len(), 2);
        standing.look_again_at("a");
        standing.look_again_at("b");
        standing.say("b", note());
        assert_eq!(standing.take(), [], "it is still so");
    }
}
