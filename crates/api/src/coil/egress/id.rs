//! Which Egress is meant: a namespace and a name.

use std::fmt;

/// An Egress by namespace and name. The order of these decides between Egresses that want the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EgressId {
    /// Its namespace, which is also that of its gateways.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl EgressId {
    /// The Egress of these names.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for EgressId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
