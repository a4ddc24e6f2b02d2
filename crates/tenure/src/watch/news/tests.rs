//! Changes of the example system, and the events in them.

use serde_json::json;

use super::*;
use crate::check::compare;
use crate::snapshot::example::{agent, block, hold, ledger, pool, slices, system, told, with_ranges};

fn names(all: &[News]) -> Vec<(&'static str, String)> {
    all.iter().map(|it| (it.event, format!("{}: {}", it.subject, it.message))).collect()
}

#[test]
fn blocks_are_granted_moved_and_returned() {
    let mut all = Vec::new();
    let (one, other) =
        (block("default", 0, "node1", "10.64.0.0/28"), block("default", 0, "node2", "10.64.0.0/28"));
    of_block(None, Some(&one), &mut all);
    of_block(Some(&one), Some(&one), &mut all);
    of_block(Some(&one), Some(&other), &mut all);
    of_block(Some(&other), None, &mut all);
    let expected = [
        ("block-granted", "block default-0: 10.64.0.0/28 of pool default, to node node1"),
        ("block-moved", "block default-0: from node node1 to node node2"),
        ("block-returned", "block default-0: 10.64.0.0/28 of pool default, by node node2"),
    ];
    assert_eq!(names(&all), expected.map(|(event, text)| (event, text.to_owned())));
}

#[test]
fn holds_are_those_of_agents_and_of_shared_ranges() {
    let mut all = Vec::new();
    let before = agent("node1", "default-0", "10.64.0.0/28", vec![hold("web-0", "default-0", "10.64.0.0")]);
    let after = agent("node1", "default-0", "10.64.0.0/28", vec![hold("web-1", "default-0", "10.64.0.1")]);
    of_agent("node1", None, &Ok(before.clone()), &mut all);
    assert_eq!(all, [], "what is there at the start is no event");
    of_agent("node1", Some(&Ok(before.clone())), &Ok(after), &mut all);
    of_agent("node1", Some(&Ok(before)), &Err("it is down".to_owned()), &mut all);
    let one = ledger("10.9.0.0-24", "10.9.0.0/24", "", "unique", &[("1", "web-0")]);
    let other = ledger("10.9.0.0-24", "10.9.0.0/24", "", "unique", &[("2", "web-0")]);
    of_ledger(Some(&one), Some(&other), &mut all);
    let own = ledger("node1-10.8.0.0-26", "10.8.0.0/26", "node1", "owned", &[("1", "web-1")]);
    of_ledger(None, Some(&own), &mut all);
    let expected = [
        ("hold-released", "10.64.0.0: by ns/web-0 on node node1 (pool default)"),
        ("hold-assigned", "10.64.0.1: to ns/web-1 on node node1 (pool default)"),
        ("agent-silent", "node node1: it is down"),
        ("hold-released", "10.9.0.1: by ns/web-0 (IPPool 10.9.0.0-24)"),
        ("hold-assigned", "10.9.0.2: to ns/web-0 (IPPool 10.9.0.0-24)"),
    ];
    assert_eq!(names(&all), expected.map(|(event, text)| (event, text.to_owned())));
}

#[test]
fn pools_slices_and_claims_change() {
    let mut all = Vec::new();
    let full = |exhausted: &str| {
        let mut pool = json!(pool("default", "10.64.0.0/24", 2));
        pool["status"]["conditions"][1]["status"] = json!(exhausted);
        serde_json::from_value::<AddressPool>(pool).unwrap()
    };
    of_pool(Some(&full("False")), Some(&full("True")), &mut all);
    let given =
        |node: &str| slices("net", "10.8.0.0/24", "/26", &[("node1", "10.8.0.0/26"), (node, "10.8.0.64/26")]);
    of_slices(Some(&given("")), Some(&given("node2")), &mut all);
    let claim = |holders: serde_json::Value| -> IPAMClaim {
        let metadata = json!({
            "namespace": "ns", "name": "vm.net", "uid": "u", "annotations": {"tenure/holders": holders.to_string()},
        });
        serde_json::from_value(json!({"metadata": metadata, "spec": {"network": "net", "interface": "eth0"}}))
            .unwrap()
    };
    let slot = |pod: &str, node: &str| json!({"pod": pod, "uid": pod, "node": node});
    let steps = [
        claim(json!({})),
        claim(json!({"active": slot("a", "node1")})),
        claim(json!({"active": slot("a", "node1"), "incoming": slot("b", "node2")})),
        claim(json!({"active": slot("b", "node2"), "incoming": slot("a", "node1"), "number": 1})),
        claim(json!({"active": slot("b", "node2"), "number": 1})),
    ];
    of_claim(None, Some(&steps[0]), &mut all);
    for pair in steps.windows(2) {
        of_claim(Some(&pair[0]), Some(&pair[1]), &mut all);
    }
    of_claim(Some(&steps[4]), None, &mut all);
    let expected = [
        ("pool-condition", "AddressPool default: Exhausted True (BlocksFree): m"),
        ("slice-granted", "slice 10.8.0.64/26: of NodeSlicePool net, to node node2"),
        ("claim-created", "claim ns/vm.net: for network net"),
        ("claim-used", "claim ns/vm.net: by pod a on node node1"),
        ("claim-moves", "claim ns/vm.net: to pod b on node node2"),
        ("claim-moved", "claim ns/vm.net: from pod a on node node1 to pod b on node node2"),
        ("claim-deleted", "claim ns/vm.net: "),
    ];
    assert_eq!(names(&all), expected.map(|(event, text)| (event, text.to_owned())));
}

#[test]
fn findings_come_and_go() {
    let (clean, mut broken) = (compare(&system()), system());
    broken.pools[0].metadata.finalizers = None;
    let broken = compare(&broken);
    let mut all = Vec::new();
    of_findings(None, &clean, &mut all);
    of_findings(Some(&clean), &broken, &mut all);
    of_findings(Some(&broken), &broken, &mut all);
    of_findings(Some(&broken), &clean, &mut all);
    let events: Vec<&str> = all.iter().map(|it| it.event).collect();
    assert_eq!(events, ["finding-new", "finding-gone"]);
    assert_eq!(all[0].subject, "pool-unprotected: pool default");
    // The example has nothing to tell of itself.
    let mut same = Vec::new();
    let mut ranges = with_ranges();
    let node = Ok(told(&mut ranges, "node1").clone());
    of_agent("node1", Some(&node), &node, &mut same);
    assert_eq!(same, []);
}
