//! What is known to be applied, in any order of ADDs, looks and restarts.

use super::*;

fn attachment(container: &str) -> Attachment {
    Attachment {
        network: "k8s".into(),
        container: container.into(),
        interface: "eth0".into(),
        netns: "/run/netns/x".into(),
        namespace: "shop".into(),
        pod: "web-0".into(),
        uid: "u".into(),
        addresses: Vec::new(),
    }
}

fn something() -> Wanted {
    Wanted { gateway: true, ..Wanted::default() }
}

/// After the first look, which found these.
fn looked(there: &[&Attachment]) -> Applied {
    let mut applied = Applied::default();
    applied.retain(&there.iter().map(|it| key(it)).collect());
    applied
}

#[test]
fn a_repeated_add_of_a_pod_that_wants_nothing_any_more_leaves_the_removal_to_the_next_look() {
    let (mut applied, pod) = (looked(&[]), attachment("a"));
    applied.put(&pod, something());
    assert!(!applied.put_nothing(&pod), "it has something");
    assert!(applied.needs(&pod, &Wanted::default(), false), "and the next look takes it away");
    applied.put(&pod, Wanted::default());
    assert!(applied.put_nothing(&pod));
    assert!(!applied.needs(&pod, &Wanted::default(), true));
}

#[test]
fn a_new_interface_that_wants_nothing_is_not_looked_at() {
    let (mut applied, pod) = (looked(&[]), attachment("a"));
    assert!(applied.put_nothing(&pod));
    assert!(!applied.needs(&pod, &Wanted::default(), true));
}

#[test]
fn an_interface_of_before_a_restart_is_looked_at_whatever_an_add_says() {
    let pod = attachment("a");
    let mut applied = Applied::default();
    assert!(!applied.put_nothing(&pod), "nobody has looked yet");
    let mut applied_later = looked(&[&pod]);
    for applied in [&mut applied, &mut applied_later] {
        assert!(!applied.put_nothing(&pod));
        assert!(applied.needs(&pod, &Wanted::default(), false));
    }
    applied_later.fail(&pod, Wanted::default(), "the kernel refuses".into());
    assert!(!applied_later.put_nothing(&pod), "it may still have something");
    applied_later.put(&pod, Wanted::default());
    assert!(applied_later.put_nothing(&pod));
}

#[test]
fn a_pod_without_an_interface_of_ours_is_told_why_once_it_is_sure() {
    let pod = |spec: serde_json::Value, status: serde_json::Value| -> PodObject {
        serde_json::from_value(serde_json::json!({"spec": spec, "status": status})).unwrap()
    };
    let (containers, none) = (serde_json::json!({"containers": []}), serde_json::json!({}));
    let host = serde_json::json!({"containers": [], "hostNetwork": true});
    let running = serde_json::json!({"phase": "Running", "podIP": "10.1.0.1"});
    let ended = serde_json::json!({"phase": "Succeeded", "podIP": "10.1.0.1"});
    for (spec, status, expected) in [
        (&host, &none, WithoutBecause::HostNetwork),
        (&containers, &none, WithoutBecause::Starting),
        (&containers, &running, WithoutBecause::OfAnother),
        (&containers, &ended, WithoutBecause::Ended),
    ] {
        assert_eq!(why_without_interface(&pod(spec.clone(), status.clone())), expected, "{spec} {status}");
    }
}
