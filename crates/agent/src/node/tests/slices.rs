//! Slices of ranges.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenure_ipam::{Address, Cidr, Exclusion, Range, Subnet, Usable};

use super::rig::{NODE, Rig, block};
use crate::journal::{Image, Record};
use crate::key::{HoldKey, Pod};
use crate::node::{
    Attach, Done, Event, Fence, PoolFacts, Recorded, Report, SeenBlock, SeenSlice, Settings, Ticket, Wish,
};

const SOURCE: &str = "its slices";
const POOL: &str = "slices-of-net";

fn facts() -> PoolFacts {
    PoolFacts { block_bits: 3, sliced: true, ..PoolFacts::default() }
}

fn pod(container: &str) -> Pod {
    Pod { uid: format!("uid-{container}"), ..super::rig::pod(container) }
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

/// The slice 10.9.0.0/29 of `net`, given for the `times`th time.
pub(super) fn slice(times: u32) -> SeenSlice {
    slice_of("net", "10.9.0.0/29", times)
}

fn slice_of(network: &str, range: &str, times: u32) -> SeenSlice {
    let block = SeenBlock {
        name: format!("{network}-{NODE}-{}", range.replace('/', "-")),
        uid: format!("{network}.{times}/{range}"),
        node: NODE.into(),
        pool: format!("slices-of-{network}"),
        subnet: Subnet::single(cidr(range)),
        reserved: false,
        deleting: false,
        releasing: false,
        draining: false,
        pod: None,
    };
    SeenSlice { block, realm: format!("whereabouts/{network}"), records: Vec::new() }
}

pub(super) fn record(container: &str, last: u8) -> Recorded {
    Recorded {
        address: address(&format!("10.9.0.{last}")),
        container: container.into(),
        interface: "net1".into(),
        pod: pod(container),
    }
}

fn key(container: &str) -> HoldKey {
    HoldKey::new("conf", container, "net1").unwrap()
}

/// Without edges, lowest first: as Whereabouts has it.
fn wish(range: &str) -> Wish {
    Wish {
        within: Some(Range::new(cidr(range), Usable::WithoutEdges).unwrap()),
        lowest: true,
        ..Wish::default()
    }
}

fn attach(container: &str) -> Attach {
    Attach {
        key: key(container),
        pool: POOL.into(),
        pod: pod(container),
        netns: format!("/run/netns/{container}"),
        wiring: None,
        wish: wish("10.9.0.0/29"),
        claim_use: None,
    }
}

fn settings() -> Settings {
    Settings { sources: vec![SOURCE], ..Settings::new(NODE) }
}

pub(super) fn started(journal: Image, slices: impl IntoIterator<Item = SeenSlice>) -> Rig {
    let mut rig = Rig::started(settings());
    rig.event(Event::PoolChanged { name: POOL.into(), facts: facts() });
    for slice in slices {
        rig.event(Event::SliceSeen(slice));
    }
    rig.read(journal, Vec::new());
    rig.event(Event::SourceRead { source: SOURCE });
    rig
}

fn ready() -> Rig {
    started(Image::default(), [slice(1)])
}

pub(super) fn give(rig: &mut Rig, container: &str) -> String {
    let ticket = rig.add_of(attach(container));
    rig.address(ticket)
}

pub(super) fn detach(rig: &mut Rig, container: &str) -> Ticket {
    let ticket = rig.ticket();
    rig.event(Event::Detach { ticket, key: key(container) });
    ticket
}

fn image(rig: &Rig) -> Image {
    let mut image = Image::default();
    rig.records.iter().cloned().for_each(|record| image.apply(record));
    image
}

fn held(rig: &Rig) -> Vec<String> {
    let slices = rig.node.slices();
    slices
        .iter()
        .flat_map(|slice| &slice.holds)
        .map(|hold| format!("{} {}", hold.address, hold.container()))
        .collect()
}

#[test]
fn the_lowest_free_address_is_given_without_edges_and_cooling_gives_way_oldest_first() {
    let mut rig = ready();
    let given: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(|it| give(&mut rig, it)).to_vec();
    assert_eq!(given, (1..=6).map(|last| format!("10.9.0.{last}")).collect::<Vec<_>>());
    for container in ["d", "b"] {
        detach(&mut rig, container);
        rig.pass(std::time::Duration::from_secs(1));
    }
    assert_eq!(give(&mut rig, "g"), "10.9.0.4", "nothing else is left");
    assert_eq!(give(&mut rig, "h"), "10.9.0.2");
    detach(&mut rig, "h");
    rig.pass(std::time::Duration::from_secs(31));
    detach(&mut rig, "f");
    assert_eq!(give(&mut rig, "i"), "10.9.0.2", "which has cooled, and 10.9.0.6 has not");
}

#[test]
fn a_full_slice_refuses_at_once_and_says_what_to_do_and_asks_nobody_for_blocks() {
    let mut rig = ready();
    for container in ["a", "b", "c", "d", "e", "f"] {
        give(&mut rig, container);
    }
    let one_too_many = rig.add_of(attach("g"));
    let failure = rig.failure(one_too_many);
    for part in ["\"slices-of-net\"", "none of the 6 addresses 10.9.0.1 to 10.9.0.6 is free", "shop/pod-g"] {
        assert!(failure.message.contains(part), "{failure:?}");
    }
    assert!(failure.details.contains("node_slice_size"), "{failure:?}");
    assert_eq!((rig.asked.len(), rig.exported.len()), (0, 0));
    for container in ["a", "b", "c", "d", "e", "f"] {
        detach(&mut rig, container);
    }
    rig.pass(std::time::Duration::from_hours(1));
    rig.pass(std::time::Duration::from_hours(1));
    assert_eq!(rig.returned, [], "a slice is not given back");
    assert_eq!(rig.node.blocks().len(), 1);
    assert!(rig.node.next_wake().is_none_or(|at| at > rig.now));
}

#[test]
fn wishes_are_heeded_and_who_has_other_wishes_does_not_stand_in_the_way() {
    let mut rig = ready();
    let only = Wish { only: vec![address("10.9.0.5"), address("10.9.0.3")], ..wish("10.9.0.0/29") };
    let preferred = Wish { preferred: Some(address("10.9.0.4")), ..wish("10.9.0.0/29") };
    let of = |container: &str, wish: &Wish| Attach { wish: wish.clone(), ..attach(container) };
    let add = |rig: &mut Rig, attach| {
        let ticket = rig.add_of(attach);
        rig.address(ticket)
    };
    assert_eq!(add(&mut rig, of("a", &only)), "10.9.0.5");
    assert_eq!(add(&mut rig, of("b", &preferred)), "10.9.0.4");
    assert_eq!(add(&mut rig, of("c", &only)), "10.9.0.3");
    let none_left = rig.add_of(of("d", &only));
    assert!(rig.failure(none_left).message.contains("none of 10.9.0.5, 10.9.0.3 is free"));
    assert_eq!(add(&mut rig, of("e", &preferred)), "10.9.0.1", "a wish gives way to the lowest free");
    assert_eq!(add(&mut rig, attach("f")), "10.9.0.2");
    // What is held is kept, whatever is wished for later.
    assert_eq!(add(&mut rig, of("f", &only)), "10.9.0.2");
    let excluded = wish("10.9.0.0/29").within.unwrap().without([Exclusion::from(address("10.9.0.6"))]);
    let excluded = Wish { within: Some(excluded), ..Wish::default() };
    let refused = rig.add_of(of("g", &excluded));
    assert!(rig.failure(refused).message.contains("none of the 5 addresses"));
}

#[test]
fn a_preferred_address_that_cools_is_given_again_to_the_pod_that_had_it() {
    let mut rig = ready();
    let preferred = Wish { preferred: Some(address("10.9.0.4")), ..wish("10.9.0.0/29") };
    let asks =
        |container: &str, who: &str| Attach { wish: preferred.clone(), pod: pod(who), ..attach(container) };
    let first = rig.add_of(asks("a", "a"));
    detach(&mut rig, "a");
    let (other, again) = (rig.add_of(asks("b", "b")), rig.add_of(asks("c", "a")));
    let got: Vec<String> = [first, other, again].map(|ticket| rig.address(ticket)).to_vec();
    assert_eq!(got, ["10.9.0.4", "10.9.0.1", "10.9.0.4"]);
}

#[test]
fn parts_of_an_attachment_are_held_beside_each_other_and_end_together() {
    let mut rig = ready();
    let other = slice_of("net6", "fd00::/125", 1);
    rig.event(Event::PoolChanged { name: "slices-of-net6".into(), facts: facts() });
    rig.event(Event::SliceSeen(other));
    let second = |container: &str| Attach {
        key: key(container).part(1),
        pool: "slices-of-net6".into(),
        wish: wish("fd00::/125"),
        ..attach(container)
    };
    for container in ["a", "b"] {
        give(&mut rig, container);
        rig.add_of(second(container));
    }
    assert_eq!(held(&rig), ["10.9.0.1 a", "10.9.0.2 b", "fd00::1 a", "fd00::2 b"]);
    let gone = detach(&mut rig, "a");
    assert_eq!(rig.answers[&gone], Ok(Done::Swept(2)));
    assert_eq!(held(&rig), ["10.9.0.2 b", "fd00::2 b"]);
    let ticket = rig.ticket();
    rig.event(Event::Gc { ticket, network: "conf".into(), alive: BTreeSet::new() });
    assert_eq!(rig.answers[&ticket], Ok(Done::Swept(2)), "a GC sees all parts");
    let nothing = detach(&mut rig, "a");
    assert_eq!(rig.answers[&nothing], Ok(Done::Swept(0)));
}

#[test]
fn a_restart_with_the_journal_knows_better_than_the_records() {
    let mut rig = ready();
    for container in ["a", "b"] {
        give(&mut rig, container);
    }
    detach(&mut rig, "a");
    let records = vec![record("a", 1), record("b", 2), record("x", 5)];
    let again = started(image(&rig), [SeenSlice { records, ..slice(1) }]);
    assert_eq!(held(&again), ["10.9.0.2 b"], "the records are behind");
}

#[test]
fn invariant_3_nothing_is_handed_out_before_slices_are_read_and_their_records_are_held_on() {
    let mut rig = Rig::started(settings());
    rig.event(Event::PoolChanged { name: POOL.into(), facts: facts() });
    rig.event(Event::SliceSeen(SeenSlice { records: vec![record("a", 1), record("b", 3)], ..slice(1) }));
    rig.read(Image::default(), Vec::new());
    let early = rig.add_of(attach("c"));
    assert!(rig.failure(early).message.contains("its slices"));
    rig.event(Event::SourceRead { source: SOURCE });
    assert_eq!(held(&rig), ["10.9.0.1 a", "10.9.0.3 b"]);
    assert_eq!(give(&mut rig, "c"), "10.9.0.2");
    assert_eq!(give(&mut rig, "d"), "10.9.0.4");
}

#[test]
fn what_was_adopted_is_given_again_checked_and_released_by_its_container() {
    let records = vec![record("a", 1), record("b", 3), record("c", 4)];
    let mut rig = started(Image::default(), [SeenSlice { records, ..slice(1) }]);
    assert_eq!(give(&mut rig, "b"), "10.9.0.3", "the same container has its address");
    assert_eq!(give(&mut rig, "b"), "10.9.0.3");
    let ticket = rig.ticket();
    rig.event(Event::Check { ticket, attach: attach("a"), expected: vec![address("10.9.0.1")] });
    assert_eq!(rig.answers[&ticket], Ok(Done::Checked));
    let gone = detach(&mut rig, "a");
    assert_eq!(rig.answers[&gone], Ok(Done::Swept(1)));
    assert_eq!(held(&rig), ["10.9.0.3 b", "10.9.0.4 c"]);
    // It is of the network that asked for it now, also for a GC and after a restart.
    let again = started(image(&rig), [slice(1)]);
    assert_eq!(again.node.holds().iter().filter(|hold| hold.key == key("b")).count(), 1);
    assert_eq!(held(&again), ["10.9.0.3 b", "10.9.0.4 c"]);
}

#[test]
fn a_pod_that_is_added_anew_keeps_its_address_and_the_late_del_of_its_old_container_finds_nothing() {
    let mut rig = ready();
    give(&mut rig, "old");
    let new = Attach { pod: pod("old"), ..attach("new") };
    let ticket = rig.add_of(new);
    assert_eq!(rig.address(ticket), "10.9.0.1");
    let late = detach(&mut rig, "old");
    assert_eq!(rig.answers[&late], Ok(Done::Swept(0)));
    assert_eq!(held(&rig), ["10.9.0.1 new"]);
    let again = started(image(&rig), [slice(1)]);
    assert_eq!(held(&again), ["10.9.0.1 new"]);
}

#[test]
fn a_pod_of_the_same_name_with_another_uid_gets_another_address_and_the_old_one_keeps_its_own() {
    let mut rig = ready();
    give(&mut rig, "old");
    for (container, uid, expected) in [("new", "uid-new", "10.9.0.2"), ("newer", "", "10.9.0.3")] {
        let pod = Pod { uid: uid.into(), ..pod("old") };
        let ticket = rig.add_of(Attach { pod, ..attach(container) });
        assert_eq!(rig.address(ticket), expected);
    }
    assert_eq!(held(&rig), ["10.9.0.1 old", "10.9.0.2 new", "10.9.0.3 newer"]);
    let gone = detach(&mut rig, "old");
    assert_eq!(rig.answers[&gone], Ok(Done::Swept(1)));
    // Nor does a record that names another container and no UID belong to who is called so now.
    let unsaid = Recorded { pod: Pod { uid: String::new(), ..pod("a") }, ..record("b", 1) };
    let mut rig = started(Image::default(), [SeenSlice { records: vec![unsaid], ..slice(1) }]);
    assert_eq!(give(&mut rig, "a"), "10.9.0.2");
}

#[test]
fn a_record_without_an_interface_is_its_pods_whichever_asks_first() {
    let pod = Pod { uid: String::new(), ..pod("a") };
    let old = Recorded { interface: String::new(), container: String::new(), pod, ..record("a", 2) };
    let same = Recorded { address: address("10.9.0.3"), ..old.clone() };
    let mut rig = started(Image::default(), [SeenSlice { records: vec![old, same], ..slice(1) }]);
    assert_eq!(held(&rig), ["10.9.0.2 ", "10.9.0.3 "], "as it was written");
    assert_eq!(give(&mut rig, "a"), "10.9.0.2");
    assert_eq!(held(&rig), ["10.9.0.2 a", "10.9.0.3 "]);
}

#[test]
fn a_slice_that_is_withdrawn_gives_nothing_more_keeps_its_holds_and_gives_again_when_it_comes_back() {
    let mut rig = ready();
    for container in ["a", "b"] {
        give(&mut rig, container);
    }
    rig.event(Event::BlockGone { name: slice(1).block.name, uid: slice(1).block.uid });
    rig.event(Event::PoolGone { name: POOL.into() });
    let fenced = |report: &Report| matches!(report, Report::Fenced { fence: Fence::Gone, holds, .. } if holds.len() == 2);
    assert!(rig.reports.iter().any(fenced));
    let refused = rig.add_of(attach("c"));
    assert!(!rig.failure(refused).message.is_empty());
    assert_eq!(
        rig.node.slices().iter().map(|it| (it.owned, it.holds.len())).collect::<Vec<_>>(),
        [(false, 2)]
    );
    detach(&mut rig, "a");
    rig.event(Event::PoolChanged { name: POOL.into(), facts: facts() });
    // Its records are behind, and nobody asks them.
    let records = vec![record("a", 1), record("b", 2)];
    rig.event(Event::SliceSeen(SeenSlice { records, ..slice(2) }));
    assert_eq!(held(&rig), ["10.9.0.2 b"]);
    assert_eq!(give(&mut rig, "b"), "10.9.0.2");
    assert_eq!(give(&mut rig, "c"), "10.9.0.3", "10.9.0.1 cools");
    rig.pass(std::time::Duration::from_mins(1));
    assert_eq!(rig.node.slices().len(), 1, "nothing is left of the first time");
    let again = started(image(&rig), [slice(2)]);
    assert_eq!(held(&again), ["10.9.0.2 b", "10.9.0.3 c"]);
}

#[test]
fn a_slice_that_was_taken_away_while_the_agent_was_down_is_fenced_and_what_is_held_stays() {
    let mut rig = ready();
    give(&mut rig, "a");
    let again = started(image(&rig), []);
    assert_eq!(
        again.node.slices().iter().map(|it| (it.owned, it.holds.len())).collect::<Vec<_>>(),
        [(false, 1)]
    );
    let given_again = started(image(&rig), [slice(2)]);
    assert_eq!(held(&given_again), ["10.9.0.1 a"]);
}

#[test]
fn what_is_on_record_in_a_slice_that_is_not_ours_any_more_is_held_and_kept_out_of_others() {
    let mut leftover = slice_of("net", "10.9.0.0/30", 0);
    leftover.block.node = String::new();
    leftover.records = vec![record("a", 1)];
    let mut rig = started(Image::default(), [leftover, slice(1)]);
    assert_eq!(held(&rig), ["10.9.0.1 a"]);
    assert_eq!(give(&mut rig, "b"), "10.9.0.2");
    detach(&mut rig, "a");
    rig.pass(std::time::Duration::from_mins(1));
    assert_eq!(give(&mut rig, "c"), "10.9.0.1");
}

#[test]
fn addresses_that_the_whole_range_holds_are_kept_back_and_come_back() {
    let mut rig = Rig::started(settings());
    let kept = |last: &[u8]| {
        let exclusions = last.iter().map(|last| Exclusion::from(address(&format!("10.9.0.{last}"))));
        Event::PoolChanged {
            name: POOL.into(),
            facts: PoolFacts { exclusions: exclusions.collect(), ..facts() },
        }
    };
    rig.event(kept(&[1, 3]));
    rig.event(Event::SliceSeen(slice(1)));
    rig.read(Image::default(), Vec::new());
    rig.event(Event::SourceRead { source: SOURCE });
    assert_eq!(give(&mut rig, "a"), "10.9.0.2");
    assert_eq!(give(&mut rig, "b"), "10.9.0.4");
    rig.event(kept(&[1]));
    assert_eq!(give(&mut rig, "c"), "10.9.0.3");
    rig.event(kept(&[]));
    assert_eq!(give(&mut rig, "d"), "10.9.0.1");
}

#[test]
fn networks_may_have_the_same_addresses_and_none_is_confused_with_the_clusters_own() {
    let mut rig = ready();
    let own = SeenBlock { subnet: Subnet::single(cidr("10.9.0.0/29")), ..block("default", 0) };
    rig.event(Event::PoolChanged { name: "default".into(), facts: super::rig::facts() });
    rig.event(Event::BlockSeen(own));
    rig.event(Event::PoolChanged { name: "slices-of-red".into(), facts: facts() });
    rig.event(Event::SliceSeen(slice_of("red", "10.9.0.0/29", 1)));
    assert_eq!(give(&mut rig, "a"), "10.9.0.1");
    let red = rig.add_of(Attach {
        pool: "slices-of-red".into(),
        key: HoldKey::new("red", "a", "net2").unwrap(),
        ..attach("a")
    });
    assert_eq!(rig.address(red), "10.9.0.1");
    let own: Vec<String> = ["x", "y"].map(|it| rig.give(it)).to_vec();
    assert_eq!(own, ["10.9.0.0", "10.9.0.1"]);
    assert_eq!(rig.exported, BTreeSet::from([cidr("10.9.0.0/29")]), "the block, and no slice");
    assert!(rig.node.blocks().iter().all(|block| block.usable), "{:?}", rig.node.blocks());
    detach(&mut rig, "a");
    assert_eq!(rig.node.holds().len(), 3);
}

#[test]
fn pods_outside_of_kubernetes_are_never_taken_for_each_other() {
    let mut rig = ready();
    let nobody = |container: &str| Attach { pod: Pod::default(), ..attach(container) };
    let tickets = [rig.add_of(nobody("a")), rig.add_of(nobody("b"))];
    assert_eq!(tickets.map(|ticket| rig.address(ticket)), ["10.9.0.1", "10.9.0.2"]);
}

#[test]
fn a_part_is_written_down_with_its_number_and_a_slice_with_its_realm() {
    let mut rig = ready();
    rig.add_of(Attach { key: key("a").part(3), ..attach("a") });
    let mut bytes =
        crate::journal::codec::begin(&crate::journal::Origin { boot: "b".into(), node: NODE.into() });
    rig.records.iter().for_each(|record| crate::journal::codec::put(record, &mut bytes));
    let read = crate::journal::codec::read(&bytes).unwrap().image;
    assert_eq!(read, image(&rig));
    assert_eq!(read.holds().next().unwrap().key, key("a").part(3));
    let owned = |record: &Record| matches!(record, Record::Owned(facts) if facts.realm == "whereabouts/net");
    assert!(rig.records.iter().any(owned));
}

proptest! {
    /// Whatever others have written down.
    #[test]
    fn invariant_10_no_record_makes_a_node_panic_or_give_an_address_of_a_slice_twice(
        records in proptest::collection::vec((0_u8..12, "[ab/*]{0,2}", "[en/*]{0,2}", "[pq/]{0,2}"), 0..12),
        asked in proptest::collection::vec("[ab*]{1,2}", 0..8),
        restarts in 0_u8..3,
    ) {
        let recorded = |(last, container, interface, name): (u8, String, String, String)| Recorded {
            address: address(&format!("10.9.0.{last}")),
            container,
            interface,
            pod: Pod { namespace: "shop".into(), name, uid: String::new() },
        };
        let records: Vec<Recorded> = records.into_iter().map(recorded).collect();
        let inside: BTreeSet<Address> =
            records.iter().map(|it| it.address).filter(|it| cidr("10.9.0.0/29").contains(*it)).collect();
        let mut rig = started(Image::default(), [SeenSlice { records, ..slice(1) }]);
        prop_assert_eq!(rig.node.slices()[0].holds.iter().map(|it| it.address).collect::<BTreeSet<_>>(), inside);
        for container in asked {
            rig.add_of(attach(&container));
        }
        let mut journal = image(&rig);
        for _ in 0..restarts {
            let before = held(&rig);
            rig = started(journal.clone(), [slice(1)]);
            rig.records.iter().cloned().for_each(|record| journal.apply(record));
            prop_assert_eq!(held(&rig), before);
        }
        let holds: Vec<Address> = rig.node.slices()[0].holds.iter().map(|it| it.address).collect();
        prop_assert_eq!(holds.iter().collect::<BTreeSet<_>>().len(), holds.len());
    }
}
