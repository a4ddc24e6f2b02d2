//! What was promised to whom: the one who notices when an address is with pods of two claims, with three of one, or is not the
//! claim's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use tenure_api::claims::IPAMClaim;
use tenure_claims::ClaimFacts;

use crate::networks::Network;
use tenure_tests::chaos::course::{Moment, now};

/// A pod that was told its addresses, and whose object is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    pub network: Network,
    /// The number of its node.
    pub node: usize,
    pub pod: String,
    pub uid: String,
    pub container: String,
    /// The name and the UID of the claim, if it has one.
    pub claim: Option<(String, String)>,
    pub addresses: BTreeSet<IpAddr>,
    /// When it was told.
    pub since: Moment,
    /// Whether its object does not say which addresses it has.
    pub silent: bool,
    /// Whether its object says by now that it has no addresses and no claim.
    pub lies: bool,
}

/// Knows every promise, and compares each new one with it.
#[derive(Default)]
pub struct Oracle {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By UID.
    living: BTreeMap<String, Living>,
    /// Claims whose wishes are all there, by UID.
    settled: BTreeSet<String>,
    /// What claims were seen with, by UID: addresses, and how often another pod became the active one.
    claims: BTreeMap<String, (BTreeSet<IpAddr>, u64)>,
    count: Count,
    wrong: Vec<String>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub adds: usize,
    pub refused: usize,
    pub crowds: usize,
    /// Pods that were given up because their node had lost its journal.
    pub given_up: usize,
    pub dels: usize,
    pub claims: usize,
    pub lies: usize,
    /// How often another pod became the active one, as far as it was seen.
    pub moves: u64,
    /// How often all claims were looked at.
    pub looks: usize,
}

impl Oracle {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that something happened that must not.
    pub fn blame(&self, what: impl Display) {
        self.known().blame(what);
    }

    /// What happened that must not.
    pub fn wrong(&self) -> Vec<String> {
        self.known().wrong.clone()
    }

    /// How much happened.
    pub fn count(&self) -> Count {
        let known = self.known();
        Count {
            claims: known.settled.len(),
            moves: known.claims.values().map(|it| it.1).sum(),
            ..known.count
        }
    }

    pub fn counting(&self, count: impl FnOnce(&mut Count)) {
        count(&mut self.known().count);
    }

    /// Who lives.
    pub fn living(&self) -> Vec<Living> {
        self.known().living.values().cloned().collect()
    }

    /// Nobody wishes anything more for a claim: its addresses do not change any more.
    pub fn settled(&self, uid: &str) {
        self.known().settled.insert(uid.to_owned());
    }

    /// Claims whose addresses do not change any more.
    pub fn all_settled(&self) -> BTreeSet<String> {
        self.known().settled.clone()
    }

    /// A pod was told addresses.
    pub fn added(&self, living: Living) {
        let mut known = self.known();
        known.count.adds += 1;
        let shares = |other: &&Living| !other.addresses.is_disjoint(&living.addresses);
        let sharing: Vec<Living> = known.living.values().filter(shares).cloned().collect();
        for other in &sharing {
            if living.claim.is_none() || other.claim != living.claim {
                known.blame(format!("{living:?} was told what {other:?} has"));
            }
        }
        if sharing.len() > 1 {
            known.blame(format!("{living:?} is the third to have it, with {sharing:?}"));
        }
        known.living.insert(living.uid.clone(), living);
    }

    /// A pod's object is about to say that it has nothing.
    pub fn lies(&self, uid: &str) {
        let mut known = self.known();
        known.count.lies += 1;
        if let Some(living) = known.living.get_mut(uid) {
            (living.silent, living.lies) = (true, true);
        }
    }

    /// A pod ends, or its object goes: from now on its addresses may be free.
    pub fn ending(&self, uid: &str) {
        let mut known = self.known();
        known.count.dels += 1;
        known.living.remove(uid);
    }

    /// What all claims are at one moment; `settled` is from before it.
    pub fn saw(&self, claims: &[IPAMClaim], settled: &BTreeSet<String>) {
        let mut known = self.known();
        known.count.looks += 1;
        let mut given: BTreeMap<IpAddr, String> = BTreeMap::new();
        for claim in claims {
            let facts = ClaimFacts::of(claim);
            if !facts.held || !settled.contains(&facts.uid) {
                continue;
            }
            let addresses: BTreeSet<IpAddr> =
                facts.addresses.iter().map(|(it, _)| IpAddr::from(*it)).collect();
            let who = format!("claim {} ({})", claim.name_any(), facts.uid);
            for address in &addresses {
                if let Some(other) = given.insert(*address, who.clone()) {
                    known.blame(format!("{who} and {other} both have {address}"));
                }
                let elsewhere = |it: &&Living| {
                    it.addresses.contains(address)
                        && it.claim.as_ref().is_none_or(|(_, uid)| *uid != facts.uid)
                };
                if let Some(other) = known.living.values().find(elsewhere).cloned() {
                    known.blame(format!("{who} was given {address} while {other:?} has it"));
                }
            }
            let number = facts.slots.number;
            if let Some((had, moved)) = known.claims.insert(facts.uid.clone(), (addresses.clone(), number)) {
                if had != addresses {
                    known.blame(format!("{who} had {had:?}, and now {addresses:?}"));
                }
                if moved > number {
                    known.blame(format!("{who} had moved {moved} times, and now {number} times"));
                }
            }
        }
    }
}

impl Known {
    fn blame(&mut self, what: impl Display) {
        let what = what.to_string();
        // What is seen at every look is said once.
        if !self.wrong.iter().any(|it| it.ends_with(&what)) {
            self.wrong.push(format!("{:.3} s: {what}", now().as_secs_f64()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(oracle: &Oracle, uid: &str, claim: Option<&str>, address: &str) {
        oracle.added(Living {
            network: Network::Routed,
            node: 0,
            pod: uid.to_owned(),
            uid: uid.to_owned(),
            container: uid.to_owned(),
            claim: claim.map(|claim| (claim.to_owned(), claim.to_owned())),
            addresses: BTreeSet::from([address.parse().unwrap()]),
            since: now(),
            silent: true,
            lies: false,
        });
    }

    #[test]
    fn two_pods_have_an_address_only_if_it_is_their_claims_and_three_never() {
        let oracle = Oracle::default();
        told(&oracle, "a", Some("one"), "10.0.0.1");
        told(&oracle, "b", Some("one"), "10.0.0.1");
        told(&oracle, "c", Some("other"), "10.0.0.2");
        assert_eq!(oracle.wrong(), Vec::<String>::new());
        told(&oracle, "d", Some("one"), "10.0.0.1");
        assert!(oracle.wrong()[0].contains("the third"), "{:?}", oracle.wrong());
        told(&oracle, "e", None, "10.0.0.2");
        assert!(oracle.wrong()[1].contains("was told what"), "{:?}", oracle.wrong());
        for uid in ["a", "b", "d"] {
            oracle.ending(uid);
        }
        told(&oracle, "f", Some("third"), "10.0.0.1");
        assert_eq!(oracle.wrong().len(), 2);
    }

    #[test]
    fn a_claim_that_has_what_a_pod_of_another_has_is_noticed() {
        let oracle = Oracle::default();
        let claim: IPAMClaim = serde_json::from_value(json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {"namespace": "default", "name": "c", "uid": "u"}, "spec": {"network": "n", "interface": "i"},
            "status": {"ips": ["10.0.0.1/32"], "conditions": [{
                "type": "Held", "status": "True", "reason": "Recorded", "message": tenure_claims::status::held_message("u", &[]),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap();
        oracle.settled("u");
        told(&oracle, "a", Some("u"), "10.0.0.1");
        oracle.saw(std::slice::from_ref(&claim), &oracle.all_settled());
        assert_eq!(oracle.wrong(), Vec::<String>::new());
        oracle.ending("a");
        told(&oracle, "b", Some("before"), "10.0.0.1");
        oracle.saw(std::slice::from_ref(&claim), &oracle.all_settled());
        assert!(oracle.wrong()[0].contains("while"), "{:?}", oracle.wrong());
    }
}
