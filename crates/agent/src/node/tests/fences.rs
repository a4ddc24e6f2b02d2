//! Blocks that are taken away, and blocks that overlap.

use std::time::Duration;

use tenure_ipam::Subnet;

use super::rig::*;
use crate::node::{Action, Event, Fence, Report, SeenBlock};

fn gone(index: u8) -> Event {
    let block = block("default", index);
    Event::BlockGone { name: block.name, uid: block.uid }
}

fn fences(rig: &Rig) -> Vec<(Fence, usize)> {
    let fences = rig.reports.iter().filter_map(|report| match report {
        Report::Fenced { fence, holds, .. } => Some((fence.clone(), holds.len())),
        _ => None,
    });
    fences.collect()
}

#[test]
fn invariant_2_an_owner_whose_block_is_gone_stops_at_once() {
    let mut rig = Rig::with_blocks([0, 1]);
    assert_eq!(rig.give("a"), "10.0.7.0");
    rig.event(gone(0));
    assert_eq!(fences(&rig), [(Fence::Gone, 1)]);
    assert_eq!(rig.give("b"), "10.0.7.8");
    assert_eq!(rig.give("a"), "10.0.7.0", "a pod that runs keeps what it has");
    assert_eq!(rig.exported, ["10.0.7.8/29".parse().unwrap()].into());
    let del = rig.del("a");
    assert!(rig.removed(del));
    rig.pass(Duration::from_mins(1));
    assert_eq!(rig.node.blocks().len(), 1, "what is gone and empty is forgotten");
}

#[test]
fn invariant_2_a_block_with_another_uid_or_another_node_is_never_handed_out_of_again() {
    for elsewhere in [true, false] {
        let mut rig = Rig::with_blocks([0]);
        rig.give("a");
        let moved = SeenBlock { node: "node-2".into(), ..block("default", 0) };
        let other = if elsewhere { moved } else { SeenBlock { uid: "new".into(), ..moved } };
        rig.event(Event::BlockSeen(other));
        let fence = if elsewhere { Fence::OtherNode("node-2".into()) } else { Fence::Replaced("new".into()) };
        assert_eq!(fences(&rig), [(fence, 1)]);
        let waiting = rig.add("b");
        assert!(rig.is_open(waiting));
        assert!(rig.exported.is_empty());
        // Not even when it comes back.
        rig.event(Event::BlockSeen(block("default", 0)));
        assert!(rig.is_open(waiting));
        rig.del("a");
        rig.pass(Duration::from_mins(1));
        let (asked, returned) = (rig.asked.len(), rig.returned.len());
        assert!(asked >= 1);
        assert_eq!(returned, 1, "it is given back when it is empty, and another is asked for");
    }
}

#[test]
fn invariant_2_a_late_event_does_not_bring_a_lost_block_back() {
    let mut rig = Rig::with_blocks([0]);
    rig.event(gone(0));
    assert_eq!(rig.node.blocks(), []);
    rig.event(Event::BlockSeen(block("default", 0)));
    let waiting = rig.add("a");
    assert!(rig.is_open(waiting));
    // Should the object really be there, it is given back; should it not, that is found out so.
    assert_eq!(rig.returned.len(), 1);
    rig.event(gone(0));
    assert_eq!(rig.node.blocks(), []);
    // Also when we hear of its end first.
    rig.event(gone(5));
    rig.event(Event::BlockSeen(block("default", 5)));
    assert!(rig.is_open(waiting));
}

#[test]
fn invariant_2_an_add_under_way_in_a_block_that_is_taken_away_fails_and_is_undone() {
    let mut rig = Rig::with_blocks([0, 1]);
    rig.prompt = false;
    let add = rig.add("a");
    rig.commit();
    rig.event(gone(0));
    assert_eq!(rig.failure(add).code, 11);
    assert!(rig.failure(add).message.contains("default-0"));
    rig.obey();
    assert!(matches!(&rig.jobs[..], [Action::Unwire { .. }]));
    rig.obey();
    rig.commit();
    rig.prompt = true;
    assert_eq!(rig.give("a"), "10.0.7.8");
}

#[test]
fn a_fence_is_told_when_the_networks_of_an_object_change() {
    let mut rig = Rig::with_blocks([0]);
    let subnet = Subnet::single("10.9.0.0/29".parse().unwrap());
    rig.event(Event::BlockSeen(SeenBlock { subnet, ..block("default", 0) }));
    assert_eq!(fences(&rig), [(Fence::Changed, 0)]);
    let waiting = rig.add("a");
    assert!(rig.is_open(waiting));
}

#[test]
fn invariant_1_a_block_that_was_carved_again_takes_over_the_holds_of_the_one_before() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.give("b");
    rig.del("b");
    rig.event(gone(0));
    rig.event(Event::BlockSeen(SeenBlock { uid: "again".into(), ..block("default", 0) }));
    assert_eq!(rig.give("a"), "10.0.7.0");
    assert_eq!(rig.give("c"), "10.0.7.2", "a holds the first, and the second cools");
    rig.pass(Duration::from_secs(31));
    assert_eq!(rig.node.blocks().len(), 1, "nothing is left in the old one");
    let del = rig.del("a");
    assert!(rig.removed(del));
    // And it is so after a restart.
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(SeenBlock { uid: "again".into(), ..block("default", 0) }));
    again.event(Event::ApiRead);
    assert_eq!(again.give("d"), "10.0.7.3");
    assert_eq!(again.node.holds().len(), 2);
}

#[test]
fn invariant_1_two_blocks_with_the_same_addresses_are_not_both_used() {
    let mut rig = Rig::with_blocks([0]);
    rig.event(Event::PoolChanged { name: "other".into(), facts: facts() });
    let subnet = Subnet::single("10.0.7.0/28".parse().unwrap());
    rig.event(Event::BlockSeen(SeenBlock { subnet, ..block("other", 0) }));
    assert!(matches!(&rig.reports[..], [.., Report::Overlap { .. }]), "{:?}", rig.reports);
    rig.give("a");
    let waiting = rig.add_of(attach("b", "other"));
    assert!(rig.is_open(waiting));
    // When the first goes away, the second may be used; but not what is held.
    rig.event(gone(0));
    rig.event(Event::Tick);
    assert_eq!(rig.address(waiting), "10.0.7.1");
}

#[test]
fn reserved_blocks_are_never_used_but_routed() {
    let mut rig = Rig::with_blocks([]);
    rig.event(Event::BlockSeen(SeenBlock { reserved: true, ..block("default", 0) }));
    let waiting = rig.add("a");
    assert!(rig.is_open(waiting));
    assert_eq!(rig.exported.len(), 1);
    rig.pass(Duration::from_hours(1));
    assert_eq!(rig.returned, []);
    let waiting = rig.add("a");
    rig.event(Event::BlockSeen(block("default", 0)));
    assert_eq!(rig.address(waiting), "10.0.7.0", "until the label is taken off");
}

#[test]
fn a_block_whose_object_is_being_deleted_drains() {
    let mut rig = Rig::with_blocks([0, 1]);
    rig.give("a");
    rig.event(Event::BlockSeen(SeenBlock { deleting: true, ..block("default", 0) }));
    assert_eq!(rig.give("b"), "10.0.7.8");
    assert_eq!(rig.returned, []);
    assert_eq!(rig.exported.len(), 2, "its pods are still reached");
    rig.del("a");
    rig.pass(Duration::from_secs(31));
    assert_eq!(rig.returned, [("default-0".to_owned(), "default-0-uid".to_owned())]);
}

#[test]
fn nothing_is_handed_out_of_a_block_that_is_to_be_released_before_the_mark_is_gone() {
    let mut rig = Rig::with_blocks([0]);
    assert_eq!(rig.give("a"), "10.0.7.0");
    let marked = SeenBlock { releasing: true, ..block("default", 0) };
    rig.event(Event::BlockSeen(marked.clone()));
    assert_eq!(rig.kept, ["default-0"], "it objects at once");
    assert_eq!(rig.exported.len(), 1, "its pods are still reached");
    assert_eq!(rig.asked.len(), 0, "no other block is needed");
    let waiting = rig.add("b");
    assert!(rig.is_open(waiting));
    rig.event(Event::BlockSeen(marked));
    assert_eq!(rig.kept.len(), 1, "once is enough while the answer is on its way");
    let patience = rig.node.settings.return_patience;
    rig.pass(patience);
    assert_eq!(rig.kept.len(), 2, "and again if there is none");
    let waiting = rig.add("b");
    rig.event(Event::BlockSeen(block("default", 0)));
    assert_eq!(rig.address(waiting), "10.0.7.1");
}

#[test]
fn a_block_that_was_marked_before_a_restart_is_kept_and_one_that_was_released_is_fenced() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.event(Event::BlockSeen(SeenBlock { releasing: true, ..block("default", 0) }));
    rig.event(Event::BlockGone { name: "default-0".into(), uid: "default-0-uid".into() });
    let waiting = rig.add("b");
    assert!(rig.is_open(waiting), "the release was first: nothing is handed out of it any more");
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(SeenBlock { releasing: true, ..block("default", 1) }));
    again.event(Event::ApiRead);
    assert_eq!(again.kept, ["default-1"]);
    let waiting = again.add("c");
    assert!(again.is_open(waiting));
    again.event(Event::BlockSeen(block("default", 1)));
    assert_eq!(again.address(waiting), "10.0.7.8");
}
