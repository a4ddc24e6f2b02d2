//! The key of a hold.
//!
//! A key is the network's name, the container's ID and the interface's name; it makes an ADD repeatable. An
//! interface with an address from each of several ranges holds them in parts, one per range. The engine gets
//! 128 bits computed from the key, always the same, and the text is stored beside them.

use std::fmt;

/// The key of a hold. As text: `network/container/interface`, and for parts after the first `network/container/interface//2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldKey {
    network: String,
    container: String,
    interface: String,
    part: u32,
    /// Whether the pool is in place of the network.
    adopted: bool,
}

/// The placeholder in an adopted key for what its record does not say. No interface or container has this
/// name.
pub const UNSAID: &str = "*";

/// The ID by which the engine knows a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(u128);

/// A hold's pod as people know it. All fields are empty outside Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// An invalid part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} cannot be part of a hold's key; accepted is non-empty text without '/'")]
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
        let key = Self {
            network: network.into(),
            container: container.into(),
            interface: interface.into(),
            part: 0,
            adopted: false,
        };
        for (field, value) in [("container", &key.container), ("interface", &key.interface)] {
            if value.is_empty() || value.contains('/') {
                return Err(InvalidKey { field, value: value.clone() });
            }
        }
        Ok(key)
    }

    /// The key of a hold adopted from a record, which does not name the network: the pool is in its place.
    pub fn adopted(
        pool: impl Into<String>,
        container: impl Into<String>,
        interface: impl Into<String>,
    ) -> Result<Self, InvalidKey> {
        Ok(Self { adopted: true, ..Self::new(pool, container, interface)? })
    }

    /// Whether its network is unknown and the pool is in its place.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// The network's name; the pool's if it was adopted.
    pub fn network(&self) -> &str {
        &self.network
    }

    /// The container's ID.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The interface's name inside the container.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The key of another part of the same attachment: the interface's hold in range `n`, counted from 0.
    #[must_use]
    pub fn part(&self, n: u32) -> Self {
        Self { part: n, ..self.clone() }
    }

    /// The number of its part; 0 for the first or only one.
    pub fn part_number(&self) -> u32 {
        self.part
    }

    /// Whether both have the same network, container and interface, in whatever part.
    pub fn is_part_of(&self, other: &Self) -> bool {
        (&self.network, &self.container, &self.interface)
            == (&other.network, &other.container, &other.interface)
    }

    /// Its ID in the engine: 128-bit FNV-1a of the text.
    pub fn id(&self) -> HolderId {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let parts =
            [self.network.as_bytes(), b"/", self.container.as_bytes(), b"/", self.interface.as_bytes()];
        let number = if self.part == 0 { String::new() } else { format!("//{}", self.part) };
        let bytes = parts.into_iter().flatten().chain(number.as_bytes());
        HolderId(bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
    }
}

impl fmt::Display for HoldKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.interface)?;
        // An interface is never empty, so no other key has this text.
        if self.part == 0 { Ok(()) } else { write!(f, "//{}", self.part) }
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
    fn the_first_part_is_the_key_and_others_have_their_number_behind() {
        let key = HoldKey::new("k8s", "c0ffee", "eth0").unwrap();
        assert_eq!(key.part(0), key);
        assert_eq!(key.part(2).to_string(), "k8s/c0ffee/eth0//2");
        assert_eq!(key.part(2).part_number(), 2);
        assert!(key.part(2).is_part_of(&key) && key.is_part_of(&key.part(2)));
        assert!(!key.is_part_of(&HoldKey::new("k8s", "c0ffee", "net1").unwrap()));
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
            one in ("[a1/]{0,5}", "[a1]{1,2}", "[a1]{1,2}", 0_u32..12),
            other in ("[a1/]{0,5}", "[a1]{1,2}", "[a1]{1,2}", 0_u32..12),
        ) {
            let key = |(network, container, interface, part): &(String, String, String, u32)| {
                HoldKey::new(network.clone(), container.clone(), interface.clone()).unwrap().part(*part)
            };
            let (a, b) = (key(&one), key(&other));
            prop_assert_eq!(a == b, a.to_string() == b.to_string());
            prop_assert_eq!(a == b, a.id() == b.id());
        }
    }
}
