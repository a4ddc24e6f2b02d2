//! The clients of nodes that are gone are removed by the rule of [`crate::release`].

use tenure_handles::Timestamp;

use super::known::ClientsFacts;
use super::write::EgressWrite;
use crate::release::{Releases, Step, mark_at};
use crate::world::World;

/// The write that a node's clients need, if any. `namespace` is that of the object.
pub(super) fn plan(
    world: &World,
    releases: &mut Releases,
    namespace: &str,
    facts: &ClientsFacts,
    now: Timestamp,
) -> Option<EgressWrite> {
    let (namespace, clients, node) = (namespace.to_owned(), facts.at.clone(), facts.node.clone());
    let is_there = world.nodes().get(&node).is_some() || world.nodes().is_unreadable(&node);
    if is_there {
        return facts.mark.as_ref().map(|_| EgressWrite::UnmarkClients { namespace, clients });
    }
    match releases.step(&clients.uid, facts.mark.as_deref(), now) {
        Step::Mark => Some(EgressWrite::MarkClients { namespace, clients, node, mark: mark_at(now) }),
        Step::Wait => None,
        Step::Release => Some(EgressWrite::ReleaseClients { namespace, clients, node }),
    }
}
