//! What stays worth telling for as long as it is so, and is told once.

use std::collections::{BTreeSet, HashMap};
use std::mem;

use super::Note;

/// Notes about what is so at present, by the key of the object that was looked at. Each is told when it begins to be so; what
/// has stopped is forgotten and would be told again.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// What the look before this one has found.
    told: HashMap<String, BTreeSet<String>>,
    now: HashMap<String, BTreeSet<String>>,
    new: Vec<Note>,
}

impl Standing {
    /// A look at everything begins.
    pub(crate) fn look_again(&mut self) {
        self.told = mem::take(&mut self.now);
    }

    /// A look at one object begins.
    pub(crate) fn look_again_at(&mut self, key: &str) {
        self.told.remove(key);
        if let Some((key, names)) = self.now.remove_entry(key) {
            self.told.insert(key, names);
        }
    }

    /// The look at this object has found that this is so. Says whether that is new.
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

    /// What has begun to be so.
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
