//! Which pods the records say were given each claim's addresses, and which of them may still use them.
//!
//! Made once a plan. It reads records only: floating blocks and ledgers, which no tenant can write.

use std::collections::HashMap;

use tenure_api::claims::{PodRecord, RECORD_PREFIX};
use tenure_claims::{ClaimFacts, Trace, trace};
use tenure_handles::Timestamp;

use crate::world::World;

/// Bugs that a test plants, to see that checkers find them.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// What a pod's annotations say frees an address.
    AnnotationsFree,
    /// A pod that is gone with its Node object has ended.
    NodesProveTheEnd,
    /// A pod of a claim that is gone comes into the slots of the next claim of the name.
    NamesInherit,
    /// The agent believes a claim's status.
    StatusIsProof,
}

/// One record of a claim.
#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    uid: &'a str,
    pods: &'a [PodRecord],
}

/// All records of claims.
#[derive(Debug, Default)]
pub(crate) struct Records<'a> {
    /// By `namespace/name` of claims, whether they exist or not.
    by_name: HashMap<String, Vec<Record<'a>>>,
    #[cfg(test)]
    planted: Option<Planted>,
}

impl<'a> Records<'a> {
    /// All that the world has.
    pub(crate) fn of(world: &'a World) -> Self {
        let mut records = Self {
            #[cfg(test)]
            planted: world.planted,
            ..Self::default()
        };
        for block in world.blocks.iter().filter(|block| block.is_floating()) {
            for record in block.spec.claims.values().filter(|record| record.freed.is_none()) {
                let name = format!("{}/{}", record.namespace, record.name);
                let record = Record { uid: &record.uid, pods: &record.pods };
                records.by_name.entry(name).or_default().push(record);
            }
        }
        for ledger in world.ledgers.pools.iter().filter(|ledger| ledger.whole) {
            for record in ledger.pool.spec.allocations.values() {
                if let Some(uid) = record.id.strip_prefix(RECORD_PREFIX) {
                    let of_claim = records.by_name.entry(record.podref.clone()).or_default();
                    of_claim.push(Record { uid, pods: &record.pods });
                }
            }
        }
        records
    }

    /// Whether anything is on record for this very claim.
    pub(crate) fn has(&self, claim: &ClaimFacts) -> bool {
        self.of_claim(claim).next().is_some()
    }

    /// Whether every record of this very claim names the pod.
    pub(crate) fn name(&self, claim: &ClaimFacts, pod: &str) -> bool {
        self.has(claim) && self.of_claim(claim).all(|record| record.names(pod))
    }

    /// The pods that a record of this very claim names.
    pub(crate) fn pods(&self, claim: &ClaimFacts) -> impl Iterator<Item = &'a PodRecord> {
        self.of_claim(claim).flat_map(|record| record.pods)
    }

    /// Whether the pod was given the addresses of a claim that had this one's name before it.
    pub(crate) fn name_of_predecessor(&self, claim: &ClaimFacts, pod: &str) -> bool {
        #[cfg(test)]
        if self.planted == Some(Planted::NamesInherit) {
            return false;
        }
        self.named(claim).any(|record| record.uid != claim.uid && record.names(pod))
    }

    fn of_claim(&self, claim: &ClaimFacts) -> impl Iterator<Item = Record<'a>> {
        self.named(claim).filter(|record| record.uid == claim.uid)
    }

    fn named(&self, claim: &ClaimFacts) -> impl Iterator<Item = Record<'a>> {
        let found = self.by_name.get(&format!("{}/{}", claim.namespace, claim.name));
        found.into_iter().flatten().copied()
    }
}

impl Record<'_> {
    fn names(&self, pod: &str) -> bool {
        self.pods.iter().any(|named| named.uid == pod)
    }
}

impl World {
    /// What is left of a pod that was given a claim's addresses.
    pub(crate) fn trace(&self, namespace: &str, pod: &PodRecord, now: Timestamp) -> Trace {
        let alive = self.ledgers.pods.lives(&format!("{namespace}/{}", pod.name), &pod.uid);
        #[cfg(test)]
        if self.planted == Some(Planted::NodesProveTheEnd) && !alive {
            return Trace::Ended;
        }
        trace(pod, alive, !self.is_without_node(&pod.node), self.missing_node_rest.0, now)
    }

    /// Whether there is certainly no Node object of this name. A record of before that has no name says nothing.
    pub(crate) fn is_without_node(&self, node: &str) -> bool {
        !node.is_empty() && self.nodes().is_complete() && self.nodes().get(node).is_none()
    }
}
