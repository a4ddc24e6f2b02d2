//! Deleted pools and ledgers: nothing of them is removed while somebody holds an address of it.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;
use tenure_api::cloud::{FINALIZER, LeavingPod, condition};

use super::rig::{POOL, Rig};

/// Machine a has two ranges, and machine b one.
fn used() -> Rig {
    let mut rig = Rig::new(41);
    rig.pool(json!({}));
    for (node, wanted) in [("a", 2), ("b", 1)] {
        rig.machine(node);
        rig.want(node, wanted);
    }
    rig.settle();
    assert_eq!(rig.pools[POOL].finalizers(), [FINALIZER]);
    assert_eq!(rig.ledgers["live-0"].finalizers(), [FINALIZER]);
    rig
}

fn give_all_back(rig: &mut Rig, node: &str) {
    rig.want(node, 0);
    for range in rig.status(node).aliases.into_keys() {
        rig.give_back(node, &range);
    }
    rig.settle();
    rig.clock.advance(Duration::from_secs(30));
    rig.settle();
}

#[test]
fn a_deleted_pool_stays_until_its_last_address_is_free_and_says_who_has_it() {
    let mut rig = used();
    let of_b = rig.status("b").aliases.into_keys().next().unwrap();
    rig.delete_pool(POOL);
    rig.want("b", 2);
    rig.settle();
    let (is, reason, message) = rig.condition(POOL, condition::READY);
    assert_eq!((is.as_str(), reason.as_str()), ("False", "Deleting"));
    assert_eq!(message.matches("(node \"a\")").count(), 2, "{message}");
    assert!(message.contains(&format!("{of_b} (node \"b\")")), "{message}");
    assert_eq!(rig.status("b").aliases.len(), 1, "it gives no more");
    let problem = rig.status("b").problem.unwrap();
    assert!(problem.contains("IPPool \"live\" is being deleted"), "{problem}");

    give_all_back(&mut rig, "a");
    assert_eq!(rig.records().into_keys().collect::<Vec<_>>(), std::slice::from_ref(&of_b));
    let message = rig.condition(POOL, condition::READY).2;
    assert!(message.contains(&format!("held are {of_b} (node \"b\")")), "{message}");
    assert!(rig.status("b").aliases[&of_b].attached, "whoever has one keeps it");
    rig.restart();
    rig.settle();
    assert!(rig.pools.contains_key(POOL));

    give_all_back(&mut rig, "b");
    assert!(rig.pools.is_empty() && rig.ledgers.is_empty());
    assert!(rig.on_machine("a").is_empty() && rig.on_machine("b").is_empty());
}

#[test]
fn a_pool_that_nobody_used_goes_at_once_and_its_name_can_be_used_again() {
    let mut rig = Rig::new(42);
    rig.pool(json!({}));
    rig.machine("a");
    rig.settle();
    rig.delete_pool(POOL);
    rig.settle();
    assert!(rig.pools.is_empty());
    rig.pool(json!({"cidr": "10.112.0.0/24"}));
    rig.want("a", 1);
    rig.settle();
    assert_eq!(rig.status("a").attached, 1);
}

#[test]
fn a_pool_does_not_go_before_what_it_gave_has_left_a_machine_that_cannot_be_changed() {
    let mut rig = used();
    *rig.cloud.trouble.lock().unwrap() = 1;
    rig.delete_pool(POOL);
    for node in ["a", "b"] {
        give_all_back(&mut rig, node);
    }
    assert_eq!(rig.on_machine("a").len(), 2);
    assert!(rig.pools.contains_key(POOL) && rig.records().len() == 3, "{:?}", rig.records());
    *rig.cloud.trouble.lock().unwrap() = 0;
    rig.clock.advance(Duration::from_mins(1));
    rig.settle();
    assert!(rig.pools.is_empty() && rig.on_machine("a").is_empty());
}

#[test]
fn a_deleted_ledger_goes_on_while_it_has_records_and_is_made_again_after_that() {
    let mut rig = used();
    let before = rig.ledgers["live-0"].uid();
    rig.delete_ledger("live-0");
    let records = rig.records();
    rig.want("a", 3);
    rig.settle();
    assert!(records.iter().all(|(range, record)| rig.records().get(range) == Some(record)));
    assert_eq!((rig.status("a").attached, rig.status("b").attached), (3, 1));
    for node in ["a", "b"] {
        give_all_back(&mut rig, node);
    }
    assert!(rig.ledgers.is_empty());
    rig.want("a", 3);
    rig.settle();
    assert_eq!(rig.status("a").attached, 3);
    assert_ne!(rig.ledgers["live-0"].uid(), before);
}

#[test]
fn nothing_of_a_deleted_pool_moves() {
    let mut rig = used();
    let range = rig.status("a").aliases.into_keys().next().unwrap();
    let address = range.trim_end_matches("/32").to_owned();
    let uid = rig.pod("s", "ns", "a", json!({"live.cast.ai/move-out-ip": "true"}));
    let pod = LeavingPod { namespace: "ns".to_owned(), pod: "s".to_owned(), uid: uid.clone() };
    rig.say("a", |it| _ = it.spec.leaving.insert(address.clone(), pod));
    rig.delete_pool(POOL);
    rig.settle();
    let message = rig.condition(POOL, condition::READY).2;
    assert!(message.contains(&format!("{range} (node \"a\", for pod ns/s)")), "{message}");
    rig.pod("d", "ns", "b", json!({"live.cast.ai/ip": address}));
    rig.settle();
    assert_eq!(rig.status("a").aliases[&range].pod, Some(uid), "its agents would refuse the other pod");
    assert!(rig.told("AddressRefused")[0].contains("is being deleted"), "{:?}", rig.notes);
}
