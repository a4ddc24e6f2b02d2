//! Addresses that move with pods.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_api::cloud::LeavingPod;

use super::rig::Rig;

const RANGE: &str = "10.111.0.1/32";
const ADDRESS: &str = "10.111.0.1";

fn marked() -> Value {
    json!({"live.cast.ai/move-out-ip": "true"})
}

fn to_have(original: &str) -> Value {
    json!({"live.cast.ai/ip": ADDRESS, "live.cast.ai/original-instance": original})
}

/// Machines a and b, and a pod on a that is about to leave with its address.
fn leaving() -> (Rig, String) {
    let mut rig = Rig::new(11);
    rig.pool(json!({"cooling": "0s"}));
    rig.machine("a");
    rig.machine("b");
    rig.want("a", 1);
    rig.want("b", 0);
    rig.settle();
    let uid = rig.pod("s", "ns", "a", marked());
    leaves(&mut rig, &uid);
    rig.settle();
    assert_eq!(rig.status("a").aliases[RANGE].pod.as_deref(), Some(uid.as_str()));
    (rig, uid)
}

fn leaves(rig: &mut Rig, uid: &str) {
    let pod = LeavingPod { namespace: "ns".to_owned(), pod: "s".to_owned(), uid: uid.to_owned() };
    // An address that leaves with its pod is not wanted any more.
    rig.say("a", |it| {
        it.spec.leaving.insert(ADDRESS.to_owned(), pod);
        it.spec.wanted = 0;
    });
}

#[test]
fn an_address_follows_its_pod_by_two_updates_and_back_again() {
    let (mut rig, source) = leaving();
    let (before, grant) = (*rig.cloud.updates.lock().unwrap(), rig.status("a").aliases[RANGE].grant.clone());
    let target = rig.pod("d", "ns", "b", to_have("a"));
    rig.settle();
    assert_eq!(*rig.cloud.updates.lock().unwrap() - before, 2);
    assert!(rig.status("a").aliases.is_empty() && rig.on_machine("a").is_empty());
    let there = rig.status("b").aliases[RANGE].clone();
    assert!(there.attached && there.grant != grant && there.pod.as_deref() == Some(target.as_str()));
    assert_eq!(rig.told("AddressMoves").len(), 1);
    assert_eq!(rig.told("AddressRefused"), Vec::<String>::new());
    // The target is gone before the source: the address returns to it.
    rig.pod_gone("ns/d");
    rig.settle();
    let back = rig.status("a").aliases[RANGE].clone();
    assert!(back.attached && ![&grant, &there.grant].contains(&&back.grant));
    assert_eq!(back.pod, Some(source));
    assert!(rig.on_machine("b").is_empty());
}

#[test]
fn a_move_goes_on_when_the_source_ends_first_and_with_its_machine() {
    let (mut rig, _) = leaving();
    rig.pod_gone("ns/s");
    rig.cloud.machines.lock().unwrap().remove("a");
    rig.leave("a");
    rig.settle();
    rig.clock.advance(Duration::from_mins(3));
    rig.settle();
    assert!(rig.records().contains_key(RANGE), "it waits for its pod");
    rig.restart();
    let target = rig.pod("d", "ns", "b", to_have("a"));
    rig.settle();
    assert_eq!(rig.status("b").aliases[RANGE].pod, Some(target));
    assert!(rig.status("b").aliases[RANGE].attached);
}

#[test]
fn a_marker_without_a_destination_keeps_the_address_for_a_while_and_that_is_reported() {
    let (mut rig, _) = leaving();
    rig.pod_gone("ns/s");
    rig.settle();
    assert_eq!(rig.status("a").aliases[RANGE].pod.as_deref(), Some("-"), "it is for nobody else");
    let grant = rig.status("a").aliases[RANGE].grant.clone();
    rig.give_back("a", RANGE);
    rig.settle();
    assert!(rig.records()[RANGE].freed.is_none(), "not before its time");
    rig.clock.advance(Duration::from_mins(5));
    rig.settle();
    assert_eq!(rig.told("MoveAbandoned").len(), 1);
    assert!(!rig.records().contains_key(RANGE), "the node had given it back by {grant}");
}

#[test]
fn a_forged_move_moves_nothing() {
    let (mut rig, source) = leaving();
    let before = rig.records();
    rig.pod("thief", "other", "b", to_have("a"));
    rig.pod("liar", "ns", "b", to_have("b"));
    rig.pod("lost", "ns", "b", json!({"live.cast.ai/ip": "10.99.0.1"}));
    rig.pod("free", "ns", "b", json!({"live.cast.ai/ip": "10.111.0.77"}));
    rig.pod("odd", "ns", "b", json!({"live.cast.ai/ip": "ten"}));
    rig.settle();
    assert_eq!(rig.records(), before);
    assert!(rig.status("b").aliases.is_empty());
    let mut said = rig.told("AddressRefused");
    said.sort();
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(said.iter().any(|it| it.contains("no pod of namespace \\\"other")), "{said:?}");
    assert!(said.iter().any(|it| it.contains("it is attached to \\\"a")), "{said:?}");
    assert!(said.iter().any(|it| it.contains("no IPPool has it")), "{said:?}");
    // Without a mark nothing moves, either.
    let pod = rig.pods["ns/s"].clone();
    rig.pods.remove("ns/s");
    rig.pod_as(pod, json!({}));
    for name in ["thief", "liar", "lost", "free", "odd"] {
        rig.pod_gone(&format!("ns/{name}"));
    }
    rig.pod("d", "ns", "b", to_have("a"));
    rig.settle();
    assert_eq!(rig.status("a").aliases[RANGE].pod, Some(source));
    assert!(rig.status("b").aliases.is_empty());
}

#[test]
fn a_second_try_in_the_same_second_moves_the_address_too() {
    let (mut rig, source) = leaving();
    rig.pod("d", "ns", "b", to_have("a"));
    let first = rig.pods["ns/d"]["metadata"]["creationTimestamp"].clone();
    rig.settle();
    rig.pod_gone("ns/d");
    rig.settle();
    assert_eq!(rig.status("a").aliases[RANGE].pod, Some(source));
    let target = rig.pod("d2", "ns", "b", to_have("a"));
    let mut pod = rig.pods["ns/d2"].clone();
    pod["metadata"]["creationTimestamp"] = first;
    rig.say_pod("ns/d2", pod);
    rig.settle();
    assert_eq!(rig.status("b").aliases[RANGE].pod, Some(target));
    assert!(rig.status("b").aliases[RANGE].attached && rig.on_machine("a").is_empty());
}

#[test]
fn a_pod_that_has_moved_and_is_not_marked_leaves_an_ordinary_address_behind() {
    let (mut rig, _) = leaving();
    rig.pod("d", "ns", "b", to_have("a"));
    rig.settle();
    rig.pod_gone("ns/s");
    rig.settle();
    rig.pod_gone("ns/d");
    rig.settle();
    assert_eq!(rig.status("b").aliases[RANGE].pod, None, "it waits for nobody");
    rig.pod("thief", "ns", "a", to_have("b"));
    rig.settle();
    assert_eq!(rig.records()[RANGE].node, "b");
    assert!(rig.told("AddressRefused")[0].contains("that is marked with"), "{:?}", rig.notes);
    rig.clock.advance(Duration::from_mins(5));
    rig.settle();
    assert_eq!(rig.told("MoveAbandoned"), Vec::<String>::new());
}

#[test]
fn a_pod_that_has_moved_and_is_marked_again_is_followed_by_the_next() {
    let (mut rig, _) = leaving();
    rig.pod("d", "ns", "b", to_have("a"));
    rig.settle();
    rig.pod_gone("ns/s");
    let pod = rig.pods["ns/d"].clone();
    rig.pod_as(pod, json!({"live.cast.ai/ip": ADDRESS, "live.cast.ai/move-out-ip": "true"}));
    rig.settle();
    rig.pod_gone("ns/d");
    rig.settle();
    assert_eq!(rig.status("b").aliases[RANGE].pod.as_deref(), Some("-"), "it waits");
    let next = rig.pod("e", "ns", "a", to_have("b"));
    rig.settle();
    assert_eq!(rig.status("a").aliases[RANGE].pod, Some(next));
}

#[test]
fn an_address_stays_where_it_is_when_the_next_pod_can_have_none_and_follows_when_it_can() {
    let (mut rig, source) = leaving();
    let before = rig.records();
    rig.machine("bare");
    rig.pod("d", "ns", "bare", to_have("a"));
    rig.pod("host", "ns", "b", to_have("a"));
    let mut host = rig.pods["ns/host"].clone();
    host["spec"]["hostNetwork"] = json!(true);
    rig.say_pod("ns/host", host);
    rig.pod("lost", "ns", "metal", to_have("a"));
    rig.say("metal", |_| {});
    rig.settle();
    assert_eq!(rig.records(), before);
    assert_eq!(rig.status("a").aliases[RANGE].pod, Some(source));
    let said = rig.told("AddressRefused").join(" ");
    for why in
        ["no agent serves alias addresses at node", "hostNetwork", "does not exist, or is out of service"]
    {
        assert!(said.contains(why), "{why}: {said}");
    }
    rig.pod_gone("ns/host");
    rig.pod_gone("ns/lost");
    // The agent comes.
    rig.want("bare", 0);
    rig.settle();
    assert_eq!(rig.records()[RANGE].node, "bare");
    assert_eq!(rig.on_machine("bare"), [RANGE.to_owned()].into());
}
