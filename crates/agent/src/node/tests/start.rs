//! What a start finds, and what it makes of it.

use std::time::Duration;

use super::rig::*;
use crate::journal::{Image, Record};
use crate::node::{Action, Event, Fence, Found, Look, PoolFacts, Report, SeenBlock, Settings};

fn found(container: &str, addresses: &[&str]) -> Found {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Found { key: key(container), pod: pod(container), addresses }
}

#[test]
fn invariant_3_nothing_is_handed_out_before_journal_kernel_and_api_are_read() {
    let reads = || {
        [
            ("its journal", Event::Journal(Image::default())),
            ("the kernel's links", Event::Kernel(Vec::new())),
            ("its pools and blocks from the API server", Event::ApiRead),
        ]
    };
    for missing in 0..3 {
        let mut rig = Rig::started(Settings::new(NODE));
        rig.event(Event::PoolChanged { name: "default".into(), facts: facts() });
        rig.event(Event::BlockSeen(block("default", 0)));
        let mut reads = Vec::from(reads());
        let (name, last) = reads.remove(missing);
        for (_, event) in reads {
            rig.event(event);
        }
        let early = rig.add("a");
        assert_eq!(rig.failure(early).code, 11);
        assert!(rig.failure(early).message.contains(name), "{}", rig.failure(early));
        assert_eq!(rig.status().unwrap_err().code, 50);
        rig.event(Event::Tick);
        assert!(rig.jobs.is_empty() && rig.records.is_empty() && rig.exported.is_empty());
        rig.event(last);
        assert_eq!(rig.status(), Ok(()));
        rig.give("a");
    }
}

#[test]
fn invariant_3_what_the_journal_and_the_kernel_know_is_not_handed_out_again() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.give("b");
    // c was wired, and the agent died before its record was written.
    let mut again = rig.restarted(vec![found("a", &["10.0.7.0"]), found("c", &["10.0.7.2"])]);
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::ApiRead);
    assert_eq!(again.give("a"), "10.0.7.0");
    assert_eq!(again.give("b"), "10.0.7.1", "it has no interface any more, but its hold was not released");
    assert_eq!(again.give("c"), "10.0.7.2");
    assert_eq!(again.give("d"), "10.0.7.3");
    let kept: Vec<String> =
        again.repaired.iter().map(|(key, addresses)| format!("{key} {addresses}")).collect();
    assert_eq!(kept.len(), 3, "{kept:?}");
    assert!(again.records.iter().any(|record| matches!(record, Record::Held(held) if held.key == key("c"))));
}

#[test]
fn a_lost_journal_is_rebuilt_from_kernel_and_api() {
    let mut rig = Rig::started(Settings::new(NODE));
    rig.event(Event::PoolChanged { name: "default".into(), facts: facts() });
    rig.event(Event::BlockSeen(block("default", 0)));
    rig.read(Image::default(), vec![found("a", &["10.0.7.0"]), found("b", &["10.0.7.1"])]);
    assert_eq!(rig.give("c"), "10.0.7.2");
    let del = rig.del("a");
    assert!(rig.removed(del));
    assert_eq!(rig.node.holds().len(), 2);
}

#[test]
fn after_a_reboot_all_is_free_and_nothing_leaks() {
    let mut rig = Rig::with_blocks([0, 1]);
    assert_eq!(rig.node.holds(), []);
    assert_eq!(rig.node.pools()[0].counts.free, 16);
    rig.pass(Duration::from_mins(6));
    assert_eq!(rig.returned.len(), 1, "of two empty blocks one goes back");
}

#[test]
fn invariant_6_cooling_and_the_order_of_addresses_survive_a_restart() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.give("b");
    rig.del("a");
    rig.del("b");
    rig.pass(Duration::from_secs(10));
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::ApiRead);
    assert_eq!(again.node.pools()[0].counts.cooling, 2);
    assert_eq!(again.give("c"), "10.0.7.2", "the next after the last, and not one that cools");
    // What passed between the last record and the start does not count: the clock may have been set meanwhile.
    again.pass(Duration::from_secs(29));
    assert_eq!(again.node.pools()[0].counts.cooling, 2);
    again.pass(Duration::from_secs(1));
    assert_eq!(again.node.pools()[0].counts.cooling, 0);
}

/// The journal forgets what has cooled, but for the youngest hold of a block.
#[test]
fn invariant_4_the_numbers_of_holds_grow_over_restarts_also_when_nothing_is_held_or_cools() {
    let mut rig = Rig::with_blocks([0]);
    let mut last = None;
    for turn in 0..5 {
        rig.give("a");
        let given = rig.records.iter().rev().find_map(|record| match record {
            Record::Held(held) => Some(held.sequence),
            _ => None,
        });
        assert!(given > last, "{given:?} was given after {last:?} in turn {turn}");
        last = given;
        rig.del("a");
        rig.pass(Duration::from_mins(1));
        // A later record, so that the journal knows that the address has cooled.
        rig.give("b");
        rig.del("b");
        let mut image = Image::default();
        rig.records.iter().cloned().for_each(|record| image.apply(record));
        image.prune();
        rig.records = image.records().collect();
        let mut again = rig.restarted(Vec::new());
        again.event(Event::BlockSeen(block("default", 0)));
        again.event(Event::ApiRead);
        again.records.splice(0..0, rig.records);
        rig = again;
    }
}

/// What is left to cool is written down at a start. A crash may leave any part of that.
#[test]
fn invariant_6_cooling_survives_a_start_that_was_cut_short() {
    let mut rig = Rig::with_blocks([0]);
    for container in ["a", "b"] {
        rig.give(container);
    }
    for container in ["a", "b"] {
        rig.del(container);
        rig.pass(Duration::from_secs(10));
    }
    rig.now = rig.now.plus(Duration::from_hours(1));
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::ApiRead);
    again.give("c");
    let before = rig.records.len();
    rig.records.append(&mut again.records);
    for end in before..=rig.records.len() {
        let mut cut = Rig::with_blocks([]);
        cut.records = rig.records[..end].to_vec();
        cut.now = again.now;
        let mut later = cut.restarted(Vec::new());
        later.event(Event::BlockSeen(block("default", 0)));
        later.event(Event::ApiRead);
        assert_eq!(later.node.pools()[0].counts.cooling, 2, "after {end} records");
        later.pass(Duration::from_secs(30));
        assert_eq!(later.node.pools()[0].counts.cooling, 0, "after {end} records");
    }
}

#[test]
fn a_block_that_went_away_while_the_agent_was_down_is_fenced_and_its_holds_are_reported() {
    let mut rig = Rig::with_blocks([0, 1]);
    rig.give("a");
    for now_owned_by in [None, Some("node-2")] {
        let mut again = rig.restarted(vec![found("a", &["10.0.7.0"])]);
        if let Some(node) = now_owned_by {
            again.event(Event::BlockSeen(SeenBlock { node: node.into(), ..block("default", 0) }));
        }
        again.event(Event::BlockSeen(block("default", 1)));
        again.event(Event::ApiRead);
        let fence = now_owned_by.map_or(Fence::Gone, |node| Fence::OtherNode(node.into()));
        let reported = again.reports.iter().find_map(|report| match report {
            Report::Fenced { fence, holds, .. } => Some((fence.clone(), holds.len())),
            _ => None,
        });
        assert_eq!(reported, Some((fence, 1)));
        assert_eq!(again.give("b"), "10.0.7.8");
        assert_eq!(again.exported, ["10.0.7.8/29".parse().unwrap()].into());
        let del = again.del("a");
        assert!(again.removed(del));
        assert_eq!(again.returned, [], "what is not ours is not given back");
    }
}

#[test]
fn links_with_addresses_of_nobody_here_are_reported_and_kept_until_they_are_released() {
    let mut rig = Rig::started(Settings::new(NODE));
    rig.event(Event::PoolChanged { name: "default".into(), facts: facts() });
    rig.event(Event::BlockSeen(block("default", 0)));
    rig.read(
        Image::default(),
        vec![found("a", &["10.0.7.8"]), found("b", &["10.0.7.1"]), found("c", &["10.0.7.1"])],
    );
    let strays = rig.reports.iter().filter(|report| matches!(report, Report::Stray { .. })).count();
    assert_eq!(strays, 2, "one of no block, one with another's address");
    // The block of the first comes: its address is held from the start.
    rig.event(Event::BlockSeen(block("default", 1)));
    let given: Vec<String> = (0..14).map(|n| rig.give(&format!("n{n}"))).collect();
    assert!(!given.contains(&"10.0.7.8".to_owned()) && !given.contains(&"10.0.7.1".to_owned()), "{given:?}");
    // When b goes, c still has the address.
    for container in ["n0", "b"] {
        rig.del(container);
    }
    rig.pass(Duration::from_mins(1));
    assert_ne!(rig.give("x"), "10.0.7.1");
    rig.del("c");
    assert_eq!(rig.node.pools()[0].counts.cooling, 1, "and when c goes it cools first");
}

/// It was removed when it was seen first.
#[test]
fn a_link_that_the_journal_does_not_know_goes_after_two_looks_and_not_at_a_start() {
    let mut rig = Rig::started(Settings::new(NODE));
    rig.prompt = false;
    rig.read(Image::default(), vec![found("a", &[])]);
    assert_eq!((rig.jobs.len(), rig.node.holds().len()), (0, 0), "seen once");
    for removed in [0, 1] {
        rig.pass(Duration::from_secs(30));
        let Some(Action::Look { job, .. }) = rig.looks.pop() else { panic!("no look") };
        let look = Look { links: vec![found("a", &[])], ..Look::default() };
        rig.event(Event::Looked { job, look });
        assert_eq!(rig.jobs.len(), removed, "an ADD that was under way may go on");
    }
    rig.obey();
    assert!(rig.node.holds().is_empty() && rig.node.is_idle());
}

#[test]
fn where_journal_and_kernel_disagree_about_a_pod_the_kernel_is_right() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    let mut again = rig.restarted(vec![found("a", &["10.0.7.4"])]);
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::ApiRead);
    assert_eq!(again.give("a"), "10.0.7.4");
    assert_eq!(again.node.holds().len(), 1);
}

#[test]
fn a_block_that_was_being_given_back_when_the_agent_died_is_not_used_again() {
    let mut rig = Rig::with_blocks([0, 1]);
    rig.pass(Duration::from_mins(6));
    let (name, _) = rig.returned[0].clone();
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::BlockSeen(block("default", 1)));
    again.event(Event::ApiRead);
    assert_eq!(again.returned.iter().map(|(name, _)| name).collect::<Vec<_>>(), [&name]);
    let given = again.give("a");
    assert_eq!(given, if name == "default-0" { "10.0.7.8" } else { "10.0.7.0" });
}

#[test]
fn a_journal_that_lost_the_word_about_a_block_keeps_its_holds() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.records.retain(|record| !matches!(record, Record::Owned(_)));
    let mut with_block = rig.restarted(Vec::new());
    with_block.event(Event::BlockSeen(block("default", 0)));
    with_block.event(Event::ApiRead);
    assert_eq!(with_block.give("a"), "10.0.7.0");
    let mut without = rig.restarted(Vec::new());
    without.event(Event::ApiRead);
    assert!(matches!(without.reports[0], Report::Stray { .. }), "{:?}", without.reports);
    assert_eq!(without.node.holds().len(), 1);
}

#[test]
fn a_block_that_the_journal_lost_and_the_api_told_of_is_known_to_the_next_start() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.del("a");
    rig.records.retain(|record| !matches!(record, Record::Owned(_)));
    let mut told = rig.restarted(Vec::new());
    told.event(Event::BlockSeen(block("default", 0)));
    told.event(Event::ApiRead);
    rig.records.append(&mut told.records);
    let mut again = rig.restarted(Vec::new());
    again.event(Event::ApiRead);
    again.event(Event::BlockSeen(SeenBlock { uid: "next".into(), ..block("default", 0) }));
    assert_eq!(again.node.pools()[0].counts.cooling, 1, "it cools in the block that came instead");
}

#[test]
fn pools_that_changed_while_the_agent_was_down_apply() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.del("a");
    let mut again = Rig::started(Settings::new(NODE));
    again.now = rig.now;
    let cooling = Some(Duration::from_secs(1));
    again.event(Event::PoolChanged { name: "default".into(), facts: PoolFacts { cooling, ..facts() } });
    again.event(Event::BlockSeen(block("default", 0)));
    let mut image = Image::default();
    rig.records.iter().cloned().for_each(|record| image.apply(record));
    again.read(image, Vec::new());
    again.pass(Duration::from_secs(2));
    assert_eq!(again.node.pools()[0].counts.cooling, 0);
}
