//! Looking at a node.

use std::time::Duration;

use super::rig::*;
use crate::node::view::Who;
use crate::node::{Event, Fence};

#[test]
fn who_has_an_address_and_who_had_it() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    let since = rig.now;
    rig.pass(Duration::from_secs(5));
    let who = |rig: &Rig, address: &str| rig.node.who(address.parse().unwrap());
    let Who::Held(held) = who(&rig, "10.0.7.0") else { panic!() };
    assert_eq!((held.pod, held.block.as_deref(), held.since), (pod("a"), Some("default-0"), since));
    rig.del("a");
    let until = rig.now.plus(Duration::from_secs(30));
    let last = Some((key("a"), pod("a")));
    assert_eq!(who(&rig, "10.0.7.0"), Who::Cooling { block: "default-0".into(), last: last.clone(), until });
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::ApiRead);
    assert_eq!(who(&again, "10.0.7.0"), Who::Cooling { block: "default-0".into(), last, until });
    again.pass(Duration::from_secs(31));
    assert_eq!(who(&again, "10.0.7.0"), Who::Free { block: "default-0".into() });
    assert_eq!(who(&again, "10.0.9.0"), Who::NotHere);
    again.event(Event::BlockSeen(crate::node::SeenBlock { reserved: true, ..block("default", 0) }));
    assert_eq!(who(&again, "10.0.7.0"), Who::KeptBack { block: "default-0".into() });
}

#[test]
fn lists_say_what_is_where() {
    let mut rig = Rig::with_blocks([1, 0]);
    rig.give("b");
    rig.give("a");
    let names: Vec<String> = rig.node.blocks().into_iter().map(|block| block.name).collect();
    assert_eq!(names, ["default-0", "default-1"]);
    let holds: Vec<String> = rig.node.holds().iter().map(|hold| hold.key.container().to_owned()).collect();
    assert_eq!(holds, ["a", "b"]);
    rig.event(Event::BlockGone { name: "default-0".into(), uid: "default-0-uid".into() });
    assert_eq!(rig.node.blocks()[0].fence, Some(Fence::Gone));
    let pool = &rig.node.pools()[0];
    assert_eq!((pool.blocks, pool.counts.held, pool.counts.free), (1, 0, 8));
}

#[test]
fn what_cools_who_waits_and_how_far_the_journal_is_can_be_seen() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    assert_eq!((rig.node.hold_count(), rig.node.holds()[0].settled), (1, true));
    rig.del("a");
    let cooling = rig.node.what_cools();
    let until = rig.now.plus(Duration::from_secs(30));
    assert_eq!(cooling.len(), 1);
    assert_eq!((&cooling[0].block[..], cooling[0].until), ("default-0", until));
    assert_eq!(cooling[0].addresses.to_string(), "10.0.7.0");
    assert_eq!(cooling[0].last, Some((key("a"), pod("a"))));
    let journal = rig.node.journal();
    assert_eq!((journal.committed, journal.broken), (journal.records, false));
    assert!(journal.records >= 2, "{journal:?}");
    rig.event(Event::JournalFailed { message: "disk full".into() });
    assert!(rig.node.journal().broken);
}

#[test]
fn who_waits_is_seen_since_when() {
    let mut rig = Rig::with_blocks([]);
    rig.add("b");
    let since = rig.now;
    rig.pass(Duration::from_secs(1));
    rig.add("a");
    let waiting = rig.node.waiting();
    let seen: Vec<_> = waiting.iter().map(|it| (it.key.container(), it.pool.as_str())).collect();
    assert_eq!((seen, waiting[0].since), (vec![("b", "default"), ("a", "default")], since));
    assert_eq!(rig.node.hold_count(), 0);
}

#[test]
fn status_wants_a_pool_and_one_of_several_is_enough() {
    let mut rig = Rig::started(crate::node::Settings::new(NODE));
    rig.read(crate::journal::Image::default(), Vec::new());
    let failure = rig.status().unwrap_err();
    assert_eq!(failure.code, 50);
    assert!(failure.details.contains("default"), "{failure}");
    rig.event(Event::PoolChanged { name: "default".into(), facts: facts() });
    assert_eq!(rig.status(), Ok(()));
    rig.add("a");
    rig.refuse(exhausted());
    assert!(rig.status().unwrap_err().message.contains("all 4 blocks are carved"));
    rig.event(Event::PoolChanged { name: "other".into(), facts: facts() });
    assert_eq!(rig.status(), Ok(()));
}
