//! Nothing that shows a use is overlooked.

use super::*;
use crate::snapshot::example::{hold, ip, pod, told, with_ranges};

#[test]
fn a_record_is_released_only_if_nothing_shows_that_its_address_is_in_use() {
    let mut snapshot = with_ranges();
    let in_use = |snapshot: &Snapshot| match decide(snapshot, ip("10.9.0.2")) {
        Decision::InUse { signs } => signs.len(),
        _ => 0,
    };
    assert_eq!(in_use(&snapshot), 2, "the pod has it in its status, and exists");
    snapshot.pods.as_mut().unwrap()[2].networks.clear();
    assert_eq!(in_use(&snapshot), 1, "the pod exists");
    snapshot.pods.as_mut().unwrap().retain(|pod| pod.name != "db-0");
    let record = Decision::Record { ledger: "10.9.0.0-24".into(), key: "2".into(), holder: "ns/db-0".into() };
    assert_eq!(decide(&snapshot, ip("10.9.0.2")), record);
    assert!(to_release(&snapshot, ip("10.9.0.2"), &record).is_some());
    let mut silent = snapshot.clone();
    silent.agents.insert("node2".into(), Err("no answer".into()));
    assert!(matches!(decide(&silent, ip("10.9.0.2")), Decision::Unknown { .. }));
    let mut other = pod("other", "node1", "10.64.0.3");
    other.networks.push(ip("10.9.0.2"));
    snapshot.pods.as_mut().unwrap().push(other);
    assert_eq!(in_use(&snapshot), 1, "another pod has it in its status");
}

#[test]
fn what_an_agent_owns_is_left_to_it() {
    let mut snapshot = with_ranges();
    snapshot.pods.as_mut().unwrap().retain(|pod| pod.name != "db-0" && pod.name != "web-1");
    let Decision::Owned { by, .. } = decide(&snapshot, ip("10.64.0.16")) else { panic!("the agent's") };
    assert!(by.starts_with("the agent of node node2 holds it for ns/db-0"), "{by}");
    let Decision::Owned { by, .. } = decide(&snapshot, ip("10.8.0.1")) else { panic!("the node's") };
    assert!(by.starts_with("IPPool node1-10.8.0.0-26 is written by node node1 alone"), "{by}");
    assert_eq!(decide(&snapshot, ip("10.64.0.9")), Decision::Free);
}

#[test]
fn what_is_held_for_a_pod_that_exists_or_for_a_claim_is_in_use() {
    let mut snapshot = with_ranges();
    snapshot.pods.as_mut().unwrap()[0].addresses.clear();
    assert!(matches!(decide(&snapshot, ip("10.64.0.0")), Decision::InUse { .. }));
    let claim = tenure_view::Claim { name: "ns/vm".into(), uid: "k".into(), reached: true };
    told(&mut snapshot, "node1").holds.push(Hold { claim: Some(claim), ..hold("gone", "x", "10.20.0.5") });
    assert!(matches!(decide(&snapshot, ip("10.20.0.5")), Decision::InUse { .. }));
    snapshot.blocks.push(crate::snapshot::example::floating());
    assert!(matches!(decide(&snapshot, ip("10.64.0.81")), Decision::InUse { .. }));
    assert_eq!(decide(&snapshot, ip("10.64.0.83")), Decision::Free);
}
