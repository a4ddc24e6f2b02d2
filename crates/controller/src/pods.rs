//! Pods, as little as possible of each: that it is there, and what its network status says.
//!
//! There may be a hundred thousand, so nothing else of them is kept. Pods that have ended are not among them: they are not
//! even listed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use tenure_ipam::Address;
use tenure_whereabouts::reconcile::{LivingPod, NETWORK_STATUS, addresses_of_status};

/// A pod that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// `namespace/name`, as records have it.
    pub podref: String,
    /// The addresses of its network status; `None` while it says nothing.
    pub addresses: Option<Box<[Address]>>,
}

/// All pods that have not ended.
#[derive(Debug, Default)]
pub struct Pods {
    seen: BTreeMap<Box<str>, Option<Box<[Address]>>>,
    /// While a list comes in, those that it has not mentioned yet.
    unseen: Option<BTreeSet<Box<str>>>,
    complete: bool,
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
        self.seen.insert(pod.podref.into_boxed_str(), pod.addresses);
    }

    /// The list is complete.
    pub fn finish(&mut self) {
        for podref in self.unseen.take().into_iter().flatten() {
            self.seen.remove(&podref);
        }
        self.complete = true;
    }

    /// A pod is gone, or has ended.
    pub fn remove(&mut self, podref: &str) {
        self.seen.remove(podref);
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
}

impl PodSeen {
    /// What is kept of a pod's metadata.
    pub(crate) fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        let addresses = status_of(pod).map(|all| all.into_iter().collect());
        Self { podref: podref(pod), addresses }
    }
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
        PodSeen { podref: podref.to_owned(), addresses }
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
