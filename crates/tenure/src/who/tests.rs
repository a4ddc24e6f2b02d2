//! What `tenure who` says, letter by letter.

use serde_json::json;

use super::*;
use crate::snapshot::example::{NOW, aliases, cool, ip, moment, pod, system};

fn said(snapshot: &Snapshot, address: &str) -> String {
    text(&answer(snapshot, ip(address)), moment(NOW))
}

fn first_line(snapshot: &Snapshot, address: &str) -> (State, String) {
    let answer = answer(snapshot, ip(address));
    (answer.state, answer.summary)
}

#[test]
fn a_holder_is_shown_with_all_that_leads_to_it() {
    assert_eq!(
        said(&system(), "10.64.0.1"),
        "\
10.64.0.1 is held by ns/web-1 on node node1
pod:          ns/web-1
interface:    eth0 of container c-web-1, network k8s
host side:    tnr-web-1
node:         node1
block:        default-0
pool:         default
since:        2026-11-15T11:30:00Z (30m ago)
"
    );
}

#[test]
fn the_last_holder_is_known_while_it_cools() {
    let mut snapshot = system();
    cool(&mut snapshot, "10.64.0.5");
    assert_eq!(
        said(&snapshot, "10.64.0.5"),
        "\
10.64.0.5 cools on node node1, and was held by ns/old-0
node:         node1
block:        default-0
pool:         default
last holder:  ns/old-0
cools for:    20s
"
    );
}

#[test]
fn it_is_said_why_nobody_has_an_address() {
    let mut snapshot = system();
    snapshot.pools[0].spec.exclude = vec!["10.64.0.9".into(), "10.64.0.200".into()];
    for (address, state, summary) in [
        ("10.64.0.7", State::Free, "nobody has 10.64.0.7: it is free in block default-0 of node node1"),
        ("10.64.0.9", State::Excluded, "nobody has 10.64.0.9: pool default excludes it"),
        ("10.64.0.200", State::Excluded, "nobody has 10.64.0.200: pool default excludes it"),
        (
            "10.64.0.100",
            State::Uncarved,
            "nobody has 10.64.0.100: no node owns its block default-6 of pool default",
        ),
        ("10.1.1.1", State::Outside, "10.1.1.1 is in no pool; there are default"),
        ("fd00::1", State::Outside, "fd00::1 is in no pool; there are default"),
    ] {
        assert_eq!(first_line(&snapshot, address), (state, summary.to_owned()));
    }
    snapshot.agents.insert("node2".into(), Err("no answer for 5 s".into()));
    assert_eq!(
        first_line(&snapshot, "10.64.0.20"),
        (
            State::Unknown,
            "10.64.0.20 is in block default-1 of node node2, and who has it is not known: no answer for 5 s"
                .into()
        )
    );
}

#[test]
fn a_pod_that_has_an_address_without_a_hold_is_named() {
    let mut snapshot = system();
    snapshot.pods.as_mut().unwrap().push(pod("ghost", "node1", "10.64.0.7"));
    assert_eq!(
        first_line(&snapshot, "10.64.0.7").1,
        "nobody has 10.64.0.7: it is free in block default-0 of node node1; but the status of pod ns/ghost has it: \
         run `tenure check`"
    );
}

#[test]
fn a_host_of_a_cluster_knows_its_own_part() {
    let mut snapshot = system();
    (snapshot.pools, snapshot.blocks) = (Vec::new(), Vec::new());
    snapshot.agents.remove("node2");
    assert_eq!(first_line(&snapshot, "10.64.0.1").0, State::Held);
    assert_eq!(
        first_line(&snapshot, "10.64.0.7"),
        (State::Free, "nobody has 10.64.0.7: it is in block default-0 of node node1".into())
    );
    assert_eq!(first_line(&snapshot, "10.64.0.77").1, "10.64.0.77 is in no block of this node");
}

#[test]
fn the_json_has_the_documented_shape() {
    let shown = serde_json::to_value(answer(&system(), ip("10.64.0.1"))).unwrap();
    assert_eq!(
        shown,
        json!({
            "address": "10.64.0.1",
            "state": "held",
            "summary": "10.64.0.1 is held by ns/web-1 on node node1",
            "pool": "default",
            "block": "default-0",
            "node": "node1",
            "holder": {
                "network": "k8s", "container": "c-web-1", "interface": "eth0",
                "pod": {"namespace": "ns", "name": "web-1", "uid": "web-1-uid"},
            },
            "addresses": ["10.64.0.1"],
            "since": "2026-11-15T11:30:00Z",
            "hostInterface": "tnr-web-1",
            "pods": ["ns/web-1"],
        })
    );
}

#[test]
fn an_address_of_whereabouts_ranges_is_found_in_ledgers_and_slices() {
    let snapshot = crate::snapshot::example::with_ranges();
    let of = |address: &str| answer(&snapshot, address.parse().unwrap());
    let held = of("10.9.0.2");
    assert_eq!(held.summary, "10.9.0.2 is held by ns/db-0 (IPPool 10.9.0.0-24)");
    assert_eq!((held.state, held.pool.as_deref()), (State::Held, Some("10.9.0.0-24")));
    assert_eq!(held.holder.unwrap().interface, "net1");
    let sliced = of("10.8.0.1");
    assert_eq!(sliced.summary, "10.8.0.1 is held by ns/web-1 on node node1 (IPPool node1-10.8.0.0-26)");
    assert_eq!((sliced.pool.as_deref(), sliced.node.as_deref()), (Some("net"), Some("node1")));
    for (address, state, words) in [
        ("10.9.0.9", State::Free, "free in IPPool 10.9.0.0-24"),
        ("10.8.0.70", State::Free, "free in slice 10.8.0.64/26 of node node2 (NodeSlicePool net)"),
        ("10.8.0.200", State::Uncarved, "its slice of NodeSlicePool net has no node"),
        ("10.7.0.1", State::Outside, "is in no pool"),
    ] {
        let answer = of(address);
        assert!(answer.state == state && answer.summary.contains(words), "{answer:?}");
    }
}

#[test]
fn a_claims_address_is_said_to_be_the_claims_whether_a_pod_has_it_or_not() {
    let mut snapshot = system();
    snapshot.blocks.push(crate::snapshot::example::floating());
    assert_eq!(
        said(&snapshot, "10.64.0.81"),
        "\
10.64.0.81 belongs to claim ns/vm.net (block default-5 of pool default)
claim:        ns/vm.net
block:        default-5
pool:         default
"
    );
    let (state, summary) = first_line(&snapshot, "10.64.0.82");
    assert_eq!(state, State::Cooling);
    assert!(summary.contains("belonged to claim ns/old.net, which is gone"), "{summary}");
    let (state, summary) = first_line(&snapshot, "10.64.0.83");
    assert_eq!(state, State::Free);
    assert!(summary.contains("which is for claims"), "{summary}");
}

#[test]
fn while_a_claim_moves_both_pods_are_shown_and_the_one_that_is_reached_first() {
    let mut snapshot = system();
    snapshot.blocks.push(crate::snapshot::example::floating());
    let slot =
        |pod: &str, node: &str| Slot { pod: pod.into(), uid: pod.into(), node: node.into(), stamp: None };
    let slots = Slots {
        active: Some(slot("vm-a", "node1")),
        incoming: Some(slot("vm-b", "node2")),
        ..Slots::default()
    };
    snapshot.claims.insert("ns/vm.net".into(), slots);
    let rows = said(&snapshot, "10.64.0.81");
    let pods = "active pod:   ns/vm-a on node node1\nother pod:    ns/vm-b on node node2\n";
    assert!(rows.contains(pods), "{rows}");
    for (node, pod, reached) in [("node1", "vm-b", false), ("node2", "vm-a", true)] {
        let claim = tenure_view::Claim { name: "ns/vm.net".into(), reached, ..tenure_view::Claim::default() };
        let hold =
            Hold { claim: Some(claim), ..crate::snapshot::example::hold(pod, "default-5", "10.64.0.81") };
        snapshot.agents.get_mut(node).unwrap().as_mut().unwrap().holds.push(hold);
    }
    assert_eq!(first_line(&snapshot, "10.64.0.81").1, "10.64.0.81 is held by ns/vm-a on node node2");
}

#[test]
fn an_alias_address_is_found_in_the_record_of_its_machine() {
    let mut snapshot = system();
    snapshot.aliases = aliases();
    let found = |address: &str| first_line(&snapshot, address);
    let place = "alias of the machine of node node1 (IPPool live)";
    let free = format!("nobody has 10.111.0.1: it is free on node node1, {place}");
    assert_eq!(found("10.111.0.1"), (State::Free, free));
    let moves = format!("10.111.0.2 is held by pod ns/web-0, and moves between it and pod ns/web-9: {place}");
    assert_eq!(found("10.111.0.2"), (State::Held, moves));
    assert_eq!(found("10.111.0.3").0, State::Cooling);
    assert_eq!(found("10.111.0.4").0, State::KeptBack);
    let (state, summary) = found("10.111.0.9");
    assert_eq!((state, summary.contains("free in IPPool live")), (State::Free, true));
    assert_eq!(found("10.111.0.200").0, State::Excluded);
    assert_eq!(found("10.112.0.1").0, State::Outside);
    snapshot.agents.insert("node1".to_owned(), Err("it does not answer".to_owned()));
    assert_eq!(first_line(&snapshot, "10.111.0.1").0, State::Unknown);
}
