//! The cached state of one `IPPool` object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::whereabouts::{Allocation, IPPool};
use tenure_handles::Timestamp;
use tenure_ipam::Address;
use tenure_ipam::ledger::Offsets;

use super::{PoolId, cooling};

/// The annotation of an `IPPool` with its writers' agreement. It is ours; Whereabouts neither writes nor
/// respects it.
pub const STATE: &str = "whereabouts.cni.cncf.io/state";

/// The annotation of an `IPPool` with the version at which it was last opened after it had been sealed. It is
/// tested with the state: a writer that missed the time in between does not know what was held then.
pub const OPENED: &str = "whereabouts.cni.cncf.io/opened";

/// The agreement of an object's writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// None: Whereabouts created it, or only networks with `enable_overlapping_ranges: false` use it. Its
    /// records say nothing about other ranges.
    Unmarked,
    /// Its records hold for the whole network, and no other range of the network overlaps.
    Unique,
    /// Another range of the network overlaps: whoever adds a record first makes the reservation of its
    /// address.
    Overlapping,
    /// The range is now divided into slices. Records are updated and released, none is added.
    Sliced,
    /// A node's slice, owned by the node.
    Owned,
}

impl State {
    /// The annotation's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unmarked => "",
            Self::Unique => "unique",
            Self::Overlapping => "overlapping",
            Self::Sliced => "sliced",
            Self::Owned => "owned",
        }
    }

    /// The state in an object's annotation; an invalid one counts as none.
    pub fn of(pool: &IPPool) -> Self {
        Self::of_metadata(&pool.metadata)
    }

    /// The same for an object's metadata.
    pub fn of_metadata(metadata: &ObjectMeta) -> Self {
        let said = metadata.annotations.as_ref().and_then(|all| all.get(STATE)).map(String::as_str);
        let all = [Self::Unique, Self::Overlapping, Self::Sliced, Self::Owned];
        all.into_iter().find(|state| said == Some(state.as_str())).unwrap_or(Self::Unmarked)
    }
}

/// An object of a pool.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) id: PoolId,
    pub(super) number: u128,
    pub(super) version: Option<String>,
    pub(super) state: State,
    /// The value of [`OPENED`].
    pub(super) opened: Option<String>,
    /// The value of [`cooling::COOLING`], as text and parsed.
    pub(super) said_cooling: Option<String>,
    pub(super) cooling: Vec<(Timestamp, Address)>,
    /// Whether it has annotations at all: a patch cannot add to none.
    pub(super) has_annotations: bool,
    /// How often its records changed, by the server's count.
    pub(super) generation: Option<i64>,
    /// Whether the server records who wrote which record. Nobody needs that, and it costs more than the write
    /// itself.
    pub(super) is_managed: bool,
    /// The approximate size of its records.
    pub(super) bytes: usize,
    pub(super) records: BTreeMap<String, Allocation>,
}

impl Object {
    pub(super) fn new(id: PoolId, number: u128, pool: &IPPool) -> Self {
        let range = id.range;
        Self {
            id,
            number,
            version: pool.metadata.resource_version.clone(),
            state: State::of(pool),
            opened: opened(&pool.metadata),
            said_cooling: cooling::said(&pool.metadata),
            cooling: cooling::read(&range, cooling::said(&pool.metadata).as_deref()),
            has_annotations: pool.metadata.annotations.is_some(),
            generation: pool.metadata.generation,
            is_managed: pool.metadata.managed_fields.as_ref().is_some_and(|fields| !fields.is_empty()),
            bytes: pool.spec.allocations.iter().map(|(key, record)| bytes(key, record)).sum(),
            records: pool.spec.allocations.clone(),
        }
    }

    /// Updates everything but the records from metadata.
    pub(super) fn see_metadata(&mut self, metadata: &ObjectMeta) {
        self.version.clone_from(&metadata.resource_version);
        self.generation = metadata.generation;
        self.state = State::of_metadata(metadata);
        self.opened = opened(metadata);
        let said = cooling::said(metadata);
        if said != self.said_cooling {
            self.cooling = cooling::read(&self.id.range, said.as_deref());
            self.said_cooling = said;
        }
        self.has_annotations = metadata.annotations.is_some();
        self.is_managed = metadata.managed_fields.as_ref().is_some_and(|fields| !fields.is_empty());
    }

    /// Whether its writers' agreement changed since.
    pub(super) fn is_otherwise(&self, metadata: &ObjectMeta) -> bool {
        self.state != State::of_metadata(metadata) || self.opened != opened(metadata)
    }

    /// The address of a key; `None` if the key is invalid.
    pub(super) fn address(&self, key: &str) -> Option<Address> {
        let decimal = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
        let offset = if decimal { key.parse().ok()? } else { return None };
        Offsets::of(&self.id.range).address(offset).ok()
    }
}

/// When an object was last opened.
pub(super) fn opened(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref().and_then(|all| all.get(OPENED)).cloned()
}

/// The size of a record in an object: its texts, the JSON around them, and the server's note of who wrote it.
pub(super) fn bytes(key: &str, record: &Allocation) -> usize {
    2 * key.len()
        + record.id.len()
        + record.podref.len()
        + record.ifname.as_ref().map_or(0, String::len)
        + record.node.as_ref().map_or(0, String::len)
        + 120
}

/// Whether `new` is older than `known`, if both are numbers, as on every server that we know.
pub(super) fn is_older(new: Option<&String>, known: Option<&String>) -> bool {
    let number = |version: Option<&String>| version.and_then(|version| version.parse::<u128>().ok());
    matches!((number(new), number(known)), (Some(new), Some(known)) if new < known)
}
