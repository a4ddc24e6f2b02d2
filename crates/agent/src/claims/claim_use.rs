//! From a pod's interface to the addresses of its claim.
//!
//! ```text
//!   what does it refer to? ──nothing──▶ an ordinary address
//!            │ a claim
//!            ▼
//!   is it there? ─▶ has it addresses? ─▶ may this pod use it? ─▶ does the record prove both? ─▶ a claim user
//!            └──────────────┴── not yet: waits for the watch, a few seconds in all ─┘
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_api::claims::DEFAULT_INTERFACE;
use tenure_claims::{Attached, ClaimFacts, PodFacts, Reference, Refusal, Selection, Wanted, selection_of};
use tenure_cni::Failure;
use tenure_watch::place;

use super::known::Known;
use super::{Claims, OptIn, Reason, refusal};
use crate::node::ClaimUse;
use crate::objects::lock;
use crate::serve::PodName;

/// An interface to create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface<'a> {
    pub(crate) pod: &'a PodName,
    /// The network's name.
    pub(crate) network: &'a str,
    /// Its name in the pod.
    pub(crate) name: &'a str,
    /// Which interfaces the same container already has on the same network.
    pub(crate) before: &'a BTreeSet<String>,
}

/// The result of checking the claims.
enum Verdict {
    ClaimUse(ClaimUse),
    /// Not yet; the reason.
    Wait(Failure),
    /// No record that was read proves it.
    Unproven(Box<ClaimFacts>),
    /// There is no such claim, or not yet; the reason.
    Missing(Failure),
    /// Waiting does not help.
    Refused(Failure),
}

impl Claims {
    /// The claim's addresses for an interface on a network that opts in, and its pod's UID; `None` if it
    /// refers to no claim. Waits for what does not exist yet.
    pub(crate) async fn claim_use(
        &self,
        interface: Interface<'_>,
        opt_in: OptIn,
    ) -> Result<Option<(ClaimUse, String)>, Failure> {
        let Some((pod, wanted)) = self.wanted(interface, opt_in).await? else { return Ok(None) };
        self.watch(Reason::Reference);
        let mut heard = self.shared.heard.subscribe();
        let mut last = refusal::not_read(interface, &wanted.reference);
        let mut asked = false;
        let waiting = async {
            loop {
                heard.mark_unchanged();
                match self.judge(interface, &pod, &wanted) {
                    Verdict::ClaimUse(claim_use) => return Ok(Some((claim_use, pod.uid.clone()))),
                    Verdict::Refused(failure) => return Err(failure),
                    Verdict::Wait(failure) => last = failure,
                    // Usually the record was already read when the pod was admitted: the claim was reported
                    // after the record was written.
                    Verdict::Unproven(claim) => match self.shared.read_record(&claim).await {
                        Err(problem) => last = refusal::record_unread(interface, &claim, &problem),
                        Ok(()) => match self.judge(interface, &pod, &wanted) {
                            Verdict::ClaimUse(claim_use) => return Ok(Some((claim_use, pod.uid.clone()))),
                            _ => last = refusal::not_on_record(interface, &claim),
                        },
                    },
                    Verdict::Missing(failure) => {
                        last = failure;
                        if !std::mem::replace(&mut asked, true)
                            && self.comes_never(interface, &pod, &wanted).await
                        {
                            return Ok(None);
                        }
                    }
                }
                if heard.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(self.shared.options.patience, waiting).await {
            Ok(judged) => judged,
            Err(_) => Err(last),
        }
    }

    /// The claim that the interface refers to, and its pod.
    async fn wanted(
        &self,
        interface: Interface<'_>,
        opt_in: OptIn,
    ) -> Result<Option<(Arc<PodFacts>, Wanted)>, Failure> {
        let pods = &self.shared.pods;
        let unknown = |problem: String| refusal::pod_unknown(interface, &problem);
        let mut found = pods.find(interface.pod).await.map_err(unknown)?;
        // An interface that is plugged in later was written into the pod's annotation a moment ago.
        if found.as_ref().is_some_and(|pod| !self.is_listed(&pod.facet, interface)) {
            found = pods.find_now(interface.pod).await.unwrap_or(found);
        }
        // Nobody else has the name: the pod was deleted, or the kubelet has it from a file and does not show
        // it yet. Such a pod refers to no claim.
        let Some(pod) = found else { return Ok(None) };
        if !pod.is(interface.pod) {
            return Err(refusal::pod_gone(interface));
        }
        let selected = self.selected(&pod.facet, interface);
        let selected = selected.map_err(|refusal| refusal::unreadable(&refusal))?;
        if opt_in == OptIn::ByList && !self.is_let(&pod.facet, selected, interface) {
            self.refuse_unlet(interface, &pod.facet).await?;
            return Ok(None);
        }
        let name = match selected {
            Some(selection) => selection.interface.as_str(),
            None if interface.name == DEFAULT_INTERFACE => DEFAULT_INTERFACE,
            // It is on one of the cluster's default networks, which no pod lists.
            None => return Ok(None),
        };
        let wanted = tenure_claims::reference(&pod.facet, interface.network, name)
            .map_err(|refusal| refusal::unreadable(&refusal))?;
        Ok(wanted.map(|wanted| (pod.facet, wanted)))
    }

    /// The element of the pod's list for an interface.
    pub(super) fn selected<'p>(
        &self,
        pod: &'p PodFacts,
        interface: Interface<'_>,
    ) -> Result<Option<&'p Selection>, Refusal> {
        let Interface { network, name, before, .. } = interface;
        let attached = Attached { network, interface: name, before };
        selection_of(pod, attached, |namespace, name| lock(&self.shared.networks).name(namespace, name))
    }

    /// Whether the pod's annotations mention the interface.
    fn is_listed(&self, pod: &PodFacts, interface: Interface<'_>) -> bool {
        interface.name == DEFAULT_INTERFACE || matches!(self.selected(pod, interface), Ok(Some(_)))
    }

    /// Whether the pod names a definition for this interface that opts its network in.
    fn is_let(&self, pod: &PodFacts, selected: Option<&Selection>, interface: Interface<'_>) -> bool {
        let by_default = pod.default_network.as_ref().filter(|_| interface.name == DEFAULT_INTERFACE);
        let networks = lock(&self.shared.networks);
        match (selected, by_default) {
            (Some(it), _) => {
                let namespace = it.namespace.as_deref().unwrap_or(&pod.namespace);
                networks.says(namespace, &it.name, interface.network)
            }
            (None, Some(it)) => networks.says(&it.namespace, &it.selection.name, interface.network),
            (None, None) => false,
        }
    }

    fn judge(&self, interface: Interface<'_>, pod: &PodFacts, wanted: &Wanted) -> Verdict {
        let known = lock(&self.shared.known);
        if !known.claims.is_complete() {
            return Verdict::Wait(refusal::not_read(interface, &wanted.reference));
        }
        let Some(claim) = known.find(interface, pod, &wanted.reference) else {
            return Verdict::Missing(refusal::no_claim(interface, &wanted.reference));
        };
        if claim.network != interface.network {
            return Verdict::Refused(refusal::other_network(interface, claim));
        }
        if !claim.held || claim.addresses.is_empty() {
            return Verdict::Wait(refusal::no_addresses(interface, claim));
        }
        if let Some(other) = wanted.ips.iter().find(|ip| !claim.addresses.iter().any(|(it, _)| it == *ip)) {
            return Verdict::Refused(refusal::other_address(interface, claim, *other));
        }
        if !claim.slots.has(&pod.uid) {
            return Verdict::Wait(refusal::no_slot(interface, claim));
        }
        if !self.shared.is_proven(claim, &pod.uid) {
            return Verdict::Unproven(Box::new(claim.clone()));
        }
        Verdict::ClaimUse(ClaimUse {
            claim: claim.uid.clone(),
            claim_name: place(&claim.namespace, &claim.name),
            addresses: claim.addresses.clone(),
            reached: claim.slots.is_active(&pod.uid),
        })
    }
}

impl Known {
    /// The claim that is referred to, only in the pod's own namespace. Of several candidates for a machine's
    /// interface, the one that the pod was admitted to, else the oldest.
    pub(super) fn find(
        &self,
        interface: Interface<'_>,
        pod: &PodFacts,
        reference: &Reference,
    ) -> Option<&ClaimFacts> {
        let namespace = &interface.pod.namespace;
        match reference {
            Reference::Named(name) => self.claims.facts(&place(namespace, name)),
            Reference::Launcher { .. } => {
                let candidates = self.claims.of_namespace(namespace);
                let candidates = candidates.filter(|claim| reference.is(claim, interface.network));
                candidates.min_by_key(|claim| (!claim.slots.has(&pod.uid), claim.created, &claim.name))
            }
        }
    }
}
