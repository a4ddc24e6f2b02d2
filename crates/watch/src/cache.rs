//! Objects of one kind, as far as they are known: from a watch, and from the answers to our own writes.

mod heard;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use crate::changes::{ChangeLog, Changed, Cursor};

pub use heard::{Change, Heard};

/// How many UIDs of objects that are gone are remembered: far more than writes are under way at a time.
const GONE: usize = 4096;
/// No version comes after this one.
const NEVER_AGAIN: u128 = u128::MAX;

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

    fn known_version(&self) -> u128 {
        version_of(self.meta())
    }
}

/// Resource versions of one kind are numbers that grow.
fn version_of(metadata: &ObjectMeta) -> u128 {
    metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// An object's namespace and name. Neither has a slash in it.
pub fn place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// An object at one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What it is kept under.
    pub key: String,
    /// Its UID; empty if it has none.
    pub uid: String,
    pub(crate) version: u128,
}

impl Identity {
    /// The object that these metadata are of, kept under its name.
    pub fn named(metadata: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { key: text(&metadata.name), uid: text(&metadata.uid), version: version_of(metadata) }
    }

    /// The same, kept under its [`place`], if it has a namespace.
    pub fn placed(metadata: &ObjectMeta) -> Self {
        let object = Self::named(metadata);
        match &metadata.namespace {
            Some(namespace) => Self { key: place(namespace, &object.key), ..object },
            None => object,
        }
    }
}

/// What matters of an object, in place of all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<F> {
    /// What matters.
    pub facts: F,
    identity: Identity,
}

impl<F> Seen<F> {
    /// Of `object` these facts matter. It is kept under its name, with its namespace if it has one.
    pub fn of(object: &impl Resource<DynamicType = ()>, facts: F) -> Self {
        Self { facts, identity: Identity::placed(object.meta()) }
    }
}

impl<F> Known for Seen<F> {
    fn key(&self) -> String {
        self.identity.key.clone()
    }

    fn known_uid(&self) -> Option<String> {
        Some(self.identity.uid.clone()).filter(|uid| !uid.is_empty())
    }

    fn known_version(&self) -> u128 {
        self.identity.version
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
    objects: BTreeMap<String, K>,
    /// While a list comes in, the names that it has not mentioned yet.
    unseen: Option<BTreeSet<String>>,
    /// Names of objects that were applied while the list came in.
    fresh: BTreeSet<String>,
    complete: bool,
    /// How many lists have begun.
    lists: u64,
    /// UIDs of objects that are gone, so that the late answer to a write does not bring one back.
    gone: BTreeMap<String, Gone>,
    gone_in_order: VecDeque<String>,
    /// Objects that are there and cannot be read, with their UIDs.
    unreadable: BTreeMap<String, String>,
    changes: ChangeLog,
}

#[derive(Debug)]
struct Gone {
    /// The last version that it had. What leaves the selection of a watch may come back with a later one.
    version: u128,
    /// The last list that had begun by then. A later one knows better.
    list: u64,
}

/// What is different now that an object was shown.
#[derive(Default)]
struct Difference {
    /// The UID of another object that had the name, and is gone.
    ended: Option<String>,
    /// Whether this one is another than before, or can be read again.
    changed: bool,
    /// Whether it was taken in: it is not older than what was known.
    taken: bool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unseen: None,
            fresh: BTreeSet::new(),
            complete: false,
            lists: 0,
            gone: BTreeMap::new(),
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
        self.lists += 1;
    }

    /// An object as the list shows it.
    pub fn list(&mut self, object: K) {
        self.show_and_note(object, true);
    }

    /// An object as a watch or the answer to a write shows it.
    pub fn apply(&mut self, object: K) {
        self.show_and_note(object, false);
    }

    fn show_and_note(&mut self, object: K, listed: bool) {
        let key = object.key();
        if self.show(&key, object, listed).changed {
            self.changes.note(&key);
        }
    }

    /// The list is complete.
    pub fn finish(&mut self) {
        let first = !self.complete;
        for (key, _) in self.end_list() {
            self.changes.note(&key);
        }
        if first {
            // Absence means something from now on.
            self.changes.note_all();
        }
    }

    /// An object is there and cannot be read.
    pub fn keep(&mut self, key: &str, uid: &str) {
        if self.keep_unread(key, uid).changed {
            self.changes.note(key);
        }
    }

    /// The object of that name and UID is gone. Another one of the same name stays.
    pub fn remove(&mut self, key: &str, uid: &str) {
        if self.end(key, uid, NEVER_AGAIN) {
            self.changes.note(key);
        }
    }

    /// Nobody watches them any more, and nothing is known.
    pub fn forget(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.note_all();
        *self = Self { changes, ..Self::default() };
    }

    /// Takes in an object, unless something newer is known.
    fn show(&mut self, key: &str, object: K, listed: bool) -> Difference {
        self.mention(key);
        if !listed && self.unseen.is_some() {
            self.fresh.insert(key.to_owned());
        }
        let (uid, version) = (object.known_uid(), object.known_version());
        if uid.as_ref().is_some_and(|uid| self.is_over(uid, version, listed)) {
            return Difference::default();
        }
        let mut difference =
            Difference { changed: self.unreadable.remove(key).is_some(), ..Difference::default() };
        let known = self.objects.get(key).map(|known| (known.known_uid(), known.known_version()));
        if let Some((known_uid, known_version)) = known {
            // A list is the truth, but for the answers to writes that came while it did.
            let is_truth = listed && !self.fresh.contains(key);
            if known_version > version && !is_truth {
                return difference;
            }
            difference.ended = known_uid.filter(|known| Some(known) != uid.as_ref());
            // A watch repeats what the answer to a write has shown.
            difference.changed |= known_version != version || version == 0 || difference.ended.is_some();
        } else {
            difference.changed = true;
        }
        if let Some(ended) = &difference.ended {
            self.remember_gone(ended.clone(), NEVER_AGAIN);
        }
        difference.taken = true;
        self.objects.insert(key.to_owned(), object);
        difference
    }

    /// Keeps what was last read of an object that cannot be read. What is known of another one under its name is gone.
    fn keep_unread(&mut self, key: &str, uid: &str) -> Difference {
        self.mention(key);
        // While a list comes in, nobody but the list mentions such an object.
        if self.is_over(uid, 0, self.unseen.is_some()) {
            return Difference::default();
        }
        let changed = self.unreadable.insert(key.to_owned(), uid.to_owned()).is_none();
        let other = self.objects.get(key).and_then(Known::known_uid).filter(|other| other != uid);
        if let Some(other) = &other {
            self.objects.remove(key);
            self.remember_gone(other.clone(), NEVER_AGAIN);
        }
        Difference { changed: changed || other.is_some(), ended: other, taken: false }
    }

    /// Ends a list; says which objects it has not mentioned, with the UIDs of those that could be read.
    fn end_list(&mut self) -> Vec<(String, Option<String>)> {
        self.complete = true;
        let mut ended = Vec::new();
        for key in self.unseen.take().into_iter().flatten() {
            let known = self.objects.remove(&key);
            let version = known.as_ref().map_or(NEVER_AGAIN, Known::known_version);
            let known = known.and_then(|known| known.known_uid());
            for uid in known.clone().into_iter().chain(self.unreadable.remove(&key)) {
                self.remember_gone(uid, version);
            }
            ended.push((key, known));
        }
        ended
    }

    /// The object of that name and UID is gone at this version. Says whether it was known.
    fn end(&mut self, key: &str, uid: &str, version: u128) -> bool {
        self.remember_gone(uid.to_owned(), version);
        let unreadable = self.unreadable.get(key).is_some_and(|unreadable| unreadable == uid);
        if unreadable {
            self.unreadable.remove(key);
        }
        self.drop_known(key, uid) || unreadable
    }

    /// Drops what is known of the object of that name and UID, which may come back. Says whether anything was.
    fn drop_known(&mut self, key: &str, uid: &str) -> bool {
        let is_it = self.objects.get(key).is_some_and(|known| known.known_uid().as_deref() == Some(uid));
        if is_it {
            self.objects.remove(key);
            self.mention(key);
        }
        is_it
    }

    /// The list that comes in has mentioned it, or something newer than the list has.
    fn mention(&mut self, key: &str) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(key);
        }
    }

    /// Whether the object is gone, and this is only late news of it.
    fn is_over(&mut self, uid: &str, version: u128, listed: bool) -> bool {
        let Some(gone) = self.gone.get(uid) else { return false };
        let is_back = version > gone.version || listed && gone.list < self.lists;
        if is_back {
            self.gone.remove(uid);
        }
        !is_back
    }

    fn remember_gone(&mut self, uid: String, version: u128) {
        let list = self.lists;
        if let Some(known) = self.gone.get_mut(&uid) {
            *known = Gone { version: known.version.max(version), list };
            return;
        }
        self.gone.insert(uid.clone(), Gone { version, list });
        self.gone_in_order.push_back(uid);
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

    /// How often something has changed.
    pub fn changes(&self) -> u64 {
        self.changes.count()
    }

    /// What has changed since `cursor` was here: objects that came, are different or are gone.
    pub fn changed(&self, cursor: &mut Cursor) -> Changed {
        self.changes.since(cursor)
    }

    /// Whether an object of that name is there that cannot be read, whatever was last read of it.
    pub fn is_unreadable(&self, key: &str) -> bool {
        self.unreadable.contains_key(key)
    }

    /// The names of objects that are there and cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.keys().map(String::as_str)
    }

    /// Whether the object of that UID was there and is gone, as far as that is remembered.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains_key(uid)
    }

    /// The object of that name.
    pub fn get(&self, key: &str) -> Option<&K> {
        self.objects.get(key)
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
        self.objects.values()
    }
}

#[cfg(test)]
mod tests;
