//! Events about who uses a claim: on the claim, and on every pod involved.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tenure_claims::{PodFacts, Slot, Slots};

use super::super::known::Claim;
use super::super::write::MoveWrite;
use crate::attachment::Attachment;
use crate::events::Note;
use crate::world::World;

/// The events of one step of a move.
pub(in crate::claims) fn of_move(write: &MoveWrite, world: &World) -> Vec<Note> {
    let MoveWrite::Hold { namespace, claim, before, slots, aborts } = write;
    let Some(claim) = world.claims().get(namespace, &claim.name) else { return Vec::new() };
    let Some((reason, message)) = step(&claim.facts.name, before, slots, *aborts) else { return Vec::new() };
    let mut concerned: Vec<&Slot> = before.both().chain(slots.both()).collect();
    concerned.sort_by(|one, other| one.uid.cmp(&other.uid));
    concerned.dedup_by(|one, other| one.uid == other.uid);
    let pods = concerned.into_iter().map(|slot| pod_of(namespace, &slot.pod, &slot.uid));
    let about = std::iter::once(claim.object.object_ref(&())).chain(pods);
    about.map(|about| Note::normal(about, reason, &message)).collect()
}

/// What happened, in words. A first user, or the end of the last one, is no move.
fn step(claim: &str, before: &Slots, after: &Slots, aborts: bool) -> Option<(&'static str, String)> {
    let place = |slot: &Slot| format!("pod \"{}\" on node \"{}\"", slot.pod, slot.node);
    let (from, to) = (before.active.as_ref()?, after.active.as_ref()?);
    if from.uid != to.uid {
        let message =
            format!("the addresses of claim \"{claim}\" have moved from {} to {}", place(from), place(to));
        return Some(("MoveCommitted", message));
    }
    match (&before.incoming, &after.incoming) {
        (None, Some(new)) => {
            let words = format!(
                "the addresses of claim \"{claim}\" are to move from {} to {}",
                place(to),
                place(new)
            );
            Some(("MoveBegun", words))
        }
        (Some(gone), None) if aborts => {
            let words = format!(
                "the addresses of claim \"{claim}\" stay with {}: {}, where they were to move, is gone",
                place(to),
                place(gone)
            );
            Some(("MoveAborted", words))
        }
        (Some(gone), None) => {
            let words =
                format!("{} is gone; {} has the addresses of claim \"{claim}\"", place(gone), place(to));
            Some(("MoveEnded", words))
        }
        (Some(gone), Some(new)) if gone.uid != new.uid => {
            let words = format!(
                "{} is gone; the addresses of claim \"{claim}\" are to move from {} to {}",
                place(gone),
                place(to),
                place(new)
            );
            Some(("MoveBegun", words))
        }
        _ => None,
    }
}

/// A pod waits because two others use its claim.
pub(in crate::claims) fn crowded(claim: &Claim, slots: &Slots, pod: &PodFacts) -> [Note; 2] {
    let holders: Vec<String> =
        slots.both().map(|slot| format!("\"{}\" on {}", slot.pod, slot.node)).collect();
    let message = format!(
        "pod \"{}\" cannot have the addresses of claim \"{}\" yet: pods {} have them; it gets them when one of these is gone",
        pod.name,
        claim.facts.name,
        holders.join(" and ")
    );
    let about = [claim.object.object_ref(&()), pod_of(&pod.namespace, &pod.name, &pod.uid)];
    about.map(|about| Note::warning(about, "MoveRefused", &message))
}

/// A pod says that it is to become active, but its time stamp cannot be read.
pub(in crate::claims) fn unreadable_signal(claim: &Claim, pod: &PodFacts, problem: &str) -> [Note; 2] {
    let message = format!(
        "the addresses of claim \"{}\" do not move by what pod \"{}\" says: {problem}",
        claim.facts.name, pod.name
    );
    let about = [claim.object.object_ref(&()), pod_of(&pod.namespace, &pod.name, &pod.uid)];
    about.map(|about| Note::warning(about, "MoveSignalUnreadable", &message))
}

/// A pod refers to a claim on a network whose addresses may not outlive pods.
pub(in crate::claims) fn not_allowed(
    claim: Option<&Claim>,
    pod: &PodFacts,
    reason: &'static str,
    message: &str,
) -> Vec<Note> {
    let claim = claim.map(|claim| claim.object.object_ref(&()));
    let about = claim.into_iter().chain([pod_of(&pod.namespace, &pod.name, &pod.uid)]);
    about.map(|about| Note::warning(about, reason, message)).collect()
}

/// An attachment definition uses a name that belongs to another network.
pub(in crate::claims) fn definition_refused(attachment: &Attachment, reason: &str, message: &str) -> Note {
    let about = ObjectReference {
        api_version: Some("k8s.cni.cncf.io/v1".to_owned()),
        kind: Some("NetworkAttachmentDefinition".to_owned()),
        namespace: Some(attachment.definition.namespace.clone()),
        name: Some(attachment.definition.name.clone()),
        uid: Some(attachment.definition.uid.clone()),
        ..ObjectReference::default()
    };
    Note::warning(about, reason, message)
}

/// A pod as the subject of an event.
fn pod_of(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
