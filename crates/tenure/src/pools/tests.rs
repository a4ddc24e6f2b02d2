//! What `tenure pools` says, letter by letter.

use serde_json::json;

use super::*;
use crate::snapshot::example::{aliases, block, cool, pool, system};

fn table(snapshot: &Snapshot) -> (String, String) {
    let said = say(snapshot, &[], Format::Table).unwrap();
    (said.text, said.notes)
}

#[test]
fn pools_are_shown_with_size_use_blocks_and_conditions() {
    let mut snapshot = system();
    cool(&mut snapshot, "10.64.0.5");
    let mut small = pool("small", "10.65.0.0/28", 0);
    small.spec.exclude = vec!["10.65.0.0".into(), "10.65.0.1".into()];
    small.status = None;
    snapshot.pools.push(small);
    let expected = "\
POOL      SIZE   USED   COOLING   FREE   BLOCKS   BLOCKS PER NODE    CONDITIONS
default   256    3      1         252    2/16     node1 1, node2 1   Ready
small     14     0      0         14     0/1      -                  -
";
    assert_eq!(table(&snapshot), (expected.to_owned(), String::new()));
}

#[test]
fn an_agent_that_cannot_be_asked_leaves_a_question_mark_and_a_reason() {
    let mut snapshot = system();
    snapshot.agents.insert("node2".into(), Err("no answer for 5 s".into()));
    let expected = "\
POOL      SIZE   USED   COOLING   FREE    BLOCKS   BLOCKS PER NODE    CONDITIONS
default   256    2+?    0+?       254-?   2/16     node1 1, node2 1   Ready
";
    assert_eq!(table(&snapshot), (expected.to_owned(), "? node2: no answer for 5 s\n".to_owned()));
}

#[test]
fn conditions_that_matter_are_named() {
    let mut snapshot = system();
    let status = snapshot.pools[0].status.as_mut().unwrap();
    status.conditions[0].status = "False".into();
    status.conditions[0].reason = "OutOfBlocks".into();
    status.conditions[1].status = "True".into();
    let (text, _) = table(&snapshot);
    assert!(text.ends_with("not ready (OutOfBlocks), Exhausted\n"), "{text}");
    snapshot.pools[0].spec.subnets.clear();
    assert!(table(&snapshot).0.ends_with("Invalid\n"));
    snapshot.pools.clear();
    assert_eq!(table(&snapshot).0, "There are no pools.\n");
}

#[test]
fn a_large_cluster_does_not_fill_the_line() {
    let mut snapshot = system();
    snapshot.blocks =
        (0..7).map(|i| block("default", i, &format!("n{i}"), &format!("10.64.0.{}/28", i * 16))).collect();
    snapshot.blocks.push(block("default", 7, "n6", "10.64.0.112/28"));
    assert!(table(&snapshot).0.contains("n6 2, n0 1, n1 1, n2 1, 3 more"), "{}", table(&snapshot).0);
}

#[test]
fn the_json_has_the_documented_shape() {
    let said = say(&system(), &["default".into()], Format::Json).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&said.text).unwrap();
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "BlocksFree", "message": "m"});
    assert_eq!(
        shown,
        json!([{
            "kind": "AddressPool", "name": "default",
            "subnets": ["10.64.0.0/24"],
            "addresses": {"size": "256", "used": "3", "cooling": "0", "free": "253", "unknownNodes": []},
            "blocks": {"capacity": "16", "allocated": "2", "free": "14"},
            "blocksPerNode": {"node1": 1, "node2": 1},
            "problem": null,
            "conditions": [condition("Ready", "True"), condition("Exhausted", "False")],
        }])
    );
}

#[test]
fn whereabouts_ranges_and_slices_are_pools_too() {
    let snapshot = crate::snapshot::example::with_ranges();
    let expected = "\
POOL          SIZE   USED   COOLING   FREE   BLOCKS   BLOCKS PER NODE    CONDITIONS
default       256    3      0         253    2/16     node1 1, node2 1   Ready
10.9.0.0-24   256    2      0         254    -        -                  -
net           256    1      0         255    2/4      node1 1, node2 1   Ready
";
    assert_eq!(table(&snapshot).0, expected);
    let said = say(&snapshot, &["net".into()], Format::Json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&said.text).unwrap();
    assert_eq!(json[0]["kind"], "NodeSlicePool");
    assert_eq!(json[0]["blocks"], json!({"capacity": "4", "allocated": "2", "free": "2"}));
}

#[test]
fn pools_of_alias_addresses_are_shown_with_what_each_node_has() {
    let mut snapshot = system();
    (snapshot.pools, snapshot.blocks) = (Vec::new(), Vec::new());
    snapshot.aliases = aliases();
    let expected = "\
POOL   SIZE   USED   COOLING   FREE   BLOCKS   BLOCKS PER NODE    CONDITIONS
live   253    3      1         249    -        node1 2, node2 1   -
";
    assert_eq!(table(&snapshot).0, expected);
}
