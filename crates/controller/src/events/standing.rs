//! What stays worth telling for as long as it is so, and is told once.

use std::collections::BTreeSet;
use std::mem;

use super::Note;

/// Notes about what is so at present. Each is told when it begins to be so; what has stopped is forgotten and would be told
/// again.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    told: BTreeSet<String>,
    now: BTreeSet<String>,
    new: Vec<Note>,
}

impl Standing {
    /// A look at everything begins.
    pub(crate) fn look_again(&mut self) {
        self.told = mem::take(&mut self.now);
    }

    /// This is so. Says whether that is new.
    pub(crate) fn say(&mut self, note: Note) -> bool {
        let name = note.name(None);
        let new = !self.told.contains(&name) && !self.now.contains(&name);
        if new {
            self.new.push(note);
        }
        self.now.insert(name);
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

    #[test]
    fn what_stays_so_is_told_once_and_again_after_it_had_stopped() {
        let mut standing = Standing::default();
        let note = || Note::warning(ObjectReference::default(), "Reason", "words");
        let mut told = Vec::new();
        for is_so in [true, true, false, true] {
            standing.look_again();
            if is_so {
                standing.say(note());
                standing.say(note());
            }
            told.push(standing.take().len());
        }
        assert_eq!(told, [1, 0, 0, 1]);
    }
}
