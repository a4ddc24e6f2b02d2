//! What is planned in given situations.

use std::time::Duration;

use kube::ResourceExt;
use tenure_api::coil::{AddressPool, BlockRequest, FINALIZER, RequestOutcome};

use super::model::{Outcome, Server, Update, server, tell};
use super::*;
use crate::coil::{BlockWrite, CoilPlanner};
use crate::kind::Kind;
use crate::release::MISSING_NODE_REST;

fn outcome<'a>(server: &'a Server, request: &str) -> RequestOutcome<'a> {
    server.requests[request].outcome()
}

fn failed(request: &BlockRequest) -> (&str, &str) {
    match request.outcome() {
        RequestOutcome::Failed { reason, message } => (reason, message),
        other => panic!("{other:?}"),
    }
}

fn condition<'a>(pool: &'a AddressPool, type_: &str) -> (&'a str, &'a str) {
    let conditions = &pool.status.as_ref().expect("a status").conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == type_).expect(type_);
    (&condition.status, &condition.reason)
}

#[test]
fn blocks_are_numbered_through_subnets_and_the_lowest_free_one_is_taken() {
    let mut server = Server::default();
    server.node("a", None);
    server.pool("p", 1, &["10.0.0.0/30", "10.1.0.0/29"], &[]);
    let mut planner = Planner::default();
    for index in 0..6 {
        let name = format!("r{index}");
        server.request(&name, "a", "p");
        server.settle(&mut planner);
        assert_eq!(outcome(&server, &name), RequestOutcome::Block(&format!("p-{index}")));
    }
    server.request("r6", "a", "p");
    server.settle(&mut planner);
    assert_eq!(failed(&server.requests["r6"]).0, "OutOfBlocks");
    server.return_block("p-4");
    server.request("r7", "a", "p");
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "r7"), RequestOutcome::Block("p-4"));
    assert_eq!(server.blocks["p-4"].spec.ipv4.as_deref(), Some("10.1.0.4/31"), "in the second subnet");
}

#[test]
fn the_status_counts_blocks_exactly_and_is_written_only_when_it_changes() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.settle(&mut planner);
    let counts = |server: &Server| {
        let blocks = server.pools["p"].status.clone().unwrap().blocks.unwrap();
        (blocks.capacity, blocks.allocated, blocks.free)
    };
    let is = |counts: (String, String, String), expected: [&str; 3]| {
        assert_eq!([counts.0, counts.1, counts.2], expected);
    };
    is(counts(&server), ["4", "0", "4"]);
    assert_eq!(condition(&server.pools["p"], "Ready"), ("True", "BlocksFree"));
    for (name, node) in [("r0", "a"), ("r1", "b"), ("r2", "b"), ("r3", "c")] {
        server.request(name, node, "p");
    }
    server.settle(&mut planner);
    is(counts(&server), ["4", "4", "0"]);
    assert_eq!(condition(&server.pools["p"], "Exhausted"), ("True", "OutOfBlocks"));
    assert_eq!(condition(&server.pools["p"], "Ready").0, "False");
    server.now += 3_600_000;
    assert_eq!(planner.plan(&server.world(), server.timestamp()), [], "an hour later nothing is to be said");
    server.return_block("p-1");
    server.settle(&mut planner);
    is(counts(&server), ["4", "3", "1"]);
}

#[test]
fn a_request_that_was_there_before_the_start_is_served() {
    let mut server = server(4);
    server.request("early", "a", "p");
    server.settle(&mut Planner::default());
    assert_eq!(outcome(&server, "early"), RequestOutcome::Block("p-0"));
    let block = &server.blocks["p-0"];
    assert_eq!((block.node(), block.pool()), (Some("a"), Some("p")));
    assert_eq!(block.request_uid(), server.requests["early"].uid().as_deref());
    assert_eq!(block.finalizers(), [FINALIZER]);
    assert_eq!(block.owner_references()[0].uid, server.pools["p"].uid().unwrap());
}

#[test]
fn a_request_whose_block_exists_gets_its_answer_and_no_second_block() {
    let mut server = server(4);
    let uid = server.request("r", "a", "p");
    let pool = server.pools["p"].clone();
    let block = tenure_api::coil::AddressBlock::carve(&pool, 3, "a", Some(&uid)).unwrap();
    server.put_block(block);
    server.settle(&mut Planner::default());
    assert_eq!(outcome(&server, "r"), RequestOutcome::Block("p-3"));
    assert_eq!(server.blocks.len(), 1);
}

#[test]
fn an_exhausted_pool_gives_nothing_and_says_what_to_do() {
    let mut server = server(1);
    server.request("first", "a", "p");
    server.request("second", "b", "p");
    let mut planner = Planner::default();
    server.settle(&mut planner);
    assert_eq!(server.blocks.len(), 1);
    let (reason, message) = failed(&server.requests["second"]);
    assert_eq!(reason, "OutOfBlocks");
    assert!(message.contains("append a subnet to spec.subnets"), "{message}");
    // A refusal is final: the node asks again if it still needs a block.
    server.pool("p", 1, &["10.0.0.0/31", "10.0.1.0/31"], &[]);
    server.settle(&mut planner);
    assert_eq!(failed(&server.requests["second"]).0, "OutOfBlocks");
    server.request("again", "b", "p");
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "again"), RequestOutcome::Block("p-1"), "the appended subnet is used");
}

#[test]
fn a_pool_keeps_its_finalizer_while_it_has_blocks_and_goes_after_the_last() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("r", "a", "p");
    server.settle(&mut planner);
    assert_eq!(server.pools["p"].finalizers(), [FINALIZER]);
    server.delete_pool("p");
    server.request("late", "b", "p");
    server.settle(&mut planner);
    assert_eq!(failed(&server.requests["late"]).0, "Deleting", "no allocation while deleting");
    assert_eq!(condition(&server.pools["p"], "Ready"), ("False", "Deleting"));
    server.return_block("p-0");
    server.settle(&mut planner);
    assert!(!server.pools.contains_key("p"), "the last block is gone, and so is the pool");
}

#[test]
fn what_was_carved_before_a_pool_was_deleted_is_given_and_the_pool_waits_for_it() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.settle(&mut planner);
    server.request("r", "a", "p");
    let create = planner.plan(&server.world(), server.timestamp()).remove(0);
    assert_eq!(server.write(&create), Outcome::Done, "{create:?}");
    server.delete_pool("p");
    let plan = planner.plan(&server.world(), server.timestamp());
    assert!(
        !plan.iter().any(|write| matches!(write.of(), Some(BlockWrite::PoolFinalizers { .. }))),
        "{plan:?}"
    );
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "r"), RequestOutcome::Block("p-0"));
    server.return_block("p-0");
    server.settle(&mut planner);
    assert!(!server.pools.contains_key("p"));
}

#[test]
fn blocks_of_an_older_pool_are_withheld_from_a_younger_one() {
    let mut server = server(4);
    server.now += 5_000;
    server.pool("young", 1, &["10.0.0.4/30", "10.9.0.0/31"], &[]);
    let mut planner = Planner::default();
    for name in ["r0", "r1"] {
        server.request(name, "a", "young");
    }
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "r0"), RequestOutcome::Block("young-2"));
    assert_eq!(failed(&server.requests["r1"]).0, "OutOfBlocks");
    assert_eq!(condition(&server.pools["young"], "Overlapping"), ("True", "OverlapsOlderPool"));
    assert_eq!(condition(&server.pools["p"], "Overlapping"), ("False", "Distinct"));
}

#[test]
fn a_block_that_outlived_its_pool_is_not_carved_from_another_one() {
    let mut server = server(1);
    let mut planner = Planner::default();
    server.request("r", "a", "p");
    server.settle(&mut planner);
    let orphan = server.pools.remove("p").unwrap();
    server.log.push(Update::PoolGone(orphan));
    server.pool("q", 1, &["10.0.0.0/30"], &[]);
    server.request("rq", "b", "q");
    server.settle(&mut planner);
    assert_eq!(
        outcome(&server, "rq"),
        RequestOutcome::Block("q-1"),
        "10.0.0.0 and .1 still belong to node a"
    );
}

#[test]
fn blocks_without_an_address_to_hand_out_are_skipped() {
    let mut server = Server::default();
    server.node("a", None);
    server.pool("p", 1, &["10.0.0.0/29"], &["10.0.0.0-10.0.0.2", "10.0.0.6/31"]);
    let mut planner = Planner::default();
    for name in ["r0", "r1", "r2"] {
        server.request(name, "a", "p");
    }
    server.settle(&mut planner);
    assert_eq!(server.blocks.keys().collect::<Vec<_>>(), ["p-1", "p-2"]);
    assert_eq!(failed(&server.requests["r2"]).0, "OutOfBlocks");
}

#[test]
fn a_pool_that_is_late_is_waited_for_and_one_that_never_comes_is_named() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.settle(&mut planner);
    server.request("r", "a", "typo");
    server.request("late", "a", "late");
    assert_eq!(planner.plan(&server.world(), server.timestamp()), [], "not at the first look");
    let next = planner.next_look().expect("a second look");
    assert_eq!(next.since(server.timestamp()), Duration::from_secs(1));
    server.pool("late", 1, &["10.5.0.0/24"], &[]);
    server.now += 1_000;
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "late"), RequestOutcome::Block("late-0"));
    let (reason, message) = failed(&server.requests["r"]);
    assert_eq!(reason, "PoolNotFound");
    assert!(message.starts_with("there is no AddressPool \"typo\"; create it"), "{message}");
}

#[test]
fn a_pool_that_cannot_be_understood_serves_nobody_and_says_why() {
    let mut server = server(4);
    server.pool("bad", 1, &["10.0.0.0/33"], &[]);
    server.request("r", "a", "bad");
    server.settle(&mut Planner::default());
    assert_eq!(condition(&server.pools["bad"], "Ready"), ("False", "Invalid"));
    let (reason, message) = failed(&server.requests["r"]);
    assert_eq!(reason, "Invalid");
    assert!(message.contains("10.0.0.0/33"), "{message}");
}

#[test]
fn a_request_of_a_deleted_node_is_not_served() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.settle(&mut planner);
    let mut world = server.world();
    let seen = server.log.len();
    server.request("r", "a", "p");
    server.delete_node("a");
    let updates = server.log[seen..].iter().filter(|update| !matches!(update, Update::RequestGone(_)));
    updates.cloned().for_each(|update| tell(&mut world, update));
    assert_eq!(planner.plan(&world, server.timestamp()), []);
}

#[test]
fn nothing_is_planned_before_everything_is_known() {
    let mut server = server(4);
    server.request("r", "a", "p");
    let mut world = World::default();
    server.log.iter().cloned().for_each(|update| tell(&mut world, update));
    assert_eq!(Planner::default().plan(&world, server.timestamp()), [], "absence means nothing yet");
}

#[test]
fn the_oldest_requests_are_served_first() {
    let mut server = server(2);
    for (name, node) in [("z", "a"), ("m", "b"), ("a", "c")] {
        server.request(name, node, "p");
        server.now += 1_000;
    }
    server.settle(&mut Planner::default());
    assert_eq!(outcome(&server, "z"), RequestOutcome::Block("p-0"));
    assert_eq!(outcome(&server, "m"), RequestOutcome::Block("p-1"));
    assert_eq!(failed(&server.requests["a"]).0, "OutOfBlocks");
}

#[test]
fn of_many_requests_that_come_at_once_each_is_looked_at_once() {
    fn looked_at(count: u32) -> usize {
        let mut server = Server::default();
        server.pool("p", 5, &["10.0.0.0/8"], &[]);
        for number in 0..count {
            server.request(&format!("r{number}"), &format!("n{}", number % 100), "p");
        }
        let mut planner = CoilPlanner::new(MISSING_NODE_REST);
        let plan = planner.plan(&server.world(), &mut Board::default(), server.timestamp());
        assert_eq!(plan.len(), usize::try_from(count).unwrap() + 1);
        planner.looked_at
    }
    let (few, many) = (looked_at(200), looked_at(2_000));
    assert!(many <= few * 10, "of 200 so many are looked at: {few}; of 2,000: {many}");
    assert!(many <= 3 * 2_000, "{many}");
}

#[test]
fn a_node_that_asks_without_end_leaves_blocks_for_the_others() {
    let mut server = Server::default();
    // 128 blocks of two addresses.
    server.pool("p", 1, &["10.0.0.0/24"], &[]);
    for (node, pods) in [("greedy", "4"), ("modest", "4"), ("large", "110")] {
        server.node(node, None);
        let allocatable = serde_json::json!({"status": {"allocatable": {"pods": pods, "cpu": "8"}}});
        let mut said: k8s_openapi::api::core::v1::Node = serde_json::from_value(allocatable).unwrap();
        said.trim();
        assert_eq!(said.status.as_ref().unwrap().allocatable.as_ref().unwrap().len(), 1);
        server.nodes.get_mut(node).unwrap().status = said.status;
    }
    let mut planner = Planner::default();
    // All at once, then one by one, removing each answer.
    for number in 0..60 {
        server.request(&format!("g{number}"), "greedy", "p");
    }
    server.settle(&mut planner);
    for number in 60..80 {
        let name = format!("g{number}");
        server.request(&name, "greedy", "p");
        server.settle(&mut planner);
        let (reason, message) = failed(&server.requests[&name]);
        assert_eq!(reason, "OutOfBlocks");
        assert!(message.starts_with(r#"node "greedy" has 32 blocks of pool "p""#), "{message}");
        server.delete_request(&name);
    }
    let of =
        |server: &Server, node| server.blocks.values().filter(|block| block.node() == Some(node)).count();
    assert_eq!(of(&server, "greedy"), 32, "sixteen addresses for each of four pods");
    server.request("m", "modest", "p");
    server.settle(&mut planner);
    assert!(matches!(outcome(&server, "m"), RequestOutcome::Block(_)));
    // A node that returned a block gets another one.
    server.return_block("p-0");
    server.request("again", "greedy", "p");
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "again"), RequestOutcome::Block("p-0"));
    for number in 0..90 {
        server.request(&format!("l{number}"), "large", "p");
    }
    server.settle(&mut planner);
    assert_eq!(of(&server, "large"), 90, "what a node needs for its pods it gets");
}

/// The verbs of writes of blocks and requests, in order.
fn verbs(writes: &[Write]) -> Vec<&'static str> {
    let pools = ["pool_status", "pool_finalizers"];
    writes.iter().map(|write| write.verb()).filter(|verb| !pools.contains(verb)).collect()
}

#[test]
fn a_request_that_the_block_answers_costs_one_write_and_another_one_two() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("plain", "a", "p");
    assert_eq!(verbs(&server.settle(&mut planner)), ["create", "answer"]);
    let uid = server.request_answered("by-block", "b", "p", true);
    assert_eq!(verbs(&server.settle(&mut planner)), ["create"]);
    assert_eq!(outcome(&server, "by-block"), RequestOutcome::Pending, "nobody reads an answer");
    assert_eq!(server.blocks["p-1"].request_uid(), Some(uid.as_str()));
    assert_eq!(verbs(&server.settle(&mut Planner::default())), [""; 0], "the next leader knows that, too");
    server.delete_request("by-block");
    assert_eq!(verbs(&server.settle(&mut planner)), [""; 0]);
    assert_eq!(server.blocks.len(), 2);
}

#[test]
fn a_request_that_the_block_would_answer_is_refused_like_any_other() {
    let mut server = server(1);
    server.request_answered("first", "a", "p", true);
    server.request_answered("second", "b", "p", true);
    server.settle(&mut Planner::default());
    assert_eq!(outcome(&server, "first"), RequestOutcome::Pending);
    assert_eq!(failed(&server.requests["second"]).0, "OutOfBlocks");
}

#[test]
fn a_request_that_only_a_block_answers_gets_none_while_its_node_is_out_of_service_or_missing() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.settle(&mut planner);
    server.node("a", Some("node.kubernetes.io/out-of-service"));
    server.request_answered("out", "a", "p", true);
    server.request_answered("missing", "late", "p", true);
    assert_eq!(
        verbs(&server.settle(&mut planner)),
        [""; 0],
        "its block would be released at once, and carved again"
    );
    server.node("a", None);
    server.node("late", None);
    assert_eq!(verbs(&server.settle(&mut planner)), ["create", "create"]);
}
