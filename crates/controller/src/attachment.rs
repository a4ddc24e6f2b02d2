//! What the controller keeps of each NetworkAttachmentDefinition.

use kube::ResourceExt;
use serde_json::Value;
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::read::Unreadable;
use tenure_claims::opt_in::{OptInError, network_of_definition};
use tenure_handles::Timestamp;
use tenure_whereabouts::slices::AttachmentDefinition;

use crate::cache::{Cache, Known};
use crate::kind::{Cached, cached_kind};
use crate::world::World;

/// A definition that the watch has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// In the form that the Whereabouts dialect uses.
    pub definition: AttachmentDefinition,
    /// The name of its network, if it can be read.
    pub network: Option<String>,
    /// The name of its network, if that network opts in to persistent addresses; an error if its configuration cannot be read.
    pub opted_in: Result<Option<String>, OptInError>,
    /// Whether it replaces the default network of its namespace's pods, as a primary user-defined network of OVN-Kubernetes does.
    pub primary: bool,
    version: u128,
}

impl Cached for NetworkAttachmentDefinition {
    type Kept = Attachment;

    fn cache(world: &mut World) -> &mut Cache<Attachment> {
        &mut world.ledgers_mut().attachments
    }

    fn kept(self) -> Attachment {
        Attachment::of(&self)
    }
}

cached_kind!(
    NetworkAttachmentDefinition,
    "NetworkAttachmentDefinition",
    /// A definition without a configuration: nobody here serves its network.
    fn stand_in(it: &Unreadable) -> Option<Self> {
        Some(Self { metadata: it.metadata.clone(), ..Self::default() })
    }
);

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
            edited: attachment.metadata.generation.is_some_and(|generation| generation > 1),
            config: attachment.spec.config.clone(),
        };
        // A definition without a configuration refers to a file on the node, which the controller does not see.
        let opted_in = match definition.config.trim() {
            "" => Ok(None),
            config => network_of_definition(config, &definition.name),
        };
        let primary = is_primary(&definition.config);
        let network = name_of_network(&definition.config, &definition.name);
        Self { definition, network, opted_in, primary, version: attachment.known_version() }
    }

    /// Whether it has a configuration of its own; without one it refers to a file on the node.
    pub(crate) fn says_something(&self) -> bool {
        !self.definition.config.trim().is_empty()
    }
}

fn is_primary(config: &str) -> bool {
    // Most configurations do not mention it, and need no parsing.
    config.contains("primary")
        && serde_json::from_str::<serde_json::Value>(config).is_ok_and(|config| config["role"] == "primary")
}

/// The name in the configuration, otherwise that of the definition.
fn name_of_network(config: &str, own: &str) -> Option<String> {
    let root: Value = serde_json::from_str(config).ok()?;
    let name = root.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    Some(name.unwrap_or(own).to_owned())
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
