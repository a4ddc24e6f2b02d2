//! Each finding has its verdict; a step removes its finding in the model and gives no address a second holder; and the documentation
//! has the table.

mod model;

use kube::ResourceExt;
use serde_json::json;
use tenure_api::coil::FINALIZER;
use tenure_whereabouts::slices::{GIVEN, Given};

use super::kinds::{Does, KINDS};
use super::step::Operation;
use super::*;
use crate::check::compare;
use crate::snapshot::Snapshot;
use crate::snapshot::example::{
    block, hold, ip, ledger, pod, request, reservation, system, told, with_ranges,
};
use model::{givers, perform_in};

/// What a fault's verdict is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// A write, after which the finding is gone.
    Gone,
    /// A write, after which the finding waits for pods to end.
    Later,
    Heals,
    Cannot,
}

/// A change that makes a difference of this kind.
type Fault = (&'static str, Expected, fn(&mut Snapshot));

const FAULTS: &[Fault] = &[
    ("pool-unprotected", Expected::Gone, |it| it.pools[0].metadata.finalizers = None),
    ("pool-invalid", Expected::Cannot, |it| it.pools[0].spec.block_size_bits = 99),
    ("block-without-pool", Expected::Gone, |it| {
        drop(it.blocks[0].labels_mut().remove("coil.cybozu.com/pool"));
    }),
    ("block-without-pool", Expected::Cannot, |it| {
        it.blocks[0].labels_mut().remove("coil.cybozu.com/pool");
        it.blocks[0].metadata.name = Some("made-by-hand".into());
    }),
    // Its agent knows it, and its pods go on.
    ("block-without-node", Expected::Later, |it| unlabelled(it, 0)),
    // Nobody knows it.
    ("block-without-node", Expected::Gone, stray),
    // Nobody knows it, and a pod has an address of it.
    ("block-without-node", Expected::Cannot, |it| {
        stray(it);
        it.pods.as_mut().unwrap().push(pod("old", "node1", "10.64.0.33"));
    }),
    // One node cannot be asked.
    ("block-without-node", Expected::Cannot, |it| {
        stray(it);
        it.agents.insert("node2".into(), Err("no answer".into()));
    }),
    ("block-without-node", Expected::Heals, |it| {
        it.nodes.remove("node2");
        it.agents.remove("node2");
        it.pods.as_mut().unwrap().retain(|pod| pod.node != "node2");
    }),
    ("block-without-node", Expected::Cannot, |it| {
        it.nodes.remove("node2");
        it.agents.remove("node2");
    }),
    ("block-outside-pool", Expected::Later, |it| it.blocks[1].spec.index = 7),
    ("block-outside-pool", Expected::Gone, |it| {
        it.blocks[1].spec.index = 7;
        told(it, "node2").holds.clear();
        it.pods.as_mut().unwrap().retain(|pod| pod.node != "node2");
    }),
    ("blocks-overlap", Expected::Gone, |it| {
        let mut second = block("default", 2, "node2", "10.64.0.0/29");
        second.metadata.creation_timestamp =
            Some(serde_json::from_value(json!("2026-11-15T11:00:00Z")).unwrap());
        it.blocks.push(second);
    }),
    ("leftover-finalizer", Expected::Cannot, |it| {
        it.blocks[0].metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-11-15T11:50:00Z")).unwrap());
    }),
    ("leftover-finalizer", Expected::Gone, |it| {
        stray(it);
        let last = it.blocks.last_mut().unwrap();
        last.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-11-15T11:50:00Z")).unwrap());
    }),
    ("request-without-node", Expected::Gone, |it| {
        it.requests.push(request("r", "gone", "2026-11-15T11:59:59Z", &json!({})));
    }),
    ("request-unanswered", Expected::Heals, |it| {
        it.requests.push(request("r", "node1", "2026-11-15T11:50:00Z", &json!({})));
    }),
    ("request-left-over", Expected::Gone, |it| {
        let complete =
            json!({"addressBlockName": "default-0", "conditions": [{"type": "Complete", "status": "True"}]});
        it.requests.push(request("r", "node1", "2026-11-15T11:00:00Z", &complete));
    }),
    ("request-left-over", Expected::Gone, |it| {
        it.requests.push(request("r", "node1", "2026-11-15T11:58:00Z", &json!({})).answered_by_block());
        it.blocks[0].labels_mut().insert("coil.cybozu.com/request".into(), "r".into());
    }),
    ("request-left-over", Expected::Cannot, |it| {
        it.requests.push(request("r", "node1", "2026-11-15T11:58:00Z", &json!({})).answered_by_block());
        it.blocks[1].labels_mut().insert("coil.cybozu.com/request".into(), "r".into());
    }),
    ("request-left-over", Expected::Cannot, |it| {
        let complete =
            json!({"addressBlockName": "default-1", "conditions": [{"type": "Complete", "status": "True"}]});
        it.requests.push(request("r", "node1", "2026-11-15T11:00:00Z", &complete));
    }),
    ("block-unknown-to-agent", Expected::Gone, |it| told(it, "node1").blocks.clear()),
    ("block-unknown-to-api", Expected::Gone, |it| {
        let mut unknown = told(it, "node1").blocks[0].clone();
        (unknown.name, unknown.uid) = ("default-9".into(), "u9".into());
        told(it, "node1").blocks.push(unknown);
    }),
    ("block-of-two-nodes", Expected::Gone, |it| {
        let stolen = told(it, "node1").blocks[0].clone();
        told(it, "node2").blocks.push(stolen);
    }),
    ("held-in-lost-block", Expected::Gone, |it| {
        it.blocks.remove(0);
        told(it, "node1").blocks[0].fenced = Some("its object is gone".into());
    }),
    // Another node has the block by now.
    ("held-in-lost-block", Expected::Cannot, |it| {
        it.blocks[0] = block("default", 0, "node2", "10.64.0.0/28");
        told(it, "node1").blocks[0].fenced = Some("its object names node node2".into());
    }),
    // Another node was promised it.
    ("held-in-lost-block", Expected::Cannot, |it| {
        it.blocks.remove(0);
        told(it, "node1").blocks[0].fenced = Some("its object is gone".into());
        let promised = json!({"addressBlockName": "default-0"});
        it.requests.push(request("r", "node2", "2026-11-15T11:59:59Z", &promised));
    }),
    ("hold-outside-blocks", Expected::Gone, |it| {
        told(it, "node2").holds.push(tenure_view::Hold { block: None, ..hold("old", "", "10.64.0.40") });
        it.pods.as_mut().unwrap().push(pod("old", "node2", "10.64.0.40"));
    }),
    ("held-twice", Expected::Cannot, |it| {
        let mut second = hold("web-0", "default-0", "10.64.0.0");
        second.holder.container = "another".into();
        told(it, "node1").holds.push(second);
    }),
    ("pod-without-hold", Expected::Cannot, |it| {
        it.pods.as_mut().unwrap().push(pod("ghost", "node1", "10.64.0.7"));
    }),
    ("ledger-invalid", Expected::Gone, |it| {
        it.ranges.ledgers.push(ledger("x", "10.0.0.0/33", "", "unique", &[("1", "gone")]));
    }),
    ("ledger-invalid", Expected::Cannot, |it| {
        it.ranges.ledgers.push(ledger("x", "10.0.0.0/33", "", "unique", &[("1", "db-0")]));
    }),
    ("record-senseless", Expected::Gone, |it| {
        *it = with_ranges();
        let record = it.ranges.ledgers[0].spec.allocations["1"].clone();
        it.ranges.ledgers[0].spec.allocations.insert("9999".into(), record);
    }),
    ("record-senseless", Expected::Cannot, |it| {
        *it = with_ranges();
        let record = it.ranges.ledgers[2].spec.allocations["1"].clone();
        it.ranges.ledgers[2].spec.allocations.insert("9999".into(), record);
    }),
    ("record-without-reservation", Expected::Gone, |it| {
        it.ranges.ledgers.push(ledger("10.6.0.0-25", "10.6.0.0/25", "", "overlapping", &[("1", "db-0")]));
    }),
    ("record-without-reservation", Expected::Cannot, |it| {
        it.ranges.ledgers.push(ledger("10.6.0.0-25", "10.6.0.0/25", "", "overlapping", &[("1", "db-0")]));
        it.ranges.reservations.push(reservation("10.6.0.1", "web-0"));
    }),
    ("record-without-pod", Expected::Heals, |it| {
        it.ranges.ledgers.push(ledger("10.6.0.0-25", "10.6.0.0/25", "", "unique", &[("1", "gone")]));
    }),
    ("kernel", Expected::Heals, |it| {
        let difference = tenure_view::Difference { subject: "10.64.0.0".into(), problem: "no route".into() };
        told(it, "node1").kernel.as_mut().unwrap().differences.push(difference);
    }),
];

/// Takes the node's label off a block, as its agent sees it.
fn unlabelled(it: &mut Snapshot, index: usize) {
    it.blocks[index].labels_mut().remove("coil.cybozu.com/node");
}

/// A block without a node that no agent knows.
fn stray(it: &mut Snapshot) {
    it.blocks.push(block("default", 2, "", "10.64.0.32/28"));
    unlabelled(it, 2);
}

#[test]
fn no_agent_is_restarted_that_is_told_that_a_slice_is_its_own() {
    let mut snapshot = with_ranges();
    let found = Difference {
        kind: "slice-unknown-to-api",
        subject: "node node1: block node1-10.8.0.0-26".into(),
        problem: String::new(),
        advice: String::new(),
    };
    let verdict = |snapshot: &Snapshot| plan(snapshot, [&found]).findings[0].plan.clone();
    assert!(matches!(verdict(&snapshot), Verdict::Repair(_)));
    let given = |given: &str| [(GIVEN.to_owned(), given.to_owned())];
    let pool = &snapshot.ranges.slices[0];
    let text = Given::of(pool).text();
    snapshot.ranges.ledgers[2].annotations_mut().extend(given(&text));
    assert!(matches!(verdict(&snapshot), Verdict::Heals(_)));
    snapshot.ranges.ledgers[2].annotations_mut().extend(given(""));
    assert!(matches!(verdict(&snapshot), Verdict::Repair(_)), "it was withdrawn");
}

#[test]
fn each_finding_is_repaired_heals_or_is_explained_and_a_repair_removes_it() {
    for (number, (kind, expected, fault)) in FAULTS.iter().enumerate() {
        let mut snapshot = system();
        fault(&mut snapshot);
        let findings = compare(&snapshot);
        let found: Vec<&Difference> = findings.differences.iter().filter(|it| it.kind == *kind).collect();
        assert_eq!(found.len(), 1, "fault {number}: {kind}: {:?}", findings.differences);
        let plan = plan(&snapshot, found.iter().copied());
        let verdict = &plan.findings[0].plan;
        match (expected, verdict) {
            (Expected::Heals, Verdict::Heals(_)) => continue,
            (Expected::Cannot, Verdict::Cannot { because, instead }) => {
                assert!(!because.is_empty() && !instead.is_empty(), "fault {number}: {kind}");
                continue;
            }
            (Expected::Gone | Expected::Later, Verdict::Repair(step)) => perform_in(&mut snapshot, step),
            _ => panic!("fault {number}: {kind}: {verdict:?}"),
        }
        let after = compare(&snapshot).differences;
        let left = after.iter().any(|it| it.kind == *kind && it.subject == found[0].subject);
        let waits = *kind == "block-outside-pool";
        assert_eq!(left, *expected == Expected::Later && waits, "fault {number}: {kind}: {after:?}");
        // And a second run has nothing to write.
        let again = super::plan(&snapshot, after.iter().filter(|it| it.kind == *kind));
        assert_eq!(again.steps().count(), 0, "fault {number}: {kind}: {again:?}");
    }
}

#[test]
fn steps_name_their_object_and_guard_and_only_one_changes_an_object() {
    let mut snapshot = system();
    snapshot.blocks[0].metadata.resource_version = Some("7".into());
    snapshot.blocks[0].labels_mut().remove("coil.cybozu.com/pool");
    unlabelled(&mut snapshot, 0);
    let findings = compare(&snapshot);
    let plan = plan(&snapshot, &findings.differences);
    let steps: Vec<&Step> = plan.steps().map(|(_, step)| step).collect();
    assert_eq!(steps.len(), 1, "{plan:?}");
    let json = serde_json::to_value(&plan).unwrap();
    let row =
        json["findings"].as_array().unwrap().iter().find(|it| it["kind"] == "block-without-node").unwrap();
    let step = &row["plan"]["repair"];
    assert_eq!(step["object"]["uid"], "default-0-uid", "{json}");
    assert_eq!(step["object"]["resourceVersion"], "7");
    assert_eq!(step["operation"], "set the label coil.cybozu.com/node=node1");
}

#[test]
fn without_kubernetes_no_agent_is_restarted() {
    let mut snapshot = system();
    told(&mut snapshot, "node1").blocks.clear();
    snapshot.pods = None;
    let findings = compare(&snapshot);
    let plan = plan(&snapshot, findings.differences.iter().filter(|it| it.kind == "block-unknown-to-agent"));
    assert!(
        matches!(&plan.findings[0].plan, Verdict::Cannot { instead, .. } if instead.contains("restart tenured"))
    );
}

#[test]
fn the_model_notices_a_second_holder() {
    let mut snapshot = system();
    stray(&mut snapshot);
    let hidden = ip("10.64.0.35");
    let before = givers(&snapshot, hidden);
    let delete = Step {
        object: super::step::Object::of(&snapshot.blocks[2]),
        operation: Operation::Delete,
        safe: String::new(),
        evidence: true,
    };
    perform_in(&mut snapshot, &delete);
    assert!(before.is_empty() && !givers(&snapshot, hidden).is_empty());
}

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn every_kind_that_check_finds_is_in_the_table_and_in_the_documentation() {
    let directory = format!("{}/src/check", env!("CARGO_MANIFEST_DIR"));
    let mut found = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "rs") || path.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for part in text.split("differ(").skip(1) {
            let kind = part.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
            found.extend(kind.map(|(kind, _)| kind.to_owned()));
        }
    }
    let known: std::collections::BTreeSet<String> = kinds::names().map(str::to_owned).collect();
    assert_eq!(found, known, "what check finds, and the table of repair");
    let (repair, cli) = (page("repair.md"), page("cli.md"));
    for kind in KINDS {
        let does = match kind.does {
            Does::Writes(text) => format!("**repairs**: {text}"),
            Does::Heals(text) => format!("waits: {text}"),
            Does::Explains(text) => format!("explains: {text}"),
        };
        let row = format!("| `{}` | {} | {does} |", kind.name, kind.meaning);
        assert!(repair.contains(&row), "docs/repair.md lacks\n{row}");
        assert!(cli.contains(&format!("`{}`", kind.name)), "docs/cli.md lacks {}", kind.name);
    }
}

#[test]
fn the_report_says_what_is_left_and_the_code_tells_scripts() {
    let mut snapshot = system();
    snapshot.pools[0].metadata.finalizers = None;
    snapshot.pods.as_mut().unwrap().push(pod("ghost", "node1", "10.64.0.7"));
    let findings = compare(&snapshot);
    let mut report = Report {
        plan: plan(&snapshot, &findings.differences),
        done: Vec::new(),
        remaining: findings.differences.clone(),
        unseen: Vec::new(),
    };
    let text = describe(&report.plan);
    assert!(
        text.contains(&format!("    repair: AddressPool default: add the finalizer {FINALIZER}\n")),
        "{text}"
    );
    assert!(text.contains("    not repaired: an agent holds only what it assigned"), "{text}");
    assert_eq!(finish(&report, Format::Table).unwrap().code, 1);
    report.remaining.clear();
    assert_eq!(finish(&report, Format::Table).unwrap().code, 0);
    report.unseen.push(check::Unseen { subject: "node node2".into(), reason: "no answer".into() });
    assert_eq!(finish(&report, Format::Json).unwrap().code, COULD_NOT_LOOK);
}
