//! Follows changes of pods, Egresses and Services, and repairs what somebody broke.
//!
//! Every look computes what should be and compares it with what was applied last, so nothing depends on which change woke it.
//! Pods are changed one after the other; one that cannot be is told of by an event and tried again with the next verification.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::Api;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use super::plan::{Clients, Desired, desired};
use super::{Attachment, INTERFACE, Shared, Wanted};
use crate::key::Pod;
use crate::objects::lock;

/// Changes come in groups; those of this time are looked at together.
const TOGETHER: Duration = Duration::from_millis(20);
/// How long a pod that names Egresses may be without an interface before it is asked why.
const WITHOUT_INTERFACE: Duration = Duration::from_secs(10);
/// How long one read may take.
const LIVE_READ: Duration = Duration::from_secs(2);

/// What was applied last to each interface, by container and name.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pods: BTreeMap<(String, String), (Wanted, Option<String>)>,
    /// Interfaces of before this start that nothing was applied to since; unknown before the first look.
    older: Option<BTreeSet<(String, String)>>,
}

impl Applied {
    pub(super) fn put(&mut self, attachment: &Attachment, wanted: Wanted) {
        self.note(attachment, wanted, None);
    }

    /// Notes that an interface of an ADD has nothing. False if it may have something, because the ADD is not its first: then the
    /// next look applies what it is to have.
    pub(super) fn put_nothing(&mut self, attachment: &Attachment) -> bool {
        let key = key(attachment);
        let is_new = self.older.as_ref().is_some_and(|older| !older.contains(&key));
        match self.pods.get(&key) {
            Some((applied, problem)) => applied.is_nothing() && problem.is_none(),
            None if is_new => self.pods.insert(key, (Wanted::default(), None)).is_none(),
            None => false,
        }
    }

    fn fail(&mut self, attachment: &Attachment, wanted: Wanted, problem: String) {
        self.note(attachment, wanted, Some(problem));
    }

    fn note(&mut self, attachment: &Attachment, wanted: Wanted, problem: Option<String>) {
        let key = key(attachment);
        if let Some(older) = &mut self.older {
            older.remove(&key);
        }
        self.pods.insert(key, (wanted, problem));
    }

    /// Forgets an interface. True if it had something.
    pub(super) fn forget(&mut self, container: &str, interface: &str) -> bool {
        let gone = self.pods.remove(&(container.to_owned(), interface.to_owned()));
        gone.is_some_and(|(wanted, _)| !wanted.is_nothing())
    }

    /// Clients, gateways, and those that fail.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let well = || self.pods.values().filter(|(_, problem)| problem.is_none());
        let clients = well().filter(|(wanted, _)| !wanted.egresses.is_empty()).count();
        let gateways = well().filter(|(wanted, _)| wanted.gateway).count();
        (clients, gateways, self.pods.len() - well().count())
    }

    /// Whether this is to be applied. A verification looks at all that have something, and at those that failed.
    fn needs(&self, attachment: &Attachment, wanted: &Wanted, verify: bool) -> bool {
        match self.pods.get(&key(attachment)) {
            // Of before a restart: it may have what it should not have any more.
            None => true,
            Some((applied, problem)) => {
                applied != wanted || (verify && (problem.is_some() || !wanted.is_nothing()))
            }
        }
    }

    /// Forgets all but these.
    fn retain(&mut self, attachments: &BTreeSet<(String, String)>) {
        self.pods.retain(|key, _| attachments.contains(key));
        if let Some(older) = &mut self.older {
            older.retain(|key| attachments.contains(key));
        } else {
            let unknown = attachments.iter().filter(|key| !self.pods.contains_key(*key));
            self.older = Some(unknown.cloned().collect());
        }
    }
}

fn key(attachment: &Attachment) -> (String, String) {
    (attachment.container.clone(), attachment.interface.clone())
}

/// Pods without an interface: since when, and whether they were asked why.
#[derive(Debug, Default)]
struct WithoutInterface {
    since: BTreeMap<String, (Duration, bool)>,
}

impl WithoutInterface {
    fn is_waiting(&self) -> bool {
        self.since.values().any(|(_, asked)| !asked)
    }
}

impl Shared {
    /// Follows changes until the agent ends, and passes on who the clients are.
    pub(super) async fn reconcile(self: Arc<Self>, clients: watch::Sender<Option<Clients>>) {
        let mut verifications = interval(self.options.verify);
        verifications.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut without = WithoutInterface::default();
        loop {
            let verify = tokio::select! {
                _ = verifications.tick() => true,
                () = self.changed.notified() => false,
                () = sleep(WITHOUT_INTERFACE), if without.is_waiting() => false,
            };
            sleep(TOGETHER).await;
            let Some(desired) = self.look().await else { continue };
            clients.send_if_modified(|known| {
                let changed = !desired.unknown && known.as_ref() != Some(&desired.clients);
                if changed {
                    *known = Some(desired.clients.clone());
                }
                changed
            });
            for (attachment, problem) in &desired.refused {
                self.warn(attachment, problem);
            }
            for (attachment, wanted) in desired.pods {
                if lock(&self.applied).needs(&attachment, &wanted, verify) {
                    self.apply(&attachment, wanted).await;
                }
            }
            self.ask_those_without(&mut without, &desired.without_interface).await;
        }
    }

    /// What should be; nothing while pods or attachments are not known.
    async fn look(&self) -> Option<Desired> {
        let attachments = self.attachments.all().await?;
        let pods = self.pods.all()?;
        let there: BTreeSet<(String, String)> = attachments.iter().map(key).collect();
        lock(&self.applied).retain(&there);
        let own = attachments.iter().filter(|it| it.interface == INTERFACE);
        let named: BTreeSet<(&str, &str)> = own.map(|it| (it.namespace.as_str(), it.pod.as_str())).collect();
        let without = pods.iter().filter(|((namespace, name), pod)| {
            pod.facet.egresses.as_ref().is_ok_and(|ids| !ids.is_empty())
                && !named.contains(&(namespace.as_str(), name.as_str()))
        });
        let without_interface = without
            .map(|((namespace, name), pod)| (namespace.clone(), name.clone(), pod.uid.clone()))
            .collect();
        // The kernel, which is asked where the journal was lost, may have the beginning of a long name alone.
        let by_uid = |uid: &str| pods.values().find(|pod| !uid.is_empty() && pod.has_uid(uid));
        let find =
            |it: &Attachment| pods.get(&(it.namespace.clone(), it.pod.clone())).or_else(|| by_uid(&it.uid));
        let desired = desired(attachments, find, |id| self.gateways.known(id));
        Some(Desired { without_interface, ..desired })
    }

    async fn apply(&self, attachment: &Attachment, wanted: Wanted) {
        let _turn = self.turn.lock().await;
        match self.kernel.run(wanted.job(attachment)).await {
            Ok(changed) => {
                if !changed.is_empty() {
                    let pod = format!("{}/{}", attachment.namespace, attachment.pod);
                    info!(pod, ?changed, "changed a pod's egress");
                }
                lock(&self.applied).put(attachment, wanted);
            }
            // Its DEL is on the way.
            Err(problem) if problem.gone => {
                lock(&self.applied).forget(&attachment.container, &attachment.interface);
            }
            Err(problem) => {
                self.warn(attachment, &problem.message);
                lock(&self.applied).fail(attachment, wanted, problem.message);
            }
        }
    }

    fn warn(&self, attachment: &Attachment, problem: &str) {
        warn!(attachment.namespace, attachment.pod, problem, "a pod's egress is not as it should be");
        let pod = Pod {
            namespace: attachment.namespace.clone(),
            name: attachment.pod.clone(),
            uid: attachment.uid.clone(),
        };
        let message = format!("the pod's egress cannot be set up: {problem}");
        self.objects.warn_pod(&pod, "EgressFailed", message);
    }

    /// Tells pods on the node's own network, and those whose interface is another plugin's, that their annotations have no effect.
    async fn ask_those_without(
        &self,
        without: &mut WithoutInterface,
        pods: &BTreeSet<(String, String, String)>,
    ) {
        let now = self.clock.elapsed();
        without.since.retain(|uid, _| pods.iter().any(|(.., there)| there == uid));
        for (namespace, name, uid) in pods {
            let (since, asked) = without.since.entry(uid.clone()).or_insert((now, false));
            if *asked || now.saturating_sub(*since) < WITHOUT_INTERFACE {
                continue;
            }
            let api: Api<PodObject> = Api::namespaced(self.connection.client(), namespace);
            let act = || format!("reading Pod {namespace}/{name}");
            let Ok(found) = self.connection.once(LIVE_READ, act, api.get_opt(name)).await else { continue };
            let ignored = match found.as_ref().map(why_without_interface) {
                // It may get one.
                Some(WithoutBecause::Starting) => continue,
                Some(WithoutBecause::HostNetwork) => {
                    "the pod is on the node's own network (hostNetwork), so its annotations egress.coil.cybozu.com/… \
                     have no effect: its packets leave from the node"
                }
                Some(WithoutBecause::OfAnother) => {
                    "Tenure did not make the pod's interface eth0, so its annotations egress.coil.cybozu.com/… have no \
                     effect: its packets leave from its own address. Where another plugin makes interfaces, put \
                     {\"type\": \"tenure\"} after it in the list of plugins, on nodes with --enable-ipam=false, and make the \
                     pod anew"
                }
                Some(WithoutBecause::Ended) | None => {
                    *asked = true;
                    continue;
                }
            };
            *asked = true;
            let pod = Pod { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
            self.objects.warn_pod(&pod, "EgressIgnored", ignored.to_owned());
        }
    }
}

/// Why a pod has no interface of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutBecause {
    /// It is on the node's own network.
    HostNetwork,
    /// It has no network yet.
    Starting,
    /// Somebody else made its interface, or it was made before there was egress.
    OfAnother,
    /// It has ended.
    Ended,
}

fn why_without_interface(pod: &PodObject) -> WithoutBecause {
    if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
        return WithoutBecause::HostNetwork;
    }
    let status = pod.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Succeeded" | "Failed") => WithoutBecause::Ended,
        _ if status.is_some_and(|status| status.pod_ip.is_some()) => WithoutBecause::OfAnother,
        _ => WithoutBecause::Starting,
    }
}

#[cfg(test)]
mod tests;
