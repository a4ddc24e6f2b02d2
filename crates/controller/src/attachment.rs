//! NetworkAttachmentDefinitions, `k8s.cni.cncf.io/v1`: other people's kind, of which we read the configuration and nothing
//! else. Its definition may be missing.

use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use tenure_claims::opt_in::{OptInError, network_of_definition};
use tenure_handles::Timestamp;
use tenure_whereabouts::slices::AttachmentDefinition;

use crate::cache::Known;

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

/// One that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// As the dialect takes it.
    pub definition: AttachmentDefinition,
    /// The name of its network if that lets addresses outlive pods; words if nobody can say.
    pub opted_in: Result<Option<String>, OptInError>,
    version: u128,
}

impl Attachment {
    /// What is kept of an object.
    pub(crate) fn of(attachment: &NetworkAttachmentDefinition) -> Self {
        let created = attachment.metadata.creation_timestamp.as_ref();
        let created =
            created.and_then(|time| u64::try_from(time.0.as_millisecond()).ok()).unwrap_or_default();
        let definition = AttachmentDefinition {
            namespace: attachment.namespace().unwrap_or_default(),
            name: attachment.name_any(),
            uid: attachment.uid().unwrap_or_default(),
            created: Timestamp::from_millis(created),
            config: attachment.spec.config.clone(),
        };
        // Without a configuration of its own it is about a file on the node, of which nobody here knows.
        let opted_in = match definition.config.trim() {
            "" => Ok(None),
            config => network_of_definition(config, &definition.name),
        };
        Self { definition, opted_in, version: attachment.known_version() }
    }

    /// Whether it says anything: one without a configuration of its own is about a file on the node.
    pub(crate) fn says_something(&self) -> bool {
        !self.definition.config.trim().is_empty()
    }
}

impl Known for Attachment {
    fn key(&self) -> String {
        format!("{}/{}", self.definition.namespace, self.definition.name)
    }

    fn known_uid(&self) -> Option<String> {
        Some(self.definition.uid.clone())
    }

    fn known_version(&self) -> u128 {
        self.version
    }
}
