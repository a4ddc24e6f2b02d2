//! When blocks of missing nodes are marked and released, and when not.

use tenure_api::release::mark_of;

use super::super::write::{Because, BlockWrite};
use crate::plan::Planner;
use crate::plan::model::{Outcome, Server, server, tell};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What happens to the blocks of a missing node at each look: `m` marked, `r` released, `-` nothing.
fn look(server: &mut Server, planner: &mut Planner) -> String {
    let plan = planner.plan(&server.world(), server.timestamp());
    let words = plan.iter().map(|write| match write.of() {
        Some(BlockWrite::MarkBlock { .. }) => "m",
        Some(BlockWrite::UnmarkBlock { .. }) => "u",
        Some(BlockWrite::ReleaseBlock { .. }) => "r",
        _ => "-",
    });
    let words = words.collect();
    for write in plan {
        server.write(&write);
    }
    words
}

#[test]
fn invariant_9_blocks_of_missing_nodes_go_after_two_observations_never_one() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("ra", "a", "p");
    server.request("rb", "b", "p");
    server.settle(&mut planner);
    server.delete_node("b");
    for (passed, expected) in [(0, "m"), (0, ""), (119_999, ""), (1, "r")] {
        server.now += passed;
        assert_eq!(look(&mut server, &mut planner), expected, "after {} ms", server.now);
        // It looks again by itself when the waiting time is over, and not later.
        let rests = server.blocks.get("p-1").is_some_and(|block| mark_of(block).is_some());
        assert_eq!(planner.next_look().is_some(), rests && expected.is_empty());
    }
    server.settle(&mut planner);
    assert_eq!(server.blocks.keys().collect::<Vec<_>>(), ["p-0"], "the other node keeps its block");
    // A restart loses nothing, because the mark is on the block. One look is still not enough.
    server.delete_node("a");
    assert_eq!(look(&mut server, &mut planner), "m");
    server.now += 3_600_000;
    let mut fresh = Planner::default();
    assert_eq!(look(&mut server, &mut fresh), "");
    server.node("a", None);
    assert_eq!(look(&mut server, &mut fresh), "u", "it came back in between");
    server.delete_node("a");
    server.now += 20_000;
    assert_eq!(look(&mut server, &mut fresh), "m", "and everything begins anew");
}

#[test]
fn invariant_9_what_a_missing_node_has_left_is_seen_within_a_minute_and_gone_within_five() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("r", "a", "p");
    server.settle(&mut planner);
    server.delete_node("a");
    let deleted = server.now;
    while server.blocks.contains_key("p-0") {
        look(&mut server, &mut planner);
        let marked = server.blocks.get("p-0").is_none_or(|block| mark_of(block).is_some());
        assert!(marked || server.now - deleted <= 60_000, "seen too late");
        assert!(server.now - deleted <= 300_000, "healed too late");
        // As often as a controller without events looks.
        server.now += 10_000;
    }
}

#[test]
fn a_block_stays_while_a_pod_is_bound_to_its_missing_node_whoever_saw_the_node_go() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("r", "a", "p");
    server.settle(&mut planner);
    server.bound.insert("pod".to_owned(), "a".to_owned());
    let mut world = server.world();
    let seen = server.log.len();
    server.delete_node("a");
    server.log[seen..].iter().cloned().for_each(|update| tell(&mut world, update));
    let plan = planner.plan(&world, server.timestamp());
    assert_eq!(plan.len(), 1, "{plan:?}");
    assert!(matches!(plan[0].of(), Some(BlockWrite::MarkBlock { node, .. }) if node == "a"), "{plan:?}");
    for _ in 0..10 {
        look(&mut server, &mut planner);
        server.now += 60_000;
        assert!(server.blocks.get("p-0").is_some_and(|block| mark_of(block).is_none()), "the pod runs");
    }
    // Its pod ends; another is bound to the node meanwhile, and ends, too.
    server.bound.clear();
    assert_eq!(look(&mut server, &mut planner), "m");
    assert_eq!(look(&mut server, &mut planner), "");
    server.now += 120_000;
    server.bound.insert("late".to_owned(), "a".to_owned());
    assert_eq!(look(&mut server, &mut planner), "r");
    assert!(server.blocks.get("p-0").is_some_and(|block| mark_of(block).is_none()), "live reads saw it");
    server.bound.clear();
    assert_eq!(look(&mut server, &mut planner), "m", "two observations again");
    server.now += 119_000;
    assert_eq!(look(&mut server, &mut planner), "");
    server.now += 11_000;
    assert_eq!(look(&mut server, &mut planner), "r");
    assert!(server.blocks.is_empty());
}

#[test]
fn a_node_that_comes_back_between_the_live_read_and_the_deletion_keeps_its_block() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("r", "a", "p");
    server.settle(&mut planner);
    server.delete_node("a");
    assert_eq!(look(&mut server, &mut planner), "m");
    for _ in 0..13 {
        server.now += 10_000;
        let plan = planner.plan(&server.world(), server.timestamp());
        let Some(BlockWrite::ReleaseBlock { block, node, .. }) = plan.first().and_then(|it| it.of()) else {
            continue;
        };
        assert!(!server.is_in_use(node), "the live read finds nobody");
        // The node is registered again, and its agent removes the mark before it assigns anything.
        server.node("a", None);
        server.unmark_own("a");
        assert_eq!(server.delete_block(block), Outcome::Conflict, "the deletion is of another version");
        assert_eq!(look(&mut server, &mut planner), "");
        return;
    }
    panic!("the block was never to be released");
}

#[test]
fn a_node_out_of_service_gives_its_blocks_back_after_a_look_at_its_pods() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("r", "a", "p");
    server.settle(&mut planner);
    server.node("a", Some("node.kubernetes.io/unreachable"));
    assert_eq!(planner.plan(&server.world(), server.timestamp()), [], "it may come back");
    server.node("a", Some(OUT_OF_SERVICE));
    let plan = planner.plan(&server.world(), server.timestamp());
    let addresses = server.blocks["p-0"].spec.to_subnet().ok();
    assert!(
        plan.len() == 1
            && matches!(plan[0].of(), Some(BlockWrite::ReleaseBlock { because: Because::OutOfService { addresses: checked }, .. })
            if *checked == addresses),
        "{plan:?}"
    );
}

#[test]
fn reserved_blocks_are_never_touched() {
    let mut server = server(4);
    let mut planner = Planner::default();
    server.request("r", "a", "p");
    server.settle(&mut planner);
    server.reserve("p-0");
    server.delete_node("a");
    server.now += 60_000;
    server.settle(&mut planner);
    server.now += 60_000;
    server.settle(&mut planner);
    assert!(server.blocks.contains_key("p-0"));
}
