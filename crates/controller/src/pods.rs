//! Pods. Of each as little as possible is kept: that it exists, and its network status.
//!
//! There may be a hundred thousand, so more is kept only of *claim users*, which (may) refer to a claim, and of pods
//! that take an alias address along. Pods that have ended are not listed at all, so an ended pod counts as gone.
//!
//! Only a watch of bare metadata saves bandwidth; any other sends whole pods. So [`PodBrief`] also reads the node,
//! which a move needs without a further call, and the addresses that the kubelet reports, which are evidence of use.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use tenure_api::read::Unreadable;
use tenure_claims::PodFacts;
use tenure_ipam::Address;
use tenure_whereabouts::reconcile::{LivingPod, NETWORK_STATUS, addresses_of_status};

use crate::changes::{ChangeLog, Changed, Cursor};
use crate::kind::Kind;
use crate::unreadable::Stub;
use crate::world::World;

/// A pod that the watch has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// `namespace/name`, as records have it.
    pub podref: String,
    /// Its UID: a pod of the same name with another UID is another pod.
    pub uid: String,
    /// The addresses of its network status; `None` while it has none.
    pub addresses: Option<Box<[Address]>>,
    /// Its node, and the addresses that its kubelet reports.
    pub report: Option<Report>,
    /// What is needed of it if it (may) refer to a claim; kept only then.
    pub facts: Option<Box<PodFacts>>,
}

/// What the kubelet reports of a pod with its own network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub node: Arc<str>,
    /// `status.podIPs`; at least one.
    pub addresses: Box<[Address]>,
}

/// What is kept of every pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    uid: Box<str>,
    addresses: Option<Box<[Address]>>,
    report: Option<Report>,
}

/// What is read of a pod: metadata, node and addresses.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodBrief {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Placement,
    #[serde(default)]
    status: Reported,
}

/// The kubelet's report.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reported {
    #[serde(default, rename = "podIPs")]
    pod_ips: Option<Vec<PodIp>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PodIp {
    #[serde(default)]
    ip: String,
}

/// The node of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    host_network: Option<bool>,
}

/// All pods that have not ended.
#[derive(Debug, Default)]
pub struct Pods {
    seen: BTreeMap<Box<str>, Seen>,
    /// Pods that (may) refer to a claim.
    claim_users: BTreeMap<Box<str>, PodFacts>,
    /// During a list: pods that it has not mentioned yet.
    unseen: Option<BTreeSet<Box<str>>>,
    complete: bool,
    /// Pods that were added or removed, or have other addresses or another UID.
    changes: ChangeLog,
    /// What changed about claim users.
    claim_user_changes: ChangeLog,
    /// Pods whose kubelet reports other addresses or another node.
    report_changes: ChangeLog,
    /// The nodes of reports, each name stored once.
    nodes: BTreeSet<Arc<str>>,
}

impl Pods {
    /// A list begins: what it does not mention by its end is gone.
    pub fn begin(&mut self) {
        self.unseen = Some(self.seen.keys().cloned().collect());
    }

    /// The current state of a pod.
    pub fn apply(&mut self, pod: PodSeen) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(pod.podref.as_str());
        }
        let podref = pod.podref.into_boxed_str();
        // A claim user stays one while it lives, whatever its annotations say later: it may have the address.
        let known = self.claim_users.remove(&podref);
        let user = pod.facts.filter(|facts| {
            facts.may_refer()
                || facts.moves_an_alias()
                || known.as_ref().is_some_and(|known| known.uid == facts.uid)
        });
        if known.as_ref() != user.as_deref() {
            self.claim_user_changes.note(&podref);
        }
        if let Some(facts) = user {
            self.claim_users.insert(podref.clone(), *facts);
        }
        let report = pod.report.map(|report| Report { node: self.node(report.node), ..report });
        let seen = Seen { uid: pod.uid.into_boxed_str(), addresses: pod.addresses, report };
        let known = self.seen.get(&podref);
        if known.and_then(|known| known.report.as_ref()) != seen.report.as_ref() {
            self.report_changes.note(&podref);
        }
        if known.is_none_or(|known| (&known.uid, &known.addresses) != (&seen.uid, &seen.addresses)) {
            self.changes.note(&podref);
        }
        self.seen.insert(podref, seen);
    }

    fn node(&mut self, name: Arc<str>) -> Arc<str> {
        if let Some(known) = self.nodes.get(&name) {
            return Arc::clone(known);
        }
        self.nodes.insert(Arc::clone(&name));
        name
    }

    /// The list is complete.
    pub fn finish(&mut self) {
        for podref in self.unseen.take().into_iter().flatten() {
            self.remove(&podref);
        }
        if !self.complete {
            // From now on absence means something.
            self.changes.note_all();
            self.claim_user_changes.note_all();
            self.report_changes.note_all();
        }
        self.complete = true;
    }

    /// A pod is gone, or has ended.
    pub fn remove(&mut self, podref: &str) {
        if let Some(seen) = self.seen.remove(podref) {
            self.changes.note(podref);
            if seen.report.is_some() {
                self.report_changes.note(podref);
            }
        }
        if self.claim_users.remove(podref).is_some() {
            self.claim_user_changes.note(podref);
        }
    }

    /// Nobody watches pods any more, so nothing is known.
    pub fn forget(&mut self) {
        let mut changes = mem::take(&mut self.changes);
        let mut claim_user_changes = mem::take(&mut self.claim_user_changes);
        let mut report_changes = mem::take(&mut self.report_changes);
        changes.note_all();
        claim_user_changes.note_all();
        report_changes.note_all();
        *self = Self { changes, claim_user_changes, report_changes, ..Self::default() };
    }

    /// How often pods that (may) refer to a claim changed.
    pub fn changes(&self) -> u64 {
        self.claim_user_changes.count()
    }

    /// Pods that were added or removed, or have another UID or other addresses, since `cursor`.
    pub fn changed(&self, cursor: &mut Cursor) -> Changed {
        self.changes.since(cursor)
    }

    /// Pods that (may) refer to a claim and were added, removed or changed since `cursor`.
    pub fn changed_claim_users(&self, cursor: &mut Cursor) -> Changed {
        self.claim_user_changes.since(cursor)
    }

    /// Pods whose kubelet reports other addresses or another node since `cursor`.
    pub fn changed_reports(&self, cursor: &mut Cursor) -> Changed {
        self.report_changes.since(cursor)
    }

    /// The kubelets' reports, by `namespace/name` of the pods.
    pub fn reports(&self) -> impl Iterator<Item = (&str, &Report)> {
        self.seen.iter().filter_map(|(podref, seen)| Some((podref.as_ref(), seen.report.as_ref()?)))
    }

    /// The kubelet's report of a living pod, and the pod's UID.
    pub fn report(&self, podref: &str) -> Option<(&Report, &str)> {
        let seen = self.seen.get(podref)?;
        Some((seen.report.as_ref()?, &seen.uid))
    }

    /// Whether a list is complete. Before, absence means nothing.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// A living pod.
    pub fn get(&self, podref: &str) -> Option<LivingPod> {
        let Seen { uid, addresses, .. } = self.seen.get(podref)?;
        let addresses = addresses.as_ref().map(|all| all.iter().copied().collect());
        Some(LivingPod { uid: uid.to_string(), finished: false, addresses })
    }

    /// Whether the pod of this UID lives. Its annotations do not matter.
    pub fn lives(&self, podref: &str, uid: &str) -> bool {
        self.seen.get(podref).is_some_and(|seen| *seen.uid == *uid)
    }

    /// Living pods that (may) refer to a claim.
    pub fn claim_users(&self) -> impl Iterator<Item = &PodFacts> {
        self.claim_users.values()
    }

    /// A living pod that (may) refer to a claim.
    pub fn claim_user(&self, podref: &str) -> Option<&PodFacts> {
        self.claim_users.get(podref)
    }
}

impl PodSeen {
    /// What is kept of a pod.
    pub(crate) fn of(pod: &PodBrief) -> Self {
        let addresses = status_of(pod).map(|all| all.into_iter().collect());
        let mut facts = PodFacts::of(&pod.metadata);
        facts.node = pod.spec.node_name.clone().filter(|node| !node.is_empty());
        facts.host_network = pod.spec.host_network.unwrap_or_default();
        let report = Report::of(pod);
        Self { podref: podref(pod), uid: facts.uid.clone(), addresses, report, facts: Some(Box::new(facts)) }
    }
}

impl Report {
    /// What can be read of it. With host networking, its addresses are the node's.
    fn of(pod: &PodBrief) -> Option<Self> {
        let node = pod.spec.node_name.as_deref().filter(|node| !node.is_empty())?;
        let all = pod.status.pod_ips.iter().flatten().filter_map(|it| it.ip.parse().ok());
        let addresses: Box<[Address]> = all.collect();
        (!addresses.is_empty() && pod.spec.host_network != Some(true))
            .then(|| Self { node: node.into(), addresses })
    }
}

impl PodBrief {
    /// A pod of which nothing else is known.
    pub(crate) fn somewhere(metadata: ObjectMeta) -> Self {
        Self { metadata, ..Self::default() }
    }
}

/// Lets a type with some of a pod's fields be watched as a pod.
macro_rules! view_of_pods {
    ($view:ty) => {
        impl kube::Resource for $view {
            type DynamicType = ();
            type Scope = kube::core::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::core::v1::Pod as kube::Resource>::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::core::v1::Pod as kube::Resource>::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::core::v1::Pod as kube::Resource>::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::core::v1::Pod as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use view_of_pods;

view_of_pods!(PodBrief);

impl Kind for PodBrief {
    const NAME: &'static str = "Pod";

    /// It runs somewhere, so its records stay.
    fn stand_in(it: &Unreadable) -> Option<Self> {
        Some(Self::somewhere(it.metadata.clone()))
    }

    fn observe(world: &mut World, event: Event<Self>) {
        let pods = &mut world.ledgers_mut().pods;
        match event {
            Event::Init => pods.begin(),
            Event::InitApply(pod) | Event::Apply(pod) => pods.apply(PodSeen::of(&pod)),
            Event::InitDone => pods.finish(),
            Event::Delete(pod) => pods.remove(&podref(&pod)),
        }
    }

    fn observe_gone(world: &mut World, namespace: &str, name: &str, _: &str) {
        world.ledgers_mut().pods.remove(&format!("{namespace}/{name}"));
    }

    fn observe_unreadable(_: &mut World, _: &Stub, _: bool) {}

    fn forget(world: &mut World) {
        world.ledgers_mut().pods.forget();
    }
}

/// A pod as it was just read.
pub(crate) fn living(pod: &Pod) -> LivingPod {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    LivingPod { uid, finished: matches!(phase, Some("Succeeded" | "Failed")), addresses: status_of(pod) }
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
        PodSeen { podref: podref.to_owned(), uid: "u".to_owned(), addresses, report: None, facts: None }
    }

    fn claim_user(name: &str, uid: &str, node: Option<&str>) -> PodSeen {
        let pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid, "annotations": {"tenure/claim": "c"}},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Pending"},
        }));
        PodSeen::of(&pod.unwrap())
    }

    #[test]
    fn only_of_pods_that_may_refer_to_a_claim_is_anything_else_kept() {
        let mut pods = Pods::default();
        pods.apply(seen("ns/plain", None));
        assert_eq!(pods.claim_users().count(), 0);
        pods.apply(claim_user("a", "1", None));
        assert_eq!(pods.claim_user("ns/a").unwrap().node, None);
        pods.apply(claim_user("a", "1", Some("node1")));
        assert_eq!(pods.claim_user("ns/a").unwrap().node.as_deref(), Some("node1"));
        pods.remove("ns/a");
        assert!(pods.claim_user("ns/a").is_none());
    }

    #[test]
    fn a_pod_that_used_a_claim_stays_one_while_it_lives() {
        let mut pods = Pods::default();
        pods.apply(claim_user("a", "1", Some("node1")));
        let plain = |uid: &str| {
            let mut pod = claim_user("a", uid, Some("node1"));
            pod.facts.as_mut().unwrap().default_claim = None;
            pod
        };
        pods.apply(plain("1"));
        assert!(pods.claim_user("ns/a").is_some());
        pods.apply(plain("2"));
        assert!(pods.claim_user("ns/a").is_none());
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
