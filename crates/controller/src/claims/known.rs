//! What the controller knows of claims: `IPAMClaim`s of all namespaces, and the pools that namespaces name.
//!
//! The CRD of claims may be missing. Then nothing is known of them, so nothing is assigned or freed.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::annotation;
use tenure_claims::ClaimFacts;
use tenure_claims::owners::Existing;

use super::Persistence;
use crate::cache::{Cache, Known, Seen};
use crate::release::MissingNodeRest;
use crate::world::{State, World};

/// Everything known of claims.
#[derive(Debug, Default)]
pub struct Claims {
    /// `IPAMClaim`s by `namespace/name`. Incomplete while their CRD is missing.
    pub all: Cache<Claim>,
    /// Namespaces; watched only while claims exist.
    pub namespaces: Cache<NamespaceSeen>,
    /// The name of the cluster's default network, if its addresses may outlive pods.
    pub cluster_network: Option<String>,
    /// How long a pod and its Node object must be gone before the pod counts as ended.
    pub missing_node_rest: MissingNodeRest,
    /// Which networks and blocks let addresses outlive pods.
    pub(crate) persistence: Persistence,
    /// A bug that a test plants, to prove that the checks find it.
    #[cfg(test)]
    pub(crate) planted: Option<super::Planted>,
}

/// A claim that the watch has reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What agents and controller both need of it.
    pub facts: ClaimFacts,
    /// What the planner of owners needs of it.
    pub existing: Existing,
    /// The whole object.
    pub object: IPAMClaim,
}

/// A namespace that the watch has reported.
pub type NamespaceSeen = Seen<NamespaceFacts>;

/// What is kept of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// The pool that its annotation names.
    pub pool: Option<String>,
}

impl Claims {
    /// The claim of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Claim> {
        self.all.get(&format!("{namespace}/{name}"))
    }

    /// Whether namespaces have to be watched.
    pub fn needs_namespaces(&self) -> bool {
        !self.all.is_empty()
    }
}

impl State for Claims {
    fn changes(&self) -> u64 {
        self.all.changes() + self.namespaces.changes()
    }
}

impl World {
    /// Knows nothing yet but the cluster's default network, if its addresses may outlive pods.
    pub fn of_cluster_network(cluster_network: Option<String>) -> Self {
        let mut world = Self::default();
        world.claims_mut().cluster_network = cluster_network;
        world
    }

    /// What is known of claims.
    pub fn claims(&self) -> &Claims {
        self.state()
    }

    /// The same, mutable.
    pub fn claims_mut(&mut self) -> &mut Claims {
        self.state_mut()
    }
}

impl Claim {
    /// What is kept of an object.
    pub fn of(mut object: IPAMClaim) -> Self {
        object.metadata.managed_fields = None;
        let facts = ClaimFacts::of(&object);
        Self { existing: Existing::of(&object, &facts), facts, object }
    }

    /// `namespace/name`.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.facts.namespace, self.facts.name)
    }
}

impl Known for Claim {
    fn key(&self) -> String {
        self.reference()
    }

    fn known_uid(&self) -> Option<String> {
        self.object.uid()
    }

    fn known_version(&self) -> u128 {
        self.object.known_version()
    }
}

pub(crate) fn namespace_seen(namespace: &PartialObjectMeta<Namespace>) -> NamespaceSeen {
    let pool = namespace.annotations().get(annotation::POOL).cloned();
    Seen::of(namespace, NamespaceFacts { pool })
}
