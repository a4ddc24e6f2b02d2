//! NetworkAttachmentDefinitions, `k8s.cni.cncf.io/v1`: other people's kind, of which we read the configuration and nothing
//! else. Its definition is not among ours, and may be missing.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What we read of one.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
pub struct NetworkAttachmentDefinitionSpec {
    /// A CNI configuration, or a list of them. Without one, a file on the node has it.
    #[serde(default)]
    pub config: String,
}
