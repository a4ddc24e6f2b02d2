//! Events about node addresses: what keeps nodes from getting one, and what was reclaimed.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tenure_api::nmstate::condition::{self, reason};

use super::write::NodeAddressWrite;
use crate::events::{Note, about_node};
use crate::world::World;

/// The events of a completed write; `world` is the state before the write.
pub(super) fn notes(write: &NodeAddressWrite, world: &World) -> Vec<Note> {
    match write {
        NodeAddressWrite::Pool { pool, status, .. } => {
            let Some(known) = world.node_addresses().pools.get(&pool.name) else { return Vec::new() };
            let object = &known.facts.object;
            let about: ObjectReference = object.object_ref(&());
            let notes = [condition::AVAILABLE, condition::EXCLUDED].into_iter().filter_map(|type_| {
                let before = object.status.as_ref().and_then(|it| it.condition(type_));
                let after = status.condition(type_)?;
                let same =
                    before.is_some_and(|it| (&it.reason, &it.message) == (&after.reason, &after.message));
                let recovered = after.reason == reason::RECONCILED;
                if same || before.is_none() && recovered {
                    return None;
                }
                let told = if recovered { Note::normal } else { Note::warning };
                Some(told(about.clone(), &after.reason, &after.message))
            });
            notes.collect()
        }
        NodeAddressWrite::Delete { enactment, node, why } => {
            let message = format!(
                "addresses of NodeNetworkConfigurationEnactment \"{}\" are taken back: {why}",
                enactment.name
            );
            vec![Note::normal(about_node(node), "NodeAddressesTakenBack", &message)]
        }
        NodeAddressWrite::Abandon { enactment, node } => {
            let message = format!(
                "addresses of NodeNetworkConfigurationEnactment \"{}\" are freed without the node: it is gone and no pod is bound to it",
                enactment.name
            );
            vec![Note::normal(about_node(node), "NodeAddressesAbandoned", &message)]
        }
        _ => Vec::new(),
    }
}
