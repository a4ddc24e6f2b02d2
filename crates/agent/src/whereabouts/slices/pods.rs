//! Holds of which only the API can tell whether anybody needs them.
//!
//! What was adopted from a record is known by its pod and nothing else: neither its interface nor its namespace is seen
//! here. When the pod is gone at two looks, some while apart, it is released as a DEL would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1;
use kube::Api;
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::Shared;
use crate::key::{HoldKey, Pod};
use crate::node::{Event, SliceHold, SliceView};

/// What was seen once: whose, and the address that it has since then.
type Suspects = BTreeMap<(HoldKey, Address), (Timestamp, Timestamp)>;

/// Interfaces of pods, by namespace, name and UID.
type Interfaces = BTreeSet<(String, String, String, String)>;

fn interface_of(hold: &SliceHold, uid: &str) -> (String, String, String, String) {
    let Pod { namespace, name, .. } = &hold.pod;
    (namespace.clone(), name.clone(), uid.to_owned(), hold.interface().to_owned())
}

/// The interfaces of which it is known which pod has them: another record of the same name is of an earlier one.
fn replaced_by(slices: &[SliceView]) -> Interfaces {
    let holds = slices.iter().flat_map(|slice| &slice.holds).filter(|hold| !hold.pod.uid.is_empty());
    holds.map(|hold| interface_of(hold, &hold.pod.uid)).collect()
}

impl Shared {
    pub(super) async fn look_at_pods(self: Arc<Self>) {
        let mut suspects = Suspects::new();
        loop {
            tokio::time::sleep(self.options.look_at_pods).await;
            let Some((slices, unseen)) = self.look(|node| (node.slices(), node.unseen())).await else {
                continue;
            };
            let known = replaced_by(&slices);
            let before = std::mem::take(&mut suspects);
            for hold in unseen {
                let place = (hold.key.clone(), hold.address);
                let earlier = before.get(&place).filter(|(since, _)| *since == hold.since).copied();
                match self.is_pod_gone(&hold, &known).await {
                    Some(true) => {
                        let now = self.clock.now();
                        let (_, seen) = earlier.unwrap_or((hold.since, now));
                        if earlier.is_some() && seen.plus(self.options.look_at_pods) <= now {
                            self.release(hold).await;
                        } else {
                            suspects.insert(place, (hold.since, seen));
                        }
                    }
                    // It could not be asked: what was suspected still is.
                    None => suspects.extend(earlier.map(|suspect| (place, suspect))),
                    Some(false) => {}
                }
            }
        }
    }

    /// Whether the pod does not run on this node, though another one of its name may; nothing if that is not known.
    async fn is_pod_gone(&self, hold: &SliceHold, known: &Interfaces) -> Option<bool> {
        let pod = &hold.pod;
        if pod.namespace.is_empty() || pod.name.is_empty() {
            return None;
        }
        let pods: Api<v1::Pod> = Api::namespaced(self.connection.client(), &pod.namespace);
        let act = || format!("reading Pod {pod}");
        match self.insist(act, || pods.get_opt(&pod.name)).await {
            Ok(None) => Some(true),
            Ok(Some(found)) => {
                let node = found.spec.and_then(|spec| spec.node_name);
                let phase = found.status.and_then(|status| status.phase).unwrap_or_default();
                let uid = found.metadata.uid.unwrap_or_default();
                let replaced = if pod.uid.is_empty() {
                    known.contains(&interface_of(hold, &uid))
                } else {
                    pod.uid != uid
                };
                let elsewhere = node.is_some_and(|node| node != self.options.node);
                Some(replaced || elsewhere || phase == "Succeeded" || phase == "Failed")
            }
            Err(error) => {
                tracing::warn!(%error, "it is not known whether a pod still runs");
                None
            }
        }
    }

    async fn release(&self, hold: SliceHold) {
        tracing::warn!(key = %hold.key, pod = %hold.pod, address = %hold.address, "nobody uses an address; it is released");
        let key = hold.key;
        if let Err(error) = self.node.call(move |ticket| Event::Del { ticket, key, interface: false }).await {
            let failure = tenure_cni::Failure::from(error);
            tracing::warn!(%failure, "an address that nobody uses cannot be released yet");
        }
    }
}
