//! Two leaders at once, each with its own view of the world, while claims and pods come and go. Whatever they learn
//! late, and whichever writes are late, repeated or lost with a crash: no address is assigned twice, and none is
//! lost. Pods lie in their annotations, statuses and users of claims are forged, claims are re-created under their
//! names, and nodes lose their objects while their containers run.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tenure_claims::status::{self, RecordLocation};
use tenure_claims::{ClaimFacts, OnRecord, Slot, Slots, in_block};
use tenure_ipam::Address;

use super::super::records::Planted;
use super::super::write::ClaimWrite;
use crate::plan::Planner;
use crate::plan::model::{Leaders, Outcome, Server, Turn, tell, turn};
use crate::pods::PodSeen;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const NODES: [&str; 2] = ["n", "m"];
/// How long a kubelet that lost its Node object lets containers run: less than [`crate::MISSING_NODE_REST`].
const KUBELET_NOTICES: u64 = 100_000;

#[derive(Clone, Debug)]
enum Op {
    Claim {
        name: usize,
        wish: Option<u8>,
    },
    Delete(usize),
    /// A pod that refers to a claim is bound to a node.
    Pod {
        pod: usize,
        claim: usize,
        node: usize,
    },
    /// Its node's agent asks for the address.
    Add(usize),
    /// Somebody overwrites the pod's annotations: its network status, and whether it refers to a claim.
    Lie {
        pod: usize,
        says: Option<u8>,
        claim: Option<usize>,
    },
    /// Somebody overwrites a claim's status with these addresses, with or without an apparent proof.
    ForgeStatus {
        claim: usize,
        address: u8,
        held: bool,
    },
    /// Somebody overwrites the users of a claim.
    ForgeHolders {
        claim: usize,
        pod: Option<usize>,
    },
    /// The pod has ended.
    Leave(usize),
    /// The Node object is deleted, with its pods. Containers run until the kubelet notices.
    LoseNode(usize),
    Node(usize),
    Request,
    ReturnBlock(usize),
    Turn(Turn),
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..NAMES.len();
    let node = 0..NODES.len();
    prop_oneof![
        6 => (name.clone(), proptest::option::weighted(0.3, 0_u8..14)).prop_map(|(name, wish)| Op::Claim { name, wish }),
        4 => name.clone().prop_map(Op::Delete),
        4 => (name.clone(), name.clone(), node.clone())
            .prop_map(|(pod, claim, node)| Op::Pod { pod, claim, node }),
        8 => name.clone().prop_map(Op::Add),
        2 => (name.clone(), proptest::option::of(0_u8..14), proptest::option::of(name.clone()))
            .prop_map(|(pod, says, claim)| Op::Lie { pod, says, claim }),
        2 => (name.clone(), 0_u8..14, any::<bool>())
            .prop_map(|(claim, address, held)| Op::ForgeStatus { claim, address, held }),
        2 => (name.clone(), proptest::option::of(name.clone()))
            .prop_map(|(claim, pod)| Op::ForgeHolders { claim, pod }),
        3 => name.prop_map(Op::Leave),
        1 => node.clone().prop_map(Op::LoseNode),
        2 => node.prop_map(Op::Node),
        1 => Just(Op::Request),
        1 => any::<usize>().prop_map(Op::ReturnBlock),
        37 => turn().prop_map(Op::Turn),
    ]
}

/// Containers of a pod that have an address.
struct Use {
    pod: String,
    /// UID and name of the claim that the address came from.
    claim: String,
    claim_name: String,
    addresses: Vec<Address>,
    node: String,
    /// When the kubelet of a node that lost its object ends it.
    ends: Option<u64>,
}

struct Run {
    server: Server,
    leaders: Leaders,
    asked: u32,
    /// By the UIDs of pods.
    uses: BTreeMap<String, Use>,
    /// UIDs of claims whose status somebody overwrote.
    forged: BTreeSet<String>,
}

fn address(number: u8) -> String {
    format!("10.0.{}.{}", number % 2, number / 2)
}

impl Run {
    fn new(planted: Option<Planted>) -> Self {
        let mut server = Server::default();
        server.planted = planted;
        server.pool("default", 2, &["10.0.0.0/30", "10.0.1.0/29"], &["10.0.0.0"]);
        for node in NODES {
            server.node(node, None);
        }
        let leaders = Leaders::of(&server);
        Self { server, leaders, asked: 0, uses: BTreeMap::new(), forged: BTreeSet::new() }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Claim { name, wish } => {
                if !self.server.claims.contains_key(NAMES[name]) {
                    self.server.claim(NAMES[name], wish.map(address).as_deref());
                }
            }
            Op::Delete(name) => self.server.delete_claim(NAMES[name]),
            Op::Pod { pod, claim, node } => {
                let there = self.server.nodes.contains_key(NODES[node]);
                if there && !self.server.pods.contains_key(NAMES[pod]) {
                    self.server.pod(NAMES[pod], NAMES[claim], NODES[node]);
                }
            }
            Op::Add(pod) => self.add(NAMES[pod]),
            Op::Lie { pod, says, claim } => {
                let says = says.map(|number| {
                    (number > 2).then(|| address(number).parse().unwrap()).into_iter().collect()
                });
                self.server.annotate(NAMES[pod], says, claim.map(|claim| NAMES[claim]));
            }
            Op::ForgeStatus { claim, address: number, held } => self.forge_status(NAMES[claim], number, held),
            Op::ForgeHolders { claim, pod } => self.forge_holders(NAMES[claim], pod.map(|pod| NAMES[pod])),
            Op::Leave(pod) => {
                if let Some(pod) = self.server.pods.get(NAMES[pod]) {
                    self.uses.remove(&pod.uid);
                }
                self.server.delete_pod(NAMES[pod]);
            }
            Op::LoseNode(node) => self.lose_node(NODES[node]),
            Op::Node(node) => {
                // A kubelet that registers again ends containers without a pod.
                self.server.node(NODES[node], None);
                self.uses.retain(|_, it| it.ends.is_none() || it.node != NODES[node]);
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
        let now = self.server.now;
        self.uses.retain(|_, it| it.ends.is_none_or(|ends| ends > now));
    }

    /// What an agent does: gives the pod its claim if status, slots and record allow it.
    fn add(&mut self, name: &str) {
        let Some(pod) = self.server.pods.get(name).cloned() else { return };
        let refers = pod.facts.as_ref().and_then(|facts| facts.default_claim.clone());
        let claim = refers.and_then(|claim| self.server.claims.get(&claim)).map(ClaimFacts::of);
        let Some(claim) = claim.filter(|claim| claim.held && claim.slots.has(&pod.uid)) else { return };
        let proof = self.proof(&claim);
        let believes = self.server.planted == Some(Planted::StatusIsProof);
        if believes || proof.covers(&claim.addresses) && proof.pods.contains(&pod.uid) {
            let addresses = claim.addresses.iter().map(|(address, _)| *address).collect();
            let node = pod.facts.and_then(|facts| facts.node).unwrap_or_default();
            let (claim, claim_name) = (claim.uid, claim.name);
            let it = Use { pod: name.to_owned(), claim, claim_name, addresses, node, ends: None };
            self.uses.entry(pod.uid).or_insert(it);
        }
    }

    /// The record of a claim at the place that its status names.
    fn proof(&self, claim: &ClaimFacts) -> OnRecord {
        let blocks = claim.places.iter().filter_map(|place| match place {
            RecordLocation::Block(name) => self.server.blocks.get(name),
            RecordLocation::Ledger(_) => None,
        });
        blocks.map(|block| OnRecord::in_block(block, &claim.uid)).reduce(OnRecord::and).unwrap_or_default()
    }

    fn forge_status(&mut self, name: &str, number: u8, held: bool) {
        let Some(mut claim) = self.server.claims.get(name).cloned() else { return };
        let addresses = [(address(number).parse().unwrap(), 32)];
        let places: Vec<RecordLocation> =
            (0..3).map(|block| RecordLocation::Block(format!("default-{block}"))).collect();
        let mut status = status::allocated(&claim, &addresses, &places, self.server.timestamp());
        if !held {
            status.conditions.clear();
        }
        claim.status = Some(status);
        self.forged.insert(self.server.put_claim(claim));
    }

    fn forge_holders(&mut self, name: &str, pod: Option<&str>) {
        let Some(mut claim) = self.server.claims.get(name).cloned() else { return };
        let pod = pod.and_then(|pod| self.server.pods.get(pod)).and_then(|pod| pod.facts.clone());
        let active = pod.map(|pod| Slot { pod: pod.name, uid: pod.uid, node: "n".to_owned(), stamp: None });
        let slots = Slots { active, ..Slots::default() };
        claim.annotations_mut().insert("tenure/holders".to_owned(), slots.to_annotation());
        self.server.put_claim(claim);
    }

    fn lose_node(&mut self, node: &str) {
        self.server.delete_node(node);
        let is_of = |pod: &PodSeen| pod.facts.as_ref().and_then(|it| it.node.as_deref()) == Some(node);
        let of_node: Vec<String> =
            self.server.pods.iter().filter(|(_, pod)| is_of(pod)).map(|(name, _)| name.clone()).collect();
        for name in of_node {
            let uid = self.server.pods[&name].uid.clone();
            self.server.delete_pod(&name);
            if let Some(it) = self.uses.get_mut(&uid) {
                it.ends = Some(self.server.now + KUBELET_NOTICES);
            }
        }
    }

    /// The recorded holder of each address.
    fn on_record(&self) -> BTreeMap<Address, String> {
        let all = self.server.blocks.values().flat_map(in_block);
        all.flat_map(|(record, addresses)| addresses.into_iter().map(|it| (it, record.uid.clone()))).collect()
    }

    /// Always holds: of the addresses that agents would give, none is given twice or excluded.
    fn check(&self) -> Result<(), TestCaseError> {
        let mut seen: BTreeMap<Address, String> = BTreeMap::new();
        for claim in self.server.claims.values().map(ClaimFacts::of).filter(|claim| claim.held) {
            if !self.proof(&claim).covers(&claim.addresses) {
                continue;
            }
            for (address, _) in &claim.addresses {
                prop_assert_ne!(address.to_string(), "10.0.0.0");
                let other = seen.insert(*address, claim.uid.clone());
                prop_assert_eq!(other, None, "{} is given twice", address);
            }
        }
        Ok(())
    }

    /// Holds for pods with an address: it is recorded for the claim that they got it from, and no later claim of that
    /// name takes it.
    fn check_uses(&self) -> Result<(), TestCaseError> {
        let on_record = self.on_record();
        for it in self.uses.values() {
            for address in &it.addresses {
                prop_assert_eq!(on_record.get(address), Some(&it.claim), "pod {} uses {}", it.pod, address);
            }
        }
        for (record, _) in self.server.blocks.values().flat_map(in_block) {
            for pod in &record.pods {
                let of_name = self.uses.get(&pod.uid).filter(|it| it.claim_name == record.name);
                let other = of_name.filter(|it| it.claim != record.uid);
                prop_assert!(other.is_none(), "claim {} inherits pod {}", record.name, pod.name);
            }
        }
        Ok(())
    }

    /// Holds for claims in the end: each has exactly what its status says, unless a pod got something else because
    /// somebody overwrote the status.
    fn check_records(&self) -> Result<(), TestCaseError> {
        let on_record = self.on_record();
        for claim in self.server.claims.values().map(ClaimFacts::of) {
            let says: BTreeSet<Address> = claim.addresses.iter().map(|(address, _)| *address).collect();
            let of_claim =
                on_record.iter().filter(|(_, uid)| **uid == claim.uid).map(|(address, _)| *address);
            let more: Vec<Address> = of_claim.filter(|it| !claim.held || !says.contains(it)).collect();
            let forged = self.forged.contains(&claim.uid);
            prop_assert!(more.is_empty() || forged, "{} says {:?} and has {:?}, too", claim.name, says, more);
        }
        Ok(())
    }

    /// Holds in the end, with one leader that has heard everything and nothing in flight.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let mut planner = Planner::comparing_unless(self.server.planted.is_some());
        for node in NODES {
            self.server.node(node, None);
        }
        for _ in 0..4 {
            self.server.settle(&mut planner);
            self.check()?;
            self.server.now += 40_000;
        }
        self.server.settle(&mut planner);
        self.check_records()?;
        let living: BTreeSet<String> = self.server.claims.values().filter_map(ResourceExt::uid).collect();
        for (address, uid) in self.on_record() {
            let kept = living.contains(&uid) || !self.server.pods.is_empty();
            prop_assert!(kept, "{} never returns", address);
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
        // When everything is deleted, nothing is left.
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

/// One leader that hears everything before it plans, but may be replaced at any time by one that knows only the API.
fn one_leader(ops: &[Op], planted: Option<Planted>) -> Result<(), TestCaseError> {
    let mut run = Run::new(planted);
    // Plans are compared in the tests with two leaders, and in `everything`.
    let mut planner = Planner::uncompared();
    let (mut world, mut heard) = (run.server.world(), run.server.log.len());
    for op in ops {
        match op {
            Op::Turn(Turn::Crash { .. }) => {
                planner = Planner::uncompared();
                (world, heard) = (run.server.world(), run.server.log.len());
            }
            Op::Turn(
                Turn::Hear { .. } | Turn::HearClaims { .. } | Turn::Plan { .. } | Turn::Arrive { .. },
            ) => {
                run.server.log[heard..].iter().cloned().for_each(|update| tell(&mut world, update));
                heard = run.server.log.len();
                for write in planner.plan(&world, run.server.timestamp()) {
                    prop_assert_eq!(run.server.write(&write), Outcome::Done, "{:?}", write);
                }
            }
            other => run.apply(other),
        }
        run.check()?;
        run.check_uses()?;
    }
    if planted.is_none() {
        run.settle()?;
    }
    Ok(())
}

/// Two leaders at once.
fn two_leaders(ops: &[Op], planted: Option<Planted>) -> Result<(), TestCaseError> {
    let mut run = Run::new(planted);
    for op in ops {
        run.apply(op);
        run.check()?;
    }
    run.settle()
}

proptest! {
    #[test]
    fn two_leaders_with_old_news_and_late_writes_give_no_claims_address_twice_and_lose_none(
        ops in proptest::collection::vec(op(), 1..150)
    ) {
        two_leaders(&ops, None)?;
    }

    #[test]
    fn invariant_7_what_a_pod_uses_is_nobody_elses_whether_its_claim_is_gone_or_not(
        ops in proptest::collection::vec(op(), 1..120)
    ) {
        one_leader(&ops, None)?;
    }
}

type Play = fn(&[Op], Option<Planted>) -> Result<(), TestCaseError>;

/// A check that misses its bug is no check.
#[test]
fn planted_bugs_of_claims_are_found_within_a_thousand_runs() {
    let all: [(Planted, Play); 4] = [
        (Planted::AnnotationsFree, one_leader),
        (Planted::NodesProveTheEnd, one_leader),
        (Planted::NamesInherit, one_leader),
        (Planted::StatusIsProof, one_leader),
    ];
    for (planted, play) in all {
        is_found(planted, play);
    }
}

/// A test of its own, so that both run in parallel.
#[test]
fn a_planted_bug_of_two_leaders_is_found_within_a_thousand_runs() {
    is_found(Planted::EveryRecordNames, two_leaders);
}

fn is_found(planted: Planted, play: Play) {
    let config = Config { cases: 1_000, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let found = runner.run(&proptest::collection::vec(op(), 60..120), |ops| play(&ops, Some(planted)));
    assert!(found.is_err(), "nobody noticed {planted:?}");
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
    let freed = done.iter().filter(|write| matches!(write.of(), Some(ClaimWrite::Records { .. })));
    assert_eq!(freed.count(), 2, "all of a block's are freed with one write");
}
