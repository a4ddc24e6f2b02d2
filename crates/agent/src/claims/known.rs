//! The claims that there are, and who has each.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_claims::ClaimFacts;
use tenure_watch::{Cache, Change, Heard, Seen};

use super::Shared;
use crate::node::Event;
use crate::objects::{RemoteClaim, lock};

/// All claims.
#[derive(Default)]
pub(super) struct Known {
    pub(super) claims: Cache<Seen<ClaimFacts>>,
    /// By UID: the pod that the node was told to have it, and whether another has it, too.
    told: BTreeMap<String, (Option<String>, bool)>,
    /// Whether the node was told that all are known.
    told_all: bool,
}

/// Where the routed addresses of a claim are, if a pod has it. Those on a segment are found by their neighbours.
fn remote(claim: &ClaimFacts) -> Option<RemoteClaim> {
    let slot = claim.slots.active.as_ref().filter(|_| claim.held)?;
    let routed = claim.addresses.iter().filter(|(address, prefix)| *prefix == address.family().bits());
    Some(RemoteClaim { node: slot.node.clone(), addresses: routed.map(|(address, _)| *address).collect() })
}

impl Shared {
    pub(super) fn hear_claim(self: &Arc<Self>, heard: Heard<ClaimFacts>) {
        let finished = matches!(heard, Heard::Finish);
        // Told under the lock: what is told in another order than it was heard would be wrong.
        let mut known = lock(&self.known);
        let changes = known.claims.hear(heard);
        let changed = !changes.is_empty();
        for change in changes {
            match change {
                Change::Seen { uid, value, .. } => {
                    if let Some(routes) = &self.routes {
                        routes.claim_seen(&uid, remote(&value));
                    }
                    self.prove_early(&value);
                    let contested = value.slots.incoming.is_some();
                    let active_pod = value.slots.active.map(|slot| slot.uid);
                    let news = (active_pod.clone(), contested);
                    if known.told.get(&uid) != Some(&news) {
                        known.told.insert(uid.clone(), news);
                        self.node.tell(Event::ClaimSeen { uid, active_pod, contested });
                    }
                }
                Change::Gone { uid, .. } => {
                    known.told.remove(&uid);
                    self.forget_proof(&uid);
                    if let Some(routes) = &self.routes {
                        routes.claim_gone(&uid);
                    }
                    self.node.tell(Event::ClaimGone { uid });
                }
            }
        }
        let first = finished && !known.told_all;
        if first {
            known.told_all = true;
            self.node.tell(Event::ClaimsRead);
            if let Some(routes) = &self.routes {
                routes.claims_listed();
            }
        }
        drop(known);
        if changed || first {
            self.tell_waiting();
        }
    }
}
