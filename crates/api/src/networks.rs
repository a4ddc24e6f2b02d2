//! NetworkAttachmentDefinitions, `k8s.cni.cncf.io/v1`: other people's kind, of which we read the configuration and nothing
//! else. Its definition is not among ours, and may be missing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::TypeMeta;
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};

/// What we read of one.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    root = "Definition",
    plural = "network-attachment-definitions",
    namespaced,
    schema = "disabled"
)]
pub struct NetworkAttachmentDefinitionSpec {
    /// A CNI configuration, or a list of them. Without one, a file on the node has it.
    #[serde(default)]
    pub config: String,
}

/// A network that pods may name.
///
/// Read more patiently than the derived type reads: one without `spec` is valid, and means a file on the node.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = "Definition")]
#[serde(from = "Wire", into = "Wire")]
pub struct NetworkAttachmentDefinition {
    /// Metadata as of every object.
    pub metadata: ObjectMeta,
    /// What we read of it.
    pub spec: NetworkAttachmentDefinitionSpec,
}

impl NetworkAttachmentDefinition {
    /// A definition with this content.
    pub fn new(name: &str, spec: NetworkAttachmentDefinitionSpec) -> Self {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { metadata, spec }
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(flatten)]
    types: Option<TypeMeta>,
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<NetworkAttachmentDefinitionSpec>,
}

impl From<Wire> for NetworkAttachmentDefinition {
    fn from(Wire { metadata, spec, .. }: Wire) -> Self {
        Self { metadata, spec: spec.unwrap_or_default() }
    }
}

impl From<NetworkAttachmentDefinition> for Wire {
    fn from(NetworkAttachmentDefinition { metadata, spec }: NetworkAttachmentDefinition) -> Self {
        let types = TypeMeta::resource::<NetworkAttachmentDefinition>();
        Self { types: Some(types), metadata, spec: Some(spec) }
    }
}
