//! Writes for Egresses.
//!
//! A child is created under a name that is the lock, or changed by a JSON patch that tests the version that was read
//! and has only our fields.

use serde_json::Value;
use tenure_api::coil::egress::EgressStatus;

use super::deployment::Applied;
use super::events;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// The name of the part.
pub(super) const PART: &str = "egress";

/// Which kind of child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChildKind {
    /// The ServiceAccount of gateways.
    Account,
    /// The Role of that account.
    Role,
    /// The RoleBinding of the two.
    Binding,
    /// The Service in front of gateways.
    Service,
    /// The PodDisruptionBudget of gateways.
    Budget,
    /// The Deployment of gateways.
    Deployment,
}

impl ChildKind {
    /// The name of the kind in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Account => "ServiceAccount",
            Self::Role => "Role",
            Self::Binding => "RoleBinding",
            Self::Service => "Service",
            Self::Budget => "PodDisruptionBudget",
            Self::Deployment => "Deployment",
        }
    }
}

/// The Egress of a child, as it was when the write was planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Of {
    /// Its namespace, which is the child's.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: Option<i64>,
}

impl Of {
    /// The key of the Egress in caches.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// One write of this part.
#[derive(Clone, Debug, PartialEq)]
pub enum EgressWrite {
    /// Creates a child.
    Create {
        /// Of which Egress.
        of: Of,
        /// Which kind.
        kind: ChildKind,
        /// Kind, namespace and name.
        subject: String,
        /// The whole object.
        object: Box<Value>,
    },
    /// Changes a child.
    Change {
        /// Of which Egress.
        of: Of,
        /// Which kind.
        kind: ChildKind,
        /// Which child.
        child: At,
        /// A JSON patch that tests the version.
        operations: Box<Value>,
        /// The record of the last write for a Deployment, which names the resulting generation.
        applied: Option<Applied>,
    },
    /// Deletes a budget that is not requested any more.
    DeleteBudget {
        /// The namespace.
        namespace: String,
        /// Which budget.
        budget: At,
    },
    /// Writes the status of an Egress.
    Status {
        /// The namespace.
        namespace: String,
        /// Which Egress.
        egress: At,
        /// Its status.
        status: Box<EgressStatus>,
    },
    /// Marks the clients of a missing node, if live reads confirm it and show no living pod there.
    MarkClients {
        /// The namespace.
        namespace: String,
        /// Which object.
        clients: At,
        /// Their node.
        node: String,
        /// Since when.
        mark: String,
    },
    /// Removes that mark.
    UnmarkClients {
        /// The namespace.
        namespace: String,
        /// Which object.
        clients: At,
    },
    /// Deletes the clients of a missing node, if live reads confirm that nobody is left there.
    ReleaseClients {
        /// The namespace.
        namespace: String,
        /// Which object.
        clients: At,
        /// Their node.
        node: String,
    },
}

impl Operation for EgressWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create_gateway_object",
            Self::Change { .. } => "change_gateway_object",
            Self::DeleteBudget { .. } => "delete_gateway_budget",
            Self::Status { .. } => "egress_status",
            Self::MarkClients { .. } => "mark_clients",
            Self::UnmarkClients { .. } => "unmark_clients",
            Self::ReleaseClients { .. } => "release_clients",
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Create { subject, .. } => subject,
            Self::Change { child: at, .. }
            | Self::DeleteBudget { budget: at, .. }
            | Self::Status { egress: at, .. }
            | Self::MarkClients { clients: at, .. }
            | Self::UnmarkClients { clients: at, .. }
            | Self::ReleaseClients { clients: at, .. } => &at.uid,
        }
    }

    fn rank(&self) -> Rank {
        match self {
            Self::Create { .. } | Self::Change { .. } => Rank::Request,
            Self::Status { .. } => Rank::Status,
            _ => Rank::Record,
        }
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        events::notes(self, world)
    }
}
