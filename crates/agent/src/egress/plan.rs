//! From what is known of a node's pods to what should be: what each namespace has, and who the clients of each Egress are.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use tenure_api::coil::EgressId;
use tenure_api::coil::egress::{AnnotationError, EgressClient, egresses_of, is_gateway};
use tenure_linux::egress::Egress as WayOut;

use super::gateways::Unusable;
use super::{Attachment, INTERFACE, Wanted};
use crate::pods::{Facet, KnownPod};

/// What a pod's metadata say of egress.
#[derive(Debug, PartialEq)]
pub(crate) struct EgressUse {
    /// The Egresses that it uses, or why its annotations cannot be read.
    pub(super) egresses: Result<BTreeSet<EgressId>, AnnotationError>,
    /// Whether it is a gateway of an Egress.
    pub(super) gateway: bool,
}

impl Facet for EgressUse {
    fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        Self { egresses: egresses_of(pod.annotations()), gateway: is_gateway(pod.labels()) }
    }
}

/// So many clients fit into one object.
const MOST_CLIENTS: usize = 1024;

/// The clients on this node of one Egress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientsOf {
    /// The UID of the Egress.
    pub(super) egress_uid: String,
    /// The clients, in the order of their UIDs.
    pub(super) clients: Vec<EgressClient>,
}

/// The clients on this node, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clients {
    /// Those of each Egress.
    pub(super) of: BTreeMap<EgressId, ClientsOf>,
    /// Pods by UID whose Egresses cannot be read, with their addresses: they stay clients of what they were.
    pub(super) kept: BTreeMap<String, BTreeSet<String>>,
}

impl Clients {
    /// The clients that an Egress is to have where an object lists these already.
    pub(super) fn with_kept(&self, id: &EgressId, listed: &[EgressClient]) -> Vec<EgressClient> {
        let mut clients = self.of.get(id).map(|of| of.clients.clone()).unwrap_or_default();
        let decided = clients.len();
        for client in listed {
            let Some(addresses) = self.kept.get(&client.uid) else { continue };
            let mut client = client.clone();
            client.addresses.retain(|address| addresses.contains(address));
            if !client.addresses.is_empty() && clients.len() < MOST_CLIENTS {
                clients.push(client);
            }
        }
        if clients.len() > decided {
            clients.sort_by(|one, other| one.uid.cmp(&other.uid));
        }
        clients
    }
}

/// What is known of an Egress.
#[derive(Clone, Debug)]
pub(super) struct KnownEgress {
    /// Its UID; nothing if there is no such Egress.
    pub(super) uid: Option<String>,
    /// Where it leads, or why it cannot be used.
    pub(super) way_out: Result<WayOut, Unusable>,
}

/// All that should be.
#[derive(Debug, Default)]
pub(super) struct Desired {
    /// What each interface is to have. One that is not here is left as it is.
    pub(super) pods: Vec<(Attachment, Wanted)>,
    /// Whether something is not known yet that clients depend on.
    pub(super) unknown: bool,
    /// Who the clients are.
    pub(super) clients: Clients,
    /// What pods cannot have, and why.
    pub(super) refused: Vec<(Attachment, String)>,
    /// Pods that name Egresses and have no interface here.
    pub(super) without_interface: BTreeSet<(String, String, String)>,
}

/// Decides what should be. `pods` has all pods of the node, and `egresses` what is known of an Egress; nothing while nothing is
/// known.
pub(super) fn desired<'a>(
    attachments: Vec<Attachment>,
    pods: impl Fn(&Attachment) -> Option<&'a KnownPod<EgressUse>>,
    egresses: impl Fn(&EgressId) -> Option<KnownEgress>,
) -> Desired {
    let mut desired = Desired::default();
    let mut sorted = attachments;
    sorted.retain(|attachment| attachment.interface == INTERFACE);
    sorted.sort_by(|one, other| (&one.uid, &one.container).cmp(&(&other.uid, &other.container)));
    for attachment in sorted {
        let known = pods(&attachment);
        // Another pod of the name says nothing about this one, which is on its way out.
        let Some(pod) = known.filter(|pod| attachment.uid.is_empty() || pod.has_uid(&attachment.uid)) else {
            continue;
        };
        match &pod.facet.egresses {
            Ok(ids) if pod.facet.gateway && !ids.is_empty() => {
                let problem = "a gateway of an Egress cannot be a client of one: remove its annotation";
                desired.refused.push((attachment, problem.to_owned()));
            }
            Ok(ids) => desired.attach(attachment, pod, ids, &egresses),
            // It keeps the egress that it has, and its gateways go on to serve it.
            Err(error) => {
                let kept = desired.clients.kept.entry(pod.uid.clone()).or_default();
                kept.extend(attachment.addresses.iter().map(ToString::to_string));
                desired.refused.push((attachment, error.to_string()));
            }
        }
    }
    desired
}

impl Desired {
    fn attach(
        &mut self,
        attachment: Attachment,
        pod: &KnownPod<EgressUse>,
        ids: &BTreeSet<EgressId>,
        egresses: &impl Fn(&EgressId) -> Option<KnownEgress>,
    ) {
        let mut wanted = Wanted { gateway: pod.facet.gateway, ..Wanted::default() };
        // Whose namespace nobody knows cannot be changed. It is a client like others.
        let mut stays = attachment.netns.is_empty();
        for id in ids {
            let Some(known) = egresses(id) else {
                // Nothing is taken away because nothing is known.
                self.unknown = true;
                return;
            };
            // Each Egress by itself: what is wrong with one does not end the pod's use of the others.
            if let Some(uid) = known.uid {
                let of = self.clients.of.entry(id.clone()).or_default();
                of.egress_uid = uid;
                if !of.add(&attachment, pod) {
                    let problem =
                        format!("Egress {id} has {MOST_CLIENTS} clients on this node, and takes no more");
                    self.refused.push((attachment.clone(), problem));
                }
            }
            match known.way_out {
                Ok(way_out) => wanted.egresses.push(way_out),
                // Nor is anything taken away while a Service is being made anew.
                Err(Unusable::NoService(_) | Unusable::Unknown { .. }) => stays = true,
                Err(error) => self.refused.push((attachment.clone(), error.to_string())),
            }
        }
        if !stays {
            self.pods.push((attachment, wanted));
        }
    }
}

impl ClientsOf {
    /// Adds a client. False if there are too many.
    fn add(&mut self, attachment: &Attachment, pod: &KnownPod<EgressUse>) -> bool {
        let addresses: Vec<String> = attachment.addresses.iter().map(ToString::to_string).collect();
        let uid = pod.uid.clone();
        if addresses.is_empty() {
            return true;
        }
        // Two sandboxes of one pod, of which one is on its way out: its addresses are served until it is gone.
        let full = self.clients.len() >= MOST_CLIENTS;
        match self.clients.iter_mut().find(|client| client.uid == uid) {
            Some(client) => {
                let more = addresses.into_iter().filter(|address| !client.addresses.contains(address));
                let more: Vec<String> = more.collect();
                client.addresses.extend(more);
                client.addresses.truncate(4);
            }
            None if full => return false,
            None => self.clients.push(EgressClient {
                namespace: attachment.namespace.clone(),
                pod: attachment.pod.clone(),
                uid,
                addresses,
            }),
        }
        true
    }
}

#[cfg(test)]
mod tests;
