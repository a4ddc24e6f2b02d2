//! The location of an object: its collection, and its name in it.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// The name of a collection: `configmaps`, `leases.coordination.k8s.io`.
pub(crate) type CollectionName = Arc<str>;

/// An object's location in its collection: `namespace/name`, or `name` outside namespaces.
///
/// One string and not a pair, so that lists have the order of kube-apiserver: `a-b/x` before `a/x`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    /// The key of the object `name` in `namespace`, or of a cluster-scoped one if that is empty.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    /// The namespace; empty for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// The whole key as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The keys of a collection that a list or a watch covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every object.
    All,
    /// Those of one namespace.
    Namespace(String),
}

impl Scope {
    /// The scope of a request that names `namespace`, or none.
    pub(crate) fn of(namespace: &str) -> Self {
        if namespace.is_empty() { Self::All } else { Self::Namespace(namespace.to_owned()) }
    }

    /// Whether `key` lies inside.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace() == namespace,
        }
    }

    /// The range of keys from `start`, which is relative to the scope, to the scope's end.
    pub(crate) fn range(&self, start: &str) -> (Bound<String>, Bound<String>) {
        match self {
            Self::All => (Bound::Included(start.to_owned()), Bound::Unbounded),
            // '0' is the character after '/'.
            Self::Namespace(namespace) => {
                (Bound::Included(format!("{namespace}/{start}")), Bound::Excluded(format!("{namespace}0")))
            }
        }
    }

    /// `key` relative to the scope, as in continue tokens.
    pub(crate) fn relative<'k>(&self, key: &'k Key) -> &'k str {
        match self {
            Self::All => key.as_str(),
            Self::Namespace(_) => key.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_splits_into_namespace_and_name() {
        let key = Key::new("default", "a");
        assert_eq!((key.as_str(), key.namespace(), key.name()), ("default/a", "default", "a"));
        let key = Key::new("", "node-1");
        assert_eq!((key.as_str(), key.namespace(), key.name()), ("node-1", "", "node-1"));
    }

    #[test]
    fn a_namespace_does_not_contain_its_longer_neighbour() {
        let scope = Scope::of("a");
        assert!(scope.contains(&Key::new("a", "x")));
        assert!(!scope.contains(&Key::new("a-b", "x")));
        let (from, to) = scope.range("");
        let keys: std::collections::BTreeSet<Key> =
            ["a-b/x", "a/x", "a/y", "a0/x", "ab/x"].into_iter().map(Key::from).collect();
        let found: Vec<&str> = keys
            .range::<str, _>((from.as_ref().map(String::as_str), to.as_ref().map(String::as_str)))
            .map(Key::as_str)
            .collect();
        assert_eq!(found, ["a/x", "a/y"]);
    }
}
