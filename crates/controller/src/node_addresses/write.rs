//! Writes for node addresses.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_api::nmstate::{
    NodeCondition, NodeIPPoolStatus, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy,
    NodeNetworkConfigurationPolicyStatus,
};

use super::events;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// The name of the part.
pub(super) const PART: &str = "node_addresses";

/// The pool that reserved the addresses of an enactment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The pool.
    pub pool: String,
    /// Its UID: a later pool of the same name has reserved nothing.
    pub uid: String,
    /// The reserved offsets.
    pub offsets: Vec<i64>,
    /// Their addresses.
    pub addresses: Vec<String>,
    /// The prefix length of the network.
    pub prefix: u8,
}

/// One write of this part.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAddressWrite {
    /// Creates the CRDs of policies and enactments if they are missing, and determines whose they are.
    Define,
    /// Creates an enactment.
    Create {
        /// The whole object.
        enactment: Box<NodeNetworkConfigurationEnactment>,
    },
    /// Writes into an enactment what a pool has reserved for it, if a live read shows the reservation.
    Record {
        /// Which enactment.
        enactment: At,
        /// The reservations, one for each pool.
        promises: Vec<Promise>,
        /// The values of captures.
        captured: BTreeMap<String, (String, u8)>,
        /// The generation to apply, if it is the node's turn.
        generation: Option<i64>,
        /// Its conditions, if it is not.
        conditions: Option<Vec<NodeCondition>>,
    },
    /// Gives the node its turn, or says why not.
    Turn {
        /// Which enactment.
        enactment: At,
        /// The generation to apply.
        generation: Option<i64>,
        /// Its conditions.
        conditions: Option<Vec<NodeCondition>>,
    },
    /// Deletes an enactment: its node removes the addresses from its interfaces.
    Delete {
        /// Which enactment.
        enactment: At,
        /// Its node.
        node: String,
        /// Why, in words.
        why: String,
    },
    /// Asks for another address on behalf of a policy, or stops asking.
    AskForReset {
        /// Which enactment.
        enactment: At,
        /// The pool.
        pool: Option<String>,
    },
    /// Marks an enactment whose node is missing, if live reads confirm it.
    Mark {
        /// Which enactment.
        enactment: At,
        /// Its node.
        node: String,
        /// Since when.
        mark: String,
    },
    /// Removes that mark.
    Unmark {
        /// Which enactment.
        enactment: At,
    },
    /// The node is permanently gone, if live reads confirm it: nothing of it is on an interface.
    Abandon {
        /// The enactment, which is in deletion.
        enactment: At,
        /// Its node.
        node: String,
    },
    /// Removes our finalizer from an enactment whose addresses are free.
    Finish {
        /// Which enactment.
        enactment: At,
        /// Its other finalizers.
        finalizers: Vec<String>,
    },
    /// Writes the record of a pool.
    Pool {
        /// Which pool.
        pool: At,
        /// The whole status.
        status: Box<NodeIPPoolStatus>,
        /// Whether a node waits for it.
        urgent: bool,
    },
    /// The record of a pool is rebuilt: removes the request.
    PoolIsReset {
        /// Which pool.
        pool: At,
    },
    /// All nodes of a policy were asked: removes the request.
    PolicyIsReset {
        /// Which policy.
        policy: At,
    },
    /// Creates a policy for one node, for kubernetes-nmstate to apply.
    Generate {
        /// The whole object.
        policy: Box<NodeNetworkConfigurationPolicy>,
    },
    /// Changes such a policy.
    Carry {
        /// Which policy.
        policy: At,
        /// All its annotations.
        annotations: BTreeMap<String, String>,
        /// The whole spec, if it changes.
        spec: Option<Value>,
        /// Reservations that a live read has to show first.
        promises: Vec<Promise>,
        /// A node that live reads have to show as gone first.
        gone: Option<String>,
    },
    /// Deletes such a policy, whose addresses are free.
    Drop {
        /// Which policy.
        policy: At,
    },
    /// Writes the status of a policy.
    Policy {
        /// Which policy.
        policy: At,
        /// The whole status.
        status: Box<NodeNetworkConfigurationPolicyStatus>,
    },
}

impl Operation for NodeAddressWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Define => "define_policies",
            Self::Create { .. } => "create_enactment",
            Self::Record { .. } => "record_address",
            Self::Turn { .. } => "enactment_turn",
            Self::Delete { .. } => "delete_enactment",
            Self::AskForReset { .. } => "ask_for_reset",
            Self::Mark { .. } => "mark_enactment",
            Self::Unmark { .. } => "unmark_enactment",
            Self::Abandon { .. } => "abandon_enactment",
            Self::Finish { .. } => "finish_enactment",
            Self::Pool { .. } => "node_pool_record",
            Self::PoolIsReset { .. } => "node_pool_is_reset",
            Self::PolicyIsReset { .. } => "policy_is_reset",
            Self::Policy { .. } => "policy_status",
            Self::Generate { .. } => "generate_policy",
            Self::Carry { .. } => "change_generated_policy",
            Self::Drop { .. } => "drop_generated_policy",
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Define => "definitions of nmstate.io",
            Self::Create { enactment } => enactment.metadata.name.as_deref().unwrap_or_default(),
            Self::Generate { policy } => policy.metadata.name.as_deref().unwrap_or_default(),
            Self::Record { enactment: at, .. }
            | Self::Turn { enactment: at, .. }
            | Self::Delete { enactment: at, .. }
            | Self::AskForReset { enactment: at, .. }
            | Self::Mark { enactment: at, .. }
            | Self::Unmark { enactment: at }
            | Self::Abandon { enactment: at, .. }
            | Self::Finish { enactment: at, .. }
            | Self::Pool { pool: at, .. }
            | Self::PoolIsReset { pool: at }
            | Self::PolicyIsReset { policy: at }
            | Self::Carry { policy: at, .. }
            | Self::Drop { policy: at }
            | Self::Policy { policy: at, .. } => &at.uid,
        }
    }

    fn rank(&self) -> Rank {
        match self {
            Self::Pool { urgent: false, .. } | Self::Policy { .. } => Rank::Status,
            Self::Pool { .. }
            | Self::Create { .. }
            | Self::Generate { .. }
            | Self::Carry { .. }
            | Self::Record { .. }
            | Self::Turn { .. } => Rank::Request,
            _ => Rank::Record,
        }
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        events::notes(self, world)
    }
}
