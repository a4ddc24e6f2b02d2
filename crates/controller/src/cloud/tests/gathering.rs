//! Pods that move together but are reported separately: one update removes their addresses, and one adds them.

use std::time::Duration;

use serde_json::json;
use tenure_api::cloud::LeavingPod;

use super::rig::Rig;

/// Machines a, b and c, and pods on a with an address each. Returns the addresses.
fn crowd(count: u32) -> (Rig, Vec<String>) {
    let mut rig = Rig::new(61);
    rig.pool(json!({"cooling": "0s"}));
    for node in ["a", "b", "c"] {
        rig.machine(node);
        rig.want(node, 0);
    }
    rig.want("a", i32::try_from(count).unwrap());
    rig.settle();
    let addresses = rig.status("a").aliases.into_keys();
    let addresses: Vec<String> = addresses.map(|it| it.trim_end_matches("/32").to_owned()).collect();
    assert_eq!(addresses.len(), usize::try_from(count).unwrap());
    rig.say("a", |it| it.spec.wanted = 0);
    rig.settle();
    (rig, addresses)
}

/// The pod with this address is marked.
fn mark(rig: &mut Rig, address: &str) -> LeavingPod {
    let name = format!("s-{address}");
    let uid = rig.pod(&name, "ns", "a", json!({"live.cast.ai/move-out-ip": "true"}));
    LeavingPod { namespace: "ns".to_owned(), pod: name, uid }
}

/// Its node reports it.
fn leave(rig: &mut Rig, address: &str) {
    let pod = mark(rig, address);
    rig.say("a", |it| _ = it.spec.leaving.insert(address.to_owned(), pod));
}

fn come(rig: &mut Rig, address: &str, node: &str) {
    rig.pod(&format!("d-{address}"), "ns", node, json!({"live.cast.ai/ip": address}));
}

fn updates(rig: &Rig) -> usize {
    *rig.cloud.updates.lock().unwrap()
}

fn pass(rig: &mut Rig, millis: u64) {
    for _ in 0..millis / 10 {
        rig.round(Duration::from_millis(10));
    }
}

#[test]
fn moves_that_are_heard_of_apart_cost_two_updates() {
    let (mut rig, addresses) = crowd(6);
    for address in &addresses {
        leave(&mut rig, address);
    }
    rig.settle();
    let before = updates(&rig);
    for address in &addresses {
        come(&mut rig, address, "b");
        pass(&mut rig, 150);
    }
    rig.settle();
    assert_eq!(updates(&rig) - before, 2);
    assert_eq!((rig.status("b").attached, rig.on_machine("a").len()), (6, 0));
}

#[test]
fn moves_to_several_machines_leave_by_one_update() {
    let (mut rig, addresses) = crowd(4);
    for address in &addresses {
        leave(&mut rig, address);
    }
    rig.settle();
    let before = updates(&rig);
    for (address, node) in addresses.iter().zip(["b", "c", "b", "c"]) {
        come(&mut rig, address, node);
        pass(&mut rig, 100);
    }
    rig.settle();
    assert_eq!(updates(&rig) - before, 3);
    assert_eq!((rig.status("b").attached, rig.status("c").attached), (2, 2));
}

#[test]
fn a_node_that_says_late_that_its_pods_leave_is_waited_for_if_their_addresses_are_named() {
    let (mut rig, addresses) = crowd(3);
    let before = updates(&rig);
    for address in &addresses {
        come(&mut rig, address, "b");
    }
    for address in &addresses {
        leave(&mut rig, address);
        pass(&mut rig, 150);
    }
    rig.settle();
    assert_eq!(updates(&rig) - before, 2);
    assert_eq!(rig.status("b").attached, 3);
}

#[test]
fn a_move_that_is_alone_waits_for_nobody() {
    let (mut rig, addresses) = crowd(3);
    leave(&mut rig, &addresses[0]);
    rig.settle();
    // A pod of another namespace delays nothing.
    rig.pod("thief", "other", "b", json!({"live.cast.ai/ip": addresses[1]}));
    let before = updates(&rig);
    come(&mut rig, &addresses[0], "b");
    for _ in 0..6 {
        rig.round(Duration::ZERO);
    }
    assert_eq!(updates(&rig) - before, 1, "no time has passed");
}

#[test]
fn pods_that_do_not_follow_are_not_waited_for_long() {
    let (mut rig, addresses) = crowd(12);
    for address in &addresses {
        leave(&mut rig, address);
    }
    rig.settle();
    let before = updates(&rig);
    come(&mut rig, &addresses[0], "b");
    pass(&mut rig, 250);
    assert_eq!(updates(&rig), before);
    pass(&mut rig, 100);
    assert_eq!(updates(&rig) - before, 1, "nothing was heard for a while");
    rig.settle();
    // One after the other, never so far apart that it seems over.
    let before = updates(&rig);
    for address in &addresses[1..] {
        come(&mut rig, address, "b");
        pass(&mut rig, 250);
    }
    assert!(updates(&rig) > before, "it does not wait for the last of many");
    rig.settle();
    assert_eq!((rig.status("b").attached, rig.on_machine("a").len()), (12, 0));
}

#[test]
fn a_marked_pod_of_another_namespace_delays_no_move() {
    let (mut rig, addresses) = crowd(2);
    leave(&mut rig, &addresses[0]);
    let uid = rig.pod("idle", "other", "a", json!({"live.cast.ai/move-out-ip": "true"}));
    let pod = LeavingPod { namespace: "other".to_owned(), pod: "idle".to_owned(), uid };
    rig.say("a", |it| _ = it.spec.leaving.insert(addresses[1].clone(), pod));
    rig.settle();
    let before = updates(&rig);
    come(&mut rig, &addresses[0], "b");
    for _ in 0..6 {
        rig.round(Duration::ZERO);
    }
    assert_eq!(updates(&rig) - before, 1, "no time has passed");
}
