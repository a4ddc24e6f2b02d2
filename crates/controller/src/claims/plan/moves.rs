//! Which pods have a claim: the slots of each claim, decided by [`tenure_claims::Slots::next`] from the pods that are there.
//!
//! Level-triggered: what happened while nobody led is found from what is there now. Everything that a commit needs is known
//! when the pod came in, its node included, so that from the signal to the written annotation there is one write and no read.
//!
//! A pod comes in only after the record names its UID. The annotation can be changed by whoever may change the claim; the
//! record cannot, so it is what says who may use the addresses, and agents go by it. A pod that the record names stays in
//! until it has ended, whatever its own annotations say. One that was given the addresses of a claim which had the name before
//! keeps those, and does not come in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_api::claims::condition::reason;
use tenure_api::claims::{PodRecord, annotation};
use tenure_claims::{CLUSTER_NETWORK, PodFacts, Slots, Trace};

use super::super::events::{crowded, definition_refused, not_allowed, unreadable_signal};
use super::super::known::Claim;
use super::super::sets::Names;
use super::super::write::MoveWrite;
use super::Inputs;
use crate::attachment::Attachment;
use crate::events::{Note, Standing};
use crate::world::World;
use crate::write::{At, Write};

/// Why a definition is refused that has the name of the cluster's own network.
const NETWORK_NAME_REFUSED: &str = "NetworkNameRefused";

/// Pods that records have to name before they come in, by the UID of the claim.
pub(in crate::claims) type Naming = BTreeMap<String, Vec<PodRecord>>;

/// Plans who has which claim. What it remembers is for what people are told, and what need not be decided again.
#[derive(Debug, Default)]
pub(in crate::claims) struct MovePlanner {
    standing: Standing,
    naming: Naming,
    /// The next steps, by the names of claims: they stay until something has changed about the claim.
    steps: BTreeMap<Arc<str>, Write>,
    /// By the UID of a claim, those of the pods which came in and were not the active one since. The slots do not say it: after a
    /// commit the pod that was active is where the other came from.
    coming: BTreeMap<String, BTreeSet<String>>,
}

impl MovePlanner {
    /// The next step for each claim that needs one; nothing while it is not known who uses what. The names of claims that are to be
    /// looked at again are added to `pending`.
    pub(in crate::claims) fn plan(&mut self, inputs: Inputs<'_>, pending: &mut Names) -> Vec<Write> {
        let Inputs { world, look, .. } = inputs;
        self.naming.clear();
        if look.all || !world.knows_users() {
            self.steps.clear();
        }
        if !world.knows_users() {
            return Vec::new();
        }
        if look.all {
            self.standing.look_again();
        }
        for name in &look.names {
            if !look.all {
                self.standing.look_again_at(name);
            }
            self.steps.remove(name);
            let Some(claim) = world.claims().all.get(name) else { continue };
            let write = self.step(inputs, name, claim);
            self.steps.extend(write.map(|write| (name.clone(), write)));
            if self.naming.contains_key(&claim.facts.uid) {
                pending.insert(name.clone());
            }
        }
        self.coming.retain(|claim, _| !world.claims().all.is_gone(claim));
        for podref in &look.users {
            self.say_what_is_not_allowed(inputs, podref);
        }
        for key in &look.attachments {
            let about = format!("definition {key}");
            if !look.all {
                self.standing.look_again_at(&about);
            }
            let known = world.ledgers().attachments.get(key);
            if let Some(attachment) = known.filter(|it| world.is_refused(it)) {
                let note = definition_refused(attachment, NETWORK_NAME_REFUSED, &refused(attachment));
                self.standing.say(&about, note);
            }
        }
        self.steps.values().cloned().collect()
    }

    /// The next step for one claim, which is looked at under its name.
    fn step(&mut self, inputs: Inputs<'_>, name: &str, claim: &Claim) -> Option<Write> {
        let (world, records) = (inputs.world, &inputs.index.records);
        // Without a record no agent uses it, and there is nothing to have.
        if !claim.facts.held || claim.facts.addresses.is_empty() || !records.has(world, &claim.facts) {
            return None;
        }
        let named = by_record(inputs, claim);
        let pods: Vec<&PodFacts> = users_of(inputs, claim).chain(&named).collect();
        let next = claim.facts.slots.next(&pods);
        let slots = next.as_ref().unwrap_or(&claim.facts.slots);
        self.say_who_waits(name, claim, slots, &pods);
        self.say_what_cannot_be_read(name, claim, &pods);
        let unnamed = unnamed(inputs, claim, slots, &pods);
        if !unnamed.is_empty() {
            self.naming.insert(claim.facts.uid.clone(), unnamed);
            return None;
        }
        let slots = next?;
        let (namespace, before) = (claim.facts.namespace.clone(), claim.facts.slots.clone());
        let aborts = self.note_who_comes(&claim.facts.uid, &before, &slots);
        let (claim, before, slots) = (At::of(&claim.object), Box::new(before), Box::new(slots));
        Some(Write::from(MoveWrite::Hold { namespace, claim, before, slots, aborts }))
    }

    /// The pods that records have to name next.
    pub(in crate::claims) fn naming(&self) -> &Naming {
        &self.naming
    }

    /// What people should know and no write tells.
    pub(in crate::claims) fn take_notes(&mut self) -> Vec<Note> {
        self.standing.take()
    }

    /// Remembers who comes in; whether somebody who did is gone before it was the active one. To ask again changes nothing.
    fn note_who_comes(&mut self, claim: &str, before: &Slots, after: &Slots) -> bool {
        if before.number != after.number || before.active.is_none() {
            self.coming.remove(claim);
            return false;
        }
        let mut came = self.coming.remove(claim).unwrap_or_default();
        came.retain(|pod| before.has(pod) || after.has(pod));
        let new = after.incoming.as_ref().filter(|slot| !before.has(&slot.uid));
        came.extend(new.map(|slot| slot.uid.clone()));
        let gone = before.incoming.as_ref().filter(|slot| !after.has(&slot.uid));
        let aborts = gone.is_some_and(|gone| came.contains(&gone.uid));
        if !came.is_empty() {
            self.coming.insert(claim.to_owned(), came);
        }
        aborts
    }

    fn say_who_waits(&mut self, name: &str, claim: &Claim, slots: &Slots, pods: &[&PodFacts]) {
        let waits = |pod: &&&PodFacts| pod.node.is_some() && !pod.is_leaving() && !slots.has(&pod.uid);
        for pod in pods.iter().filter(waits) {
            for note in crowded(claim, slots, pod) {
                self.standing.say(name, note);
            }
        }
    }

    /// A signal that cannot be read moves nothing, so that the pod waits for good: people must know.
    fn say_what_cannot_be_read(&mut self, name: &str, claim: &Claim, pods: &[&PodFacts]) {
        for pod in pods {
            let signals = [annotation::KUBEVIRT_READY, annotation::ACTIVE];
            for problem in signals.iter().filter_map(|signal| pod.problems.get(signal)) {
                let mut new = false;
                for note in unreadable_signal(claim, pod, problem) {
                    new |= self.standing.say(name, note);
                }
                if new {
                    let (namespace, pod) = (&pod.namespace, &pod.name);
                    tracing::warn!(%namespace, %pod, claim = %claim.facts.name, problem, "a pod's signal to move cannot be read");
                }
            }
        }
    }

    /// Agents refuse pods that name a claim on a network that does not opt in. People should know why.
    fn say_what_is_not_allowed(&mut self, Inputs { world, look, .. }: Inputs<'_>, podref: &str) {
        let about = format!("pod {podref}");
        if !look.all {
            self.standing.look_again_at(&about);
        }
        let Some(pod) = world.ledgers().pods.claim_user(podref) else { return };
        for (namespace, attachment, claim) in named(pod) {
            let Some((reason, why)) = why_not(world, namespace, attachment) else { continue };
            let message =
                format!("pod \"{}\" cannot have the addresses of claim \"{claim}\": {why}", pod.name);
            let claim = world.claims().get(&pod.namespace, claim);
            for note in not_allowed(claim, pod, reason, &message) {
                self.standing.say(&about, note);
            }
        }
    }
}

/// Why no pod can have a claim on the network of a definition, or on the cluster's own.
fn why_not(world: &World, namespace: &str, attachment: &str) -> Option<(&'static str, String)> {
    if (namespace, attachment) == CLUSTER_NETWORK {
        let words = "the cluster's default network does not let addresses outlive pods; set allowPersistentIPs in its \
                     configuration (tenured --persistent-ips), and the controller's --cluster-network to its name";
        let lacks = world.claims().cluster_network.is_none();
        return lacks.then(|| (reason::PERSISTENT_IPS_NOT_ALLOWED, words.to_owned()));
    }
    let known = world.ledgers().attachments.get(&format!("{namespace}/{attachment}"))?;
    match &known.opted_in {
        _ if world.is_refused(known) => Some((NETWORK_NAME_REFUSED, refused(known))),
        Ok(Some(_)) => None,
        Ok(None) => {
            let words = format!(
                "NetworkAttachmentDefinition {namespace}/{attachment} does not let addresses outlive pods; set \
                 allowPersistentIPs to true in its configuration"
            );
            Some((reason::PERSISTENT_IPS_NOT_ALLOWED, words))
        }
        Err(error) => {
            let words = format!("NetworkAttachmentDefinition {namespace}/{attachment}: {error}");
            Some((reason::INVALID_CONFIGURATION, words))
        }
    }
}

/// The pods that refer to a claim and were not given the addresses of one that had its name before.
fn users_of<'a>(inputs: Inputs<'a>, claim: &'a Claim) -> impl Iterator<Item = &'a PodFacts> {
    let (facts, records) = (&claim.facts, &inputs.index.records);
    let (world, users) = (inputs.world, inputs.index.users.of_claim(inputs.world, claim));
    users.filter(move |pod| {
        !records.name_of_predecessor(facts, &pod.uid) || records.name(world, facts, &pod.uid)
    })
}

/// The pods that have a claim although they do not refer to it (any more): those that are in its slots or that its record
/// names, and that live; and those in its slots that are gone together with their node, until they count as ended.
fn by_record(inputs: Inputs<'_>, claim: &Claim) -> Vec<PodFacts> {
    let Inputs { world, index, now, .. } = inputs;
    let (facts, records) = (&claim.facts, &index.records);
    let mut found: Vec<PodFacts> = Vec::new();
    let user_of = |pod: &str, uid: &str| {
        let user = world.ledgers().pods.claim_user(&format!("{}/{pod}", facts.namespace));
        user.filter(|user| user.uid == uid)
    };
    // One that neither the record names nor a watch shows may be anything: whoever wrote the annotation made it up.
    let of_slots = facts.slots.both().filter_map(|slot| {
        let named = records.pods(facts).find(|pod| pod.uid == slot.uid).cloned();
        named.or_else(|| user_of(&slot.pod, &slot.uid).map(|user| record_of(user, &slot.node)))
    });
    for pod in of_slots.chain(records.pods(facts).cloned()) {
        let mut known = index.users.of_claim(world, claim).map(|user| &user.uid);
        if known.any(|uid| *uid == pod.uid) || found.iter().any(|it| it.uid == pod.uid) {
            continue;
        }
        let stays = match world.trace(&facts.namespace, &pod, now) {
            Trace::Alive => true,
            Trace::Lost => facts.slots.has(&pod.uid),
            Trace::Ended => false,
        };
        if stays {
            found.push(user_of(&pod.name, &pod.uid).cloned().unwrap_or_else(|| PodFacts {
                namespace: facts.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                node: Some(pod.node.clone()),
                ..PodFacts::default()
            }));
        }
    }
    found
}

/// What is said of a definition that has the name of the cluster's own network.
fn refused(attachment: &Attachment) -> String {
    format!(
        "NetworkAttachmentDefinition {}/{} has the name \"{}\", which is that of the cluster's own network, and says something \
         else of it: it is refused for claims, and changes nothing for others. Give its network another \"name\"",
        attachment.definition.namespace,
        attachment.definition.name,
        attachment.network.as_deref().unwrap_or_default()
    )
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

/// The pods of these slots that a record of what the claim has does not name yet.
fn unnamed(inputs: Inputs<'_>, claim: &Claim, slots: &Slots, pods: &[&PodFacts]) -> Vec<PodRecord> {
    let records = &inputs.index.records;
    let missing = slots.both().filter(|slot| !records.name(inputs.world, &claim.facts, &slot.uid));
    missing
        .filter_map(|slot| {
            let pod = pods.iter().find(|pod| pod.uid == slot.uid)?;
            Some(record_of(pod, &slot.node))
        })
        .collect()
}

/// A pod as records name it: on the node that it is bound to, whatever the annotation says.
fn record_of(pod: &PodFacts, said: &str) -> PodRecord {
    let node = pod.node.as_deref().unwrap_or(said).to_owned();
    PodRecord { name: pod.name.clone(), uid: pod.uid.clone(), node, missing: None }
}
