//! Pods, as little as possible of each: that it is there, and what its network status says.
//!
//! There may be a hundred thousand, so nothing else of them is kept but of *guests*: pods that refer to a claim, or may. Pods
//! that have ended are not among them: they are not even listed, so an ended pod is gone.
//!
//! Pods are heard of as metadata, which does not say the node. Whoever needs the node of a guest reads the pod once
//! ([`Pods::is_worth_a_look`]); a pod that had none yet is read again when something of it has changed since.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use tenure_claims::PodFacts;
use tenure_ipam::Address;
use tenure_whereabouts::reconcile::{LivingPod, NETWORK_STATUS, addresses_of_status};

use crate::cache::Known;

/// A pod that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// `namespace/name`, as records have it.
    pub podref: String,
    /// The addresses of its network status; `None` while it says nothing.
    pub addresses: Option<Box<[Address]>>,
    /// What matters of it if it refers to a claim, or may; kept only then.
    pub facts: Option<Box<PodFacts>>,
    /// Its version.
    pub version: u128,
}

/// All pods that have not ended.
#[derive(Debug, Default)]
pub struct Pods {
    seen: BTreeMap<Box<str>, Option<Box<[Address]>>>,
    /// Pods that refer to a claim, or may.
    guests: BTreeMap<Box<str>, Guest>,
    /// While a list comes in, those that it has not mentioned yet.
    unseen: Option<BTreeSet<Box<str>>>,
    complete: bool,
}

/// A pod that refers to a claim, or may.
#[derive(Debug)]
struct Guest {
    /// With its node, once that is known.
    facts: PodFacts,
    /// The newest version that was heard of.
    version: u128,
    /// The version at which it was read and had no node.
    had_no_node: u128,
}

impl Pods {
    /// A list begins: what it does not mention by its end is gone.
    pub fn begin(&mut self) {
        self.unseen = Some(self.seen.keys().cloned().collect());
    }

    /// A pod as it is.
    pub fn apply(&mut self, pod: PodSeen) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(pod.podref.as_str());
        }
        let podref = pod.podref.into_boxed_str();
        let known = self.guests.remove(&podref);
        if let Some(facts) = pod.facts {
            self.apply_guest(podref.clone(), *facts, pod.version, known);
        }
        self.seen.insert(podref, pod.addresses);
    }

    /// A pod that was a guest stays one while it lives, whatever becomes of its annotations: it may have the address.
    fn apply_guest(&mut self, podref: Box<str>, mut facts: PodFacts, version: u128, known: Option<Guest>) {
        let known = known.filter(|known| known.facts.uid == facts.uid);
        if known.is_none() && !may_refer(&facts) {
            return;
        }
        // A pod never changes its node.
        facts.node = known.as_ref().and_then(|known| known.facts.node.clone());
        let had_no_node = known.map_or(0, |known| known.had_no_node);
        self.guests.insert(podref, Guest { facts, version, had_no_node });
    }

    /// The list is complete.
    pub fn finish(&mut self) {
        for podref in self.unseen.take().into_iter().flatten() {
            self.remove(&podref);
        }
        self.complete = true;
    }

    /// A pod is gone, or has ended.
    pub fn remove(&mut self, podref: &str) {
        self.seen.remove(podref);
        self.guests.remove(podref);
    }

    /// Nobody watches them any more, and nothing is known.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether a list has come in completely. Before, absence means nothing.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// A pod that lives.
    pub fn get(&self, podref: &str) -> Option<LivingPod> {
        let addresses = self.seen.get(podref)?;
        let addresses = addresses.as_ref().map(|all| all.iter().copied().collect());
        Some(LivingPod { finished: false, addresses })
    }

    /// Pods that live and refer to a claim, or may; with their nodes, where those are known.
    pub fn guests(&self) -> impl Iterator<Item = &PodFacts> {
        self.guests.values().map(|guest| &guest.facts)
    }

    /// A pod that lives and refers to a claim, or may.
    pub fn guest(&self, podref: &str) -> Option<&PodFacts> {
        self.guests.get(podref).map(|guest| &guest.facts)
    }

    /// Whether reading this pod may show a node that is not known yet.
    pub fn is_worth_a_look(&self, podref: &str) -> bool {
        let guest = self.guests.get(podref);
        guest.is_some_and(|guest| guest.facts.node.is_none() && guest.version > guest.had_no_node)
    }

    /// A pod was read: at this version it had this node, or none.
    pub fn looked(&mut self, podref: &str, uid: &str, version: u128, node: Option<String>) {
        if let Some(guest) = self.guests.get_mut(podref).filter(|guest| guest.facts.uid == uid) {
            guest.had_no_node = version.max(guest.had_no_node);
            guest.facts.node = guest.facts.node.take().or(node);
        }
    }
}

impl PodSeen {
    /// What is kept of a pod's metadata.
    pub(crate) fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        let addresses = status_of(pod).map(|all| all.into_iter().collect());
        let facts = Some(Box::new(PodFacts::of(&pod.metadata)));
        Self { podref: podref(pod), addresses, facts, version: pod.known_version() }
    }
}

/// Whether a pod refers to a claim on any network, as far as its metadata say.
fn may_refer(pod: &PodFacts) -> bool {
    let default = pod.default_network.as_ref().map(|network| &network.selection);
    pod.launcher.is_some()
        || pod.stateful_set.is_some()
        || pod.default_claim.is_some()
        || pod.selections.iter().chain(default).any(|selection| selection.claim.is_some())
}

/// A pod as it was read this moment.
pub(crate) fn living(pod: &Pod) -> LivingPod {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    LivingPod { finished: matches!(phase, Some("Succeeded" | "Failed")), addresses: status_of(pod) }
}

fn podref(pod: &impl Resource) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn status_of(pod: &impl Resource) -> Option<BTreeSet<Address>> {
    addresses_of_status(pod.annotations().get(NETWORK_STATUS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(podref: &str, addresses: Option<&[&str]>) -> PodSeen {
        let addresses = addresses.map(|all| all.iter().map(|text| text.parse().unwrap()).collect());
        PodSeen { podref: podref.to_owned(), addresses, facts: None, version: 1 }
    }

    fn guest(name: &str, uid: &str, version: u128) -> PodSeen {
        let meta = serde_json::from_value(serde_json::json!({
            "name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(),
            "annotations": {"tenure/claim": "c"},
        }));
        let pod = PartialObjectMeta::<Pod> { metadata: meta.unwrap(), ..PartialObjectMeta::default() };
        PodSeen::of(&pod)
    }

    #[test]
    fn a_pod_that_was_a_guest_stays_one_while_it_lives() {
        let mut pods = Pods::default();
        pods.apply(guest("a", "1", 5));
        let plain = |uid: &str| {
            let mut pod = guest("a", uid, 6);
            pod.facts.as_mut().unwrap().default_claim = None;
            pod
        };
        pods.apply(plain("1"));
        assert!(pods.guest("ns/a").is_some());
        pods.apply(plain("2"));
        assert!(pods.guest("ns/a").is_none());
    }

    #[test]
    fn a_guest_is_looked_at_until_its_node_is_known_and_only_after_it_has_changed() {
        let mut pods = Pods::default();
        pods.apply(seen("ns/plain", None));
        assert!(!pods.is_worth_a_look("ns/plain") && pods.guests().count() == 0);
        pods.apply(guest("a", "1", 5));
        assert!(pods.is_worth_a_look("ns/a"));
        pods.looked("ns/a", "1", 6, None);
        assert!(!pods.is_worth_a_look("ns/a"), "it had no node");
        pods.apply(guest("a", "1", 6));
        assert!(!pods.is_worth_a_look("ns/a"), "that is what was read");
        pods.apply(guest("a", "1", 7));
        assert!(pods.is_worth_a_look("ns/a"), "it has changed since");
        pods.looked("ns/a", "other", 8, Some("wrong".to_owned()));
        pods.looked("ns/a", "1", 8, Some("node1".to_owned()));
        pods.apply(guest("a", "1", 9));
        assert_eq!(pods.guest("ns/a").unwrap().node.as_deref(), Some("node1"));
        assert!(!pods.is_worth_a_look("ns/a"));
        pods.apply(guest("a", "2", 10));
        assert_eq!(pods.guest("ns/a").unwrap().node, None, "another pod of that name has another node");
        pods.remove("ns/a");
        assert!(pods.guest("ns/a").is_none());
    }

    #[test]
    fn what_a_list_does_not_mention_is_gone_and_before_the_first_nothing_is_known() {
        let mut pods = Pods::default();
        pods.begin();
        pods.apply(seen("ns/a", None));
        pods.apply(seen("ns/b", Some(&["10.0.0.1"])));
        assert!(!pods.is_complete());
        pods.finish();
        assert!(pods.is_complete());
        pods.begin();
        pods.apply(seen("ns/b", None));
        pods.finish();
        assert_eq!((pods.get("ns/a"), pods.get("ns/b").map(|pod| pod.addresses)), (None, Some(None)));
        pods.forget();
        assert!(!pods.is_complete() && pods.get("ns/b").is_none());
    }
}
