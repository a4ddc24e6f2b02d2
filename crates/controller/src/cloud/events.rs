//! Events about alias addresses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use tenure_api::cloud::condition;
use tenure_claims::PodFacts;
use tenure_ipam::Address;

use super::status::DELETING;
use super::write::{Change, CloudWrite};
use crate::events::{Note, about_node};
use crate::world::World;

/// The events of a completed write; `world` is the state before the write.
pub(super) fn notes(write: &CloudWrite, world: &World) -> Vec<Note> {
    match write {
        CloudWrite::Create { changes, .. } | CloudWrite::Ledger { changes, .. } => of_changes(changes),
        CloudWrite::Pool { pool, status } => {
            let Some(known) = world.aliases().pools.get(&pool.name) else { return Vec::new() };
            let was = known.status.iter().flat_map(|it| &it.conditions);
            let was: BTreeMap<_, _> = was.map(|it| (&it.type_, (&it.status, &it.reason))).collect();
            let bad = |it: &&Condition| {
                let bad = if it.type_ == condition::READY { "False" } else { "True" };
                // Whoever deletes a pool knows, and overlaps have their own condition.
                let said = [DELETING, condition::OVERLAPPING].contains(&it.reason.as_str());
                it.status == bad && !said && was.get(&it.type_) != Some(&(&it.status, &it.reason))
            };
            let note = |it: &Condition| {
                let reason = if it.type_ == condition::READY { &it.reason } else { &it.type_ };
                Note::warning(known.object_ref(&()), reason, &it.message)
            };
            status.conditions.iter().filter(bad).map(note).collect()
        }
        CloudWrite::Drop { .. }
        | CloudWrite::Finalizers { .. }
        | CloudWrite::Node { .. }
        | CloudWrite::Forget { .. }
        | CloudWrite::Tell(_) => Vec::new(),
    }
}

fn of_changes(changes: &[Change]) -> Vec<Note> {
    let mut released: BTreeMap<&str, usize> = BTreeMap::new();
    let mut notes = Vec::new();
    for change in changes {
        match change {
            Change::Moved { address, pod: (podref, uid), node, from } if node != from => {
                let message = format!("address {address} moves from node \"{from}\" to node \"{node}\"");
                notes.push(Note::normal(about_pod(podref, uid), "AddressMoves", message));
            }
            Change::Released { node } => *released.entry(node).or_default() += 1,
            _ => {}
        }
    }
    notes.extend(released.into_iter().map(|(node, count)| {
        let message =
            format!("{count} alias ranges were released: the node is gone and no pod is bound to it");
        Note::normal(about_node(node), "AliasesReleased", message)
    }));
    notes
}

fn about_pod(podref: &str, uid: &str) -> ObjectReference {
    let (namespace, name) = podref.split_once('/').unwrap_or_default();
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// A pod does not get the address that it names.
pub(super) fn refused(pod: &PodFacts, address: Address, problem: &str) -> Note {
    let message = format!("address {address} was not given to the pod: {problem}");
    Note::warning(about_pod(&format!("{}/{}", pod.namespace, pod.name), &pod.uid), "AddressRefused", message)
}

/// An annotation of a pod cannot be read.
pub(super) fn unreadable(pod: &PodFacts, problem: &str) -> Note {
    Note::warning(about_pod(&format!("{}/{}", pod.namespace, pod.name), &pod.uid), "AddressRefused", problem)
}

/// No pod came for an address in time.
pub(super) fn abandoned(pool: ObjectReference, address: Address) -> Note {
    let message =
        format!("no pod came for address {address} after the one that had it; it counts as free again");
    Note::warning(pool, "MoveAbandoned", message)
}
