//! What is known of claims: `IPAMClaim`s of all namespaces, and the pools that namespaces name.
//!
//! The definition of claims may be missing: then nothing is known of them, nothing is given, and nothing is freed.

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

/// Claims, as far as they are known.
#[derive(Debug, Default)]
pub struct Claims {
    /// `IPAMClaim`s by `namespace/name`. Incomplete while their definition is missing.
    pub all: Cache<Claim>,
    /// Namespaces, watched only while there are claims.
    pub namespaces: Cache<NamespaceSeen>,
    /// The name of the cluster's default network, if it lets addresses outlive pods.
    pub cluster_network: Option<String>,
    /// How long a pod has to be gone together with its Node object before it counts as ended.
    pub missing_node_rest: MissingNodeRest,
    /// What lets addresses outlive pods.
    pub(crate) persistence: Persistence,
    /// A bug that a test plants, to see that checkers find it.
    #[cfg(test)]
    pub(crate) planted: Option<super::Planted>,
}

/// A claim that was heard of.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What matters of it to agents and controller alike.
    pub facts: ClaimFacts,
    /// What matters of it to those who would make it.
    pub existing: Existing,
    /// All of it.
    pub object: IPAMClaim,
}

/// A namespace that was heard of.
pub type NamespaceSeen = Seen<NamespaceFacts>;

/// What matters of a namespace.
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

    /// Whether namespaces matter.
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
    /// Nothing is known yet but the name of the cluster's default network, if it lets addresses outlive pods.
    pub fn of_cluster_network(cluster_network: Option<String>) -> Self {
        let mut world = Self::default();
        world.claims_mut().cluster_network = cluster_network;
        world
    }

    /// Claims.
    pub fn claims(&self) -> &Claims {
        self.state()
    }

    /// The same, to be changed.
    pub fn claims_mut(&mut self) -> &mut Claims {
        self.state_mut()
    }
}

impl Claim {
    /// What is kept of an object.
    pub fn of(mut object: IPAMClaim) -> Self {
        object.metadata.managed_fields = None;
        Self { facts: ClaimFacts::of(&object), existing: Existing::of(&object), object }
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
