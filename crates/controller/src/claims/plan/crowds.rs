//! Thousands of claims at once: how many writes that takes, and how large objects become.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_claims::ClaimFacts;
use tenure_handles::{Clock, SystemClock};

use super::super::ClaimsPlanner;
use super::super::write::ClaimWrite;
use super::ClaimSettings;
use super::blocks::MOST;
use crate::coil::{BlockWrite, CoilPlanner};
use crate::part::{Board, Plan};
use crate::plan::Planner;
use crate::plan::model::{Server, tell};
use crate::release::MISSING_NODE_REST;

const MANY: usize = 1_500;

fn with_claims(bits: i32, subnet: &str) -> Server {
    let mut server = Server::default();
    server.pool("default", bits, &[subnet], &[]);
    server.settle(&mut Planner::default());
    for number in 0..MANY {
        server.claim(&format!("claim-{number}"), None);
    }
    server
}

/// How many claims have an address each, and no two the same.
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
fn thousands_of_claims_beside_thousands_of_pods_are_planned_without_squares() {
    /// To give, to say so, and to free, each the longest of its kind.
    fn planned_in(count: usize) -> Duration {
        let mut server = Server::default();
        server.pool("default", 5, &["10.0.0.0/8"], &[]);
        server.settle(&mut Planner::default());
        for number in 0..count {
            server.claim(&format!("claim-{number}"), None);
            server.pod(&format!("pod-{number}"), &format!("other-{number}"), "n");
        }
        let mut planner = Planner::default();
        let mut took = Duration::ZERO;
        let mut plan = |server: &mut Server| {
            let world = server.world();
            let before = SystemClock.now();
            let writes = planner.plan(&world, server.timestamp());
            took += SystemClock.now().since(before);
            for write in &writes {
                _ = server.write(write);
            }
            writes.len()
        };
        assert!(plan(&mut server) >= count / 32, "blocks");
        assert!(plan(&mut server) >= count, "statuses");
        for number in 0..count {
            server.delete_claim(&format!("claim-{number}"));
        }
        plan(&mut server);
        server.now += 3_000;
        assert!(plan(&mut server) >= count / 32, "records that are freed");
        took
    }
    let best = |count| (0..3).map(|_| planned_in(count)).min().unwrap();
    let (small, large) = (best(500), best(5_000));
    // Ten times as many take ten times as long; with squares they would take a hundred times.
    let allowed = small.max(Duration::from_millis(20)) * 60;
    assert!(large < allowed, "500 took {small:?}, 5,000 took {large:?}");
}

/// Something that happens in a cluster with so many claims, each with a pod of its own.
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
    let mut coil = CoilPlanner::new(MISSING_NODE_REST);
    let mut claims = ClaimsPlanner::new(&ClaimSettings::default(), true);
    let (mut world, heard) = (server.world(), server.log.len());
    let mut plan = |server: &Server, world: &crate::World| {
        let mut board = Board::default();
        coil.plan(world, &mut board, server.timestamp());
        claims.plan(world, &mut board, server.timestamp());
        claims.looked_at
    };
    assert!(plan(&server, &world) >= count, "the first plan looks at everything");
    happening.1(&mut server);
    server.log[heard..].iter().cloned().for_each(|news| tell(&mut world, news));
    plan(&server, &world)
}

#[test]
fn a_plan_after_one_event_looks_at_as_few_claims_as_it_concerns_however_many_there_are() {
    for happening in &HAPPENINGS {
        let (few, many) = (looked_at(50, happening), looked_at(500, happening));
        assert_eq!(few, many, "after {}", happening.0);
        assert!(many <= 3, "{many} after {}", happening.0);
    }
}
