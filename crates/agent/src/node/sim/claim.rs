//! Claims, which containers of this node share with others, and an actor that moves them: between pods of this node, to pods
//! elsewhere, to nobody. It also deletes claims in use and creates them again.

use std::collections::BTreeMap;

use tenure_ipam::{Address, Cidr};

use super::dice::Dice;
use super::world::World;
use crate::key::{HoldKey, Pod};
use crate::node::view::HoldView;
use crate::node::{Action, Attach, ClaimUse, Event};

const CLAIMS: usize = 3;
/// Each pod has two sandboxes.
const PODS: usize = 6;
pub(super) const CONTAINERS: usize = 2 * PODS;

/// A claim, as in the API.
#[derive(Debug, Default)]
struct Claim {
    /// How often it was created.
    times: usize,
    active: Option<String>,
}

/// All claims.
#[derive(Debug)]
pub(super) struct Claims {
    all: BTreeMap<usize, Claim>,
}

impl Default for Claims {
    fn default() -> Self {
        Self { all: (0..CLAIMS).map(|number| (number, Claim::default())).collect() }
    }
}

pub(super) fn key(number: usize) -> HoldKey {
    HoldKey::new("net", format!("g{number}"), "eth0").unwrap()
}

pub(super) fn is_claim_user(key: &HoldKey) -> bool {
    key.container().starts_with('g')
}

fn number(key: &HoldKey) -> usize {
    key.container()[1..].parse().unwrap()
}

fn claim_of(key: &HoldKey) -> usize {
    number(key) % PODS % CLAIMS
}

pub(super) fn pod(key: &HoldKey) -> Pod {
    let number = number(key) % PODS;
    Pod { namespace: "shop".into(), name: format!("vm-{number}"), uid: format!("pod-{number}") }
}

/// Those of the first claim are on a segment, where another plugin makes the interfaces.
pub(super) fn address(key: &HoldKey) -> (Address, u8) {
    let claim = claim_of(key);
    (format!("10.2.0.{claim}").parse().unwrap(), if claim == 0 { 24 } else { 32 })
}

impl Claims {
    fn uid(&self, number: usize) -> String {
        format!("claim-{number}-{}", self.all[&number].times)
    }

    /// The request of an ADD, which may know an older state.
    pub(super) fn ask(&self, attach: &mut Attach, dice: &Dice) {
        let claim = claim_of(&attach.key);
        let active = self.all[&claim].active.as_deref() == Some(&attach.pod.uid);
        attach.claim_use = Some(ClaimUse {
            claim: self.uid(claim),
            claim_name: format!("shop/claim-{claim}"),
            addresses: vec![address(&attach.key)],
            reached: active != dice.percent(20),
        });
    }

    fn told(&self, number: usize) -> Event {
        let active_pod = self.all[&number].active.clone();
        Event::ClaimSeen { uid: self.uid(number), active_pod, contested: number % 2 == 1 }
    }

    pub(super) fn list(&self) -> Vec<Event> {
        (0..CLAIMS).map(|number| self.told(number)).chain([Event::ClaimsRead]).collect()
    }

    /// Somebody moves a claim, or deletes and recreates it.
    pub(super) fn change(&mut self, dice: &Dice) -> Vec<Event> {
        let number = dice.below(CLAIMS);
        let before = self.uid(number);
        let Some(claim) = self.all.get_mut(&number) else { return Vec::new() };
        let again = dice.percent(10);
        claim.times += usize::from(again);
        claim.active = match dice.below(8) {
            0 => None,
            1 => Some("pod-elsewhere".to_owned()),
            some => Some(format!("pod-{}", number + some % 2 * CLAIMS)),
        };
        let told = self.told(number);
        if again { vec![Event::ClaimGone { uid: before }, told] } else { vec![told] }
    }
}

/// Always: at most one user of a claim is reached on this node, and addresses assigned from blocks belong to no claim user.
pub(super) fn check_claim_users(holds: &BTreeMap<HoldKey, HoldView>) {
    let mut reached: BTreeMap<&str, &HoldKey> = BTreeMap::new();
    let mut claim_uses: BTreeMap<Address, &HoldKey> = BTreeMap::new();
    for hold in holds.values() {
        let Some(claim) = &hold.claim else { continue };
        claim_uses.extend(hold.addresses.iter().map(|address| (address, &hold.key)));
        if claim.reached {
            let other = reached.insert(&claim.uid, &hold.key);
            assert_eq!(other, None, "{} is reached at {} too", claim.name, hold.key);
        }
    }
    for hold in holds.values().filter(|hold| hold.block.is_some()) {
        let shared = hold.addresses.iter().find_map(|address| claim_uses.get(&address));
        assert_eq!(shared, None, "{} has what {} holds", hold.key, hold.addresses);
    }
}

impl World {
    pub(super) fn move_claim(&mut self) {
        self.counts.count("a claim moved");
        let told = self.api.claims.change(&self.dice);
        self.api.watch.extend(told);
    }

    pub(super) fn note_reach(&mut self, action: &Action) {
        let (Action::Reach { reached, .. } | Action::Announce { reached, .. }) = action else { return };
        self.counts.count(if *reached {
            "a claim use was reached"
        } else {
            "a claim use was not reached any more"
        });
    }

    /// After all events: packets arrive at the claim's pod, if it is here, and nowhere else.
    pub(super) fn check_reach(&self, holds: &BTreeMap<HoldKey, HoldView>) {
        for (number, claim) in &self.api.claims.all {
            let uid = self.api.claims.uid(*number);
            let claim_uses =
                holds.values().filter(|hold| hold.claim.as_ref().is_some_and(|it| it.uid == uid));
            let claim_uses: Vec<&HoldView> = claim_uses.filter(|hold| hold.settled).collect();
            let here = claim_uses.iter().any(|hold| Some(&hold.pod.uid) == claim.active.as_ref());
            let reached = claim_uses.iter().filter(|hold| hold.claim.as_ref().is_some_and(|it| it.reached));
            let reached: Vec<&str> = reached.map(|hold| hold.pod.uid.as_str()).collect();
            let expected: Vec<&str> = claim.active.as_deref().filter(|_| here).into_iter().collect();
            assert_eq!(reached, expected, "{uid}");
        }
        let exported = holds.values().filter(|hold| is_claim_user(&hold.key));
        let exported = exported.filter(|hold| hold.claim.as_ref().is_some_and(|claim| claim.reached));
        let exported = exported.map(|hold| address(&hold.key)).filter(|(_, prefix)| *prefix == 32);
        for (address, _) in exported {
            let host = Cidr::host(address);
            assert!(self.knowledge.exported.contains(&host), "{host} in {:?}", self.knowledge.exported);
        }
    }
}
