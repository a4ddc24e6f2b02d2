//! Giving blocks back.

use std::time::Duration;

use super::rig::*;
use crate::node::{Event, PoolFacts};

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn empty_blocks_go_back_after_a_rest_and_the_last_one_stays() {
    let mut rig = Rig::with_blocks([0, 1, 2]);
    rig.give("a");
    rig.del("a");
    rig.pass(4 * MINUTE);
    assert_eq!(rig.returned, []);
    rig.pass(2 * MINUTE);
    assert_eq!(rig.returned.len(), 2);
    for (name, uid) in rig.returned.clone() {
        rig.event(Event::BlockGone { name, uid });
    }
    rig.pass(60 * MINUTE);
    assert_eq!((rig.returned.len(), rig.node.blocks().len(), rig.exported.len()), (2, 1, 1));
    rig.give("b");
    assert_eq!(rig.asked, [], "what stayed is enough");
}

#[test]
fn a_burst_of_pods_that_come_and_go_does_not_send_blocks_to_and_fro() {
    let mut rig = Rig::with_blocks([]);
    let mut asked = 0;
    for round in 0..20 {
        for n in 0..20 {
            rig.add(&format!("c{round}-{n}"));
        }
        while !rig.asked.is_empty() {
            rig.grant(asked);
            asked += 1;
        }
        for n in 0..20 {
            rig.del(&format!("c{round}-{n}"));
        }
        rig.pass(MINUTE);
    }
    assert_eq!((asked, rig.returned.len()), (3, 0), "20 rounds of 20 pods on the blocks of the first");
}

#[test]
fn a_block_that_would_be_asked_for_again_at_once_stays() {
    let mut rig = Rig::with_blocks([0, 1]);
    for n in 0..8 {
        rig.give(&format!("c{n}"));
    }
    rig.pass(10 * MINUTE);
    assert_eq!(rig.returned, [], "the other one is full");
    for n in 0..4 {
        rig.del(&format!("c{n}"));
    }
    rig.pass(MINUTE);
    assert_eq!(rig.returned.len(), 1, "half of it is enough");
    assert_eq!(rig.asked, []);
}

#[test]
fn invariant_6_a_block_does_not_go_while_anything_cools_in_it() {
    let mut rig = Rig::with_blocks([0, 1]);
    let cooling = Some(Duration::from_mins(30));
    rig.event(Event::PoolChanged { name: "default".into(), facts: PoolFacts { cooling, ..facts() } });
    rig.give("a");
    rig.del("a");
    rig.pass(6 * MINUTE);
    assert_eq!(rig.returned, [("default-1".to_owned(), "default-1-uid".to_owned())], "the other one goes");
    rig.event(Event::BlockGone { name: "default-1".into(), uid: "default-1-uid".into() });
    rig.event(Event::BlockSeen(block("default", 2)));
    rig.pass(6 * MINUTE);
    assert_eq!(rig.returned.len(), 2);
    assert_eq!(rig.returned[1].0, "default-2", "the next owner would not know that it cools");
}

#[test]
fn the_object_is_deleted_only_after_the_journal_knows() {
    let mut rig = Rig::with_blocks([0, 1]);
    rig.prompt = false;
    rig.pass(6 * MINUTE);
    assert_eq!(rig.returned, []);
    rig.commit();
    assert_eq!(rig.returned.len(), 1);
}

#[test]
fn a_deletion_that_did_not_happen_is_tried_again() {
    let mut rig = Rig::with_blocks([0, 1]);
    rig.pass(6 * MINUTE);
    assert_eq!(rig.returned.len(), 1);
    rig.pass(Duration::from_secs(29));
    assert_eq!(rig.returned.len(), 1);
    assert_eq!(rig.node.next_wake(), Some(rig.now.plus(Duration::from_secs(1))));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.returned.len(), 2);
    assert_eq!(rig.returned[0], rig.returned[1]);
}

#[test]
fn the_fullest_block_is_used_first_so_that_others_become_empty() {
    let mut rig = Rig::with_blocks([0, 1]);
    for n in 0..10 {
        rig.give(&format!("c{n}"));
    }
    for n in 0..8 {
        rig.del(&format!("c{n}"));
    }
    rig.pass(MINUTE);
    for n in 0..6 {
        assert!(*rig.give(&format!("d{n}")) >= *"10.0.7.10", "the block with two holds fills up");
    }
    rig.pass(6 * MINUTE);
    assert_eq!(rig.returned.len(), 0, "full again, so that the empty one is the stock");
}

#[test]
fn blocks_of_one_address_work_as_well() {
    let mut rig = Rig::with_blocks([]);
    rig.event(Event::PoolChanged { name: "default".into(), facts: PoolFacts { block_bits: 0, ..facts() } });
    let one = |index: u8| {
        let subnet = tenure_ipam::Subnet::single(format!("10.0.7.{index}/32").parse().unwrap());
        crate::node::SeenBlock { subnet, ..block("default", index) }
    };
    let adds: Vec<_> = (0..3).map(|n| rig.add(&format!("c{n}"))).collect();
    assert_eq!(rig.asked.len(), 4, "one each, and one to spare");
    for index in 0..4 {
        rig.event(Event::BlockSeen(one(index)));
    }
    assert!(adds.iter().all(|add| !rig.is_open(*add)));
    for (ask, _) in std::mem::take(&mut rig.asked) {
        rig.event(Event::BlockGranted { ask, block: format!("default-{}", ask.0 % 4) });
    }
    for n in 0..3 {
        rig.del(&format!("c{n}"));
    }
    rig.pass(6 * MINUTE);
    assert_eq!(rig.returned.len(), 3);
}

#[test]
fn nothing_is_assigned_from_a_block_that_drains_and_it_is_returned_when_it_is_empty_and_cooled() {
    let mut rig = Rig::with_blocks([0, 1]);
    let draining = crate::node::SeenBlock { draining: true, ..block("default", 0) };
    assert_eq!(rig.give("a"), "10.0.7.0");
    rig.event(Event::BlockSeen(draining.clone()));
    assert_eq!(rig.give("b"), "10.0.7.8", "of the other block");
    assert_eq!(rig.exported.len(), 2, "its pods are still reached");
    rig.pass(10 * MINUTE);
    assert_eq!(rig.returned, [], "a pod has an address of it");
    rig.del("a");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.returned, [], "its address cools");
    rig.pass(MINUTE);
    assert_eq!(rig.returned, [("default-0".to_owned(), "default-0-uid".to_owned())]);
}

#[test]
fn a_block_that_no_longer_drains_is_assigned_from_again() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.event(Event::BlockSeen(crate::node::SeenBlock { draining: true, ..block("default", 0) }));
    let waiting = rig.add("b");
    assert!(rig.is_open(waiting) && !rig.asked.is_empty(), "it waits for another block");
    rig.event(Event::BlockSeen(block("default", 0)));
    assert_eq!(rig.address(waiting), "10.0.7.1");
}

#[test]
fn a_block_drains_also_after_a_restart() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(crate::node::SeenBlock { draining: true, ..block("default", 0) }));
    again.event(Event::ApiRead);
    let waiting = again.add("b");
    assert!(again.is_open(waiting));
    assert_eq!(again.returned, []);
}
