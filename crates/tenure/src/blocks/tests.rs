//! What `tenure blocks` says, letter by letter.

use serde_json::json;

use super::*;
use crate::snapshot::example::{block, cool, system, told};

#[test]
fn blocks_are_shown_with_owner_networks_and_use() {
    let mut snapshot = system();
    cool(&mut snapshot, "10.64.0.5");
    told(&mut snapshot, "node2").blocks[0].fenced = Some("its object is gone".into());
    let mut reserved = block("default", 2, "node3", "10.64.0.32/28");
    reserved.labels_mut().insert("coil.cybozu.com/reserved".into(), "true".into());
    snapshot.blocks.push(reserved);
    snapshot.agents.insert("node3".into(), Err("no pod runs there".into()));
    let expected = "\
BLOCK       POOL      NODE    IPV4            IPV6   USED   COOLING   FREE   STATE
default-0   default   node1   10.64.0.0/28    -      2      1         13     ok
default-1   default   node2   10.64.0.16/28   -      1      0         15     fenced: its object is gone
default-2   default   node3   10.64.0.32/28   -      ?      ?         ?      reserved, unknown
";
    let said = say(&snapshot, Format::Table).unwrap();
    assert_eq!((said.text.as_str(), said.notes.as_str()), (expected, "? node3: no pod runs there\n"));
}

#[test]
fn no_blocks_are_said() {
    let mut snapshot = system();
    snapshot.blocks.clear();
    assert_eq!(say(&snapshot, Format::Table).unwrap().text, "There are no blocks.\n");
}

#[test]
fn the_json_has_the_documented_shape() {
    let mut snapshot = system();
    snapshot.agents.insert("node2".into(), Err("no answer for 5 s".into()));
    let said = say(&snapshot, Format::Json).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&said.text).unwrap();
    let row = |name: &str, node: &str, ipv4: &str| {
        json!({
            "name": name, "pool": "default", "node": node, "ipv4": ipv4, "ipv6": null, "reserved": false,
            "deleting": false, "addresses": null, "problem": null,
        })
    };
    let mut expected =
        json!([row("default-0", "node1", "10.64.0.0/28"), row("default-1", "node2", "10.64.0.16/28")]);
    expected[0]["addresses"] = json!({"capacity": 16, "held": 2, "cooling": 0, "reserved": 0, "free": 14});
    expected[1]["problem"] = json!("no answer for 5 s");
    assert_eq!(shown, expected);
    assert_eq!(said.notes, "", "programs find it in the JSON");
}

#[test]
fn a_block_for_claims_is_counted_by_its_records() {
    let mut snapshot = system();
    snapshot.blocks = vec![crate::snapshot::example::floating()];
    let expected = "\
BLOCK       POOL      NODE   IPV4            IPV6   USED   COOLING   FREE   STATE
default-5   default   -      10.64.0.80/28   -      1      1         14     for claims
";
    assert_eq!(say(&snapshot, Format::Table).unwrap().text, expected);
}
