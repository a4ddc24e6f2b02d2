//! One `IPPool` object as it was seen last.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::whereabouts::{Allocation, IPPool};
use tenure_handles::Timestamp;
use tenure_ipam::Address;
use tenure_ipam::ledger::Offsets;

use super::{PoolId, cooling};

/// The annotation of an `IPPool` that says what its writers have agreed on. Ours; Whereabouts neither has nor heeds it.
pub const STATE: &str = "whereabouts.cni.cncf.io/state";

/// The annotation of an `IPPool` that says at which of its versions it was last opened after it had been sealed. It is tested with
/// the state: whoever did not hear of the time in between knows nothing of what was held then.
pub const OPENED: &str = "whereabouts.cni.cncf.io/opened";

/// What the writers of an object have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing: Whereabouts made it, or only networks with `enable_overlapping_ranges: false` use it. Its records say
    /// nothing about other ranges.
    Unmarked,
    /// Its records hold for the whole network, and no other range of the network overlaps.
    Unique,
    /// Another range of the network overlaps: whoever adds a record has made the reservation of its address before.
    Overlapping,
    /// The range is cut into slices now. Records are updated and released, none is added.
    Sliced,
    /// A node's slice: all of it is the node's.
    Owned,
}

impl State {
    /// As the annotation has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unmarked => "",
            Self::Unique => "unique",
            Self::Overlapping => "overlapping",
            Self::Sliced => "sliced",
            Self::Owned => "owned",
        }
    }

    /// What an object's annotation says; what it should not say counts as nothing.
    pub fn of(pool: &IPPool) -> Self {
        Self::of_metadata(&pool.metadata)
    }

    /// The same of an object's metadata.
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
    /// What [`OPENED`] says.
    pub(super) opened: Option<String>,
    /// What [`cooling::COOLING`] says, in its words and as it was understood.
    pub(super) said_cooling: Option<String>,
    pub(super) cooling: Vec<(Timestamp, Address)>,
    /// Whether it has annotations at all: a patch cannot add to none.
    pub(super) has_annotations: bool,
    /// How often its records have changed, as the server counts.
    pub(super) generation: Option<i64>,
    /// Whether the server notes down who wrote which record. Nobody needs that, and it costs more than the write itself.
    pub(super) is_managed: bool,
    /// What its records take, nearly.
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

    /// Takes over what metadata say, records apart.
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

    /// Whether its writers have agreed on something else since.
    pub(super) fn is_otherwise(&self, metadata: &ObjectMeta) -> bool {
        self.state != State::of_metadata(metadata) || self.opened != opened(metadata)
    }

    /// The address that a key stands for; `None` when it makes no sense.
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

/// What a record takes in an object: its texts, the JSON around them, and the server's note of who wrote it.
pub(super) fn bytes(key: &str, record: &Allocation) -> usize {
    2 * key.len()
        + record.id.len()
        + record.podref.len()
        + record.ifname.as_ref().map_or(0, String::len)
        + record.node.as_ref().map_or(0, String::len)
        + 120
}

/// Whether `new` is older than `known`, where both are numbers, as they are on every server that we know.
pub(super) fn is_older(new: Option<&String>, known: Option<&String>) -> bool {
    let number = |version: Option<&String>| version.and_then(|version| version.parse::<u128>().ok());
    matches!((number(new), number(known)), (Some(new), Some(known)) if new < known)
}
