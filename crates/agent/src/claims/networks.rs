//! What NetworkAttachmentDefinitions are called, and which opt their network in.
//!
//! A runtime gives a plugin its own part of a list of configurations and nothing of the list itself. What stands beside the
//! plugins is seen here only: in the NetworkAttachmentDefinition, under the network's name. Anybody may make one of any name in
//! his own namespace, so it counts only for pods that name it.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_claims::opt_in::{name_of_definition, network_of_definition};
use tenure_watch::{Cache, Change, Heard, Seen, place};

/// What matters of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    /// The name of its network; nothing if it cannot be read.
    network: Option<String>,
    /// Whether it opts its network in; words if nobody can say.
    opts_in: Result<bool, String>,
}

impl Definition {
    pub(super) fn of(definition: &NetworkAttachmentDefinition) -> Self {
        let (config, name) = (definition.spec.config.trim(), definition.name_any());
        if config.is_empty() {
            // It is about a file on the node, which Multus finds by this name.
            return Self { network: Some(name), opts_in: Ok(false) };
        }
        let opts_in = network_of_definition(config, &name).map(|network| network.is_some());
        Self {
            network: name_of_definition(config, &name).ok(),
            opts_in: opts_in.map_err(|error| error.to_string()),
        }
    }
}

/// The names of networks, and which opt in.
#[derive(Debug, Default)]
pub(super) struct Networks {
    definitions: Cache<Seen<Definition>>,
    /// How many definitions opt each in.
    opted_in: BTreeMap<String, usize>,
}

impl Networks {
    /// Whether any definition says that the network of this name opts in.
    pub(super) fn has(&self, network: &str) -> bool {
        self.opted_in.contains_key(network)
    }

    /// Whether this definition does.
    pub(super) fn says(&self, namespace: &str, definition: &str, network: &str) -> bool {
        let known = self.definitions.facts(&place(namespace, definition));
        known.is_some_and(|it| it.opts_in == Ok(true) && it.network.as_deref() == Some(network))
    }

    /// The name of a definition's network; nothing if that is not known.
    pub(super) fn name(&self, namespace: &str, definition: &str) -> Option<String> {
        self.definitions.facts(&place(namespace, definition))?.network.clone()
    }

    /// What is wrong with what a definition says of opting in.
    pub(super) fn problem(&self, namespace: &str, definition: &str) -> Option<String> {
        self.definitions.facts(&place(namespace, definition))?.opts_in.clone().err()
    }

    /// Whether a list has come in.
    pub(super) fn is_listed(&self) -> bool {
        self.definitions.is_complete()
    }

    pub(super) fn hear(&mut self, heard: Heard<Definition>) {
        let changes = self.definitions.hear(heard);
        if changes.is_empty() {
            return;
        }
        for change in &changes {
            if let Change::Seen {
                key, value: Definition { network: Some(network), opts_in: Ok(true) }, ..
            } = change
            {
                tracing::info!(definition = key, network, "addresses of a network may outlive pods");
            }
        }
        self.opted_in = BTreeMap::new();
        let opted_in = self.definitions.iter().filter(|it| it.facts.opts_in == Ok(true));
        for network in opted_in.filter_map(|it| it.facts.network.as_ref()) {
            *self.opted_in.entry(network.clone()).or_default() += 1;
        }
    }
}
