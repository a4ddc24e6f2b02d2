//! Every difference is found in a system that has just that one.

use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::json;
use tenure_api::coil::FINALIZER;
use tenure_view::Waiting;

use super::*;
use crate::snapshot::example::{
    agent, aliases, block, hold, holder, ip, moment, pod, pool, request, system, told,
};

/// A change that makes one difference: its kind, its subject, and the change.
type Fault = (&'static str, &'static str, fn(&mut Snapshot));

const FAULTS: &[Fault] = &[
    ("pool-invalid", "pool default", |it| it.pools[0].spec.block_size_bits = 99),
    ("pools-overlap", "pool younger", |it| {
        let mut younger = pool("younger", "10.64.0.128/25", 0);
        younger.metadata.creation_timestamp =
            Some(serde_json::from_value(json!("2026-11-15T01:00:00Z")).unwrap());
        it.pools.push(younger);
    }),
    ("pool-unprotected", "pool default", |it| it.pools[0].metadata.finalizers = None),
    ("pool-status", "pool default", |it| it.pools[0] = pool("default", "10.64.0.0/24", 3)),
    ("leftover-finalizer", "pool empty", |it| {
        let mut empty = pool("empty", "10.65.0.0/24", 0);
        empty.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-11-15T11:50:00Z")).unwrap());
        it.pools.push(empty);
    }),
    ("leftover-finalizer", "block default-0", |it| {
        let deleted = serde_json::from_value(json!("2026-11-15T11:50:00Z")).unwrap();
        it.blocks[0].metadata.deletion_timestamp = Some(deleted);
    }),
    ("block-without-pool", "block default-0", |it| {
        it.blocks[0].labels_mut().remove("coil.cybozu.com/pool");
        it.pools[0] = pool("default", "10.64.0.0/24", 1);
    }),
    ("block-without-pool", "block other-0", |it| {
        let mut other = block("other", 0, "node1", "10.99.0.0/28");
        other.labels_mut().insert("coil.cybozu.com/reserved".into(), "true".into());
        it.blocks.push(other);
        let mut known = told(it, "node1").blocks[0].clone();
        (known.name, known.uid) = ("other-0".into(), "other-0-uid".into());
        told(it, "node1").blocks.push(known);
    }),
    ("block-outside-pool", "block default-1", |it| it.blocks[1].spec.index = 7),
    ("block-without-node", "block default-1", |it| {
        it.nodes.remove("node2");
        it.agents.remove("node2");
        it.pods.as_mut().unwrap().retain(|pod| pod.node != "node2");
    }),
    ("request-without-node", "request r", |it| {
        it.requests.push(request("r", "gone", "2026-11-15T11:59:59Z", &json!({})));
    }),
    ("request-unanswered", "request r", |it| {
        it.requests.push(request("r", "node1", "2026-11-15T11:50:00Z", &json!({})));
    }),
    ("request-unanswered", "request r", |it| {
        it.requests.push(request("r", "node1", "2026-11-15T11:58:59Z", &json!({})).answered_by_block());
    }),
    // The status needs the answer, although there is a block.
    ("request-unanswered", "request r", |it| {
        it.requests.push(request("r", "node1", "2026-11-15T11:50:00Z", &json!({})));
        it.blocks[0].labels_mut().insert("coil.cybozu.com/request".into(), "r".into());
    }),
    ("request-left-over", "request r", |it| {
        it.requests.push(request("r", "node1", "2026-11-15T11:58:59Z", &json!({})).answered_by_block());
        it.blocks[0].labels_mut().insert("coil.cybozu.com/request".into(), "r".into());
    }),
    ("request-failed", "request r", |it| {
        let failed =
            json!({"conditions": [{"type": "Failed", "status": "True", "reason": "x", "message": "full"}]});
        it.requests.push(request("r", "node1", "2026-11-15T11:59:59Z", &failed));
    }),
    ("request-left-over", "request r", |it| {
        let complete =
            json!({"addressBlockName": "default-0", "conditions": [{"type": "Complete", "status": "True"}]});
        it.requests.push(request("r", "node1", "2026-11-15T11:00:00Z", &complete));
    }),
    ("agent", "node node1", |it| told(it, "node1").problem = Some("no pool has an address left".into())),
    ("agent", "node node1", |it| told(it, "node1").journal.problem = Some("disk full".into())),
    ("agent", "node node1", |it| told(it, "node1").api.watches[0].problem = Some("forbidden".into())),
    ("waiting", "node node1: ns/late", |it| {
        let since = moment("2026-11-15T11:59:00Z");
        told(it, "node1").waiting.push(Waiting { holder: holder("late"), pool: "default".into(), since });
    }),
    ("kernel", "node node1: 10.64.0.0", |it| {
        let difference = tenure_view::Difference { subject: "10.64.0.0".into(), problem: "no route".into() };
        told(it, "node1").kernel.as_mut().unwrap().differences.push(difference);
    }),
    ("held-in-lost-block", "node node1: block default-0", |it| {
        it.blocks.remove(0);
        it.pools[0] = pool("default", "10.64.0.0/24", 1);
        told(it, "node1").blocks[0].fenced = Some("its object is gone".into());
    }),
    ("block-unknown-to-api", "node node1: block default-9", |it| {
        let mut unknown = told(it, "node1").blocks[0].clone();
        (unknown.name, unknown.uid) = ("default-9".into(), "u9".into());
        told(it, "node1").blocks.push(unknown);
    }),
    ("block-of-two-nodes", "node node2: block default-0", |it| {
        let stolen = told(it, "node1").blocks[0].clone();
        told(it, "node2").blocks.push(stolen);
    }),
    ("block-unknown-to-agent", "node node1: block default-0", |it| {
        told(it, "node1").blocks.clear();
    }),
    ("hold-outside-blocks", "node node1: ns/web-0", |it| told(it, "node1").holds[0].block = None),
    ("hold-outside-blocks", "node node2: ns/db-0", |it| {
        told(it, "node2").holds[0].addresses = vec![ip("10.64.0.99")];
        it.pods.as_mut().unwrap()[2].addresses = vec![ip("10.64.0.99")];
    }),
    ("held-twice", "10.64.0.0", |it| {
        let mut second = hold("web-0", "default-0", "10.64.0.0");
        second.holder.container = "another".into();
        told(it, "node1").holds.push(second);
    }),
    ("pod-without-hold", "pod ns/ghost", |it| {
        it.pods.as_mut().unwrap().push(pod("ghost", "node1", "10.64.0.7"));
    }),
    ("hold-without-pod", "node node2: 10.64.0.16", |it| {
        it.pods.as_mut().unwrap().retain(|pod| pod.name != "db-0");
    }),
    ("hold-without-pod", "node node2: 10.64.0.16", |it| it.pods.as_mut().unwrap()[2].uid = "another".into()),
];

fn kinds(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    compare(snapshot).differences.into_iter().map(|it| (it.kind, it.subject)).collect()
}

#[test]
fn a_system_in_order_has_no_differences() {
    let findings = compare(&system());
    assert_eq!(
        (findings.differences.len(), findings.unseen.len(), findings.code()),
        (0, 0, 0),
        "{findings:?}"
    );
    let said = say(&findings, Format::Table).unwrap();
    assert_eq!(
        said.text,
        "Compared 1 pools, 2 blocks, 0 requests, 3 holds of 2 nodes, and 4 pods. No differences.\n"
    );
}

#[test]
fn each_fault_is_found_by_its_kind_and_subject_and_nothing_else_is() {
    for (number, (kind, subject, fault)) in FAULTS.iter().enumerate() {
        let mut snapshot = system();
        fault(&mut snapshot);
        assert_eq!(kinds(&snapshot), [(*kind, (*subject).to_owned())], "fault {number}");
        assert_eq!(compare(&snapshot).code(), 1);
        let advice = &compare(&snapshot).differences[0].advice;
        assert!(!advice.is_empty());
    }
}

#[test]
fn a_pod_whose_address_is_held_for_another_is_found_from_both_sides() {
    let mut snapshot = system();
    snapshot.pods.as_mut().unwrap().push(pod("twin", "node1", "10.64.0.0"));
    assert_eq!(
        kinds(&snapshot),
        [("pod-without-hold", "pod ns/twin".to_owned()), ("pods-share-address", "10.64.0.0".to_owned())]
    );
}

#[test]
fn blocks_that_share_addresses_are_found_beside_their_pools() {
    let mut snapshot = system();
    snapshot.blocks.push(block("second", 0, "node2", "10.64.0.24/29"));
    let mut second = pool("second", "10.64.0.24/29", 1);
    second.spec.block_size_bits = 3;
    snapshot.pools.push(second);
    let mut known = told(&mut snapshot, "node2").blocks[0].clone();
    (known.name, known.uid) = ("second-0".into(), "second-0-uid".into());
    told(&mut snapshot, "node2").blocks.push(known);
    let findings = compare(&snapshot);
    assert_eq!(
        kinds(&snapshot),
        [("blocks-overlap", "block second-0".to_owned()), ("pools-overlap", "pool second".to_owned())]
    );
    assert_eq!(findings.differences[0].problem, "10.64.0.24/29 is also of block default-1 (10.64.0.16/28)");
}

#[test]
fn one_address_on_two_nodes_is_found() {
    let mut snapshot = system();
    told(&mut snapshot, "node2").holds.push(hold("web-0", "default-1", "10.64.0.0"));
    let found = kinds(&snapshot);
    assert!(found.contains(&("held-twice", "10.64.0.0".to_owned())), "{found:?}");
}

#[test]
fn what_cannot_be_seen_is_said_and_is_no_difference() {
    let mut snapshot = system();
    snapshot.agents.insert("node2".into(), Err("no answer for 5 s".into()));
    let findings = compare(&snapshot);
    assert_eq!((findings.differences.len(), findings.code()), (0, 2), "{findings:?}");
    let said = say(&findings, Format::Table).unwrap();
    assert_eq!(
        (said.text.as_str(), said.notes.as_str(), said.code),
        (
            "Compared 1 pools, 2 blocks, 0 requests, 2 holds of 1 nodes, and 4 pods. No differences, but 1 could not be looked at.\n",
            "? node node2: no answer for 5 s\n",
            2
        )
    );
    told(&mut snapshot, "node1").ready = false;
    assert_eq!(compare(&snapshot).unseen.len(), 2);
}

#[test]
fn pods_of_a_system_that_was_here_before_are_left_alone() {
    let mut snapshot = system();
    let mut reserved = block("default", 2, "node9", "10.64.0.32/28");
    reserved.labels_mut().insert("coil.cybozu.com/reserved".into(), "true".into());
    snapshot.blocks.push(reserved);
    snapshot.pools[0] = pool("default", "10.64.0.0/24", 3);
    snapshot.pods.as_mut().unwrap().push(pod("old", "node1", "10.64.0.33"));
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn without_kubernetes_holds_need_no_pods() {
    let mut snapshot = system();
    snapshot.pods = None;
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn a_request_that_has_its_block_may_stay_for_a_minute() {
    let mut snapshot = system();
    let asked = request("r", "node1", "2026-11-15T11:59:00Z", &json!({})).answered_by_block();
    snapshot.requests.push(asked);
    snapshot.blocks[0].labels_mut().insert("coil.cybozu.com/request".into(), "r".into());
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn pods_that_start_or_have_ended_are_not_suspected() {
    let mut snapshot = system();
    let pods = snapshot.pods.as_mut().unwrap();
    pods[0].addresses.clear();
    pods[2].over = true;
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn a_static_pod_is_known_by_its_name() {
    let static_pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
        "metadata": {
            "namespace": "ns", "name": "db-0", "uid": "of-the-mirror",
            "annotations": {"kubernetes.io/config.mirror": "x"},
        },
        "spec": {"nodeName": "node2", "containers": []},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.64.0.16"}]},
    }))
    .unwrap();
    let mut snapshot = system();
    snapshot.pods.as_mut().unwrap()[2] = crate::snapshot::PodFacts::of(&static_pod).unwrap();
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn only_what_is_seen_twice_is_said() {
    let mut once = system();
    (FAULTS[0].2)(&mut once);
    let mut twice = system();
    (FAULTS[2].2)(&mut twice);
    let both = {
        let mut both = twice.clone();
        (FAULTS[0].2)(&mut both);
        both
    };
    let still = compare(&both).and_still(compare(&once));
    assert_eq!(still.differences.iter().map(|it| it.kind).collect::<Vec<_>>(), ["pool-invalid"]);
    assert_eq!(compare(&both).and_still(compare(&system())).code(), 0);
}

#[test]
fn differences_are_shown_with_what_to_do() {
    let mut snapshot = system();
    snapshot.pods.as_mut().unwrap().push(pod("ghost", "node1", "10.64.0.7"));
    snapshot.pools[0].metadata.finalizers = None;
    let said = say(&compare(&snapshot), Format::Table).unwrap();
    let expected = "\
pod-without-hold: pod ns/ghost: has 10.64.0.7, and the agent of node node1 knows no hold of it
    delete the pod, so that it gets an address that is held; until then another pod may get the same
pool-unprotected: pool default: has blocks, and no finalizer coil.cybozu.com
    see whether a controller leads (kubectl -n kube-system get lease coil-ipam-leader)

Compared 1 pools, 2 blocks, 0 requests, 3 holds of 2 nodes, and 5 pods. Differences: 2.
";
    assert_eq!((said.text.as_str(), said.code), (expected, 1));
    assert_eq!(FINALIZER, "coil.cybozu.com");
    let json = say(&compare(&snapshot), Format::Json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json.text).unwrap();
    assert_eq!(json["differences"][1]["kind"], "pool-unprotected");
    assert_eq!(json["compared"]["holds"], 3);
}

proptest! {
    /// However large the system is: in order it has no differences, and a hold moved onto another's address has one.
    #[test]
    fn a_system_of_any_size_in_order_has_none_and_a_stolen_address_is_found(
        nodes in 1_u32..12,
        pods_each in 1_u32..16,
        thief in any::<prop::sample::Index>(),
        victim in any::<prop::sample::Index>(),
    ) {
        let mut snapshot = Snapshot::empty(moment("2026-11-15T12:00:00Z"));
        snapshot.pools = vec![pool("default", "10.64.0.0/24", nodes)];
        let mut pods = Vec::new();
        for node in 0..nodes {
            let (name, network) = (format!("node{node}"), format!("10.64.0.{}/28", node * 16));
            snapshot.blocks.push(block("default", node, &name, &network));
            let holds: Vec<_> = (0..pods_each).map(|number| {
                let (pod_name, address) = (format!("p{node}-{number}"), format!("10.64.0.{}", node * 16 + number));
                pods.push(pod(&pod_name, &name, &address));
                hold(&pod_name, &format!("default-{node}"), &address)
            }).collect();
            snapshot.nodes.insert(name.clone());
            snapshot.agents.insert(name.clone(), Ok(agent(&name, &format!("default-{node}"), &network, holds)));
        }
        snapshot.pods = Some(pods.clone());
        prop_assert_eq!(kinds(&snapshot), []);
        let (thief, victim) = (thief.get(&pods), victim.get(&pods));
        if thief != victim {
            let holds = &mut told(&mut snapshot, &thief.node).holds;
            let stolen = holds.iter_mut().find(|hold| hold.addresses == thief.addresses).unwrap();
            stolen.addresses.clone_from(&victim.addresses);
            let found = kinds(&snapshot);
            prop_assert!(found.contains(&("held-twice", victim.addresses[0].to_string())), "{found:?}");
            prop_assert!(found.iter().any(|(kind, _)| *kind == "pod-without-hold"), "{found:?}");
        }
    }
}

/// Something that goes wrong.
type Change = fn(&mut Snapshot);

#[test]
fn whereabouts_ranges_are_compared_with_each_other_and_with_pods() {
    use crate::snapshot::example::{ledger, reservation, slices, with_ranges};

    let kinds = |snapshot: &Snapshot| {
        let kinds: Vec<&str> = compare(snapshot).differences.iter().map(|it| it.kind).collect();
        kinds
    };
    assert_eq!(kinds(&with_ranges()), Vec::<&str>::new(), "{:?}", compare(&with_ranges()).differences);
    let cases: [(&str, Change); 11] = [
        ("ledger-invalid", |it| it.ranges.ledgers.push(ledger("x", "10.0.0.0/33", "", "unique", &[]))),
        ("record-senseless", |it| {
            let record = it.ranges.ledgers[0].spec.allocations["1"].clone();
            it.ranges.ledgers[0].spec.allocations.insert("9999".into(), record);
        }),
        ("ledger-without-slice", |it| {
            it.ranges.ledgers.push(ledger("node1-10.5.0.0-26", "10.5.0.0/26", "node1", "owned", &[]));
        }),
        ("recorded-twice", |it| {
            it.ranges.ledgers.push(ledger("10.9.0.0-25", "10.9.0.0/25", "", "unique", &[("1", "db-0")]));
        }),
        ("record-without-reservation", |it| {
            it.ranges.ledgers.push(ledger("10.6.0.0-25", "10.6.0.0/25", "", "overlapping", &[("1", "db-0")]));
        }),
        ("reservation-without-record", |it| it.ranges.reservations.push(reservation("10.9.0.7", "db-0"))),
        ("slice-of-two-nodes", |it| {
            let given = [("node1", "10.7.0.0/26"), ("node2", "10.7.0.0/26")];
            it.ranges.slices.push(slices("other", "10.7.0.0/25", "/26", &given));
        }),
        ("node-with-two-slices", |it| {
            let given = [("node1", "10.7.0.0/26"), ("node1", "10.7.0.64/26")];
            it.ranges.slices.push(slices("other", "10.7.0.0/25", "/26", &given));
        }),
        ("slice-without-node", |it| {
            it.ranges.slices.push(slices("other", "10.7.0.0/26", "/26", &[("node9", "10.7.0.0/26")]));
        }),
        ("record-without-pod", |it| {
            it.ranges.ledgers.push(ledger("10.6.0.0-25", "10.6.0.0/25", "", "unique", &[("1", "gone")]));
        }),
        ("pod-without-record", |it| it.pods.as_mut().unwrap()[2].networks = vec![ip("10.9.0.77")]),
    ];
    for (kind, change) in cases {
        let mut snapshot = with_ranges();
        change(&mut snapshot);
        assert_eq!(kinds(&snapshot), [kind], "{:?}", compare(&snapshot).differences);
    }
}

#[test]
fn a_slice_that_an_agent_hands_out_of_is_its_own() {
    let mut snapshot = crate::snapshot::example::with_ranges();
    let agent = crate::snapshot::example::told(&mut snapshot, "node1");
    let mut block = agent.blocks[0].clone();
    block.name = "node1-10.8.0.0-26".into();
    (block.pool, block.uid) = ("whereabouts/net".into(), "net.1/10.8.0.0/26".into());
    block.networks = vec!["10.8.0.0/26".parse().unwrap()];
    agent.blocks.push(block);
    assert_eq!(compare(&snapshot).differences, []);
    snapshot.ranges.slices[0].status.as_mut().unwrap().allocations[0].node_name = "node2".into();
    let kinds: Vec<&str> = compare(&snapshot).differences.iter().map(|it| it.kind).collect();
    assert!(kinds.contains(&"slice-unknown-to-api"), "{kinds:?}");
}

#[test]
fn a_block_for_claims_needs_no_node_and_its_records_no_pods() {
    let mut snapshot = system();
    snapshot.blocks.push(crate::snapshot::example::floating());
    snapshot.pools[0] = pool("default", "10.64.0.0/24", 3);
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn a_block_that_is_withheld_for_an_older_pool_is_not_counted_as_allocated() {
    let mut snapshot = system();
    let withheld = tenure_api::coil::AddressBlock::withhold(&snapshot.pools[0], 9, "older-uid").unwrap();
    snapshot.blocks.push(withheld);
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn records_of_alias_addresses_are_compared_with_each_other_with_nodes_and_with_pods() {
    let found = |change: fn(&mut Snapshot)| {
        let mut snapshot = system();
        snapshot.aliases = aliases();
        change(&mut snapshot);
        let mut findings = Findings::default();
        super::aliases::compare(&snapshot, &mut findings);
        findings.differences.into_iter().map(|it| format!("{} {}", it.kind, it.subject)).collect::<Vec<_>>()
    };
    assert_eq!(found(|_| {}), Vec::<String>::new());
    let twice = |it: &mut Snapshot| {
        let mut other = it.aliases.ledgers[0].clone();
        other.metadata.name = Some("other-0".to_owned());
        other.spec.records.retain(|key, _| key == "1");
        it.aliases.ledgers.push(other);
    };
    assert_eq!(found(twice), ["alias-twice IPLedger live-0"]);
    assert_eq!(found(|it| _ = it.nodes.remove("node1")), ["alias-node-missing NodeAliases node1"]);
    assert_eq!(
        found(|it| _ = it.aliases.ledgers[0].spec.records.remove("1")),
        ["alias-status NodeAliases node1"]
    );
    let unrecorded = |it: &mut Snapshot| it.pods.as_mut().unwrap().push(pod("lost", "node1", "10.111.0.77"));
    assert_eq!(found(unrecorded), ["alias-unrecorded pod ns/lost"]);
    let excluded = |it: &mut Snapshot| it.pods.as_mut().unwrap().push(pod("claim", "node1", "10.111.0.200"));
    assert_eq!(found(excluded), Vec::<String>::new());
}

#[test]
fn a_fenced_block_whose_object_names_the_node_again_is_not_lost() {
    let mut snapshot = system();
    told(&mut snapshot, "node1").blocks[0].fenced = Some("its object is gone".into());
    assert_eq!(kinds(&snapshot), []);
}

#[test]
fn an_alias_range_of_an_agent_is_no_block_without_an_object() {
    let mut snapshot = system();
    let mut alias = told(&mut snapshot, "node1").blocks[0].clone();
    (alias.name, alias.uid) = ("live-10.111.0.1/32".into(), "g1@10.111.0.1/32".into());
    alias.pool = "alias/live".into();
    told(&mut snapshot, "node1").blocks.push(alias);
    assert_eq!(kinds(&snapshot), []);
}
