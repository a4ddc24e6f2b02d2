//! A cache that returns what changed, for callers that act at once.
//!
//! Whatever the order of watch events, lists and answers, the changes of each object come out in order. Another object under the
//! same key is the end of the old one and the beginning of the new one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;
use tenure_api::read::Read;

use super::{Cache, Epoch, Identity, NEVER_AGAIN, Seen, place};

/// Observations of objects. `None` instead of facts means that the object is not ours.
#[derive(Clone, Debug)]
pub enum Heard<V> {
    /// A list begins.
    Begin,
    /// An object of the list.
    Listed(Identity, Option<V>),
    /// The list is complete.
    Finish,
    /// An object exists and cannot be parsed: its last readable state stays.
    Unread(Identity),
    /// An object from a watch.
    Applied(Identity, Option<V>),
    /// An object from the answer to a call that was made in this epoch.
    Answered(Epoch, Identity, Option<V>),
    /// An object is deleted at this version, or left the selection and may return.
    Left(Identity),
    /// The object with this key and UID is deleted for good.
    Gone(String, String),
}

impl<V> Heard<V> {
    /// The news of a watch event. `keep` extracts the facts of an object, and `identity` its key.
    pub fn of<K: Resource<DynamicType = ()>>(
        event: Event<Read<K>>,
        identity: fn(&ObjectMeta) -> Identity,
        keep: impl Fn(&K) -> Option<V>,
    ) -> Self {
        match event {
            Event::Init => Self::Begin,
            Event::InitApply(Read::Is(object)) => Self::Listed(identity(object.meta()), keep(&object)),
            Event::InitDone => Self::Finish,
            Event::Apply(Read::Is(object)) => Self::Applied(identity(object.meta()), keep(&object)),
            Event::InitApply(Read::Unreadable(it)) | Event::Apply(Read::Unreadable(it)) => {
                Self::Unread(identity(&it.metadata))
            }
            Event::Delete(object) => Self::Left(identity(object.meta())),
        }
    }
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// An object is new, or its facts are different.
    Seen {
        /// Its key.
        key: String,
        /// Its UID.
        uid: String,
        /// Its facts.
        value: V,
    },
    /// An object is gone.
    Gone {
        /// Its key.
        key: String,
        /// Its UID.
        uid: String,
    },
}

impl<V: Clone + PartialEq> Cache<Seen<V>> {
    /// Processes news and returns what changed.
    pub fn hear(&mut self, heard: Heard<V>) -> Vec<Change<V>> {
        match heard {
            Heard::Begin => {
                self.begin();
                Vec::new()
            }
            Heard::Listed(identity, Some(value)) => self.take(identity, value, true),
            Heard::Applied(identity, Some(value)) => self.take(identity, value, false),
            Heard::Answered(call, identity, value) => {
                let counts = self.lists.is_quiet_since(call);
                if counts { self.hear(Heard::Applied(identity, value)) } else { Vec::new() }
            }
            Heard::Listed(Identity { key, uid, .. }, None) => self.let_go(key, uid),
            Heard::Applied(Identity { key, uid, version }, None) => {
                let newer = self.get(&key).is_some_and(|known| known.identity.version > version);
                if newer { Vec::new() } else { self.let_go(key, uid) }
            }
            Heard::Unread(Identity { key, uid, .. }) => {
                let ended = self.keep_unread(&key, &uid).ended;
                ended.map(|uid| Change::Gone { key, uid }).into_iter().collect()
            }
            Heard::Finish => {
                let ended = self.end_list().into_iter();
                ended.filter_map(|(key, uid)| Some(Change::Gone { key, uid: uid? })).collect()
            }
            Heard::Left(Identity { key, uid, version }) => self.leave(key, uid, version),
            Heard::Gone(key, uid) => self.leave(key, uid, NEVER_AGAIN),
        }
    }

    fn take(&mut self, identity: Identity, value: V, listed: bool) -> Vec<Change<V>> {
        let Identity { key, uid, .. } = identity.clone();
        let known = self.get(&key);
        let is_same = known.is_some_and(|known| known.identity.uid == uid && known.facts == value);
        let difference = self.show(&key, Seen { facts: value.clone(), identity }, listed);
        let ended = difference.ended.map(|uid| Change::Gone { key: key.clone(), uid });
        let seen = (difference.taken && !is_same).then_some(Change::Seen { key, uid, value });
        ended.into_iter().chain(seen).collect()
    }

    fn leave(&mut self, key: String, uid: String, version: u128) -> Vec<Change<V>> {
        let was_known = self.uid(&key) == Some(&uid);
        self.end(&key, &uid, version);
        if was_known { vec![Change::Gone { key, uid }] } else { Vec::new() }
    }

    /// The object exists, but is not ours any more. It may become ours again.
    pub fn let_go(&mut self, key: String, uid: String) -> Vec<Change<V>> {
        if self.drop_known(&key, &uid) { vec![Change::Gone { key, uid }] } else { Vec::new() }
    }

    /// The facts of the object with this key.
    pub fn facts(&self, key: &str) -> Option<&V> {
        self.get(key).map(|seen| &seen.facts)
    }

    /// The UID of the object with this key.
    pub fn uid(&self, key: &str) -> Option<&str> {
        self.get(key).map(|seen| seen.identity.uid.as_str())
    }

    /// The facts of all objects, by key.
    pub fn all_facts(&self) -> impl Iterator<Item = (&str, &V)> {
        self.objects.iter().map(|(key, seen)| (key.as_str(), &seen.facts))
    }

    /// The facts of all objects of a namespace.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &V> {
        let first = place(namespace, "");
        let from = self.objects.range(first.clone()..);
        from.take_while(move |(key, _)| key.starts_with(&first)).map(|(_, seen)| &seen.facts)
    }
}

#[cfg(test)]
mod tests;
