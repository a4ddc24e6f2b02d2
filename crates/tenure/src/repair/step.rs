//! A step of a plan as data: the object, its guard, the operation, and why it is safe.

use std::fmt;

use kube::core::ApiResource;
use kube::{Resource, ResourceExt};
use serde::{Serialize, Serializer};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, FINALIZER};
use tenure_api::nmstate::NodeIPPool;
use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation};

use crate::check::Difference;

/// What to do about one finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
    /// This write repairs it.
    Repair(Box<Step>),
    /// It heals without a write: who does it.
    Heals(String),
    /// It cannot be repaired safely.
    #[serde(rename_all = "camelCase")]
    Cannot {
        /// Why not.
        because: String,
        /// What to do instead.
        instead: String,
    },
}

/// One guarded write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    pub(crate) object: Object,
    #[serde(serialize_with = "as_text")]
    pub(crate) operation: Operation,
    /// Why nobody gets an address that another one has.
    pub(crate) safe: String,
    /// Whether everything is read again immediately before, because the write is safe only as long as nobody uses an address.
    pub(crate) evidence: bool,
}

/// An object as it was read. A write names its UID and version, so that it fails if anybody changed the object since.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Object {
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// Empty if the step creates it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
}

/// What is done to the object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    /// Adds our finalizer.
    AddFinalizer,
    /// Removes our finalizer.
    RemoveFinalizer,
    /// Sets a label.
    Label(&'static str, String),
    /// Sets an annotation.
    Annotate(&'static str, String),
    /// Deletes it, with our finalizer.
    Delete,
    /// Removes records of an `IPPool`, by their keys.
    DropRecords(Vec<String>),
    /// Creates a block for the node that holds addresses of it.
    Carve(Box<AddressBlock>),
    /// Creates a reservation.
    Reserve(Box<OverlappingRangeIPReservation>),
    /// Deletes the pod of the node's agent; its DaemonSet makes another one.
    RestartAgent,
}

/// The kind of an agent as the object of a step.
pub(crate) const AGENT: &str = "agent";

impl Step {
    /// A write of an object that needs no more than its guard.
    pub(crate) fn guarded(object: Object, operation: Operation, safe: impl Into<String>) -> Verdict {
        Verdict::Repair(Box::new(Self { object, operation, safe: safe.into(), evidence: false }))
    }

    /// A write of an object that is safe only while nobody uses its addresses.
    pub(crate) fn if_unused(object: Object, operation: Operation, safe: impl Into<String>) -> Verdict {
        Verdict::Repair(Box::new(Self { object, operation, safe: safe.into(), evidence: true }))
    }

    /// Whether both do the same to the same object, in whatever version.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let identity = |it: &Object| (it.kind, it.namespace.clone(), it.name.clone(), it.uid.clone());
        identity(&self.object) == identity(&other.object) && self.operation == other.operation
    }
}

impl Verdict {
    pub(crate) fn cannot(because: impl Into<String>, instead: impl Into<String>) -> Self {
        Self::Cannot { because: because.into(), instead: instead.into() }
    }

    /// That a person has to do what `check` advises.
    pub(crate) fn advised(because: impl Into<String>, difference: &Difference) -> Self {
        Self::cannot(because, &difference.advice)
    }
}

impl Object {
    pub(crate) fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            kind: kind_of::<K>(),
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        }
    }

    /// An object that does not exist yet.
    pub(crate) fn new<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self { uid: String::new(), resource_version: String::new(), ..Self::of(object) }
    }

    /// The agent of a node.
    pub(crate) fn agent(node: &str) -> Self {
        Self { kind: AGENT, name: node.to_owned(), ..Self::default() }
    }

    /// Its kind, for a client that knows no types; `None` for an agent.
    pub(crate) fn resource(&self) -> Option<ApiResource> {
        let of = [
            ApiResource::erase::<AddressPool>(&()),
            ApiResource::erase::<AddressBlock>(&()),
            ApiResource::erase::<BlockRequest>(&()),
            ApiResource::erase::<IPPool>(&()),
            ApiResource::erase::<OverlappingRangeIPReservation>(&()),
            ApiResource::erase::<NodeIPPool>(&()),
        ];
        of.into_iter().find(|resource| resource.kind == self.kind)
    }
}

fn kind_of<K: Resource<DynamicType = ()>>() -> &'static str {
    let kinds = [
        "AddressPool",
        "AddressBlock",
        "BlockRequest",
        "IPPool",
        "OverlappingRangeIPReservation",
        "NodeIPPool",
    ];
    let kind = K::kind(&());
    kinds.into_iter().find(|it| *it == kind).unwrap_or("object")
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            _ if self.kind == AGENT => write!(f, "the agent of node {}", self.name),
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => write!(f, "add the finalizer {FINALIZER}"),
            Self::RemoveFinalizer => write!(f, "remove the finalizer {FINALIZER}"),
            Self::Label(key, value) => write!(f, "set the label {key}={value}"),
            Self::Annotate(key, value) => write!(f, "set the annotation {key}={value}"),
            Self::Delete => f.write_str("delete"),
            Self::DropRecords(keys) => write!(f, "remove the records {}", keys.join(", ")),
            Self::Carve(block) => write!(f, "create for node {}", block.node().unwrap_or_default()),
            Self::Reserve(reservation) => write!(f, "create for {}", reservation.spec.podref),
            Self::RestartAgent => f.write_str("restart"),
        }
    }
}

fn as_text<S: Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(operation)
}
