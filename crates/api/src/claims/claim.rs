//! `IPAMClaim`: addresses of one interface on one network, for whoever has the claim.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::core::{ApiResource, TypeMeta};
use kube::{CustomResource, CustomResourceExt, KubeSchema, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What is claimed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1alpha1",
    kind = "IPAMClaim",
    root = "Definition",
    plural = "ipamclaims",
    singular = "ipamclaim",
    namespaced,
    status = "IPAMClaimStatus",
    doc = "Addresses of one interface on one network that outlive the pods which use them: they are given back \
           after the claim is deleted, not before."
)]
pub struct IPAMClaimSpec {
    /// The network: the name in its CNI configuration, which need not be that of its attachment definition.
    pub network: String,

    /// The interface in the pod.
    pub interface: String,
}

/// Addresses of one interface on one network that outlive the pods which use them.
///
/// Read more patiently than the derived type reads: the definitions of others require no `spec`, and one claim without must not
/// make the list of all unreadable.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = "Definition")]
#[serde(from = "Wire", into = "Wire")]
pub struct IPAMClaim {
    /// Metadata as of every object.
    pub metadata: ObjectMeta,
    /// What is claimed.
    pub spec: IPAMClaimSpec,
    /// What the claim has.
    pub status: Option<IPAMClaimStatus>,
}

impl IPAMClaim {
    /// A claim that has nothing yet.
    pub fn new(name: &str, spec: IPAMClaimSpec) -> Self {
        Self {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec,
            status: None,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(flatten)]
    types: Option<TypeMeta>,
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: IPAMClaimSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<IPAMClaimStatus>,
}

impl From<Wire> for IPAMClaim {
    fn from(Wire { metadata, spec, status, .. }: Wire) -> Self {
        Self { metadata, spec, status }
    }
}

impl From<IPAMClaim> for Wire {
    fn from(IPAMClaim { metadata, spec, status }: IPAMClaim) -> Self {
        Self { types: Some(TypeMeta::resource::<IPAMClaim>()), metadata, spec, status }
    }
}

impl CustomResourceExt for IPAMClaim {
    fn crd() -> CustomResourceDefinition {
        Definition::crd()
    }

    fn crd_name() -> &'static str {
        Definition::crd_name()
    }

    fn api_resource() -> ApiResource {
        Definition::api_resource()
    }

    fn shortnames() -> &'static [&'static str] {
        &[]
    }
}

/// What the claim has. Written by whoever gives the addresses.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAMClaimStatus {
    /// The addresses with their prefix lengths, such as `10.128.20.8/24`; empty while there are none.
    // Always written: the definition requires it, and a status without it is refused.
    #[serde(default)]
    pub ips: Vec<String>,

    /// The pod that has the addresses now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_pod: Option<OwnerPod>,

    /// Whether the claim has its addresses, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The pod that has a claim's addresses.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerPod {
    /// The name of the pod, in the namespace of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl IPAMClaimStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}
