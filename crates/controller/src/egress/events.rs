//! Events about Egresses: what keeps gateways from serving, and what a schema cannot check.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use tenure_api::coil::egress::condition::{self, reason};

use super::write::EgressWrite;
use crate::events::{Note, about_node};
use crate::world::World;

/// The events of a completed write; `world` is the state before the write.
pub(super) fn notes(write: &EgressWrite, world: &World) -> Vec<Note> {
    match write {
        EgressWrite::Status { namespace, egress, status } => {
            let Some(known) = world.egress().egresses.get(&format!("{namespace}/{}", egress.name)) else {
                return Vec::new();
            };
            let known = &known.facts.object;
            let before = known.status.clone().unwrap_or_default();
            let bad = |it: &&Condition| {
                let is_bad = match it.type_.as_str() {
                    condition::POOL_MISSING | condition::CONFLICTING => it.status == "True",
                    // Starting gateways need no event.
                    condition::READY => [reason::TEMPLATE_REFUSED, reason::NAME_TAKEN, reason::PODS_REFUSED]
                        .contains(&it.reason.as_str()),
                    _ => false,
                };
                let was = before.condition(&it.type_);
                is_bad && was.is_none_or(|was| (&was.reason, &was.message) != (&it.reason, &it.message))
            };
            let note = |it: &Condition| Note::warning(known.object_ref(&()), &it.reason, &it.message);
            status.conditions.iter().filter(bad).map(note).collect()
        }
        EgressWrite::ReleaseClients { namespace, clients, node } => {
            let message = format!(
                "EgressClients \"{namespace}/{}\" was deleted: the node is gone and no pod is bound to it",
                clients.name
            );
            vec![Note::normal(about_node(node), "ClientsReleased", &message)]
        }
        _ => Vec::new(),
    }
}
