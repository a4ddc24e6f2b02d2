//! Networks that opt in by their list.
//!
//! A runtime gives a plugin its own part of a list of configurations and nothing of the list itself. What stands beside the
//! plugins is seen here only: in the NetworkAttachmentDefinition, under the network's name. Anybody may make one of any name in
//! his own namespace, so it counts only for pods that name it.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_api::networks::NetworkAttachmentDefinition;

use crate::objects::mirror::{Change, Heard, Mirror, place};

/// The network's name, if it opts in.
pub(super) fn opted_in(definition: &NetworkAttachmentDefinition) -> Option<String> {
    if definition.spec.config.trim().is_empty() {
        return None;
    }
    let (place, name) = (definition.namespace().unwrap_or_default(), definition.name_any());
    match tenure_claims::opt_in::network_of_definition(&definition.spec.config, &name) {
        Ok(network) => network,
        Err(error) => {
            tracing::debug!(namespace = place, name, %error, "a network does not say whether it opts in");
            None
        }
    }
}

/// The names of networks that opt in.
#[derive(Debug, Default)]
pub(super) struct Networks {
    definitions: Mirror<String>,
    /// How many definitions say so of each.
    names: BTreeMap<String, usize>,
}

impl Networks {
    /// Whether any definition says that the network of this name opts in.
    pub(super) fn has(&self, network: &str) -> bool {
        self.names.contains_key(network)
    }

    /// Whether this definition does.
    pub(super) fn says(&self, namespace: &str, definition: &str, network: &str) -> bool {
        self.definitions.get(&place(namespace, definition)).is_some_and(|it| it == network)
    }

    /// Whether a list has come in.
    pub(super) fn is_listed(&self) -> bool {
        self.definitions.is_complete()
    }

    pub(super) fn hear(&mut self, heard: Heard<String>) {
        let changes = self.definitions.hear(heard);
        if changes.is_empty() {
            return;
        }
        for change in &changes {
            if let Change::Seen { name, value, .. } = change {
                tracing::info!(definition = name, network = value, "addresses of a network may outlive pods");
            }
        }
        self.names = BTreeMap::new();
        for (_, network) in self.definitions.iter() {
            *self.names.entry(network.clone()).or_default() += 1;
        }
    }
}
