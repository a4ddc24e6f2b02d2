//! Whose a hold is.
//!
//! A hold's key is the network's name, the container's id and the interface's name; that is what makes an ADD
//! repeatable. The engine is given 128 bits that follow from it, always the same ones, and the text stays beside them.

use std::fmt;

/// The key of a hold. As text: `network/container/interface`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldKey {
    network: String,
    container: String,
    interface: String,
}

/// What the engine knows a key by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(u128);

/// The pod that a hold is for, as people know it. All empty outside Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A part of a key that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} cannot be part of a hold's key; accepted is text without '/', and not none")]
pub struct InvalidKey {
    /// Which part.
    pub field: &'static str,
    /// Its value.
    pub value: String,
}

impl HoldKey {
    /// A key. Container and interface must not contain a slash, so that no two keys have the same text.
    pub fn new(
        network: impl Into<String>,
        container: impl Into<String>,
        interface: impl Into<String>,
    ) -> Result<Self, InvalidKey> {
        let key = Self { network: network.into(), container: container.into(), interface: interface.into() };
        for (field, value) in [("container", &key.container), ("interface", &key.interface)] {
            if value.is_empty() || value.contains('/') {
                return Err(InvalidKey { field, value: value.clone() });
            }
        }
        Ok(key)
    }

    /// The network's name.
    pub fn network(&self) -> &str {
        &self.network
    }

    /// The container's id.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The interface's name inside the container.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// What the engine knows it by: FNV-1a of the text, in 128 bits.
    pub fn id(&self) -> HolderId {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let parts =
            [self.network.as_bytes(), b"/", self.container.as_bytes(), b"/", self.interface.as_bytes()];
        let bytes = parts.into_iter().flatten();
        HolderId(bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
    }
}

impl fmt::Display for HoldKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.interface)
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_is_the_same_in_every_process() {
        let key = HoldKey::new("k8s", "c0ffee", "eth0").unwrap();
        assert_eq!(key.to_string(), "k8s/c0ffee/eth0");
        assert_eq!(format!("{:?}", key.id()), "5e22dc1908a992f3ccb91e76890bf487");
    }

    #[test]
    fn a_part_that_would_make_keys_ambiguous_is_refused_by_name() {
        for (container, interface, field) in
            [("", "eth0", "container"), ("a/b", "eth0", "container"), ("a", "", "interface")]
        {
            let error = HoldKey::new("net", container, interface).unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.to_string().contains(field), "{error}");
        }
    }

    proptest! {
        #[test]
        fn different_keys_have_different_texts_and_ids(
            one in ("[ab/]{0,3}", "[ab]{1,3}", "[ab]{1,3}"),
            other in ("[ab/]{0,3}", "[ab]{1,3}", "[ab]{1,3}"),
        ) {
            let key = |(network, container, interface): &(String, String, String)| {
                HoldKey::new(network.clone(), container.clone(), interface.clone()).unwrap()
            };
            let (a, b) = (key(&one), key(&other));
            prop_assert_eq!(a == b, a.to_string() == b.to_string());
            prop_assert_eq!(a == b, a.id() == b.id());
        }
    }
}
