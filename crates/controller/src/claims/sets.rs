//! Sets by key, for indexes: what an object added is removed when the object changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Keys of objects, mostly `namespace/name`.
pub(super) type Names = BTreeSet<Arc<str>>;

/// Sets by key; empty ones are removed.
#[derive(Debug)]
pub(super) struct Sets<V>(HashMap<Arc<str>, BTreeSet<V>>);

impl<V> Default for Sets<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<V: Ord> Sets<V> {
    /// Adds a value to the set of a key.
    pub(super) fn add(&mut self, key: &str, value: V) {
        match self.0.get_mut(key) {
            Some(set) => _ = set.insert(value),
            None => _ = self.0.insert(key.into(), BTreeSet::from([value])),
        }
    }

    /// Takes a value out of the set of a key.
    pub(super) fn remove(&mut self, key: &str, value: &V) {
        let Some(set) = self.0.get_mut(key) else { return };
        set.remove(value);
        if set.is_empty() {
            self.0.remove(key);
        }
    }

    /// The set of a key, in ascending order.
    pub(super) fn of<'a>(&'a self, key: &str) -> impl DoubleEndedIterator<Item = &'a V> + use<'a, V> {
        self.0.get(key).into_iter().flatten()
    }

    /// The keys of all sets.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }
}
