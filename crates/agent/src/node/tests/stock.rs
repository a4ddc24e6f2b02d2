//! Waiting for blocks, and having them before anybody waits.

use std::time::Duration;

use super::rig::*;
use crate::node::{Event, PoolFacts, Report, Ticket};

#[test]
fn who_waits_is_served_in_order_when_the_block_comes() {
    let mut rig = Rig::with_blocks([]);
    let adds: Vec<Ticket> = (0..3).map(|n| rig.add(&format!("c{n}"))).collect();
    assert_eq!(rig.asked.len(), 1, "several wait for one block");
    assert!(adds.iter().all(|add| rig.is_open(*add)));
    rig.grant(0);
    assert_eq!(rig.order, adds);
    assert_eq!(rig.address(adds[0]), "10.0.7.0", "the block's first address goes to the first");
}

/// The wake-up that Coil loses: completion before the waiter, or the block before the word of its completion.
#[test]
fn a_block_that_comes_before_the_waiter_or_before_its_grant_is_not_missed() {
    let mut rig = Rig::with_blocks([]);
    rig.event(Event::BlockSeen(block("default", 0)));
    rig.give("a");

    let mut rig = Rig::with_blocks([]);
    let add = rig.add("a");
    rig.event(Event::BlockSeen(block("default", 0)));
    assert_eq!(rig.address(add), "10.0.7.0", "whoever granted it");
    let (ask, _) = rig.asked.remove(0);
    rig.event(Event::BlockGranted { ask, block: "default-0".into() });
    assert_eq!(rig.node.pools()[0].asked, 0);

    let mut rig = Rig::with_blocks([]);
    let add = rig.add("a");
    let (ask, _) = rig.asked.remove(0);
    rig.event(Event::BlockGranted { ask, block: "default-0".into() });
    assert!(rig.is_open(add));
    assert_eq!(rig.asked, [], "what is granted is on its way, and not asked for again");
    rig.event(Event::BlockSeen(block("default", 0)));
    assert_eq!(rig.address(add), "10.0.7.0");
    assert_eq!(rig.node.pools()[0].asked, 0, "and then it is here");
}

#[test]
fn the_next_block_is_asked_for_before_the_free_addresses_run_out() {
    let mut rig = Rig::with_blocks([0]);
    for n in 0..6 {
        rig.give(&format!("c{n}"));
        assert_eq!(rig.asked, [], "{n}");
    }
    rig.give("c6");
    assert_eq!(rig.asked.len(), 1, "one of eight is free: fewer than a quarter");
    rig.give("c7");
    assert_eq!(rig.asked.len(), 1);
    rig.grant(1);
    rig.give("c8");
}

#[test]
fn as_many_blocks_are_asked_for_at_once_as_those_who_wait_need() {
    let mut rig = Rig::with_blocks([]);
    let adds: Vec<Ticket> = (0..20).map(|n| rig.add(&format!("c{n}"))).collect();
    assert_eq!(rig.asked.len(), 3, "20 and 2 to spare, in eights");
    for index in 0..3 {
        rig.grant(index);
    }
    assert_eq!(rig.order, adds);
    assert_eq!(rig.asked, []);
}

#[test]
fn a_slow_controller_delays_only_those_who_need_a_new_block() {
    let mut rig = Rig::with_blocks([0]);
    rig.event(Event::PoolChanged { name: "other".into(), facts: facts() });
    for n in 0..8 {
        rig.give(&format!("c{n}"));
    }
    let waiting = rig.add("c8");
    let of_other = rig.add_of(attach("o", "other"));
    assert!(rig.is_open(waiting) && rig.is_open(of_other));
    assert_eq!(rig.give("c3"), "10.0.7.3", "what is held is answered");
    let del = rig.del("c0");
    assert!(rig.removed(del), "and released");
    rig.event(Event::BlockSeen(block("other", 0)));
    assert!(!rig.is_open(of_other) && rig.is_open(waiting), "and pools do not wait for each other");
}

#[test]
fn waiting_ends_with_a_clear_failure() {
    let mut rig = Rig::with_blocks([]);
    let first = rig.add("a");
    rig.pass(Duration::from_secs(6));
    let second = rig.add("a");
    rig.pass(Duration::from_secs(4));
    let failure = rig.failure(first).clone();
    assert_eq!(failure.code, 11);
    assert!(failure.message.contains("default") && failure.message.contains("10 s"), "{failure}");
    assert!(failure.details.contains("tenure-controller"), "{failure}");
    assert!(rig.is_open(second), "everyone has the same time");
    assert_eq!(rig.node.next_wake(), Some(rig.now.plus(Duration::from_secs(6))));
    rig.pass(Duration::from_secs(6));
    assert_eq!(rig.failure(second).code, 11);
    // The block comes late: it is used, and not asked for twice.
    assert_eq!(rig.asked.len(), 1);
    rig.grant(0);
    rig.give("a");
}

#[test]
fn an_exhausted_pool_fails_fast_says_what_to_do_and_heals() {
    let mut rig = Rig::with_blocks([]);
    let add = rig.add("a");
    rig.refuse(exhausted());
    let failure = rig.failure(add).clone();
    assert_eq!(failure.code, 11);
    assert!(
        failure.message.contains("default") && failure.message.contains("all 4 blocks are carved"),
        "{failure}"
    );
    assert!(failure.details.contains("append a subnet"), "{failure}");
    let again = rig.add("a");
    assert!(!rig.is_open(again), "at once, without asking again");
    assert_eq!(rig.asked, []);
    assert_eq!(rig.status().unwrap_err().code, 50);
    // After a while it is tried again, without end but more and more seldom.
    rig.pass(Duration::from_secs(1));
    let waiting = rig.add("a");
    assert!(rig.is_open(waiting));
    rig.refuse(exhausted());
    rig.pass(Duration::from_secs(1));
    let early = rig.add("a");
    assert!(!rig.is_open(early));
    // The pool grows: at once.
    rig.event(Event::PoolChanged {
        name: "default".into(),
        facts: PoolFacts { block_bits: 3, exclusions: vec![exclusion()], ..facts() },
    });
    assert_eq!(rig.status(), Ok(()));
    let add = rig.add("a");
    rig.grant(0);
    assert!(!rig.is_open(add));
    assert!(rig.reports.contains(&Report::PoolHealed { pool: "default".into() }));
}

fn exclusion() -> tenure_ipam::Exclusion {
    tenure_ipam::Exclusion::between("10.0.7.0".parse().unwrap(), "10.0.7.1".parse().unwrap()).unwrap()
}

#[test]
fn an_address_that_is_freed_heals_an_exhausted_pool_too() {
    let mut rig = Rig::with_blocks([0]);
    for n in 0..8 {
        rig.give(&format!("c{n}"));
    }
    rig.refuse(exhausted());
    let add = rig.add("x");
    assert_eq!(rig.failure(add).code, 11);
    assert_eq!(rig.status().unwrap_err().code, 50);
    rig.del("c5");
    assert_eq!(rig.status(), Ok(()));
    assert_eq!(rig.give("x"), "10.0.7.5", "cooling gives way where the alternative is to fail");
}

#[test]
fn when_some_wishes_are_refused_those_who_came_last_fail() {
    let mut rig = Rig::with_blocks([]);
    let adds: Vec<Ticket> = (0..20).map(|n| rig.add(&format!("c{n}"))).collect();
    rig.refuse(exhausted());
    let failed: Vec<bool> = adds.iter().map(|add| !rig.is_open(*add)).collect();
    assert_eq!(failed.iter().filter(|failed| **failed).count(), 4, "two blocks are still to come");
    assert!(failed[16..].iter().all(|failed| *failed));
    rig.grant(0);
    rig.grant(1);
    assert!(adds[..16].iter().all(|add| !rig.address(*add).is_empty()));
}

#[test]
fn invariant_6_cooling_waits_for_a_new_block_before_it_gives_way_oldest_first() {
    let mut rig = Rig::with_blocks([0]);
    for n in 0..8 {
        rig.give(&format!("c{n}"));
    }
    rig.del("c6");
    rig.pass(Duration::from_secs(1));
    rig.del("c2");
    let add = rig.add("x");
    assert!(rig.is_open(add), "a block may come");
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.address(add), "10.0.7.6", "it does not come in time");
    let add = rig.add("y");
    rig.grant(1);
    assert_eq!(rig.address(add), "10.0.7.8");
}

#[test]
fn a_freed_address_serves_who_waits_once_it_has_cooled() {
    let mut rig = Rig::with_blocks([0]);
    let cooling = Some(Duration::from_millis(500));
    rig.event(Event::PoolChanged { name: "default".into(), facts: PoolFacts { cooling, ..facts() } });
    for n in 0..8 {
        rig.give(&format!("c{n}"));
    }
    rig.del("c3");
    let add = rig.add("x");
    assert_eq!(rig.node.next_wake(), Some(rig.now.plus(Duration::from_millis(500))));
    rig.pass(Duration::from_millis(500));
    assert_eq!(rig.address(add), "10.0.7.3");
}

#[test]
fn invariant_8_without_the_api_add_and_del_on_owned_blocks_work() {
    let mut rig = Rig::with_blocks([0, 1]);
    for n in 0..16 {
        rig.give(&format!("c{n}"));
        if !rig.asked.is_empty() {
            rig.refuse(unreachable());
        }
    }
    for n in 0..16 {
        let del = rig.del(&format!("c{n}"));
        assert!(rig.removed(del));
    }
    for round in 0..100 {
        rig.give(&format!("again{round}"));
        rig.del(&format!("again{round}"));
        rig.pass(Duration::from_millis(100));
        if !rig.asked.is_empty() {
            rig.refuse(unreachable());
        }
    }
    assert!(rig.node.is_idle());
}

#[test]
fn while_the_api_is_away_it_is_asked_more_and_more_seldom_and_who_waits_gets_what_comes() {
    let mut rig = Rig::with_blocks([]);
    let add = rig.add("a");
    let mut asked = 0;
    for _ in 0..90 {
        while !rig.asked.is_empty() {
            asked += 1;
            rig.refuse(unreachable());
        }
        rig.pass(Duration::from_millis(100));
    }
    assert!((3..=4).contains(&asked), "at 0, 1, 3 and 7 s: {asked}");
    rig.event(Event::BlockSeen(block("default", 0)));
    assert_eq!(rig.address(add), "10.0.7.0");
}

#[test]
fn a_grant_that_never_shows_is_given_up() {
    let mut rig = Rig::with_blocks([]);
    let add = rig.add("a");
    let (ask, _) = rig.asked.remove(0);
    rig.event(Event::BlockGranted { ask, block: "default-0".into() });
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.asked, []);
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.failure(add).code, 11);
    let add = rig.add("a");
    assert_eq!(rig.asked.len(), 1);
    rig.grant(1);
    assert_eq!(rig.address(add), "10.0.7.8");
}

#[test]
fn pools_that_are_unknown_or_being_deleted_give_nothing_new() {
    let mut rig = Rig::with_blocks([0]);
    let unknown = rig.add_of(attach("a", "elsewhere"));
    assert!(rig.failure(unknown).message.contains("elsewhere"), "{}", rig.failure(unknown));
    assert!(rig.failure(unknown).message.contains("shop"), "names the namespace");
    let address = rig.give("a");
    for n in 0..7 {
        rig.give(&format!("c{n}"));
    }
    let waiting = rig.add("x");
    rig.event(Event::PoolChanged { name: "default".into(), facts: PoolFacts { deleting: true, ..facts() } });
    assert!(rig.failure(waiting).message.contains("being deleted"));
    let new = rig.add("y");
    assert!(rig.failure(new).message.contains("being deleted"));
    assert_eq!(rig.give("a"), address, "what is held stays");
    assert_eq!(rig.status().unwrap_err().code, 50);
    for n in 0..7 {
        rig.del(&format!("c{n}"));
    }
    assert_eq!(rig.returned, []);
    rig.del("a");
    assert_eq!(rig.returned.len(), 1, "also the last one, and at once");
    rig.event(Event::PoolGone { name: "default".into() });
    let gone = rig.add("z");
    assert_eq!(rig.failure(gone).code, 11);
}

#[test]
fn what_a_pool_excludes_is_not_handed_out_and_what_is_held_stays() {
    let mut rig = Rig::with_blocks([0]);
    assert_eq!(rig.give("a"), "10.0.7.0");
    let changed = |exclusions| Event::PoolChanged {
        name: "default".into(),
        facts: PoolFacts { exclusions, ..facts() },
    };
    rig.event(changed(vec![exclusion()]));
    assert_eq!(rig.give("b"), "10.0.7.2");
    assert_eq!(rig.give("a"), "10.0.7.0");
    rig.event(changed(Vec::new()));
    rig.del("b");
    let rest: Vec<String> = (0..6).map(|n| rig.give(&format!("c{n}"))).collect();
    assert!(rest.contains(&"10.0.7.1".to_owned()), "{rest:?}");
}

#[test]
fn a_block_without_a_usable_address_does_not_make_the_node_hoard() {
    let mut rig = Rig::with_blocks([]);
    let all =
        tenure_ipam::Exclusion::between("10.0.7.0".parse().unwrap(), "10.0.7.255".parse().unwrap()).unwrap();
    rig.event(Event::PoolChanged {
        name: "default".into(),
        facts: PoolFacts { exclusions: vec![all], ..facts() },
    });
    rig.add("a");
    for index in 0..5 {
        if !rig.asked.is_empty() {
            rig.grant(index);
        }
    }
    assert!(rig.node.blocks().len() <= 1, "it waits before it asks for the next one");
}

#[test]
fn a_clock_that_is_set_back_makes_nobody_wait_longer() {
    let mut rig = Rig::with_blocks([]);
    let add = rig.add("a");
    rig.pass(Duration::from_secs(5));
    rig.now = tenure_handles::Timestamp::from_millis(10);
    rig.event(Event::Tick);
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.failure(add).code, 11);
}
