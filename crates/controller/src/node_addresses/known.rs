//! What is known of node addresses: the needed parts of each object, by name.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_api::nmstate::{
    Applied, FINALIZER, NodeCondition, NodeIPPool, NodeNetworkConfigurationEnactment,
    NodeNetworkConfigurationPolicy, NodeRange, annotation, condition, label,
};
use tenure_api::release::mark_of;
use tenure_ipam::Address;

use crate::cache::{Cache, Seen};
use crate::world::{State, World};
use crate::write::At;

/// Who configures the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Our agents: the CRDs are ours.
    Own,
    /// kubernetes-nmstate: the CRDs are its own, without room for our record.
    Companion,
}

/// Pools, policies and enactments.
#[derive(Debug, Default)]
pub struct NodeAddresses {
    /// Pools.
    pub pools: Cache<Seen<PoolFacts>>,
    /// Policies.
    pub policies: Cache<Seen<PolicyFacts>>,
    /// Enactments.
    pub enactments: Cache<Seen<EnactmentFacts>>,
    mode: Option<Mode>,
    mode_changes: u64,
}

/// What is needed of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFacts {
    /// The whole object.
    pub object: NodeIPPool,
    /// Its addresses, or why it has none.
    pub range: Result<NodeRange, String>,
}

/// What is needed of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyFacts {
    /// The whole object.
    pub object: NodeNetworkConfigurationPolicy,
    /// How many addresses of which pool each node needs.
    pub pools: BTreeMap<String, usize>,
}

/// What is needed of an enactment.
#[derive(Clone, Debug, PartialEq)]
pub struct EnactmentFacts {
    /// Which object.
    pub at: At,
    /// Its policy.
    pub policy: Option<String>,
    /// Its node.
    pub node: String,
    /// The UID of its node.
    pub node_uid: String,
    /// When it was created, in seconds.
    pub created: Option<i64>,
    /// Whether it is in deletion.
    pub deleting: bool,
    /// Whether its addresses are being removed from the interfaces.
    pub withdrawing: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Since when its node is missing, if that is recorded.
    pub mark: Option<String>,
    /// The pool whose addresses the node should return.
    pub reset: Option<String>,
    /// The addresses that the node has, by pool.
    pub addresses: BTreeMap<String, Vec<String>>,
    /// The generation that the node should apply.
    pub generation: Option<i64>,
    /// What the node found on its interfaces.
    pub applied: Option<Applied>,
    /// Its conditions.
    pub conditions: Vec<NodeCondition>,
}

impl State for NodeAddresses {
    fn changes(&self) -> u64 {
        self.pools.changes() + self.policies.changes() + self.enactments.changes() + self.mode_changes
    }

    fn nodes(&self) -> Vec<&str> {
        self.enactments.iter().map(|it| it.facts.node.as_str()).collect()
    }
}

impl World {
    /// Addresses of nodes.
    pub fn node_addresses(&self) -> &NodeAddresses {
        self.state()
    }

    /// The same, mutable.
    pub(crate) fn node_addresses_mut(&mut self) -> &mut NodeAddresses {
        self.state_mut()
    }
}

impl NodeAddresses {
    /// Who configures the nodes, if known.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Sets who configures the nodes.
    pub fn note_mode(&mut self, mode: Mode) {
        self.mode_changes += 1;
        self.mode = Some(mode);
    }

    /// A CRD is gone: the next may be another's.
    pub(super) fn forget_mode(&mut self) {
        if self.mode.take().is_some() {
            self.mode_changes += 1;
        }
    }
}

impl PoolFacts {
    pub(super) fn seen(mut object: NodeIPPool) -> Seen<Self> {
        object.metadata.managed_fields = None;
        let range = NodeRange::of(&object.spec.range).map_err(|error| error.to_string());
        Seen::of(&object.clone(), Self { object, range })
    }

    /// Whether nodes get addresses of it, while it has some.
    pub(super) fn gives(&self) -> bool {
        let status = self.object.status.as_ref();
        let said = status.and_then(|it| it.condition(condition::AVAILABLE));
        self.range.is_ok()
            && !said.is_some_and(|it| it.status == "False" && it.reason == condition::reason::OVERLAPPING)
    }

    /// Whether somebody asks for its record to be rebuilt.
    pub(super) fn is_reset(&self) -> bool {
        self.object.annotations().contains_key(annotation::RESET)
    }
}

impl PolicyFacts {
    pub(super) fn seen(mut object: NodeNetworkConfigurationPolicy) -> Seen<Self> {
        object.metadata.managed_fields = None;
        let mut pools = BTreeMap::new();
        for (_, pool) in object.spec.pools() {
            *pools.entry(pool.to_owned()).or_default() += 1;
        }
        Seen::of(&object.clone(), Self { object, pools })
    }

    /// Whether a node with these labels is selected.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.object.spec.node_selector.iter().filter(|(key, _)| *key != label::NODE_ADDRESSES);
        selector.into_iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// The pool whose addresses its nodes should return.
    pub(super) fn reset(&self) -> Option<&str> {
        self.object.annotations().get(annotation::RESET).map(String::as_str)
    }
}

impl EnactmentFacts {
    #[expect(clippy::needless_pass_by_value, reason = "as caches take objects")]
    pub(super) fn seen(object: NodeNetworkConfigurationEnactment) -> Seen<Self> {
        let status = object.status.clone().unwrap_or_default();
        let facts = Self {
            at: At::of(&object),
            policy: object.policy().map(str::to_owned),
            node: object.node().unwrap_or_default().to_owned(),
            node_uid: object.node_uid().unwrap_or_default().to_owned(),
            created: object.creation_timestamp().map(|time| time.0.as_second()),
            deleting: object.metadata.deletion_timestamp.is_some(),
            // The agent need not be told anything more.
            withdrawing: object.metadata.deletion_timestamp.is_some(),
            finalizers: object.finalizers().to_vec(),
            mark: mark_of(&object).map(str::to_owned),
            reset: object.annotations().get(annotation::RESET).cloned(),
            addresses: status.ippool.into_iter().map(|(pool, held)| (pool, held.allocated)).collect(),
            generation: status.policy_generation,
            applied: status.applied,
            conditions: status.conditions,
        };
        Seen::of(&object, facts)
    }

    /// Whether its addresses can be freed: it is in deletion, and none is on an interface or was ever named.
    pub(super) fn is_released(&self) -> bool {
        self.deleting && (self.addresses.is_empty() || self.applied.as_ref().is_some_and(|it| it.released))
    }

    /// Whether it should have addresses of a pool, if its policy asks for some, and has none yet.
    pub(super) fn waits_for(&self, pool: &str) -> bool {
        !self.deleting && !self.addresses.contains_key(pool)
    }

    /// Whether we keep it until its addresses are free.
    pub(super) fn is_kept(&self) -> bool {
        self.finalizers.iter().any(|it| it == FINALIZER)
    }

    /// The addresses that it has of a pool. Invalid texts are skipped.
    pub(super) fn addresses_of(&self, pool: &str) -> impl Iterator<Item = Address> {
        self.addresses.get(pool).into_iter().flatten().filter_map(|text| text.parse().ok())
    }

    /// The interface on which the node found an address.
    pub(super) fn interface_of(&self, address: Address) -> Option<&str> {
        let found = self.applied.iter().flat_map(|applied| &applied.addresses);
        let mut found = found.filter(|it| bare(&it.address) == Some(address));
        found.next().map(|it| it.interface.as_str())
    }

    /// The condition of a type, if it is true.
    pub(super) fn is(&self, type_: &str) -> Option<&NodeCondition> {
        self.conditions.iter().find(|it| it.type_ == type_ && it.is_true())
    }
}

/// The address of `address/prefix`.
pub(super) fn bare(text: &str) -> Option<Address> {
    text.split_once('/').map_or(text, |(address, _)| address).parse().ok()
}
