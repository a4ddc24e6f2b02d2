//! Pods that refer to a claim on a network that does not opt in, as far as this call says.
//!
//! Multus keeps a copy of the cluster's network configuration, so a call may lack what was added later; and
//! people forget the key. If such a pod got an ordinary address instead of the claim's, that would be noticed
//! much later. So the agent refuses it with a reason.
//!
//! This must cost nothing for pods without claims: the watch of this node's pods is enough, and if it cannot
//! tell, the network is served as usual.

use std::sync::Arc;
use std::time::Duration;

use tenure_api::claims::DEFAULT_INTERFACE;
use tenure_claims::{PodFacts, Reference};
use tenure_cni::Failure;
use tracing::warn;

use super::claim_use::Interface;
use super::{Claims, Reason, refusal};
use crate::objects::lock;
use crate::serve::PodName;

/// How long to wait for the first list of claims, for a pod whose claim follows from its owner.
const PATIENCE: Duration = Duration::from_secs(1);

impl Claims {
    /// The facts about a pod that may refer to a claim on a network that does not opt in; `None` for all
    /// other pods.
    pub(crate) async fn referring(&self, pod: &PodName, network: &str) -> Option<Arc<PodFacts>> {
        match self.shared.pods.find_if_said(pod).await {
            Ok(found) => found.filter(|it| it.is(pod) && it.facet.may_refer()).map(|it| it.facet),
            Err(problem) => {
                let (namespace, name) = (&pod.namespace, &pod.name);
                warn!(%namespace, pod = %name, network, problem, "cannot find out whether the pod refers to an IPAMClaim");
                None
            }
        }
    }

    /// Refuses an interface of this pod that refers to a claim.
    pub(crate) async fn refuse_unlet(&self, interface: Interface<'_>, pod: &PodFacts) -> Result<(), Failure> {
        let by_default = interface.name == DEFAULT_INTERFACE;
        let selected = match self.selected(pod, interface) {
            Ok(selected) => selected,
            // The program that attaches networks could not read it either.
            Err(tenure_claims::Refusal::Unreadable { .. }) => return Ok(()),
            Err(refusal) => return Err(refusal::unreadable(&refusal)),
        };
        let (name, definition) = match selected {
            Some(it) => {
                let namespace = it.namespace.as_deref().unwrap_or(&pod.namespace);
                (it.interface.as_str(), Some((namespace, it.name.as_str())))
            }
            None if by_default => {
                let default = pod.default_network.as_ref();
                (DEFAULT_INTERFACE, default.map(|it| (it.namespace.as_str(), it.selection.name.as_str())))
            }
            None => return Ok(()),
        };
        let wanted = match tenure_claims::reference(pod, interface.network, name) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return Ok(()),
            Err(refusal) => return Err(refusal::unreadable(&refusal)),
        };
        let named = selected.map_or_else(|| by_default && pod.names_default_claim(), |it| it.claim.is_some());
        if !named && !self.is_there(interface, pod, &wanted.reference).await {
            return Ok(());
        }
        let problem = definition.and_then(|(namespace, name)| {
            lock(&self.shared.networks)
                .problem(namespace, name)
                .map(|problem| format!("NetworkAttachmentDefinition {namespace}/{name}: {problem}"))
        });
        Err(refusal::not_let(interface, &wanted.reference, definition, problem))
    }

    /// Whether the claim exists that follows from the pod's owner. Without one there is nothing to refuse.
    async fn is_there(&self, interface: Interface<'_>, pod: &PodFacts, reference: &Reference) -> bool {
        self.watch(Reason::Reference);
        let mut heard = self.shared.heard.subscribe();
        let listed = heard.wait_for(|_| lock(&self.shared.known).claims.is_complete());
        // What is still unknown after that delays nobody.
        drop(tokio::time::timeout(PATIENCE, listed).await);
        let known = lock(&self.shared.known);
        known.find(interface, pod, reference).is_some_and(|claim| claim.network == interface.network)
    }
}
