//! What went wrong elsewhere (`docs/coil-differences.md`), one defect a test.

use std::time::Duration;

use super::rig::*;
use crate::node::{Done, Event, Ticket};

/// Elsewhere a collection of garbage waits for the lock that a request for a block holds, and everything on the node
/// waits for it.
#[test]
fn collecting_garbage_and_giving_blocks_back_go_on_while_a_pool_waits_for_a_block() {
    let mut rig = Rig::with_blocks([0]);
    rig.event(Event::PoolChanged { name: "other".into(), facts: facts() });
    for index in [0, 1] {
        rig.event(Event::BlockSeen(block("other", index)));
    }
    for n in 0..8 {
        rig.give(&format!("c{n}"));
    }
    let waiting = rig.add("c8");
    assert!(rig.is_open(waiting));
    let collection = rig.ticket();
    let alive =
        (1..8).map(|n| (format!("c{n}"), "eth0".to_owned())).chain([("c8".to_owned(), "eth0".to_owned())]);
    rig.event(Event::Gc { ticket: collection, network: "net".into(), alive: alive.collect() });
    assert_eq!(rig.answers.get(&collection), Some(&Ok(Done::Swept(1))), "at once");
    let add = rig.add_of(attach("o", "other"));
    assert!(!rig.is_open(add), "at once");
    rig.pass(Duration::from_mins(6));
    assert_eq!(rig.returned.len(), 1, "the empty block of the other pool goes, whoever waits for what");
}

/// Elsewhere each of those who wait asks again, one after the other, when there is no block.
#[test]
fn those_who_wait_for_an_exhausted_pool_share_one_refusal() {
    let mut rig = Rig::with_blocks([]);
    let adds: Vec<Ticket> = (0..8).map(|n| rig.add(&format!("c{n}"))).collect();
    let asked = rig.asked.len();
    while !rig.asked.is_empty() {
        rig.refuse(exhausted());
    }
    assert!(adds.iter().all(|add| rig.failure(*add).message.contains("default")));
    for n in 0..100 {
        rig.add(&format!("late-{n}"));
    }
    assert_eq!(rig.asked.len(), 0, "{asked} were asked for, and nothing more for those who come at once");
}

/// Elsewhere a block that comes after the one who waited for it has given up belongs to nobody.
#[test]
fn a_block_that_comes_too_late_is_used_or_given_back_like_any_other() {
    let mut rig = Rig::with_blocks([0]);
    for n in 0..8 {
        rig.give(&format!("c{n}"));
    }
    let waiting = rig.add("c8");
    rig.pass(Duration::from_secs(11));
    assert_eq!(rig.failure(waiting).code, 11);
    rig.grant(1);
    assert_eq!(rig.exported.len(), 2, "it is this node's, and routed here");
    rig.pass(Duration::from_secs(1));
    rig.give("c8");
    for n in 0..9 {
        rig.del(&format!("c{n}"));
    }
    rig.pass(Duration::from_mins(1));
    rig.pass(Duration::from_mins(6));
    assert_eq!(rig.returned.len(), 1, "the last one stays");
}

/// Elsewhere a pod that fails again and again used up a whole network.
#[test]
fn a_pod_that_fails_again_and_again_takes_no_more_blocks_than_cool_at_once() {
    let mut rig = Rig::with_blocks([0]);
    let mut blocks = 1;
    for n in 0..1_000 {
        let add = rig.add(&format!("sandbox-{n}"));
        while !rig.asked.is_empty() {
            rig.grant(blocks);
            blocks += 1;
        }
        rig.address(add);
        rig.del(&format!("sandbox-{n}"));
        rig.pass(Duration::from_secs(1));
    }
    assert!(blocks <= 5, "{blocks} blocks of eight for the 30 addresses that cool at once");
}

/// Elsewhere a DEL that is repeated, after the address went to somebody else, frees it again.
#[test]
fn a_repeated_del_does_not_free_what_the_next_one_has() {
    let mut rig =
        Rig::started(crate::node::Settings { cooling: Duration::ZERO, ..crate::node::Settings::new(NODE) });
    rig.event(Event::PoolChanged {
        name: "default".into(),
        facts: crate::node::PoolFacts { block_bits: 0, ..facts() },
    });
    let mut single = block("default", 0);
    single.subnet = tenure_ipam::Subnet::single("10.0.7.0/32".parse().unwrap());
    rig.event(Event::BlockSeen(single));
    rig.read(crate::journal::Image::default(), Vec::new());
    rig.give("old");
    rig.del("old");
    let address = rig.give("new");
    for _ in 0..3 {
        let del = rig.del("old");
        assert!(rig.removed(del));
    }
    assert_eq!(rig.give("new"), address);
    let third = rig.add("third");
    assert!(rig.is_open(third), "nothing is free");
}
