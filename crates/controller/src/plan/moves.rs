//! Which pods have a claim: the slots of each claim, decided by [`tenure_claims::Slots::next`] from the pods that are there.
//!
//! Level-triggered: what happened while nobody led is found from what is there now. Everything that a commit needs is known
//! when the pod came in, its node included, so that from the signal to the written annotation there is one write and no read.

use std::collections::BTreeMap;

use tenure_api::claims::annotation;
use tenure_api::claims::condition::reason;
use tenure_claims::{CLUSTER_NETWORK, PodFacts, Slots};

use super::at;
use crate::claims::Claim;
use crate::events::{Note, Standing, crowded, not_allowed, unreadable_signal};
use crate::users::Users;
use crate::world::World;
use crate::write::{MoveWrite, Write};

/// Plans who has which claim. What it remembers is only for what people are told.
#[derive(Debug, Default)]
pub(super) struct MovePlanner {
    standing: Standing,
    /// By the UID of a claim, that of the pod which came in and was not the active one since. The slots do not say it: after a
    /// commit the pod that was active is where the other came from.
    coming: BTreeMap<String, String>,
}

impl MovePlanner {
    /// The next step for each claim; nothing while it is not known who uses what.
    pub(super) fn plan(&mut self, world: &World, users: &Users<'_>) -> Vec<Write> {
        if !world.knows_users() {
            return Vec::new();
        }
        self.standing.look_again();
        let mut writes = Vec::new();
        for claim in world.claims.all.iter() {
            // Without the proof no agent uses it, and there is nothing to have.
            if !claim.facts.held || claim.facts.addresses.is_empty() {
                continue;
            }
            let pods = users_of(world, users, claim);
            let next = claim.facts.slots.next(&pods);
            self.say_who_waits(claim, next.as_ref().unwrap_or(&claim.facts.slots), &pods);
            self.say_what_cannot_be_read(claim, &pods);
            if let Some(slots) = next {
                let (namespace, before) = (claim.facts.namespace.clone(), claim.facts.slots.clone());
                let aborts = self.note_who_comes(&claim.facts.uid, &before, &slots);
                let (claim, before, slots) = (at(&claim.object), Box::new(before), Box::new(slots));
                writes.push(Write::Move(MoveWrite::Hold { namespace, claim, before, slots, aborts }));
            }
        }
        self.coming.retain(|claim, _| !world.claims.all.is_gone(claim));
        self.say_what_is_not_allowed(world);
        writes
    }

    /// What people should know and no write tells.
    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        self.standing.take()
    }

    /// Remembers who comes in; whether somebody who did is gone before it was the active one.
    fn note_who_comes(&mut self, claim: &str, before: &Slots, after: &Slots) -> bool {
        let stays = before.number == after.number && before.active.is_some();
        let came = self.coming.remove(claim);
        let gone = before.incoming.as_ref().filter(|slot| stays && !after.has(&slot.uid));
        if let Some(new) = after.incoming.as_ref().filter(|slot| stays && !before.has(&slot.uid)) {
            self.coming.insert(claim.to_owned(), new.uid.clone());
        } else if let Some(came) = came.as_ref().filter(|_| stays && gone.is_none()) {
            self.coming.insert(claim.to_owned(), came.clone());
        }
        stays && gone.is_some_and(|gone| came.as_ref() == Some(&gone.uid))
    }

    fn say_who_waits(&mut self, claim: &Claim, slots: &Slots, pods: &[&PodFacts]) {
        let waits = |pod: &&&PodFacts| pod.node.is_some() && !pod.is_leaving() && !slots.has(&pod.uid);
        for pod in pods.iter().filter(waits) {
            for note in crowded(claim, slots, pod) {
                self.standing.say(note);
            }
        }
    }

    /// A signal that cannot be read moves nothing, so that the pod waits for good: people must know.
    fn say_what_cannot_be_read(&mut self, claim: &Claim, pods: &[&PodFacts]) {
        for pod in pods {
            let signals = [annotation::KUBEVIRT_READY, annotation::ACTIVE];
            for problem in signals.iter().filter_map(|signal| pod.problems.get(signal)) {
                let mut new = false;
                for note in unreadable_signal(claim, pod, problem) {
                    new |= self.standing.say(note);
                }
                if new {
                    let (namespace, name) = (&pod.namespace, &pod.name);
                    tracing::warn!(%namespace, pod = %name, claim = %claim.facts.name, problem, "a pod's signal to move cannot be read");
                }
            }
        }
    }

    /// Agents refuse pods that name a claim on a network that does not opt in. People should know why.
    fn say_what_is_not_allowed(&mut self, world: &World) {
        for pod in world.ledgers.pods.guests() {
            for (namespace, attachment, claim) in named(pod) {
                let why = if (namespace, attachment) == CLUSTER_NETWORK {
                    world.cluster_network.is_none().then(|| {
                        let words = "the cluster's default network does not let addresses outlive pods; set allowPersistentIPs \
                                     in its configuration (tenured --persistent-ips), and the controller's --cluster-network to \
                                     its name";
                        (reason::PERSISTENT_IPS_NOT_ALLOWED, words.to_owned())
                    })
                } else {
                    let known = world.ledgers.attachments.get(&format!("{namespace}/{attachment}"));
                    known.and_then(|known| match &known.opted_in {
                        Ok(Some(_)) => None,
                        Ok(None) => Some((
                            reason::PERSISTENT_IPS_NOT_ALLOWED,
                            format!(
                                "NetworkAttachmentDefinition {namespace}/{attachment} does not let addresses outlive pods; set \
                                 allowPersistentIPs to true in its configuration"
                            ),
                        )),
                        Err(error) => Some((
                            reason::INVALID_CONFIGURATION,
                            format!("NetworkAttachmentDefinition {namespace}/{attachment}: {error}"),
                        )),
                    })
                };
                let Some((reason, why)) = why else { continue };
                let message =
                    format!("pod \"{}\" cannot have the addresses of claim \"{claim}\": {why}", pod.name);
                let claim = world.claims.get(&pod.namespace, claim);
                for note in not_allowed(claim, pod, reason, &message) {
                    self.standing.say(note);
                }
            }
        }
    }
}

/// The claims that a pod names, each with the namespace and the name of its attachment definition.
fn named(pod: &PodFacts) -> impl Iterator<Item = (&str, &str, &str)> {
    let selected = pod.selections.iter().filter_map(|selection| {
        let namespace = selection.namespace.as_deref().unwrap_or(&pod.namespace);
        Some((namespace, selection.name.as_str(), selection.claim.as_deref()?))
    });
    let default = match &pod.default_network {
        Some(network) => (network.namespace.as_str(), network.selection.name.as_str()),
        None => CLUSTER_NETWORK,
    };
    let of_multus = pod.default_network.as_ref().and_then(|network| network.selection.claim.as_deref());
    let by_default = pod.default_claim.as_deref().or(of_multus);
    selected.chain(by_default.map(|claim| (default.0, default.1, claim)))
}

/// The pods that refer to a claim or have it: one that has it stays until it is gone, whatever becomes of its annotations or of
/// the network's.
fn users_of<'a>(world: &'a World, users: &Users<'a>, claim: &Claim) -> Vec<&'a PodFacts> {
    let mut pods = users.of_claim(claim).to_vec();
    for slot in claim.facts.slots.both() {
        let known = world.ledgers.pods.guest(&format!("{}/{}", claim.facts.namespace, slot.pod));
        if let Some(pod) = known.filter(|pod| pod.uid == slot.uid)
            && !pods.iter().any(|user| user.uid == pod.uid)
        {
            pods.push(pod);
        }
    }
    pods
}
