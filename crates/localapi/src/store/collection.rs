//! The objects of one resource, and their recent events.
//!
//! Every event in the log has the object before and after it, so that a list can be reverted to any resource
//! version that is still in the log. Revisions that fall out of the log are reported, so that the disk can
//! forget them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use super::key::{Key, Scope};
use super::object::{Event, Object};

/// How much of the past is kept, for each collection separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    /// The most events.
    pub(crate) events: usize,
    /// The most bytes of JSON, but never fewer than a few events.
    pub(crate) bytes: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { events: 4096, bytes: 32 << 20 }
    }
}

/// Events that are kept whatever their size, so that a watcher of huge objects can follow at all.
const EVENTS_KEPT_ALWAYS: usize = 64;

/// A resource version that is no longer, or not yet, known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// Older than the log; with the oldest version that is still available.
    TooOld(u64),
    /// Newer than anything that happened; with the newest version.
    TooNew(u64),
}

/// One collection.
#[derive(Debug)]
pub(crate) struct Collection {
    objects: BTreeMap<Key, Arc<Object>>,
    log: VecDeque<Arc<Event>>,
    log_bytes: usize,
    /// Events up to this version left the log.
    compacted: u64,
    changed: watch::Sender<u64>,
}

impl Collection {
    /// An empty collection whose log starts after `compacted`.
    pub(crate) fn new(compacted: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            log_bytes: 0,
            compacted,
            changed: watch::Sender::new(compacted),
        }
    }

    /// The object at `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// The objects of `scope` in key order, from `start` (relative to the scope).
    pub(crate) fn list(&self, scope: &Scope, start: &str) -> impl Iterator<Item = &Arc<Object>> {
        let (from, to) = scope.range(start);
        let bounds = (as_str(&from), as_str(&to));
        self.objects.range::<str, _>(bounds).map(|(_, object)| object)
    }

    /// The objects of `scope` as they were at `version`, in key order, from `start`.
    pub(crate) fn list_at(
        &self,
        scope: &Scope,
        start: &str,
        version: u64,
    ) -> Result<Vec<Arc<Object>>, Unreachable> {
        if version < self.compacted {
            return Err(Unreachable::TooOld(self.compacted));
        }
        let mut objects: BTreeMap<Key, Arc<Object>> =
            self.list(scope, start).map(|object| (object.key.clone(), object.clone())).collect();
        let (from, _) = scope.range(start);
        for event in self.log.iter().rev().take_while(|event| event.version() > version) {
            let key = &event.object.key;
            let before_start = matches!(&from, Bound::Included(from) if key.as_str() < from.as_str());
            if before_start || !scope.contains(key) {
                continue;
            }
            match &event.previous {
                Some(previous) => objects.insert(key.clone(), previous.clone()),
                None => objects.remove(key),
            };
        }
        Ok(objects.into_values().collect())
    }

    /// Events after `version`, oldest first, at most `limit`.
    pub(crate) fn events_after(&self, version: u64, limit: usize) -> Result<Vec<Arc<Event>>, Unreachable> {
        if version < self.compacted {
            return Err(Unreachable::TooOld(self.compacted));
        }
        let from = self.log.partition_point(|event| event.version() <= version);
        Ok(self.log.range(from..).take(limit).cloned().collect())
    }

    /// The version up to which events are forgotten.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Receives the version of every new event.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Applies an event and reports the revisions that are no longer needed.
    pub(crate) fn apply(&mut self, event: Arc<Event>, history: History) -> Vec<u64> {
        self.set(&event);
        let version = event.version();
        self.log_bytes += event.object.json.len();
        self.log.push_back(event);
        self.changed.send_replace(version);
        self.trim(history)
    }

    /// Applies an event that is older than the log: only its result counts.
    pub(crate) fn apply_unlogged(&mut self, event: &Event) {
        self.set(event);
    }

    fn set(&mut self, event: &Event) {
        match event.present() {
            Some(object) => self.objects.insert(object.key.clone(), object.clone()),
            None => self.objects.remove(&event.object.key),
        };
    }

    fn trim(&mut self, history: History) -> Vec<u64> {
        let mut forgotten = Vec::new();
        while self.log.len() > history.events
            || (self.log_bytes > history.bytes && self.log.len() > EVENTS_KEPT_ALWAYS)
        {
            let Some(event) = self.log.pop_front() else { break };
            self.log_bytes -= event.object.json.len();
            self.compacted = event.version();
            // The state at `compacted` stays; what it replaced does not.
            forgotten.extend(event.previous.as_ref().map(|previous| previous.version));
            if event.present().is_none() {
                forgotten.push(event.version());
            }
        }
        forgotten
    }
}

fn as_str(bound: &Bound<String>) -> Bound<&str> {
    match bound {
        Bound::Included(text) => Bound::Included(text.as_str()),
        Bound::Excluded(text) => Bound::Excluded(text.as_str()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::object::{Draft, EventKind};
    use super::*;

    fn object(name: &str, version: u64, data: &str) -> Arc<Object> {
        let value = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": name}, "data": data});
        Arc::new(Draft::new(value).finish(Key::new("", name), version))
    }

    fn names(objects: &[Arc<Object>]) -> Vec<(String, u64)> {
        objects.iter().map(|object| (object.key.name().to_owned(), object.version)).collect()
    }

    #[test]
    fn a_list_can_be_taken_back_to_every_version_that_the_log_reaches() {
        let mut collection = Collection::new(0);
        let history = History::default();
        let (a1, b2, a3) = (object("a", 1, "1"), object("b", 2, "2"), object("a", 3, "3"));
        collection.apply(Arc::new(Event::new(EventKind::Added, a1.clone(), None)), history);
        collection.apply(Arc::new(Event::new(EventKind::Added, b2.clone(), None)), history);
        collection.apply(Arc::new(Event::new(EventKind::Modified, a3.clone(), Some(a1))), history);
        let gone = object("b", 4, "2");
        collection.apply(Arc::new(Event::new(EventKind::Deleted, gone, Some(b2))), history);

        let at = |version| names(&collection.list_at(&Scope::All, "", version).unwrap());
        assert_eq!(at(0), []);
        assert_eq!(at(1), [("a".to_owned(), 1)]);
        assert_eq!(at(2), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(at(3), [("a".to_owned(), 3), ("b".to_owned(), 2)]);
        assert_eq!(at(4), [("a".to_owned(), 3)]);
        assert_eq!(names(&collection.list_at(&Scope::All, "a\0", 2).unwrap()), [("b".to_owned(), 2)]);
    }

    #[test]
    fn the_log_forgets_its_oldest_events_and_says_what_the_disk_may_forget() {
        let mut collection = Collection::new(0);
        let history = History { events: 2, bytes: usize::MAX };
        let mut forgotten = Vec::new();
        let mut previous = None;
        for version in 1..=5 {
            let kind = if version == 5 {
                EventKind::Deleted
            } else if version == 1 {
                EventKind::Added
            } else {
                EventKind::Modified
            };
            let now = object("a", version, "");
            let event = Event::new(kind, now.clone(), previous.replace(now));
            forgotten.extend(collection.apply(Arc::new(event), history));
        }
        // The remaining events are 4 and 5; revision 3 is still needed to undo 4.
        assert_eq!(forgotten, [1, 2]);
        assert_eq!(collection.compacted(), 3);
        assert_eq!(collection.events_after(2, 10).unwrap_err(), Unreachable::TooOld(3));
        assert_eq!(collection.events_after(3, 10).unwrap().len(), 2);
        assert_eq!(names(&collection.list_at(&Scope::All, "", 3).unwrap()), [("a".to_owned(), 3)]);
    }
}
