//! Two leaders at once, each with its own idea of the world, and claims and pods that come and go: whatever they know late,
//! whichever of their writes are late, repeated, or lost with a crash, no address is given twice and none is lost.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use proptest::prelude::*;
use tenure_claims::ClaimFacts;
use tenure_ipam::Address;

use super::super::Planner;
use super::super::model::{Leaders, Outcome, Server, Turn, turn};
use crate::write::{ClaimWrite, Write};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[derive(Clone, Debug)]
enum Op {
    Claim {
        name: usize,
        wish: Option<u8>,
    },
    Delete(usize),
    /// A pod uses a claim that has the proof.
    Use {
        pod: usize,
        claim: usize,
        says: bool,
    },
    Leave(usize),
    Request,
    ReturnBlock(usize),
    Turn(Turn),
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..NAMES.len();
    prop_oneof![
        6 => (name.clone(), proptest::option::weighted(0.3, 0_u8..14)).prop_map(|(name, wish)| Op::Claim { name, wish }),
        4 => name.clone().prop_map(Op::Delete),
        4 => (name.clone(), name.clone(), any::<bool>()).prop_map(|(pod, claim, says)| Op::Use { pod, claim, says }),
        4 => name.prop_map(Op::Leave),
        1 => Just(Op::Request),
        1 => any::<usize>().prop_map(Op::ReturnBlock),
        37 => turn().prop_map(Op::Turn),
    ]
}

struct Run {
    server: Server,
    leaders: Leaders,
    asked: u32,
    /// What pods have, by name: the claim's UID and the addresses that they were given.
    uses: BTreeMap<String, (String, Vec<Address>)>,
}

impl Run {
    fn new() -> Self {
        let mut server = Server::default();
        server.pool("default", 2, &["10.0.0.0/30", "10.0.1.0/29"], &["10.0.0.0"]);
        server.node("n", None);
        let leaders = Leaders::of(&server);
        Self { server, leaders, asked: 0, uses: BTreeMap::new() }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Claim { name, wish } => {
                if !self.server.claims.contains_key(NAMES[name]) {
                    let wish = wish.map(|wish| format!("10.0.{}.{}", wish % 2, wish / 2));
                    self.server.claim(NAMES[name], wish.as_deref());
                }
            }
            Op::Delete(name) => self.server.delete_claim(NAMES[name]),
            Op::Use { pod, claim, says } => {
                let facts = self.server.claims.get(NAMES[claim]).map(ClaimFacts::of);
                if let Some(facts) = facts.filter(|facts| facts.held && !self.uses.contains_key(NAMES[pod])) {
                    let addresses: Vec<Address> =
                        facts.addresses.iter().map(|(address, _)| *address).collect();
                    self.server.pod(NAMES[pod], NAMES[claim], says.then(|| addresses.clone()));
                    self.uses.insert(NAMES[pod].to_owned(), (facts.uid, addresses));
                }
            }
            Op::Leave(pod) => {
                self.server.delete_pod(NAMES[pod]);
                self.uses.remove(NAMES[pod]);
            }
            Op::Request => {
                self.asked += 1;
                self.server.request(&format!("r{}", self.asked), "n", "default");
            }
            Op::ReturnBlock(number) => {
                let of_node: Vec<String> = self
                    .server
                    .blocks
                    .values()
                    .filter(|it| !it.is_floating())
                    .map(ResourceExt::name_any)
                    .collect();
                if !of_node.is_empty() {
                    self.server.return_block(&of_node[number % of_node.len()]);
                }
            }
            Op::Turn(ref turn) => {
                self.leaders.take(turn, &mut self.server, |server, write| Some(server.write(write)));
            }
        }
    }

    /// Who has which address on record.
    fn on_record(&self) -> BTreeMap<Address, String> {
        let mut found = BTreeMap::new();
        for block in self.server.blocks.values() {
            let cidr = block.spec.to_subnet().unwrap().ipv4.unwrap();
            for (offset, record) in block.spec.claims.iter().filter(|(_, record)| record.freed.is_none()) {
                found.insert(cidr.nth(offset.parse().unwrap()).unwrap(), record.uid.clone());
            }
        }
        found
    }

    /// What always holds.
    fn check(&self) -> Result<(), TestCaseError> {
        let on_record = self.on_record();
        let mut seen: BTreeMap<Address, String> = BTreeMap::new();
        for claim in self.server.claims.values().map(ClaimFacts::of).filter(|claim| claim.held) {
            prop_assert_eq!(claim.addresses.len(), 1);
            for (address, _) in &claim.addresses {
                prop_assert_eq!(on_record.get(address), Some(&claim.uid), "{} says {}", claim.name, address);
                prop_assert_ne!(address.to_string(), "10.0.0.0");
                let other = seen.insert(*address, claim.uid.clone());
                prop_assert_eq!(other, None, "{} is given twice", address);
            }
        }
        Ok(())
    }

    /// What holds in the end, with one leader that hears everything, and nothing on its way.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let mut planner = Planner::default();
        for _ in 0..4 {
            self.server.settle(&mut planner);
            self.check()?;
            self.server.now += 40_000;
        }
        self.server.settle(&mut planner);
        let on_record = self.on_record();
        let living: BTreeSet<String> = self.server.claims.values().filter_map(ResourceExt::uid).collect();
        for (address, uid) in &on_record {
            let used = self.uses.values().any(|(of, addresses)| of == uid && addresses.contains(address));
            let named = self.server.pods.values().any(|pod| pod.addresses.is_none());
            prop_assert!(living.contains(uid) || used || named, "{} never returns", address);
        }
        for claim in self.server.claims.values().map(ClaimFacts::of) {
            let Some(problem) = claim.problem else {
                prop_assert!(claim.held, "{} waits for ever", claim.name);
                continue;
            };
            let taken = self.server.blocks.len() == 3;
            prop_assert!(!problem.starts_with("SubnetExhausted") || taken, "{}: {}", claim.name, problem);
            prop_assert!(!problem.starts_with("InternalError"), "{}: {}", claim.name, problem);
        }
        // And when all is gone nothing is left.
        for name in NAMES {
            self.server.delete_claim(name);
            self.server.delete_pod(name);
        }
        self.uses.clear();
        for _ in 0..4 {
            self.server.settle(&mut planner);
            self.server.now += 400_000;
        }
        prop_assert!(self.server.blocks.values().all(|block| !block.is_floating()), "a block leaked");
        Ok(())
    }
}

proptest! {
    #[test]
    fn two_leaders_with_old_news_and_late_writes_give_no_claims_address_twice_and_lose_none(
        ops in proptest::collection::vec(op(), 1..150)
    ) {
        let mut run = Run::new();
        for op in &ops {
            run.apply(op);
            run.check()?;
        }
        run.settle()?;
    }

    #[test]
    fn invariant_7_what_a_pod_uses_is_nobody_elses_whether_its_claim_is_gone_or_not(
        ops in proptest::collection::vec(op(), 1..120)
    ) {
        // One leader, which hears all before it plans, but may be succeeded at any time by one that knows only the API.
        let mut run = Run::new();
        let mut planner = Planner::default();
        for op in &ops {
            match op {
                Op::Turn(Turn::Crash { .. }) => planner = Planner::default(),
                Op::Turn(Turn::Hear { .. } | Turn::Plan { .. } | Turn::Arrive { .. }) => {
                    for write in planner.plan(&run.server.world(), run.server.timestamp()) {
                        prop_assert_eq!(run.server.write(&write), Outcome::Done, "{:?}", write);
                    }
                }
                other => run.apply(other),
            }
            run.check()?;
            let on_record = run.on_record();
            for (pod, (uid, addresses)) in &run.uses {
                for address in addresses {
                    prop_assert_eq!(on_record.get(address), Some(uid), "pod {} uses {}", pod, address);
                }
            }
        }
        run.settle()?;
    }
}

#[test]
fn a_claim_is_one_record_and_one_status_and_many_claims_are_one_record_write_a_block() {
    let mut server = Server::default();
    server.pool("default", 5, &["10.0.0.0/24"], &[]);
    for number in 0..40 {
        server.claim(&format!("c{number}"), None);
    }
    let mut planner = Planner::default();
    let done = server.settle(&mut planner);
    let count = |verb: &str| done.iter().filter(|write| write.verb() == verb).count();
    assert_eq!((count("create"), count("claim_records"), count("claim_status")), (2, 0, 40));
    for number in 0..40 {
        server.delete_claim(&format!("c{number}"));
    }
    server.settle(&mut planner);
    server.now += 3_000;
    let done = server.settle(&mut planner);
    let freed = done.iter().filter(|write| matches!(write, Write::Claim(ClaimWrite::Records { .. })));
    assert_eq!(freed.count(), 2, "all of a block's are freed with one write");
}
