//! Blocks that are kept for one pod, and pools that say how many addresses to keep ready.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ipam::Subnet;

use super::rig::{NODE, Rig, attach, block, exhausted, facts};
use crate::journal::Image;
use crate::key::Pod;
use crate::node::{Attach, Event, PoolFacts, SeenBlock, Settings, Ticket, Wish};

const SOURCE: &str = "what another source has";
const MINUTE: Duration = Duration::from_mins(1);

/// A block of one address, kept for a pod if one is named.
fn one(index: u8, pod: Option<&str>) -> SeenBlock {
    let subnet = Subnet::single(format!("10.0.7.{index}/32").parse().unwrap());
    SeenBlock { subnet, pod: pod.map(str::to_owned), ..block("default", index) }
}

fn of_pod(uid: &str) -> Attach {
    let attach = attach(uid, "default");
    Attach { pod: Pod { uid: uid.to_owned(), ..attach.pod.clone() }, ..attach }
}

fn naming(uid: &str, index: u8) -> Attach {
    let only = vec![format!("10.0.7.{index}").parse().unwrap()];
    Attach { wish: Wish { only, kept_for_pod: true, ..Wish::default() }, ..of_pod(uid) }
}

fn pool(warm: u32) -> Event {
    let facts = PoolFacts { block_bits: 0, warm: Some(warm), unexported: true, ..facts() };
    Event::PoolChanged { name: "default".into(), facts }
}

fn rig(warm: u32, blocks: impl IntoIterator<Item = SeenBlock>) -> Rig {
    let mut rig = Rig::started(Settings::new(NODE));
    rig.event(pool(warm));
    blocks.into_iter().for_each(|block| rig.event(Event::BlockSeen(block)));
    rig.read(Image::default(), Vec::new());
    rig
}

/// Answers all requests with blocks of one address.
fn grant(rig: &mut Rig, indexes: impl IntoIterator<Item = u8>) {
    for index in indexes {
        let (ask, _) = rig.asked.remove(0);
        rig.event(Event::BlockSeen(one(index, None)));
        rig.event(Event::BlockGranted { ask, block: format!("default-{index}") });
    }
}

fn add(rig: &mut Rig, attach: Attach) -> Ticket {
    rig.add_of(attach)
}

#[test]
fn what_is_kept_for_a_pod_is_for_that_pod_alone_wherever_it_waits() {
    let mut rig = rig(0, []);
    let first = add(&mut rig, of_pod("other"));
    let second = add(&mut rig, of_pod("mover"));
    rig.event(Event::BlockSeen(one(5, Some("mover"))));
    assert_eq!(rig.address(second), "10.0.7.5", "it is not the first that waits");
    assert!(rig.is_open(first));
    grant(&mut rig, [6]);
    assert_eq!(rig.address(first), "10.0.7.6");
}

#[test]
fn a_pod_that_names_an_address_gets_no_other_and_not_that_one_unless_it_is_kept_for_it() {
    let mut rig = rig(0, [one(4, None), one(5, None)]);
    let named = add(&mut rig, naming("mover", 5));
    assert!(rig.is_open(named), "it is free, and not kept for the pod");
    assert_eq!(rig.asked.len(), 0, "no block is requested for it");
    rig.event(Event::BlockSeen(one(5, Some("another"))));
    assert!(rig.is_open(named));
    rig.event(Event::BlockSeen(one(5, Some("mover"))));
    assert_eq!(rig.address(named), "10.0.7.5");
}

#[test]
fn a_refusal_is_not_about_pods_that_wait_for_their_own() {
    let mut rig = rig(0, []);
    let named = add(&mut rig, naming("mover", 5));
    let other = add(&mut rig, of_pod("other"));
    rig.refuse(exhausted());
    assert_eq!(rig.failure(other).code, 11);
    assert!(rig.is_open(named));
    rig.pass(Duration::from_secs(11));
    assert_eq!(rig.failure(named).code, 11);
}

#[test]
fn the_address_of_a_pod_that_ended_stays_its_own_also_while_it_cools() {
    let mut rig = rig(0, [one(5, None)]);
    let given = add(&mut rig, of_pod("mover"));
    assert_eq!(rig.address(given), "10.0.7.5");
    rig.event(Event::BlockSeen(one(5, Some("mover"))));
    rig.del("mover");
    let other = add(&mut rig, of_pod("other"));
    rig.pass(MINUTE);
    assert_eq!(rig.failure(other).code, 11, "it got nothing, cooled or not");
    rig.pass(10 * MINUTE);
    assert_eq!(rig.returned, [], "it is not this node's to return");
    let again = add(&mut rig, of_pod("mover"));
    assert_eq!(rig.address(again), "10.0.7.5");
    rig.del("mover");
    let again = add(&mut rig, of_pod("mover"));
    assert_eq!(rig.address(again), "10.0.7.5", "cooling protects only from others");
    rig.del("mover");
    rig.event(Event::BlockSeen(one(5, None)));
    rig.pass(6 * MINUTE);
    assert_eq!(rig.returned.len(), 1, "nothing is kept any more");
}

#[test]
fn a_restart_keeps_what_is_kept_because_the_source_says_it_again() {
    let mut rig = rig(0, [one(5, None)]);
    add(&mut rig, of_pod("mover"));
    rig.event(Event::BlockSeen(one(5, Some("mover"))));
    rig.del("mover");
    let mut again = rig.restarted(Vec::new());
    again.event(pool(0));
    again.event(Event::BlockSeen(one(5, Some("mover"))));
    again.event(Event::ApiRead);
    let other = add(&mut again, of_pod("other"));
    assert!(again.is_open(other));
    let mover = add(&mut again, naming("mover", 5));
    assert_eq!(again.address(mover), "10.0.7.5");
}

#[test]
fn a_warm_pool_is_stocked_before_the_first_pod_and_stays_so() {
    let mut rig = rig(4, []);
    assert_eq!(rig.asked.len(), 4);
    grant(&mut rig, 0..4);
    assert_eq!(rig.asked.len(), 0);
    assert!(rig.exported.is_empty(), "packets arrive without an export");
    let given = add(&mut rig, of_pod("a"));
    rig.address(given);
    assert_eq!(rig.asked.len(), 1);
    grant(&mut rig, [4]);
    rig.pass(20 * MINUTE);
    assert_eq!((rig.asked.len(), rig.returned.len()), (0, 0), "nothing goes back and forth");
}

#[test]
fn spare_blocks_above_twice_the_warm_ones_go_back_after_the_rest_and_no_more() {
    for (warm, kept) in [(4, 8), (0, 0)] {
        let mut rig = rig(warm, []);
        let adds: Vec<Ticket> = (0..12).map(|n| add(&mut rig, of_pod(&format!("c{n}")))).collect();
        let asked = u8::try_from(rig.asked.len()).unwrap();
        assert_eq!(u32::from(asked), 12 + warm);
        grant(&mut rig, 0..asked);
        assert!(adds.into_iter().all(|add| !rig.is_open(add)));
        for n in 0..12 {
            rig.del(&format!("c{n}"));
        }
        rig.pass(4 * MINUTE);
        assert_eq!(rig.returned.len(), 0);
        rig.pass(2 * MINUTE);
        assert_eq!(rig.returned.len(), usize::from(asked) - kept, "{warm} are kept ready");
        assert_eq!(rig.asked.len(), 0);
    }
}

#[test]
fn what_a_hundred_pods_lack_is_requested_at_once() {
    let mut rig = rig(8, []);
    for n in 0..100 {
        add(&mut rig, of_pod(&format!("c{n}")));
    }
    assert_eq!(rig.asked.len(), 108);
}

#[test]
fn nothing_is_served_before_every_source_is_read() {
    let mut rig = Rig::started(Settings { sources: vec![SOURCE], ..Settings::new(NODE) });
    rig.event(pool(0));
    rig.read(Image::default(), Vec::new());
    let early = add(&mut rig, of_pod("a"));
    assert!(rig.failure(early).to_string().contains("what another source has"));
    rig.event(Event::BlockSeen(one(5, None)));
    rig.event(Event::SourceRead { source: SOURCE });
    let given = add(&mut rig, of_pod("a"));
    assert_eq!(rig.address(given), "10.0.7.5");
}

fn expect(rig: &mut Rig, pods: &[&str]) {
    let pods = pods.iter().map(|uid| (*uid).to_owned()).collect();
    rig.event(Event::PodsExpected { pool: "default".into(), pods });
}

#[test]
fn addresses_of_pods_that_are_on_their_way_are_requested_at_once_and_only_once() {
    let mut rig = rig(1, []);
    assert_eq!(rig.asked.len(), 1, "what the pool wants ready");
    let names: Vec<String> = (0..30).map(|number| format!("pod-{number}")).collect();
    let pods: Vec<&str> = names.iter().map(String::as_str).collect();
    expect(&mut rig, &pods);
    assert_eq!(rig.asked.len(), 31, "all of them before the first ADD");
    let first = add(&mut rig, of_pod("pod-0"));
    assert_eq!(rig.asked.len(), 31, "it was expected");
    grant(&mut rig, 0..31);
    assert_eq!(rig.address(first), "10.0.7.0");
    for pod in &pods[1..] {
        let added = add(&mut rig, of_pod(pod));
        assert!(!rig.is_open(added), "{pod} did not wait");
    }
    expect(&mut rig, &[]);
    assert_eq!(rig.asked.len(), 0, "one is left, as the pool wants");
}

#[test]
fn what_expected_pods_need_is_not_returned_and_what_they_do_not_take_is() {
    let mut rig = rig(0, (1..=3).map(|index| one(index, None)));
    // A return that is not answered is repeated.
    let returned = |rig: &Rig| rig.returned.iter().collect::<BTreeSet<_>>().len();
    expect(&mut rig, &["slow", "slower"]);
    rig.pass(30 * MINUTE);
    assert_eq!(returned(&rig), 1, "{:?}", rig.returned);
    expect(&mut rig, &[]);
    rig.pass(30 * MINUTE);
    assert_eq!(returned(&rig), 3, "{:?}", rig.returned);
}
