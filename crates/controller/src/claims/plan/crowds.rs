//! Thousands of claims at once: how many writes they take, and how large objects become.

use std::collections::BTreeSet;

use tenure_claims::ClaimFacts;
use tenure_handles::Timestamp;

use super::super::ClaimsPlanner;
use super::super::write::ClaimWrite;
use super::ClaimSettings;
use super::blocks::MOST;
use crate::coil::{BlockWrite, CoilPlanner};
use crate::part::{Board, Plan};
use crate::plan::Planner;
use crate::plan::model::{Outcome, Server, tell};
use crate::release::MISSING_NODE_REST;
use crate::world::World;
use crate::write::Write;

/// More than the maximum of records in a block.
const MANY: usize = 1_100;

fn with_claims(bits: i32, subnet: &str) -> Server {
    let mut server = Server::default();
    server.pool("default", bits, &[subnet], &[]);
    server.settle(&mut Planner::default());
    for number in 0..MANY {
        server.claim(&format!("claim-{number}"), None);
    }
    server
}

/// How many claims have an address each, all different.
fn given(server: &Server) -> usize {
    let held = server.claims.values().map(ClaimFacts::of).filter(|claim| claim.held);
    held.flat_map(|claim| claim.addresses).collect::<BTreeSet<_>>().len()
}

fn records(server: &Server) -> Vec<usize> {
    server.blocks.values().map(|block| block.spec.claims.len()).collect()
}

#[test]
fn claims_that_come_at_once_share_the_writes_of_their_records_and_have_one_more_each() {
    let mut server = with_claims(5, "10.0.0.0/16");
    let writes = server.settle(&mut Planner::default());
    assert_eq!(given(&server), MANY);
    let statuses = writes.iter().filter(|it| matches!(it.of(), Some(ClaimWrite::Status { .. }))).count();
    let blocks = writes.iter().filter(|it| matches!(it.of(), Some(BlockWrite::Create { .. }))).count();
    assert_eq!((statuses, blocks), (MANY, MANY.div_ceil(32)));
    let others = writes.len() - statuses - blocks;
    assert!(others <= 2, "{others} more writes: the pool's status is all that is left to say");
}

#[test]
fn a_block_has_so_many_records_at_most_while_there_are_others() {
    let mut server = with_claims(14, "10.0.0.0/14");
    server.settle(&mut Planner::default());
    assert_eq!(given(&server), MANY);
    let most = usize::try_from(MOST).unwrap();
    assert_eq!(records(&server), [most, MANY - most]);
}

#[test]
fn a_pool_of_one_block_gives_all_of_it_to_claims() {
    let mut server = with_claims(11, "10.0.0.0/21");
    server.settle(&mut Planner::default());
    assert_eq!((given(&server), records(&server)), (MANY, vec![MANY]));
}

#[test]
fn what_does_not_fit_is_refused_at_once_and_given_when_there_is_more() {
    let mut server = with_claims(5, "10.0.0.0/24");
    let mut planner = Planner::default();
    server.settle(&mut planner);
    assert_eq!(given(&server), 256);
    let refused = server.claims.values().map(ClaimFacts::of).filter(|claim| claim.problem.is_some());
    assert_eq!(refused.count(), MANY - 256);
    server.delete_claim("claim-0");
    server.now += 60_000;
    server.settle(&mut planner);
    server.now += 60_000;
    server.settle(&mut planner);
    assert_eq!(given(&server), 256, "the address of one that is gone is given to one that waited");
}

#[test]
fn each_plan_for_many_claims_beside_many_pods_looks_at_each_once() {
    /// What plans look at to assign, to report and to free.
    fn looks(count: usize) -> Vec<usize> {
        let mut server = Server::default();
        server.pool("default", 5, &["10.0.0.0/8"], &[]);
        server.settle(&mut Planner::default());
        for number in 0..count {
            server.claim(&format!("claim-{number}"), None);
            server.pod(&format!("pod-{number}"), &format!("other-{number}"), "n");
        }
        let (mut parts, mut world, mut heard) = (Parts::default(), server.world(), server.log.len());
        let mut plan = |server: &mut Server| {
            server.log[heard..].iter().cloned().for_each(|update| tell(&mut world, update));
            heard = server.log.len();
            let (looked_at, writes) = parts.plan(&world, server.timestamp());
            for write in &writes {
                assert_eq!(server.write(write), Outcome::Done);
            }
            (looked_at, writes.len())
        };
        let (given, blocks) = plan(&mut server);
        assert!(blocks >= count / 32, "blocks");
        let (said, statuses) = plan(&mut server);
        assert!(statuses >= count, "statuses");
        for number in 0..count {
            server.delete_claim(&format!("claim-{number}"));
        }
        let (suspected, _) = plan(&mut server);
        server.now += 3_000;
        let (freed, records) = plan(&mut server);
        assert!(records >= count / 32, "records that are freed");
        vec![given, said, suspected, freed]
    }
    let (few, many) = (looks(64), looks(640));
    for (few, many) in few.into_iter().zip(many) {
        // Each claim, each name that a pod refers to, and each of the blocks.
        assert!(many <= few * 10 && many <= 2 * 640 + 2 * 20, "of 64: {few}, of 640: {many}");
    }
}

#[test]
fn a_claim_whose_status_is_not_written_yet_is_not_looked_at_again() {
    let mut server = with_claims(5, "10.0.0.0/16");
    let (mut parts, mut world, heard) = (Parts::default(), server.world(), server.log.len());
    for write in parts.plan(&world, server.timestamp()).1 {
        assert_eq!(server.write(&write), Outcome::Done);
    }
    server.log[heard..].iter().cloned().for_each(|update| tell(&mut world, update));
    let is_status = |write: &&Write| write.verb() == "claim_status";
    let (looked_at, writes) = parts.plan(&world, server.timestamp());
    assert!(looked_at >= MANY);
    let statuses: Vec<Write> = writes.iter().filter(is_status).cloned().collect();
    assert_eq!(statuses.len(), MANY);
    server.now += 1_000;
    let (looked_at, writes) = parts.plan(&world, server.timestamp());
    assert_eq!(looked_at, 0);
    assert_eq!(writes.iter().filter(is_status).count(), MANY);
    // A claim that is done is looked at once more; the others are not.
    let heard = server.log.len();
    assert_eq!(server.write(&statuses[0]), Outcome::Done);
    server.log[heard..].iter().cloned().for_each(|update| tell(&mut world, update));
    let (looked_at, writes) = parts.plan(&world, server.timestamp());
    assert_eq!((looked_at, writes.iter().filter(is_status).count()), (1, MANY - 1));
}

/// The parts that plan for claims.
struct Parts {
    coil: CoilPlanner,
    claims: ClaimsPlanner,
}

impl Default for Parts {
    fn default() -> Self {
        let claims = ClaimsPlanner::new(&ClaimSettings::default(), true);
        Self { coil: CoilPlanner::new(MISSING_NODE_REST), claims }
    }
}

impl Parts {
    /// How many claims, blocks, ledgers and owners a plan looks at, and what it writes.
    fn plan(&mut self, world: &World, now: Timestamp) -> (usize, Vec<Write>) {
        let mut board = Board::default();
        let mut writes = self.coil.plan(world, &mut board, now);
        writes.extend(self.claims.plan(world, &mut board, now));
        (self.claims.looked_at, writes)
    }
}

/// An event in a cluster with this many claims, each with its own pod.
type Happening = (&'static str, fn(&mut Server));

const HAPPENINGS: [Happening; 9] = [
    ("nothing", |_| ()),
    ("a claim is made", |server| _ = server.claim("new", None)),
    ("a claim is deleted", |server| server.delete_claim("claim-7")),
    ("a pod comes that refers to a claim", |server| _ = server.pod("second", "claim-7", "n")),
    ("a pod is gone", |server| server.delete_pod("pod-7")),
    ("a pod says what it has", |server| server.annotate("pod-7", Some(Vec::new()), Some("claim-7"))),
    ("a node has a heartbeat", |server| server.node("n", None)),
    ("a node is gone that runs a claim's pod", |server| server.delete_node("single")),
    ("a node gets a block", |server| {
        let pool = &server.pools["default"];
        let block = tenure_api::coil::AddressBlock::carve(pool, 90_000, "n", None).unwrap();
        server.put_block(block);
    }),
];

/// How many claims, blocks, ledgers and owners a plan looks at after one event.
fn looked_at(count: usize, happening: &Happening) -> usize {
    let mut server = Server::default();
    server.pool("default", 5, &["10.0.0.0/8"], &[]);
    server.node("n", None);
    server.node("single", None);
    for number in 0..count {
        server.claim(&format!("claim-{number}"), None);
        server.pod(
            &format!("pod-{number}"),
            &format!("claim-{number}"),
            if number == 7 { "single" } else { "n" },
        );
    }
    server.settle(&mut Planner::default());
    let mut parts = Parts::default();
    let (mut world, heard) = (server.world(), server.log.len());
    let mut plan = |server: &Server, world: &World| parts.plan(world, server.timestamp()).0;
    assert!(plan(&server, &world) >= count, "the first plan looks at everything");
    happening.1(&mut server);
    server.log[heard..].iter().cloned().for_each(|update| tell(&mut world, update));
    plan(&server, &world)
}

#[test]
fn a_plan_after_one_event_looks_at_as_few_claims_as_it_concerns_however_many_there_are() {
    for happening in &HAPPENINGS {
        let (few, many) = (looked_at(20, happening), looked_at(200, happening));
        assert_eq!(few, many, "after {}", happening.0);
        assert!(many <= 3, "{many} after {}", happening.0);
    }
}
