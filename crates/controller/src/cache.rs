//! Objects of one kind, as far as they are known: from a watch, and from the answers to our own writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kube::{Resource, ResourceExt};

use crate::changes::{ChangeLog, Changed, Cursor};

/// How many UIDs of objects that are gone are remembered: far more than writes are under way at a time.
const GONE: usize = 4096;

/// An object that can be kept: which one it is, and how new.
pub trait Known {
    /// What it is kept under: its name, with its namespace where objects of several namespaces are kept.
    fn key(&self) -> String;
    /// Its UID.
    fn known_uid(&self) -> Option<String>;
    /// Its version, which grows.
    fn known_version(&self) -> u128;
}

impl<K: Resource> Known for K {
    fn key(&self) -> String {
        self.name_any()
    }

    fn known_uid(&self) -> Option<String> {
        self.uid()
    }

    /// Resource versions of one kind are numbers that grow.
    fn known_version(&self) -> u128 {
        self.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
    }
}

/// What matters of an object, in place of all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<F> {
    /// What matters.
    pub facts: F,
    key: String,
    uid: Option<String>,
    version: u128,
}

impl<F> Seen<F> {
    /// Of `object` these facts matter. It is kept under its name, with its namespace if it has one.
    pub fn of(object: &impl Resource<DynamicType = ()>, facts: F) -> Self {
        let key = match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        };
        Self { facts, key, uid: object.uid(), version: object.known_version() }
    }
}

impl<F> Known for Seen<F> {
    fn key(&self) -> String {
        self.key.clone()
    }

    fn known_uid(&self) -> Option<String> {
        self.uid.clone()
    }

    fn known_version(&self) -> u128 {
        self.version
    }
}

/// Objects by name. The newer one of two versions stays, whichever arrives first, and what is gone stays gone.
///
/// A list is the truth, also after the database was restored from an older backup: versions may go back, and what was gone may be
/// there again. Only answers to writes that came while the list did may be newer than it.
///
/// An object that cannot be read is not gone: what was last read of it stays, and if nothing was, its name is still taken.
/// Whoever frees something because an object is absent asks [`Cache::is_unreadable`], too.
#[derive(Debug)]
pub struct Cache<K> {
    objects: BTreeMap<String, Arc<K>>,
    /// While a list comes in, the names that it has not mentioned yet.
    unseen: Option<BTreeSet<String>>,
    /// Names of objects that were applied while the list came in.
    fresh: BTreeSet<String>,
    /// UIDs of objects that were removed since the last list began.
    removed: BTreeSet<String>,
    complete: bool,
    /// UIDs of objects that are gone, so that the late answer to a write does not bring one back.
    gone: BTreeSet<String>,
    gone_in_order: VecDeque<String>,
    /// Objects that are there and cannot be read, with their UIDs.
    unreadable: BTreeMap<String, String>,
    changes: ChangeLog,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unseen: None,
            fresh: BTreeSet::new(),
            removed: BTreeSet::new(),
            complete: false,
            gone: BTreeSet::new(),
            gone_in_order: VecDeque::new(),
            unreadable: BTreeMap::new(),
            changes: ChangeLog::default(),
        }
    }
}

impl<K: Known> Cache<K> {
    /// A list begins: what it does not mention by its end is gone.
    pub fn begin(&mut self) {
        self.unseen = Some(self.objects.keys().chain(self.unreadable.keys()).cloned().collect());
        self.fresh.clear();
        self.removed.clear();
    }

    /// An object as the list shows it.
    pub fn list(&mut self, object: K) {
        let name = object.key();
        if let Some(uid) = object.known_uid().filter(|uid| !self.removed.contains(uid)) {
            self.gone.remove(&uid);
        }
        if !self.fresh.contains(&name)
            && self.objects.get(&name).is_some_and(|known| known.known_version() > object.known_version())
        {
            self.objects.remove(&name);
        }
        self.take(name, object);
    }

    /// An object is there and cannot be read.
    pub fn keep(&mut self, name: &str, uid: &str) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(name);
        }
        if self.gone.contains(uid) {
            return;
        }
        let mut changed = self.unreadable.insert(name.to_owned(), uid.to_owned()).is_none();
        if let Some(other) = self.objects.get(name).and_then(|known| known.known_uid())
            && other != uid
        {
            self.objects.remove(name);
            self.remember_gone(other);
            changed = true;
        }
        if changed {
            self.changes.note(name);
        }
    }

    /// Whether an object of that name is there that cannot be read, whatever was last read of it.
    pub fn is_unreadable(&self, name: &str) -> bool {
        self.unreadable.contains_key(name)
    }

    /// The names of objects that are there and cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.keys().map(String::as_str)
    }

    /// An object as a watch or the answer to a write shows it.
    pub fn apply(&mut self, object: K) {
        let name = object.key();
        if self.unseen.is_some() {
            self.fresh.insert(name.clone());
        }
        self.take(name, object);
    }

    fn take(&mut self, name: String, object: K) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&name);
        }
        if object.known_uid().is_some_and(|uid| self.gone.contains(&uid)) {
            return;
        }
        let mut changed = self.unreadable.remove(&name).is_some();
        let known = self.objects.get(&name).map(|known| known.known_version());
        let newer = known.is_none_or(|known| object.known_version() >= known);
        // A watch repeats what the answer to a write has shown.
        changed |= newer && (known != Some(object.known_version()) || object.known_version() == 0);
        if changed {
            self.changes.note(&name);
        }
        if newer {
            self.objects.insert(name, Arc::new(object));
        }
    }

    /// The list is complete.
    pub fn finish(&mut self) {
        for name in self.unseen.take().into_iter().flatten() {
            self.changes.note(&name);
            let known = self.objects.remove(&name).and_then(|object| object.known_uid());
            for uid in known.into_iter().chain(self.unreadable.remove(&name)) {
                self.remember_gone(uid);
            }
        }
        if !self.complete {
            // Absence means something from now on.
            self.changes.note_all();
        }
        self.complete = true;
    }

    /// The object of that name and UID is gone. Another one of the same name stays.
    pub fn remove(&mut self, name: &str, uid: &str) {
        if self.unseen.is_some() {
            self.removed.insert(uid.to_owned());
        }
        if self.objects.get(name).is_some_and(|known| known.known_uid().as_deref() == Some(uid)) {
            self.objects.remove(name);
            self.changes.note(name);
        }
        if self.unreadable.get(name).is_some_and(|unreadable| unreadable == uid) {
            self.unreadable.remove(name);
            self.changes.note(name);
        }
        self.remember_gone(uid.to_owned());
    }

    fn remember_gone(&mut self, uid: String) {
        if self.gone.insert(uid.clone()) {
            self.gone_in_order.push_back(uid);
        }
        if self.gone_in_order.len() > GONE
            && let Some(oldest) = self.gone_in_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    /// Whether a list has come in completely.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Nobody watches them any more, and nothing is known.
    pub fn forget(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.note_all();
        *self = Self { changes, ..Self::default() };
    }

    /// How often something has changed.
    pub fn changes(&self) -> u64 {
        self.changes.count()
    }

    /// What has changed since `cursor` was here: objects that came, are different or are gone.
    pub fn changed(&self, cursor: &mut Cursor) -> Changed {
        self.changes.since(cursor)
    }

    /// Whether the object of that UID was there and is gone, as far as that is remembered.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// The object of that name.
    pub fn get(&self, name: &str) -> Option<&K> {
        self.objects.get(name).map(AsRef::as_ref)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// All objects, by name.
    pub fn iter(&self) -> impl Iterator<Item = &K> {
        self.objects.values().map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn node(name: &str, uid: &str, version: u64) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.into());
        node.metadata.uid = Some(uid.into());
        node.metadata.resource_version = Some(version.to_string());
        node
    }

    #[test]
    fn an_old_event_does_not_undo_the_answer_to_a_write() {
        let mut cache = Cache::default();
        cache.apply(node("a", "1", 20));
        cache.apply(node("a", "1", 9));
        assert_eq!(cache.get("a").unwrap().resource_version().as_deref(), Some("20"));
    }

    #[test]
    fn a_list_is_the_truth_also_after_the_database_was_restored_from_an_older_backup() {
        let mut cache = Cache::default();
        cache.apply(node("older", "1", 20));
        cache.apply(node("deleted", "2", 21));
        cache.apply(node("later", "3", 22));
        cache.remove("deleted", "2");
        cache.begin();
        cache.list(node("older", "1", 9));
        cache.list(node("deleted", "2", 5));
        cache.finish();
        assert_eq!(cache.get("older").unwrap().resource_version().as_deref(), Some("9"));
        assert!(cache.get("deleted").is_some(), "it is there again");
        assert!(cache.get("later").is_none(), "it was made after the backup");
    }

    #[test]
    fn the_answer_to_a_write_that_comes_while_a_list_does_is_newer_than_the_list() {
        let mut cache = Cache::default();
        cache.apply(node("a", "1", 5));
        cache.apply(node("b", "2", 6));
        cache.begin();
        cache.apply(node("a", "1", 8));
        cache.remove("b", "2");
        cache.list(node("a", "1", 5));
        cache.list(node("b", "2", 6));
        cache.finish();
        assert_eq!(cache.get("a").unwrap().resource_version().as_deref(), Some("8"));
        assert!(cache.get("b").is_none(), "it was deleted while the list came in");
    }

    #[test]
    fn what_a_list_does_not_mention_is_gone() {
        let mut cache = Cache::default();
        cache.apply(node("a", "1", 1));
        cache.apply(node("b", "2", 2));
        cache.begin();
        cache.apply(node("b", "2", 2));
        cache.finish();
        assert_eq!((cache.get("a").is_none(), cache.get("b").is_some()), (true, true));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_not_gone() {
        let mut cache = Cache::default();
        cache.begin();
        cache.apply(node("a", "1", 1));
        cache.keep("b", "2");
        cache.finish();
        cache.begin();
        cache.keep("a", "1");
        cache.keep("b", "2");
        cache.finish();
        assert!(cache.get("a").is_some(), "what was last read of it stays");
        assert_eq!(cache.unreadable().collect::<Vec<_>>(), ["a", "b"]);
        cache.keep("a", "another");
        assert!(cache.get("a").is_none() && cache.is_unreadable("a"), "but not of its predecessor");
        cache.apply(node("b", "2", 5));
        assert!(cache.get("b").is_some() && !cache.is_unreadable("b"));
        cache.remove("a", "another");
        cache.begin();
        cache.finish();
        assert!(cache.is_empty() && cache.unreadable().next().is_none());
    }

    #[test]
    fn a_late_deletion_does_not_touch_a_successor_of_the_same_name() {
        let mut cache = Cache::default();
        cache.apply(node("a", "new", 5));
        cache.remove("a", "old");
        assert!(cache.get("a").is_some());
    }

    #[test]
    fn the_late_answer_to_a_write_does_not_bring_back_what_is_gone() {
        let mut cache = Cache::default();
        cache.apply(node("a", "1", 5));
        cache.remove("a", "1");
        cache.apply(node("a", "1", 6));
        assert!(cache.get("a").is_none());
        cache.apply(node("a", "2", 9));
        assert!(cache.get("a").is_some(), "a successor has another UID");
        for number in 0..GONE + 10 {
            cache.remove("b", &number.to_string());
        }
        assert_eq!(cache.gone.len(), GONE, "and the memory of the dead is bounded");
    }
}
