//! What the cloud refuses is reported on the pool until the cloud accepts it; what one machine lacks is reported on
//! its node.

use std::time::Duration;

use serde_json::json;
use tenure_api::cloud::condition;
use tenure_cloud::{CloudError, ErrorKind};
use tenure_ipam::Notation;

use super::rig::{POOL, Rig};

fn wanting(wanted: i32) -> Rig {
    let mut rig = Rig::new(51);
    rig.pool(json!({"cooling": "0s"}));
    rig.machine("a");
    rig.settle();
    rig.want("a", wanted);
    rig
}

fn refuse(rig: &Rig, kind: ErrorKind, words: &str) {
    *rig.cloud.refuses.lock().unwrap() = Some(CloudError::new(kind, words));
}

fn accept(rig: &mut Rig) {
    *rig.cloud.refuses.lock().unwrap() = None;
    *rig.cloud.refuses_reads.lock().unwrap() = None;
    rig.clock.advance(Duration::from_mins(1));
    rig.settle();
}

fn ready(rig: &Rig) -> (String, String, String) {
    rig.condition(POOL, condition::READY)
}

#[test]
fn a_refusal_is_said_with_a_remedy_and_an_event_until_the_cloud_accepts() {
    let bad = Notation::Strict.cidr("10.111.0.2/32").unwrap();
    for (kind, reason, words, remedy) in [
        (
            ErrorKind::Denied,
            "CloudDenied",
            "403 Required 'compute.instances.updateNetworkInterface' permission",
            "give the controller's account the permission",
        ),
        (
            ErrorKind::Capacity,
            "CloudQuota",
            "Quota 'ALIASES_PER_NETWORK_GLOBAL' exceeded.",
            "ask the cloud for a larger quota",
        ),
        (
            ErrorKind::Invalid(None),
            "CloudRefused",
            "400 Secondary range 'live' was not found",
            "subnet projects/p/regions/z/subnetworks/s has secondary range \"live\" with 10.111.0.0/24",
        ),
        (
            ErrorKind::Invalid(Some(bad)),
            "CloudRefused",
            "400 Invalid value '10.111.0.2/32'",
            "tenure provision gcp --dry-run",
        ),
    ] {
        let mut rig = wanting(3);
        assert_eq!(ready(&rig).0, "True");
        refuse(&rig, kind, words);
        rig.settle();
        let (is, said, message) = ready(&rig);
        assert_eq!((is.as_str(), said.as_str()), ("False", reason), "{message}");
        assert!(message.starts_with("the cloud refuses at node \"a\": "), "{message}");
        assert!(message.contains(words) && message.contains(remedy), "{message}");
        assert_eq!(rig.told(reason).len(), 1, "{:?}", rig.notes);
        assert!(rig.status("a").problem.unwrap().contains(words));
        accept(&mut rig);
        assert_eq!(ready(&rig).0, "True");
        assert_eq!((rig.status("a").attached, rig.status("a").problem), (3, None));
    }
}

#[test]
fn what_cannot_be_removed_or_read_is_said_too() {
    let mut rig = wanting(2);
    rig.settle();
    let range = rig.status("a").aliases.into_keys().next().unwrap();
    refuse(&rig, ErrorKind::Denied, "403 not yours");
    rig.want("a", 1);
    rig.give_back("a", &range);
    rig.settle();
    assert_eq!(ready(&rig).1, "CloudDenied");
    assert_eq!(rig.status("a").problem, None, "its pods have what they want");
    accept(&mut rig);
    assert_eq!((ready(&rig).0.as_str(), rig.on_machine("a").len()), ("True", 1));

    *rig.cloud.refuses_reads.lock().unwrap() =
        Some(CloudError::new(ErrorKind::Denied, "403 Required 'compute.instances.get' permission"));
    rig.want("a", 2);
    rig.settle();
    let (_, reason, message) = ready(&rig);
    assert!(reason == "CloudDenied" && message.contains("compute.instances.get"), "{message}");
    accept(&mut rig);
    assert_eq!((ready(&rig).0.as_str(), rig.status("a").attached), ("True", 2));
}

#[test]
fn a_refusal_ends_when_nobody_wants_what_was_refused() {
    let mut rig = wanting(1);
    refuse(&rig, ErrorKind::Capacity, "Quota exceeded");
    rig.settle();
    assert_eq!(ready(&rig).1, "CloudQuota");
    let range = rig.status("a").aliases.into_keys().next().unwrap();
    rig.want("a", 0);
    rig.give_back("a", &range);
    rig.settle();
    assert_eq!(ready(&rig).0, "True");
}

#[test]
fn what_one_machine_lacks_is_not_the_pools() {
    let mut rig = wanting(151);
    rig.join("gone");
    rig.want("gone", 1);
    rig.settle();
    assert!(rig.status("a").problem.unwrap().contains("takes 150 at most"));
    assert!(rig.status("gone").problem.unwrap().contains("there is no such machine"));
    assert_eq!(ready(&rig).0, "True");
}
