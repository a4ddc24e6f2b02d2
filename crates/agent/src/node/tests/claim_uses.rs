//! Claim users: ADD, DEL and what is known of them. Their reach is in `reach.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_cni::Code;
use tenure_ipam::Address;

use super::rig::{NODE, Rig, attach, block, done, key};
use crate::journal::{Image, Record};
use crate::key::{HoldKey, Pod};
use crate::node::view::Who;
use crate::node::{Action, Attach, ClaimUse, Done, Event, Found, Leak, Look, Report, Settings};

pub(super) const ADDRESS: &str = "10.9.0.7";

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

/// The claim `name` with one routed address.
pub(super) fn claim(name: &str) -> ClaimUse {
    ClaimUse {
        claim: format!("{name}-uid"),
        claim_name: format!("shop/{name}"),
        addresses: vec![(address(ADDRESS), 32)],
        reached: true,
    }
}

/// The pod of a container has the container's name for its UID.
pub(super) fn claim_use(container: &str, claim_use: ClaimUse) -> Attach {
    let pod = Pod { uid: container.into(), ..super::rig::pod(container) };
    Attach { pod, claim_use: Some(claim_use), ..attach(container, "default") }
}

pub(super) fn found(container: &str, addresses: &[&str]) -> Found {
    let addresses = addresses.iter().map(|it| address(it)).collect();
    Found { key: key(container), pod: super::rig::pod(container), addresses }
}

fn use_record(rig: &Rig) -> Vec<(String, bool)> {
    let use_record = rig.records.iter().filter_map(|record| match record {
        Record::ClaimUse(use_record) => Some((use_record.key.container().to_owned(), use_record.reached)),
        _ => None,
    });
    use_record.collect()
}

#[test]
fn a_claim_user_has_its_claims_addresses_and_takes_none_of_a_block() {
    let mut rig = Rig::with_blocks([0]);
    let add = rig.add_of(claim_use("a", claim("vm")));
    assert_eq!(rig.address(add), ADDRESS);
    assert!(matches!(&rig.answers[&add], Ok(Done::Added { subnet: None, link: Some(_), .. })));
    assert_eq!(rig.node.blocks()[0].counts.held, 0);
    assert_eq!(use_record(&rig), [("a".to_owned(), true)]);
    let Who::Held(hold) = rig.node.who(address(ADDRESS)) else { panic!("nobody has it") };
    let claim = hold.claim.unwrap();
    assert_eq!((claim.name.as_str(), claim.reached, hold.block), ("shop/vm", true, None));
    let del = rig.del("a");
    assert!(rig.removed(del));
    assert_eq!(rig.node.holds(), []);
    assert_eq!(rig.node.who(address(ADDRESS)), Who::NotHere);
}

#[test]
fn an_add_of_a_claim_user_is_answered_after_its_record_is_committed_and_its_interface_is_there() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let add = rig.add_of(claim_use("a", claim("vm")));
    rig.commit();
    assert!(rig.is_open(add));
    rig.obey();
    assert_eq!(rig.address(add), ADDRESS);
    let del = rig.del("a");
    rig.obey();
    assert!(rig.is_open(del), "a crash would bring it back");
    rig.commit();
    assert!(rig.removed(del));
    assert!(matches!(rig.records.last(), Some(Record::ClaimUseEnded(_))));
}

#[test]
fn invariant_5_an_add_of_the_same_claim_user_is_the_same_and_another_claim_is_refused() {
    let mut rig = Rig::with_blocks([0]);
    let first = rig.add_of(claim_use("a", claim("vm")));
    let again = rig.add_of(claim_use("a", claim("vm")));
    assert_eq!(rig.address(first), rig.address(again));
    assert_eq!(use_record(&rig).len(), 1);
    // Who asks for no claim any more gets what there is.
    let plain = rig.add("a");
    assert_eq!(rig.address(plain), ADDRESS);
    let other = rig.add_of(claim_use("a", ClaimUse { claim: "another".into(), ..claim("vm") }));
    let failure = rig.failure(other);
    assert_eq!(failure.code, Code::TryAgainLater.number());
    for part in ["net/a/eth0", ADDRESS, "shop/vm", "another"] {
        assert!(failure.message.contains(part), "{part} in {}", failure.message);
    }
    rig.give("b");
    let claimed = rig.add_of(claim_use("b", claim("vm")));
    assert!(
        rig.failure(claimed).message.contains("net/b/eth0 holds 10.0.7.0"),
        "it has an address of a block"
    );
}

#[test]
fn invariant_1_a_claims_address_is_nobody_elses_on_the_node() {
    let mut rig = Rig::with_blocks([0]);
    let own = ClaimUse { addresses: vec![(address("10.0.7.3"), 32)], ..claim("vm") };
    let add = rig.add_of(claim_use("a", own));
    assert!(rig.failure(add).message.contains("default-0"), "{}", rig.failure(add).message);
    assert!(rig.reports.iter().any(|it| matches!(it, Report::Stray { .. })), "and it is said");
    let add = rig.add_of(claim_use("a", claim("vm")));
    assert_eq!(rig.address(add), ADDRESS);
    let other = rig.add_of(claim_use("b", claim("another")));
    assert!(rig.failure(other).message.contains("net/a/eth0 has one of them"));
    assert_eq!(rig.node.holds().len(), 1);
    // A block that turns up with the address hands it out to nobody.
    let mut wrong = block("default", 1);
    wrong.subnet.ipv4 = Some("10.9.0.0/29".parse().unwrap());
    rig.event(Event::BlockSeen(wrong));
    let given: BTreeSet<String> = (0..15).map(|number| rig.give(&format!("c{number}"))).collect();
    assert!(given.len() == 15 && !given.contains(ADDRESS), "{given:?}");
}

#[test]
fn a_claim_that_cannot_be_used_is_refused_by_name() {
    let mut rig = Rig::with_blocks([]);
    let two = vec![(address(ADDRESS), 32), (address("10.9.0.8"), 32)];
    for bad in [
        ClaimUse { claim: String::new(), ..claim("vm") },
        ClaimUse { addresses: Vec::new(), ..claim("vm") },
        ClaimUse { addresses: vec![(address(ADDRESS), 33)], ..claim("vm") },
        ClaimUse { addresses: two.clone(), ..claim("vm") },
    ] {
        let add = rig.add_of(claim_use("a", bad));
        assert!(rig.failure(add).message.contains("shop/vm"), "{}", rig.failure(add).message);
    }
    assert_eq!(rig.records, []);
    let of_others = Attach { wiring: None, ..claim_use("a", ClaimUse { addresses: two, ..claim("vm") }) };
    let add = rig.add_of(of_others);
    assert_eq!(rig.address(add), ADDRESS, "whoever makes the interface gives it as many as it likes");
}

#[test]
fn claim_users_need_no_pool_and_no_block() {
    let mut rig = Rig::with_blocks([]);
    let add = rig.add_of(Attach { pool: "nowhere".into(), ..claim_use("a", claim("vm")) });
    assert_eq!(rig.address(add), ADDRESS);
    assert_eq!(rig.asked, []);
}

#[test]
fn invariant_3_claim_users_come_back_with_a_restart_and_what_they_have_is_known_before_anything_is_handed_out()
 {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.add_of(claim_use("b", ClaimUse { reached: false, ..claim("vm") }));
    rig.add_of(claim_use("c", claim("vm")));
    rig.del("c");
    let mut again = rig.restarted(vec![found("a", &[ADDRESS]), found("b", &[])]);
    again.event(Event::ApiRead);
    let holds = again.node.holds();
    let told: Vec<_> =
        holds.iter().map(|it| (it.key.container(), it.claim.clone().unwrap().reached)).collect();
    assert_eq!(told, [("a", true), ("b", false)]);
    let repeated = again.add_of(claim_use("a", claim("vm")));
    assert_eq!(again.address(repeated), ADDRESS);
    assert_eq!(again.repaired, [(key("a"), holds[0].addresses)], "routes as they were");
}

#[test]
fn a_claim_user_of_which_only_the_kernel_knows_is_recognised_by_its_next_add() {
    let mut again = Rig::started(Settings::new(NODE));
    again.read(Image::default(), vec![found("a", &[ADDRESS])]);
    assert!(again.node.holds()[0].claim.is_none());
    let add = again.add_of(claim_use("a", claim("vm")));
    assert_eq!(again.address(add), ADDRESS);
    assert_eq!(again.node.holds()[0].claim.clone().unwrap().name, "shop/vm");
    assert_eq!(use_record(&again).last(), Some(&("a".to_owned(), true)));
}

#[test]
fn a_wiring_that_failed_leaves_no_claim_user() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let add = rig.add_of(claim_use("a", claim("vm")));
    let job = rig.job();
    rig.jobs.clear();
    let error = crate::node::KernelError::new(crate::node::KernelErrorKind::Other, "no room");
    rig.event(Event::WiringFailed { job, error });
    assert_eq!(rig.failure(add).message, "no room");
    rig.obey();
    rig.commit();
    assert_eq!(rig.node.holds(), []);
    assert!(rig.exported.iter().all(|network| network.prefix() < 32), "{:?}", rig.exported);
}

#[test]
fn garbage_collection_check_and_detach_know_claim_users() {
    let mut rig = Rig::with_blocks([0]);
    for container in ["a", "b", "c"] {
        rig.add_of(claim_use(container, claim("vm")));
    }
    let ticket = rig.ticket();
    let expected = vec![address(ADDRESS)];
    rig.event(Event::Check { ticket, attach: claim_use("a", claim("vm")), expected });
    assert_eq!(rig.answers[&ticket], Ok(Done::Checked));
    let ticket = rig.ticket();
    let expected = vec![address("10.9.0.8")];
    rig.event(Event::Check { ticket, attach: claim_use("a", claim("vm")), expected });
    assert!(rig.failure(ticket).message.contains("10.9.0.8"));
    let ticket = rig.ticket();
    rig.event(Event::Detach { ticket, key: key("b") });
    assert_eq!(rig.answers[&ticket], Ok(Done::Swept(1)));
    let ticket = rig.ticket();
    let alive = BTreeSet::from([("a".to_owned(), "eth0".to_owned())]);
    rig.event(Event::Gc { ticket, network: "net".into(), alive });
    assert_eq!(rig.answers[&ticket], Ok(Done::Swept(1)));
    let left: Vec<HoldKey> = rig.node.holds().into_iter().map(|hold| hold.key).collect();
    assert_eq!(left, [key("a")]);
}

/// Lets the node look twice, and both times these are gone.
fn look_twice(rig: &mut Rig, gone: &[&str]) {
    for _ in 0..2 {
        rig.pass(Duration::from_secs(31));
        let Some(Action::Look { job, .. }) = rig.looks.pop() else { panic!("it does not look") };
        let links = rig
            .node
            .holds()
            .into_iter()
            .filter(|hold| hold.interface && !gone.contains(&hold.key.container()));
        let links = links.map(|hold| Found {
            addresses: hold
                .addresses
                .iter()
                .filter(|_| hold.claim.as_ref().is_none_or(|it| it.routed))
                .collect(),
            key: hold.key,
            pod: hold.pod,
        });
        let look = Look {
            links: links.collect(),
            gone: gone.iter().map(|it| key(it)).collect(),
            strays: Vec::new(),
        };
        rig.event(Event::Looked { job, look });
    }
}

#[test]
fn invariant_9_a_claim_user_whose_interface_or_namespace_is_gone_is_dropped_after_two_looks() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.add_of(Attach { wiring: None, ..claim_use("b", claim("vm")) });
    rig.add_of(claim_use("c", claim("vm")));
    look_twice(&mut rig, &["a", "b"]);
    let leaks = rig.reports.iter().filter_map(|report| match report {
        Report::Leak { key, leak, .. } => Some((key.container().to_owned(), leak.clone())),
        _ => None,
    });
    let mut leaks: Vec<_> = leaks.collect();
    leaks.sort_by(|one, other| one.0.cmp(&other.0));
    let namespace = Leak::NoNamespace("/run/netns/b".into());
    assert_eq!(leaks, [("a".to_owned(), Leak::NoInterface), ("b".to_owned(), namespace)]);
    assert_eq!(rig.node.holds().len(), 1);
    assert!(
        !rig.reports.iter().any(|it| matches!(it, Report::Routes { .. })),
        "routes are as they should be"
    );
}

/// The next claim user of the same key has nothing to do with the one that was suspected.
#[test]
fn a_claim_user_is_not_suspected_for_what_its_predecessor_lost() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.pass(Duration::from_secs(31));
    let gone = |rig: &mut Rig| {
        let Some(Action::Look { job, .. }) = rig.looks.pop() else { panic!("it does not look") };
        let look = Look { gone: BTreeSet::from([key("a")]), ..Look::default() };
        rig.event(Event::Looked { job, look });
    };
    gone(&mut rig);
    rig.del("a");
    rig.add_of(claim_use("a", claim("vm")));
    rig.pass(Duration::from_secs(31));
    gone(&mut rig);
    assert_eq!(rig.node.holds().len(), 1, "seen once");
}

#[test]
fn a_del_that_comes_while_a_claim_user_is_being_made_ends_it() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let add = rig.add_of(claim_use("a", claim("vm")));
    let del = rig.del("a");
    assert!(rig.failure(add).message.contains("deleted"));
    for _ in 0..3 {
        let jobs: Vec<Action> = rig.jobs.drain(..).collect();
        for job in jobs {
            rig.event(done(&job));
        }
        rig.commit();
    }
    assert!(rig.removed(del));
    assert_eq!(rig.node.holds(), []);
}
