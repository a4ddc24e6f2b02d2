//! The objects of one kind, from a watch and from the answers to our own writes.

mod epoch;
mod heard;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use crate::changes::{ChangeLog, Changed, Cursor};

pub use epoch::Epoch;
pub use heard::{Change, Heard};

/// How many UIDs of deleted objects are remembered: far more than there are writes in flight.
const GONE: usize = 4096;
/// No version comes after this one.
const NEVER_AGAIN: u128 = u128::MAX;

/// An object that a cache can keep.
pub trait Known {
    /// Its key: the name, with the namespace if the cache has objects of several namespaces.
    fn key(&self) -> String;
    /// Its UID.
    fn known_uid(&self) -> Option<String>;
    /// Its version. Versions grow.
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

/// The resource version as a number; versions of one kind grow.
fn version_of(metadata: &ObjectMeta) -> u128 {
    metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The key of an object in a namespace. Neither part contains a slash.
pub fn place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// An object at one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its key.
    pub key: String,
    /// Its UID; empty if it has none.
    pub uid: String,
    pub(crate) version: u128,
}

impl Identity {
    /// The object with these metadata. Its key is the name.
    pub fn named(metadata: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { key: text(&metadata.name), uid: text(&metadata.uid), version: version_of(metadata) }
    }

    /// The same. Its key is its [`place`], if it has a namespace.
    pub fn placed(metadata: &ObjectMeta) -> Self {
        let object = Self::named(metadata);
        match &metadata.namespace {
            Some(namespace) => Self { key: place(namespace, &object.key), ..object },
            None => object,
        }
    }
}

/// The facts that matter of an object, instead of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<F> {
    /// The facts.
    pub facts: F,
    identity: Identity,
}

impl<F> Seen<F> {
    /// The facts of `object`. The key is the name, with the namespace if there is one.
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

/// Objects by key. Of two versions the newer one stays, whichever arrives first. A deleted object stays deleted.
///
/// A list is the truth, also after etcd was restored from a backup: versions may go back, and deleted objects may exist again. The
/// answer to a call counts only if no list came between ([`Epoch`]).
///
/// An object that cannot be parsed is not deleted: its last readable state stays, and if there is none, its name is still taken.
/// Before you free something because an object is absent, ask [`Cache::is_unreadable`], too.
#[derive(Debug)]
pub struct Cache<K> {
    objects: BTreeMap<String, K>,
    /// During a list: the keys that it has not mentioned yet.
    unseen: Option<BTreeSet<String>>,
    complete: bool,
    /// The lists so far.
    lists: Epoch,
    /// UIDs of deleted objects, so that the late answer to a write does not bring one back.
    gone: BTreeMap<String, Gone>,
    gone_in_order: VecDeque<String>,
    /// Objects that exist and cannot be parsed, with their UIDs.
    unreadable: BTreeMap<String, String>,
    changes: ChangeLog,
}

#[derive(Debug)]
struct Gone {
    /// Its last version. An object that left a watch's selection can return with a later version.
    version: u128,
    /// The last list that had begun by then. A later list overrides this.
    list: Epoch,
}

/// What changed when an object was shown.
#[derive(Default)]
struct Difference {
    /// The UID of an earlier object with the same key, which is gone.
    ended: Option<String>,
    /// Whether the object is different, or can be parsed again.
    changed: bool,
    /// Whether it is kept now; not if a newer version is known.
    taken: bool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unseen: None,
            complete: false,
            lists: Epoch::default(),
            gone: BTreeMap::new(),
            gone_in_order: VecDeque::new(),
            unreadable: BTreeMap::new(),
            changes: ChangeLog::default(),
        }
    }
}

impl<K: Known> Cache<K> {
    /// A list begins. What it does not mention is gone when it ends.
    pub fn begin(&mut self) {
        self.unseen = Some(self.objects.keys().chain(self.unreadable.keys()).cloned().collect());
        self.lists.begin();
    }

    /// An object of the list.
    pub fn list(&mut self, object: K) {
        self.show_and_note(object, true);
    }

    /// Whether this is an object at the version that is kept. The watch repeats what the answer to a write has shown, and then
    /// nothing needs to be read of it again.
    pub fn keeps(&mut self, key: &str, uid: Option<&str>, version: u128) -> bool {
        let same = |kept: &K| kept.known_version() == version && kept.known_uid().as_deref() == uid;
        let keeps =
            version > 0 && !self.unreadable.contains_key(key) && self.objects.get(key).is_some_and(same);
        if keeps {
            self.mention(key);
        }
        keeps
    }

    /// An object from a watch, or from the answer to a call if [`Epoch`] lets it count.
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

    /// An object exists and cannot be parsed.
    pub fn keep(&mut self, key: &str, uid: &str) {
        if self.keep_unread(key, uid).changed {
            self.changes.note(key);
        }
    }

    /// The object with this key and UID is deleted. Another one with the same key stays.
    pub fn remove(&mut self, key: &str, uid: &str) {
        if self.end(key, uid, NEVER_AGAIN) {
            self.changes.note(key);
        }
    }

    /// Forgets everything, because nobody watches the kind any more.
    pub fn forget(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.note_all();
        *self = Self { changes, ..Self::default() };
    }

    /// Keeps an object, unless a newer version is known.
    fn show(&mut self, key: &str, object: K, listed: bool) -> Difference {
        self.mention(key);
        let (uid, version) = (object.known_uid(), object.known_version());
        if uid.as_ref().is_some_and(|uid| self.is_over(uid, version, listed)) {
            return Difference::default();
        }
        let mut difference =
            Difference { changed: self.unreadable.remove(key).is_some(), ..Difference::default() };
        let known = self.objects.get(key).map(|known| (known.known_uid(), known.known_version()));
        if let Some((known_uid, known_version)) = known {
            // A list is the truth.
            if known_version > version && !listed {
                return difference;
            }
            difference.ended = known_uid.filter(|known| Some(known) != uid.as_ref());
            // The watch repeats what the answer to a write has shown.
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

    /// Keeps the last readable state of an object that cannot be parsed. An earlier object with its key is gone.
    fn keep_unread(&mut self, key: &str, uid: &str) -> Difference {
        self.mention(key);
        // During a list only the list mentions such an object.
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

    /// Ends a list. Returns the keys that it did not mention, with the UIDs of objects that could be parsed.
    fn end_list(&mut self) -> Vec<(String, Option<String>)> {
        self.complete = true;
        self.lists.finish();
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

    /// The object with this key and UID is deleted at this version. Returns whether it was known.
    fn end(&mut self, key: &str, uid: &str, version: u128) -> bool {
        self.remember_gone(uid.to_owned(), version);
        let unreadable = self.unreadable.get(key).is_some_and(|unreadable| unreadable == uid);
        if unreadable {
            self.unreadable.remove(key);
        }
        self.drop_known(key, uid) || unreadable
    }

    /// Drops the object with this key and UID, which may come back. Returns whether it was known.
    fn drop_known(&mut self, key: &str, uid: &str) -> bool {
        let is_it = self.objects.get(key).is_some_and(|known| known.known_uid().as_deref() == Some(uid));
        if is_it {
            self.objects.remove(key);
            self.mention(key);
        }
        is_it
    }

    /// The list, or something newer, has mentioned this key.
    fn mention(&mut self, key: &str) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(key);
        }
    }

    /// Whether the object is deleted and this is an old state of it.
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

    /// The lists so far: ask before a call, and give it back with the answer.
    pub fn epoch(&self) -> Epoch {
        self.lists
    }

    /// Whether a list is complete.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.count()
    }

    /// What changed since `cursor` last read: objects that are new, different or gone.
    pub fn changed(&self, cursor: &mut Cursor) -> Changed {
        self.changes.since(cursor)
    }

    /// Whether an object with this key exists and cannot be parsed, whether or not an earlier state is known.
    pub fn is_unreadable(&self, key: &str) -> bool {
        self.unreadable.contains_key(key)
    }

    /// The keys of objects that exist and cannot be parsed.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.keys().map(String::as_str)
    }

    /// Whether the object with this UID is remembered as deleted.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains_key(uid)
    }

    /// The object with this key.
    pub fn get(&self, key: &str) -> Option<&K> {
        self.objects.get(key)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// All objects, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = &K> {
        self.objects.values()
    }
}

#[cfg(test)]
mod tests;
