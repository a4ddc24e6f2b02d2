//! Which living pods use which claim, by the same pure function that agents ask ([`tenure_claims::references`]), with the
//! networks that attachment definitions and the setting for the cluster's network say.
//!
//! Made once a plan, for all claims at once: asking each pod for each claim would be claims times pods.

use std::collections::HashMap;

use tenure_claims::{CLUSTER_NETWORK, PodFacts, Reference, references};

use crate::claims::Claim;
use crate::world::World;

/// The pods that use claims.
#[derive(Debug, Default)]
pub(crate) struct Users<'a> {
    /// By `namespace/name` of claims that exist.
    of_claims: HashMap<String, Vec<&'a PodFacts>>,
    /// All that may, by namespace.
    guests: HashMap<&'a str, Vec<&'a PodFacts>>,
}

impl<'a> Users<'a> {
    /// All of them. Means nothing unless [`World::knows_users`].
    pub(crate) fn of(world: &'a World) -> Self {
        let mut users = Self::default();
        let mut of_machines: HashMap<(&str, &str), Vec<&Claim>> = HashMap::new();
        for claim in world.claims.all.iter() {
            if let Some(machine) = &claim.facts.vm {
                of_machines.entry((&claim.facts.namespace, machine)).or_default().push(claim);
            }
        }
        for pod in world.ledgers.pods.guests() {
            users.guests.entry(&pod.namespace).or_default().push(pod);
            let network_of = |namespace: &str, name: &str| world.network(namespace, name).map(str::to_owned);
            for (network, _, wanted) in references(pod, network_of) {
                let named = match &wanted.reference {
                    Reference::Named(name) => world.claims.get(&pod.namespace, name),
                    Reference::Launcher { .. } => None,
                };
                let of_machine = match &wanted.reference {
                    Reference::Named(_) => None,
                    Reference::Launcher { vmi, .. } => {
                        of_machines.get(&(pod.namespace.as_str(), vmi.as_str()))
                    }
                };
                let candidates = named.into_iter().chain(of_machine.into_iter().flatten().copied());
                for claim in candidates.filter(|claim| wanted.reference.is(&claim.facts, &network)) {
                    users.of_claims.entry(claim.reference()).or_default().push(pod);
                }
            }
        }
        users
    }

    /// The living pods that refer to a claim that exists, on its network.
    pub(crate) fn of_claim(&self, claim: &Claim) -> &[&'a PodFacts] {
        self.of_claims.get(&claim.reference()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The living pods that may have the addresses of a claim of this name, whether it still exists or not and whatever has
    /// become of its network since: those that name it, and those of its machine or of its replica.
    pub(crate) fn by_name(&self, namespace: &str, claim: &str) -> impl Iterator<Item = &'a PodFacts> {
        let guests = self.guests.get(namespace).into_iter().flatten();
        guests.copied().filter(move |pod| may_have(pod, claim))
    }
}

fn may_have(pod: &PodFacts, claim: &str) -> bool {
    let default = pod.default_network.as_ref().map(|network| &network.selection);
    let mut selected =
        pod.selections.iter().chain(default).filter_map(|selection| selection.claim.as_deref());
    let is_of = |owner: &str| claim.strip_prefix(owner).is_some_and(|rest| rest.starts_with('.'));
    selected.any(|name| name == claim)
        || pod.default_claim.as_deref() == Some(claim)
        || pod.launcher.as_ref().is_some_and(|launcher| is_of(&launcher.vmi))
        || pod.stateful_set.is_some() && is_of(&pod.name)
}

impl World {
    /// The name of the network of an attachment definition, if it opts in; or that of the cluster's own network.
    pub(crate) fn network(&self, namespace: &str, attachment: &str) -> Option<&str> {
        if (namespace, attachment) == CLUSTER_NETWORK {
            return self.cluster_network.as_deref();
        }
        let known = self.ledgers.attachments.get(&format!("{namespace}/{attachment}"))?;
        known.opted_in.as_ref().ok()?.as_deref()
    }

    /// Whether any network lets addresses outlive pods.
    pub(crate) fn has_persistent_networks(&self) -> bool {
        let opted_in = |attachment: &crate::Attachment| matches!(attachment.opted_in, Ok(Some(_)));
        self.cluster_network.is_some() || self.ledgers.attachments.iter().any(opted_in)
    }

    /// Whether pods matter.
    pub(crate) fn needs_pods(&self) -> bool {
        let floating = || self.blocks.iter().any(tenure_api::coil::AddressBlock::is_floating);
        self.ledgers.needs_pods() || self.needs_makers() || floating()
    }

    /// Whether those for whom claims are made matter.
    pub(crate) fn needs_makers(&self) -> bool {
        !self.claims.all.is_empty() || self.has_persistent_networks()
    }

    /// Whether it is known which networks opt in.
    pub(crate) fn knows_networks(&self) -> bool {
        self.ledgers.attachments.is_complete() || self.lacks("NetworkAttachmentDefinition")
    }

    /// Whether it is known which pods use which claims. Before, that nobody uses one means nothing.
    pub(crate) fn knows_users(&self) -> bool {
        self.knows_networks() && self.claims.all.is_complete() && self.ledgers.pods.is_complete()
    }
}
