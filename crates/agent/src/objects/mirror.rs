//! What a watch has shown so far, and what is different now.
//!
//! Events come from a watch, from the lists after it broke, and from the answers to our own calls. Whatever the order,
//! each object's changes come out in its own: a newer version is not undone by an older one, what is gone stays gone, an
//! object that vanished between two lists is gone, and another one under the same name is the old one's end and a new
//! one's beginning. An object that cannot be read is there all the same: what was last read of it stays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// What is kept of the objects of one kind, by name.
#[derive(Debug)]
pub(crate) struct Mirror<V> {
    entries: BTreeMap<String, Entry<V>>,
    /// While a list comes in: the names that it has not mentioned yet.
    unseen: Option<BTreeSet<String>>,
    /// UIDs that are gone since the last list began, and the version that they had in the end, so that a late event does
    /// not bring one back. A list that begins afterwards is not late.
    gone: BTreeMap<String, u128>,
    gone_in_order: VecDeque<String>,
    complete: bool,
}

/// How many UIDs of what is gone are remembered. Events are late by seconds, not by thousands of objects.
const REMEMBERED: usize = 1024;
/// No version comes after this one.
const NEVER_AGAIN: u128 = u128::MAX;

#[derive(Debug)]
struct Entry<V> {
    uid: String,
    version: u128,
    value: V,
}

/// An object at one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: String,
    version: u128,
}

/// What is heard of objects; `None` in place of what is kept means that the object is none of ours.
#[derive(Clone, Debug)]
pub(crate) enum Heard<V> {
    /// A list is about to be asked for.
    Begin,
    /// An object of the list.
    Listed(Identity, Option<V>),
    /// The list is complete.
    Finish,
    /// An object, of a list or not, is there and cannot be read: what was last read of it stays.
    Unread(Identity),
    /// An object as a watch or the answer to a call shows it.
    Applied(Identity, Option<V>),
    /// An object is gone at this version, or is none of ours any more and may become so again.
    Left(Identity),
    /// The object of this name and UID is gone for good.
    Gone(String, String),
}

/// What is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change<V> {
    /// An object is there, or what is kept of it is different.
    Seen { name: String, uid: String, value: V },
    /// An object is gone.
    Gone { name: String, uid: String },
}

impl Identity {
    pub(crate) fn of(object: &impl Resource) -> Self {
        Self::of_metadata(object.meta())
    }

    /// The same, where objects of all namespaces are kept: its name is [`place`] then.
    pub(crate) fn in_namespace(object: &impl Resource) -> Self {
        Self::in_namespace_of(object.meta())
    }

    /// The object that these metadata are of.
    pub(crate) fn of_metadata(metadata: &ObjectMeta) -> Self {
        // Resource versions of one kind are numbers that grow.
        let version = metadata.resource_version.as_ref();
        let version = version.and_then(|version| version.parse().ok()).unwrap_or(0);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { name: text(&metadata.name), uid: text(&metadata.uid), version }
    }

    /// The same, where objects of all namespaces are kept.
    pub(crate) fn in_namespace_of(metadata: &ObjectMeta) -> Self {
        let object = Self::of_metadata(metadata);
        let name = place(metadata.namespace.as_deref().unwrap_or_default(), &object.name);
        Self { name, ..object }
    }
}

/// An object's namespace and name. Neither has a slash in it.
pub(crate) fn place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            unseen: None,
            gone: BTreeMap::new(),
            gone_in_order: VecDeque::new(),
            complete: false,
        }
    }
}

impl<V: Clone + PartialEq> Mirror<V> {
    /// Takes in what is heard, and says what is different.
    pub(crate) fn hear(&mut self, heard: Heard<V>) -> Vec<Change<V>> {
        match heard {
            Heard::Begin => {
                self.begin();
                Vec::new()
            }
            Heard::Listed(identity, Some(value)) => self.list(identity, value),
            Heard::Applied(identity, Some(value)) => self.apply(identity, value),
            Heard::Listed(identity, None) | Heard::Applied(identity, None) => {
                self.forget(&identity.name, &identity.uid)
            }
            Heard::Unread(identity) => self.keep(&identity),
            Heard::Finish => self.finish(),
            Heard::Left(Identity { name, uid, version }) => self.remove(&name, &uid, version),
            Heard::Gone(name, uid) => self.remove(&name, &uid, NEVER_AGAIN),
        }
    }

    /// A list is about to be asked for: what it does not mention by its end is gone.
    fn begin(&mut self) {
        self.unseen = Some(self.entries.keys().cloned().collect());
        self.gone.clear();
        self.gone_in_order.clear();
    }

    /// An object of a list. It is the truth, also after a database was set back to an older state.
    fn list(&mut self, identity: Identity, value: V) -> Vec<Change<V>> {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&identity.name);
        }
        self.take(identity, value, true)
    }

    /// An object is there and cannot be read. What is known of another one under its name is gone with that.
    fn keep(&mut self, Identity { name, uid, .. }: &Identity) -> Vec<Change<V>> {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(name);
        }
        match self.entries.get(name).map(|known| known.uid.clone()) {
            Some(other) if other != *uid => {
                self.entries.remove(name);
                self.remember_gone(&other, NEVER_AGAIN);
                vec![Change::Gone { name: name.clone(), uid: other }]
            }
            _ => Vec::new(),
        }
    }

    /// The list is complete.
    fn finish(&mut self) -> Vec<Change<V>> {
        self.complete = true;
        let vanished = self.unseen.take().unwrap_or_default();
        let mut changes = Vec::new();
        for name in vanished {
            if let Some(Entry { uid, version, .. }) = self.entries.remove(&name) {
                self.remember_gone(&uid, version);
                changes.push(Change::Gone { name, uid });
            }
        }
        changes
    }

    /// An object as a watch or the answer to a call shows it.
    fn apply(&mut self, identity: Identity, value: V) -> Vec<Change<V>> {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&identity.name);
        }
        self.take(identity, value, false)
    }

    fn take(&mut self, identity: Identity, value: V, truth: bool) -> Vec<Change<V>> {
        let Identity { name, uid, version } = identity;
        if self.gone.get(&uid).is_some_and(|last| version <= *last) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if let Some(known) = self.entries.get_mut(&name) {
            if !truth && version < known.version {
                return changes;
            }
            if known.uid == uid {
                known.version = version;
                if known.value == value {
                    return changes;
                }
            } else {
                let old = known.uid.clone();
                self.remember_gone(&old, NEVER_AGAIN);
                changes.push(Change::Gone { name: name.clone(), uid: old });
            }
        }
        self.entries.insert(name.clone(), Entry { uid: uid.clone(), version, value: value.clone() });
        changes.push(Change::Seen { name, uid, value });
        changes
    }

    /// The object of that name and UID is gone. Another one of the same name stays.
    fn remove(&mut self, name: &str, uid: &str, version: u128) -> Vec<Change<V>> {
        self.remember_gone(uid, version);
        self.forget(name, uid)
    }

    fn remember_gone(&mut self, uid: &str, version: u128) {
        let last = self.gone.entry(uid.to_owned()).or_insert_with(|| {
            self.gone_in_order.push_back(uid.to_owned());
            version
        });
        *last = version.max(*last);
        if self.gone_in_order.len() > REMEMBERED
            && let Some(oldest) = self.gone_in_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    /// The object is there, but none of ours any more; it may become so again.
    pub(crate) fn forget(&mut self, name: &str, uid: &str) -> Vec<Change<V>> {
        if self.entries.get(name).is_none_or(|known| known.uid != uid) {
            return Vec::new();
        }
        self.entries.remove(name);
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(name);
        }
        vec![Change::Gone { name: name.to_owned(), uid: uid.to_owned() }]
    }

    /// What is kept of the object of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.entries.get(name).map(|entry| &entry.value)
    }

    /// The UID of the object of that name.
    pub(crate) fn uid(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(|entry| entry.uid.as_str())
    }

    /// What is kept of every object, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.value))
    }

    /// What is kept of every object of a namespace, where objects of all are kept.
    pub(crate) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &V> {
        let first = place(namespace, "");
        let from = self.entries.range(first.clone()..);
        from.take_while(move |(name, _)| name.starts_with(&first)).map(|(_, entry)| &entry.value)
    }

    /// Whether a list has come in completely.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, uid: &str, version: u128) -> Identity {
        Identity { name: name.into(), uid: uid.into(), version }
    }

    fn seen(name: &str, uid: &str, value: u8) -> Change<u8> {
        Change::Seen { name: name.into(), uid: uid.into(), value }
    }

    fn gone(name: &str, uid: &str) -> Change<u8> {
        Change::Gone { name: name.into(), uid: uid.into() }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_not_gone() {
        let mut mirror = Mirror::default();
        mirror.hear(Heard::Applied(at("a", "1", 1), Some(7)));
        for heard in
            [Heard::Begin, Heard::Unread(at("a", "1", 2)), Heard::Unread(at("b", "2", 2)), Heard::Finish]
        {
            assert_eq!(mirror.hear(heard), []);
        }
        assert_eq!((mirror.get("a"), mirror.get("b")), (Some(&7), None));
        let replaced = mirror.hear(Heard::Unread(at("a", "another", 3)));
        assert_eq!(replaced, [gone("a", "1")], "what was read was of its predecessor");
    }

    #[test]
    fn an_object_is_told_when_it_comes_and_when_what_is_kept_of_it_changes() {
        let mut mirror = Mirror::default();
        assert_eq!(mirror.apply(at("a", "1", 1), 7), [seen("a", "1", 7)]);
        assert_eq!(mirror.apply(at("a", "1", 2), 7), []);
        assert_eq!(mirror.apply(at("a", "1", 3), 8), [seen("a", "1", 8)]);
        assert_eq!(mirror.apply(at("a", "1", 2), 9), [], "an older version undoes nothing");
        assert_eq!(mirror.get("a"), Some(&8));
    }

    #[test]
    fn what_vanished_between_two_lists_is_gone_once() {
        let mut mirror = Mirror::default();
        mirror.apply(at("a", "1", 1), 7);
        mirror.apply(at("b", "2", 2), 7);
        mirror.begin();
        assert_eq!(mirror.list(at("b", "2", 2), 7), []);
        assert_eq!(mirror.finish(), [gone("a", "1")]);
        assert_eq!(mirror.remove("a", "1", 2), []);
        assert!(mirror.is_complete());
    }

    #[test]
    fn another_uid_under_the_same_name_is_an_end_and_a_beginning() {
        let mut mirror = Mirror::default();
        mirror.apply(at("a", "old", 1), 7);
        assert_eq!(mirror.apply(at("a", "new", 5), 7), [gone("a", "old"), seen("a", "new", 7)]);
        assert_eq!(mirror.remove("a", "old", 4), [], "a late deletion does not touch the successor");
        assert_eq!(mirror.uid("a"), Some("new"));
        mirror.begin();
        assert_eq!(mirror.list(at("a", "newer", 9), 7), [gone("a", "new"), seen("a", "newer", 7)]);
        assert_eq!(mirror.finish(), []);
    }

    #[test]
    fn what_is_gone_is_not_brought_back_by_a_late_event() {
        let mut mirror = Mirror::default();
        mirror.apply(at("a", "1", 1), 7);
        assert_eq!(mirror.remove("a", "1", 2), [gone("a", "1")]);
        assert_eq!(mirror.apply(at("a", "1", 2), 7), []);
        mirror.begin();
        assert_eq!(mirror.list(at("a", "1", 2), 7), [seen("a", "1", 7)], "unless a later list has it");
    }

    #[test]
    fn what_an_answer_shows_while_a_list_comes_in_is_not_taken_for_vanished() {
        let mut mirror = Mirror::default();
        mirror.begin();
        mirror.apply(at("mine", "1", 5), 7);
        assert_eq!(mirror.finish(), []);
        assert_eq!(mirror.get("mine"), Some(&7));
    }

    #[test]
    fn a_list_is_the_truth_also_when_versions_went_back() {
        let mut mirror = Mirror::default();
        mirror.apply(at("a", "1", 100), 7);
        mirror.begin();
        assert_eq!(mirror.list(at("a", "1", 50), 8), [seen("a", "1", 8)]);
        mirror.finish();
        assert_eq!(mirror.apply(at("a", "1", 51), 9), [seen("a", "1", 9)]);
    }

    #[test]
    fn what_became_another_ones_may_come_back() {
        let mut mirror = Mirror::default();
        mirror.apply(at("a", "1", 1), 7);
        assert_eq!(mirror.forget("a", "1"), [gone("a", "1")]);
        assert_eq!(mirror.apply(at("a", "1", 3), 7), [seen("a", "1", 7)]);
        // A watch that selects cannot tell the two apart.
        assert_eq!(mirror.hear(Heard::Left(at("a", "1", 4))), [gone("a", "1")]);
        assert_eq!(mirror.apply(at("a", "1", 4), 7), []);
        assert_eq!(mirror.apply(at("a", "1", 5), 7), [seen("a", "1", 7)]);
        assert_eq!(mirror.hear(Heard::Gone("a".into(), "1".into())), [gone("a", "1")]);
        assert_eq!(mirror.apply(at("a", "1", 6), 7), [], "but gone for good is for good");
    }

    #[test]
    fn a_namespace_is_not_taken_for_another_that_begins_like_it() {
        let mut mirror = Mirror::default();
        for (namespace, value) in [("a", 1), ("ab", 2), ("a-b", 3), ("a", 4)] {
            mirror.apply(at(&place(namespace, &format!("n{value}")), &value.to_string(), 1), value);
        }
        let of = |namespace: &str| mirror.of_namespace(namespace).copied().collect::<Vec<u8>>();
        assert_eq!((of("a"), of("ab"), of("a-b"), of("b")), (vec![1, 4], vec![2], vec![3], vec![]));
    }

    #[test]
    fn what_is_gone_is_not_remembered_without_bound() {
        let mut mirror: Mirror<u8> = Mirror::default();
        for number in 0..REMEMBERED + 10 {
            mirror.hear(Heard::Gone("a".into(), number.to_string()));
        }
        assert_eq!((mirror.gone.len(), mirror.gone_in_order.len()), (REMEMBERED, REMEMBERED));
    }
}
