//! Each of Whereabouts' defects that a ledger can have, and what is done instead.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::json;
use tenure_api::whereabouts::{
    Allocation, IPPool, OverlappingRangeIPReservation, OverlappingRangeIPReservationSpec,
};
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::memory::Memory;
use super::*;
use crate::config::{Arguments, Config};

fn config(ipam: &serde_json::Value) -> Config {
    let mut network = json!({"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "ipam": ipam});
    network["ipam"]["type"] = json!("whereabouts");
    Config::load(&network, None, &Arguments::default()).unwrap()
}

fn who(pod: &str, ifname: &str) -> Who {
    let (podref, uid) = (format!("ns/{pod}"), format!("uid-{pod}"));
    Who { id: format!("id-{pod}"), podref, uid, ifname: ifname.to_owned() }
}

fn add(memory: &mut Memory, config: &Config, who: &Who) -> Answer {
    let request = Request::hold(who.clone(), Want::of(config, &[]));
    memory.serve(&config.network, vec![request], Timestamp::default()).remove(0)
}

fn del(memory: &mut Memory, config: &Config, who: &Who) -> Answer {
    memory.serve(&config.network, vec![Request::release(who.clone(), config)], Timestamp::default()).remove(0)
}

fn held(texts: &[&str]) -> Answer {
    Answer::Held(addresses(texts))
}

fn addresses(texts: &[&str]) -> Vec<Address> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn pool(name: &str, range: &str, records: &[(&str, &str, &str, Option<&str>)]) -> IPPool {
    let record = |(key, id, podref, ifname): &(&str, &str, &str, Option<&str>)| {
        let ifname = ifname.map(str::to_owned);
        (
            (*key).to_owned(),
            Allocation {
                id: (*id).to_owned(),
                podref: (*podref).to_owned(),
                ifname,
                ..Allocation::default()
            },
        )
    };
    let allocations: BTreeMap<_, _> = records.iter().map(record).collect();
    IPPool::new(name, tenure_api::whereabouts::IPPoolSpec { range: range.to_owned(), allocations })
}

fn records(memory: &Memory) -> usize {
    memory.pools().map(|pool| pool.spec.allocations.len()).sum()
}

mod crowds;
mod cut;
mod names;

#[test]
fn records_are_written_as_whereabouts_writes_them() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "192.168.2.0/24"}));
    assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["192.168.2.1"]));
    let written = memory.pool("192.168.2.0-24").unwrap();
    let record = json!({"id": "id-a", "podref": "ns/a", "ifname": "net1", "poduid": "uid-a"});
    let expected = json!({"range": "192.168.2.0/24", "allocations": {"1": record}});
    assert_eq!(serde_json::to_value(&written.spec).unwrap(), expected);
    assert_eq!(memory.reservations().count(), 0, "no other range overlaps");
}

#[test]
fn a_batch_is_one_write_and_a_repeated_add_is_none() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "192.168.2.0/24"}));
    add(&mut memory, &config, &who("first", "net1"));
    let requests = |n: usize| {
        (0..n).map(|n| Request::hold(who(&format!("p{n}"), "net1"), Want::of(&config, &[]))).collect()
    };
    let now = Timestamp::default();
    let mut plan = memory.read("", false).plan(requests(100), &Spread::of("a"), now);
    assert_eq!((plan.write.len(), plan.write[0].len(), plan.create.len()), (1, 100, 0));
    memory.carry_out(&mut plan, usize::MAX);
    assert_eq!(records(&memory), 101);
    let plan = memory.read("", false).plan(requests(100), &Spread::of("a"), now);
    assert_eq!(plan.write, []);
    assert!(
        plan.settle(|_| Outcome::Conflict)
            .iter()
            .all(|settled| matches!(settled, Settled::Done(Answer::Held(_))))
    );
}

#[test]
fn ranges_that_overlap_do_not_hand_out_one_address_twice_and_say_so_in_reservations() {
    let mut memory = Memory::default();
    let (wide, narrow) = (config(&json!({"range": "10.0.0.0/24"})), config(&json!({"range": "10.0.0.0/28"})));
    assert_eq!(add(&mut memory, &wide, &who("a", "net1")), held(&["10.0.0.1"]));
    assert_eq!(add(&mut memory, &narrow, &who("b", "net1")), held(&["10.0.0.2"]));
    assert_eq!(add(&mut memory, &wide, &who("c", "net1")), held(&["10.0.0.3"]));
    let names: Vec<_> = memory.reservations().filter_map(|r| r.metadata.name.clone()).collect();
    assert_eq!(names, ["10.0.0.2", "10.0.0.3"]);
    // The same pod, another interface: Whereabouts compares the pod only.
    assert_eq!(add(&mut memory, &narrow, &who("a", "net2")), held(&["10.0.0.4"]));
    del(&mut memory, &narrow, &who("b", "net1"));
    assert!(memory.reservations().all(|r| r.metadata.name.as_deref() != Some("10.0.0.2")));
}

#[test]
fn ranges_of_one_request_that_overlap_give_two_addresses() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "10.0.0.0/28"}]}));
    assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["10.0.0.1", "10.0.0.2"]));
}

#[test]
fn the_same_range_twice_gives_two_addresses_and_gives_them_again() {
    let mut memory = Memory::default();
    let config = config(&json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "10.0.0.0/24"}]}));
    for _ in 0..2 {
        assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["10.0.0.1", "10.0.0.2"]));
    }
    del(&mut memory, &config, &who("a", "net1"));
    assert_eq!(records(&memory), 0);
}

#[test]
fn a_range_without_overlap_check_records_nothing_for_others() {
    let mut memory = Memory::default();
    let alone = config(&json!({"range": "10.0.0.0/24", "enable_overlapping_ranges": false}));
    let narrow = config(&json!({"range": "10.0.0.0/28"}));
    assert_eq!(add(&mut memory, &alone, &who("a", "net1")), held(&["10.0.0.1"]));
    assert_eq!(add(&mut memory, &narrow, &who("b", "net1")), held(&["10.0.0.1"]));
}

#[test]
fn a_network_without_overlap_check_has_the_lowest_also_where_others_of_its_range_check() {
    let mut memory = Memory::default();
    let [wide, narrow] = ["10.0.0.0/16", "10.0.0.0/17"].map(|range| config(&json!({"range": range})));
    let alone = config(&json!({"range": "10.0.0.0/17", "enable_overlapping_ranges": false}));
    assert_eq!(add(&mut memory, &wide, &who("a", "net1")), held(&["10.0.0.1"]));
    assert_eq!(add(&mut memory, &narrow, &who("b", "net1")), held(&["10.0.0.2"]));
    assert_eq!(add(&mut memory, &alone, &who("c", "net1")), held(&["10.0.0.1"]));
    // Nobody of its own range shares it, and what protects the first stays.
    assert_eq!(add(&mut memory, &narrow, &who("d", "net1")), held(&["10.0.0.3"]));
    del(&mut memory, &alone, &who("c", "net1"));
    assert_eq!(add(&mut memory, &narrow, &who("e", "net1")), held(&["10.0.0.4"]));
}

#[test]
fn a_request_whose_second_range_is_full_leaves_nothing_in_the_first() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/126"}]}));
    assert!(matches!(add(&mut memory, &config, &who("a", "net1")), Answer::Held(_)));
    assert!(matches!(add(&mut memory, &config, &who("b", "net1")), Answer::Held(_)));
    let Answer::Refused(refusal) = add(&mut memory, &config, &who("c", "net1")) else { panic!("refused") };
    assert!(refusal.to_string().contains("fd00---126"), "{refusal}");
    assert_eq!(records(&memory), 4);
}

#[test]
fn what_an_earlier_attempt_has_written_is_taken_back_with_the_refusal() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/126"}]}));
    add(&mut memory, &config, &who("a", "net1"));
    let request = Request::hold(who("b", "net1"), Want::of(&config, &[]));
    let (spread, now) = (Spread::of(""), Timestamp::default());
    let mut plan = memory.read("", false).plan(vec![request], &spread, now);
    // Only the first object is written; meanwhile somebody takes the last address of the second.
    let written = memory.carry_out(&mut plan, 1);
    let Settled::Again(again) = plan.settle(|name| written.outcome(name)).remove(0) else { panic!("again") };
    assert_eq!(records(&memory), 3);
    memory.put_pool(pool(
        "fd00---126",
        "fd00::/126",
        &[("1", "x", "ns/x", Some("net1")), ("2", "y", "ns/y", Some("net1"))],
    ));
    let answer = memory.serve("", vec![again], now).remove(0);
    assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    let first = memory.pool("10.0.0.0-24").unwrap();
    assert_eq!(first.spec.allocations.keys().collect::<Vec<_>>(), ["1"]);
}

#[test]
fn a_dual_stack_release_goes_on_behind_a_range_that_has_nothing() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/120"}]}));
    add(&mut memory, &config, &who("a", "net1"));
    memory.put_pool(pool("10.0.0.0-24", "10.0.0.0/24", &[]));
    assert_eq!(del(&mut memory, &config, &who("a", "net1")), Answer::Released(addresses(&["fd00::1"])));
    assert_eq!(records(&memory), 0);
    assert_eq!(del(&mut memory, &config, &who("a", "net1")), Answer::Released(Vec::new()));
}

#[test]
fn the_late_release_of_an_old_container_does_not_touch_its_successor() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24"}));
    let (old, new) = (who("a", "net1"), Who { id: "new".into(), ..who("a", "net1") });
    assert_eq!(add(&mut memory, &config, &old), add(&mut memory, &config, &new));
    assert_eq!(del(&mut memory, &config, &old), Answer::Released(Vec::new()));
    assert_eq!(records(&memory), 1);
    // Also when both wait together.
    let newer = Who { id: "newer".into(), ..who("a", "net1") };
    let both = vec![Request::hold(newer, Want::of(&config, &[])), Request::release(new, &config)];
    let answers = memory.serve("", both, Timestamp::default());
    assert_eq!(answers, [held(&["10.0.0.1"]), Answer::Released(Vec::new())]);
}

#[test]
fn objects_that_whereabouts_wrote_are_adopted_and_drained() {
    let mut memory = Memory::default();
    memory.put_pool(pool(
        "10.0.0.0-16",
        "10.0.0.0/16",
        &[
            ("1", "c1", "ns/a", Some("net1")),
            ("2", "c2", "ns/b", None),
            ("60000", "c3", "ns/c", Some("net1")),
            ("-5", "c4", "ns/d", None),
        ],
    ));
    let config = config(&json!({"range": "10.0.0.0/16"}));
    let third = Who { id: "c3".into(), ..who("c", "net1") };
    assert_eq!(add(&mut memory, &config, &third), held(&["10.0.234.96"]), "its record stays where it is");
    assert_eq!(add(&mut memory, &config, &who("new", "net1")), held(&["10.0.0.3"]));
    assert_eq!(memory.pools().count(), 1);
    let pool = memory.pool("10.0.0.0-16").unwrap();
    assert!(pool.spec.allocations.contains_key("-5"), "what is no address of the range stays");
    let containers = [("a", "c1"), ("b", "c2"), ("c", "c3"), ("new", "id-new")];
    for (pod, id) in containers {
        let released = del(&mut memory, &config, &Who { id: id.into(), ..who(pod, "net1") });
        assert!(matches!(&released, Answer::Released(list) if list.len() == 1), "{pod}: {released:?}");
    }
    assert_eq!(memory.pool("10.0.0.0-16").unwrap().spec.allocations.len(), 1, "what makes no sense stays");
}

#[test]
fn a_slash_16_is_fully_allocatable() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/16"}));
    let mut network = memory.read("", false);
    let mut held = 0;
    let mut waiting: Vec<Request> =
        (0..65_535).map(|n| Request::hold(who(&n.to_string(), "net1"), Want::of(&config, &[]))).collect();
    for _ in 0..65 {
        let mut plan = network.plan(std::mem::take(&mut waiting), &Spread::of(""), Timestamp::default());
        let written = memory.carry_out(&mut plan, usize::MAX);
        let named = plan.write.iter().map(|write| write.name.as_str());
        let made = plan.create.iter().filter_map(|pool| pool.metadata.name.as_deref());
        for pool in named.chain(made).filter_map(|name| memory.pool(name)) {
            network.see_pool(pool, |_| false);
        }
        for settled in plan.settle(|name| written.outcome(name)) {
            match settled {
                Settled::Done(Answer::Held(_)) => held += 1,
                Settled::Done(other) => assert!(matches!(other, Answer::Refused(_)), "{other:?}"),
                Settled::Again(request) => waiting.push(request),
            }
        }
        if waiting.is_empty() {
            break;
        }
    }
    assert_eq!((held, memory.pools().count()), (65_534, 256));
    let id = PoolId::shared("", config.ranges[0].cidr());
    assert_eq!(network.usage(&id), Usage { used: 65_534, free: 2 });
}

#[test]
fn an_object_full_of_the_longest_names_stays_below_the_limit_of_etcd() {
    let record = |n: u128| {
        let (id, podref) = ("c".repeat(64), format!("{}/{}", "n".repeat(63), "p".repeat(253)));
        (
            (n + 60_000).to_string(),
            Allocation { id, podref, ifname: Some("i".repeat(15)), ..Allocation::default() },
        )
    };
    let mut full = pool("10.0.0.0-16.255", "10.0.0.0/16", &[]);
    full.spec.allocations = (0..ADDRESSES_IN_AN_OBJECT).map(record).collect();
    // What the server notes beside: which field is whose.
    let noted: usize = full
        .spec
        .allocations
        .keys()
        .map(|key| key.len() + r#""f:":{".":{},"f:id":{},"f:ifname":{},"f:podref":{}},"#.len())
        .sum();
    let bytes = serde_json::to_vec(&full).unwrap().len() + noted;
    assert!(bytes < 150_000, "{bytes} bytes");
    let estimated: usize = full.spec.allocations.iter().map(|(key, record)| object::bytes(key, record)).sum();
    assert!(estimated.abs_diff(bytes) < bytes / 10, "{estimated} estimated, {bytes} counted");
}

#[test]
fn an_object_that_others_have_filled_gets_no_more() {
    let mut memory = Memory::default();
    let record = |n: u32| {
        (
            n.to_string(),
            Allocation { id: "c".repeat(64), podref: format!("ns/p{n}"), ..Allocation::default() },
        )
    };
    let mut full = pool("10.0.0.0-16", "10.0.0.0/16", &[]);
    full.spec.allocations = (256..9_000).map(record).collect();
    memory.put_pool(full);
    let config = config(&json!({"range": "10.0.0.0/16"}));
    assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["10.0.35.40"]));
    assert!(memory.pool("10.0.0.0-16.35").is_some());
}

#[test]
fn the_upper_half_of_a_64_has_keys_of_its_own() {
    let mut memory = Memory::default();
    let ipam = json!({"range": "2001:db8::/64", "range_start": "2001:db8::8000:0:0:0", "enable_overlapping_ranges": false});
    let config = config(&ipam);
    assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["2001:db8:0:0:8000::"]));
    assert_eq!(add(&mut memory, &config, &who("b", "net1")), held(&["2001:db8:0:0:8000::1"]));
}

#[test]
fn a_network_that_becomes_dual_stack_reserves_also_its_new_address() {
    let mut memory = Memory::default();
    let other = config(&json!({"ipRanges": [{"range": "10.0.0.0/28"}, {"range": "fd00::/124"}]}));
    add(&mut memory, &other, &who("other", "net1"));
    add(&mut memory, &config(&json!({"range": "10.0.0.0/24"})), &who("a", "net1"));
    let dual = config(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/120"}]}));
    assert_eq!(add(&mut memory, &dual, &who("a", "net1")), held(&["10.0.0.2", "fd00::2"]));
    let names: Vec<_> = memory.reservations().filter_map(|r| r.metadata.name.clone()).collect();
    assert_eq!(names, ["10.0.0.2", "fd00--2"]);
}

#[test]
fn preferred_and_picked_addresses_are_heeded() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24"}));
    let wish = |memory: &mut Memory, pod: &str, at: &str| {
        let wants = Want::of(&config, &config.preferred(at).unwrap());
        memory.serve("", vec![Request::hold(who(pod, "net1"), wants)], Timestamp::default()).remove(0)
    };
    assert_eq!(wish(&mut memory, "a", "10.0.0.9"), held(&["10.0.0.9"]));
    assert_eq!(wish(&mut memory, "b", "10.0.0.9"), held(&["10.0.0.1"]), "taken: the lowest free one");
    assert_eq!(wish(&mut memory, "a", "10.0.0.10"), held(&["10.0.0.9"]), "what it has wins");
    let picky = self::config(
        &json!({"range": "10.0.0.0/24", "pick_addresses": ["10.0.0.9", "10.0.0.7", "10.0.0.5"]}),
    );
    assert_eq!(add(&mut memory, &picky, &who("c", "net1")), held(&["10.0.0.7"]));
    assert_eq!(add(&mut memory, &picky, &who("d", "net1")), held(&["10.0.0.5"]));
    assert!(matches!(add(&mut memory, &picky, &who("e", "net1")), Answer::Refused(_)));
}

#[test]
fn a_patch_guards_every_key_and_the_state() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24"}));
    add(&mut memory, &config, &who("a", "net1"));
    let request = vec![
        Request::hold(who("b", "net1"), Want::of(&config, &[])),
        Request::release(who("a", "net1"), &config),
    ];
    let plan = memory.read("", false).plan(request, &Spread::of(""), Timestamp::default());
    let record = |pod: &str| json!({"id": format!("id-{pod}"), "podref": format!("ns/{pod}"), "ifname": "net1", "poduid": format!("uid-{pod}")});
    let expected = json!([
        {"op": "test", "path": "/metadata/annotations/whereabouts.cni.cncf.io~1state", "value": "unique"},
        {"op": "test", "path": "/metadata/annotations/whereabouts.cni.cncf.io~1opened", "value": null},
        {"op": "test", "path": "/spec/allocations/1", "value": record("a")},
        {"op": "remove", "path": "/spec/allocations/1"},
        {"op": "test", "path": "/spec/allocations/2", "value": null},
        {"op": "add", "path": "/spec/allocations/2", "value": record("b")},
    ]);
    assert_eq!(plan.write[0].patch(), expected);
}

#[test]
fn what_was_freed_is_taken_last_and_what_has_rested_longest_first() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/29"}));
    let at = Timestamp::from_millis;
    let mut spread = Spread::of("a");
    spread.rest("10.0.0.2".parse().unwrap(), at(0), at(100));
    spread.rest("10.0.0.1".parse().unwrap(), at(10), at(110));
    add(&mut memory, &config, &who("seed", "net1"));
    del(&mut memory, &config, &who("seed", "net1"));
    let next = |memory: &Memory, pods: &[&str], now: u64| {
        let hold = |pod: &&str| Request::hold(who(pod, "net1"), Want::of(&config, &[]));
        let plan = memory.read("", false).plan(pods.iter().map(hold).collect(), &spread, at(now));
        plan.answers
    };
    let all = next(&memory, &["a", "b", "c", "d", "e", "f", "g"], 50);
    let order = ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.1"];
    assert_eq!(all[..6], order.map(|address| held(&[address])));
    assert!(matches!(all[6], Answer::Refused(LedgerRefusal::Exhausted { .. })));
    assert_eq!(next(&memory, &["a", "b"], 105), [held(&["10.0.0.2"]), held(&["10.0.0.3"])]);
}

#[test]
fn a_write_that_nobody_came_between_is_known_by_its_metadata_alone() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24"}));
    add(&mut memory, &config, &who("a", "net1"));
    let mut before = memory.pool("10.0.0.0-24").unwrap().clone();
    before.metadata.generation = Some(2);
    let mut network = Network::new("");
    network.see_pool(&before, |_| false);
    let hold = Request::hold(who("b", "net1"), Want::of(&config, &[]));
    let release = Request::release(who("a", "net1"), &config);
    let plan = network.plan(vec![hold, release], &Spread::of("a"), Timestamp::default());
    let metadata = |generation: i64| {
        let resource_version = Some("7".to_owned());
        ObjectMeta { generation: Some(generation), resource_version, ..before.metadata.clone() }
    };
    let mut other = network.clone();
    assert!(!other.wrote(&plan.write[0], &metadata(4)), "somebody wrote in between");
    assert!(network.wrote(&plan.write[0], &metadata(3)));
    let id = PoolId::shared("", config.ranges[0].cidr());
    let known: Vec<_> = network.records(&id).map(|(_, key, _, record)| (key, record.id.as_str())).collect();
    assert_eq!(known, [("2", "id-b")]);
    assert_eq!(network.held_by(&who("a", "net1")), []);
    assert!(network.confirms("10.0.0.0-24", &metadata(3)) && !network.confirms("10.0.0.0-24", &metadata(4)));
    let after = plan.write[0].apply(&before).unwrap();
    let mut read = Network::new("");
    read.see_pool(&after, |_| false);
    assert_eq!(network.usage(&id), read.usage(&id));
}

#[test]
fn a_server_that_notes_who_wrote_which_record_is_told_not_to() {
    let mut object = pool("10.0.0.0-24", "10.0.0.0/24", &[]);
    let config = config(&json!({"range": "10.0.0.0/24", "enable_overlapping_ranges": false}));
    let patch = |object: &IPPool| {
        let mut network = Network::new("");
        network.see_pool(object, |_| false);
        let hold = Request::hold(who("a", "net1"), Want::of(&config, &[]));
        network.plan(vec![hold], &Spread::of("a"), Timestamp::default()).write[0].patch().to_string()
    };
    assert!(!patch(&object).contains("managedFields"));
    object.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
    assert!(patch(&object).contains(r#""/metadata/managedFields","value":[{}]"#), "{}", patch(&object));
}

#[test]
fn a_claim_that_is_named_like_a_pod_or_like_a_claim_before_it_has_an_address_of_its_own() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/29"}));
    let claim = |uid: &str| Who { id: format!("claim/{uid}"), ..who("web-0", "net1") };
    assert_eq!(add(&mut memory, &config, &claim("a")), held(&["10.0.0.1"]));
    assert_eq!(add(&mut memory, &config, &who("web-0", "net1")), held(&["10.0.0.2"]));
    assert_eq!(add(&mut memory, &config, &claim("b")), held(&["10.0.0.3"]));
    assert_eq!(add(&mut memory, &config, &claim("a")), held(&["10.0.0.1"]), "and keeps it");
    del(&mut memory, &config, &who("web-0", "net1"));
    assert_eq!(add(&mut memory, &config, &who("web-0", "net1")), held(&["10.0.0.2"]));
    assert_eq!(records(&memory), 3);
}

#[test]
fn what_a_restored_database_says_counts_and_all_of_it_is_to_be_read() {
    let (kept, later) = (("1", "a", "ns/kept", None), ("2", "b", "ns/later", None));
    let at = |version: &str, records: &[(&str, &str, &str, Option<&str>)]| {
        let mut object = pool("10.0.0.0-24", "10.0.0.0/24", records);
        object.metadata.resource_version = Some(version.to_owned());
        object
    };
    let mut network = Network::new("");
    network.see_pool(&at("900", &[kept, later]), |_| false);
    network.take_moved();
    network.see_pool(&at("950", &[kept, later]), |_| false);
    assert!(!network.take_moved());
    network.see_pool(&at("400", &[kept]), |_| false);
    assert!(network.take_moved());
    let id = PoolId::shared("", "10.0.0.0/24".parse().unwrap());
    assert_eq!(network.records(&id).map(|(_, key, ..)| key).collect::<Vec<_>>(), ["1"]);
}
