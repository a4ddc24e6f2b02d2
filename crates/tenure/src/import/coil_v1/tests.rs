use super::*;
use crate::import::finding::Severity;
use crate::import::plan::{Plan, plan};

fn entry(key: &str, value: &str) -> Entry {
    Entry { key: format!("/coil/{key}").into_bytes(), value: value.as_bytes().to_vec() }
}

fn pool() -> Entry {
    entry("pool/default", r#"{"subnets": ["10.2.0.0/24"], "block_size": 5}"#)
}

/// A pool with one block of a node, and what is added to it.
fn state(more: &[(&str, &str)]) -> Vec<Entry> {
    let blocks = r#"{"free": ["10.2.0.32/27"], "nodes": {"node1": ["10.2.0.0/27"]}}"#;
    let mut entries = vec![pool(), entry("subnet/10.2.0.0", ""), entry("block/default/10.2.0.0", blocks)];
    entries.extend(more.iter().map(|(key, value)| entry(key, value)));
    entries.sort();
    entries
}

fn planned(entries: &[Entry]) -> Plan {
    plan(&read("/coil/", entries, &Renames::default()))
}

fn findings(entries: &[Entry]) -> Vec<String> {
    planned(entries).findings.iter().map(ToString::to_string).collect()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.blocks.iter().filter_map(|block| block.object.metadata.name.as_deref()).collect()
}

#[test]
fn values_of_both_formats_are_read_and_blocks_of_nodes_are_reserved_for_them() {
    let new = r#"{"namespace": "a", "pod": "web-0", "container_id": "c0ffee", "created_at": "2019-08-25T00:00:00+09:00"}"#;
    let entries = state(&[
        ("ip/10.2.0.0/7", new),
        ("ip/10.2.0.0/31", "b/old"),
        ("pool/b", r#"{"subnets": ["10.3.0.0/28"], "block_size": 2}"#),
    ]);
    let records = read("/coil/", &entries, &Renames::default());
    let holders: Vec<(String, &str)> =
        records.uses.iter().map(|it| (it.address.to_string(), it.holder.as_str())).collect();
    assert_eq!(
        holders,
        [("10.2.0.31".into(), "pod b/old"), ("10.2.0.7".into(), "pod a/web-0 (container c0ffee)")]
    );
    assert_eq!(records.namespaces, BTreeMap::from([("b".to_owned(), "b".to_owned())]));
    let plan = plan(&records);
    assert_eq!(plan.findings, []);
    assert_eq!(names(&plan), ["default-0"]);
    assert_eq!((plan.blocks[0].object.node(), plan.blocks[0].used), (Some("node1"), 2));
    assert!(plan.blocks[0].object.is_reserved());
}

#[test]
fn blocks_are_numbered_through_the_subnets() {
    let pool = r#"{"subnets": ["10.9.0.0/30", "10.2.0.0/30"], "block_size": 0}"#;
    let blocks = r#"{"free": null, "nodes": {"n": ["10.2.0.2/32"]}}"#;
    let entries = [entry("pool/p", pool), entry("block/p/10.2.0.0", blocks)];
    let plan = planned(&entries);
    assert_eq!((names(&plan), plan.blocks[0].object.spec.index), (vec!["p-6"], 6));
    assert_eq!(plan.blocks[0].object.spec.ipv4.as_deref(), Some("10.2.0.2/32"));
}

#[test]
fn what_cannot_be_understood_is_an_error_that_names_key_value_and_what_is_accepted() {
    let table: &[(&str, &str, &str)] = &[
        (
            "pool/x",
            "{",
            r#"error: /coil/pool/x: cannot read "{": EOF while parsing an object at line 1 column 1; accepted is such as {"subnets": ["10.2.0.0/16"], "block_size": 5}"#,
        ),
        (
            "pool/x",
            r#"{"subnets": ["10.4.0.0/33"], "block_size": 5}"#,
            r#"/coil/pool/x: subnets[0]: "10.4.0.0/33" is no network"#,
        ),
        (
            "pool/x",
            r#"{"subnets": ["fd00::/64"], "block_size": 5}"#,
            "/coil/pool/x: subnets[0]: fd00::/64 is no IPv4 network",
        ),
        ("pool/x", r#"{"subnets": [], "block_size": 5}"#, "/coil/pool/x: it is no valid AddressPool"),
        (
            "pool/x",
            r#"{"subnets": ["10.4.0.0/30"], "block_size": 5}"#,
            "/coil/pool/x: it is no valid AddressPool",
        ),
        (
            "pool/x",
            r#"{"subnets": ["10.4.0.0/16"], "block_size": -1}"#,
            "/coil/pool/x: block_size: -1 is no power of two of addresses; accepted is 0 to 32",
        ),
        (
            "pool/x",
            r#"{"subnets": ["10.4.0.0/24", "10.4.0.128/25"], "block_size": 5}"#,
            "/coil/pool/x: it is no valid AddressPool",
        ),
        (
            "pool/x",
            r#"{"subnets": ["10.2.0.128/25"], "block_size": 5}"#,
            "/coil/pool/x: pools \"default\" and \"x\" both have 10.2.0.128/25",
        ),
        (
            "pool/a_b",
            r#"{"subnets": ["10.4.0.0/24"], "block_size": 5}"#,
            r#"/coil/pool/a_b: an AddressPool cannot be named "a_b"; accepted are at most 63 lower-case letters"#,
        ),
        (
            "block/nobodys/10.2.0.0",
            r#"{"free": [], "nodes": {}}"#,
            r#"/coil/block/nobodys/10.2.0.0: there is no pool "nobodys""#,
        ),
        (
            "block/default/10.2.0.64",
            r#"{"free": [], "nodes": {}}"#,
            r#"pool "default" has no subnet with the address "10.2.0.64""#,
        ),
        ("block/default", "{}", "/coil/block/default: names no subnet; accepted is block/POOL/ADDRESS"),
        (
            "ip/10.2.0.0/32",
            "a/b",
            "/coil/ip/10.2.0.0/32: offset 32 is beyond block 10.2.0.0/27; accepted is 0 to 31",
        ),
        ("ip/10.2.0.0/-1", "a/b", "/coil/ip/10.2.0.0/-1: names no address; accepted is ip/BLOCK/OFFSET"),
        ("ip/10.2.0.0/07", "a/b", "/coil/ip/10.2.0.0/07: names no address"),
        (
            "ip/10.2.0.8/0",
            "a/b",
            "/coil/ip/10.2.0.8/0: 10.2.0.8 is not the first address of a block of pool \"default\"",
        ),
        ("ip/fd00::/0", "a/b", "/coil/ip/fd00::/0: names no address"),
        (
            "ip/10.2.0.0/1",
            "{\"pod\": 1}\n",
            r#"/coil/ip/10.2.0.0/1: cannot read "{\"pod\": 1}\n"; accepted is such as {"namespace""#,
        ),
        ("ip/10.2.0.0/1", "a/b/c", r#"cannot read "a/b/c""#),
        ("ip/10.2.0.0/1", "", r#"cannot read """#),
    ];
    for (key, value, expected) in table {
        let errors: Vec<String> = findings(&state(&[(key, value)]));
        let errors: Vec<&String> = errors.iter().filter(|it| it.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{key} = {value}: {errors:?}");
    }
}

#[test]
fn blocks_that_contradict_each_other_or_their_subnet_are_errors() {
    let table = [
        (
            r#"{"nodes": {"n": ["10.2.0.0/26"]}}"#,
            r#"nodes["n"]: 10.2.0.0/26 is no block of this subnet; accepted is a /27 inside 10.2.0.0/24"#,
        ),
        (r#"{"nodes": {"n": ["10.3.0.0/27"]}}"#, "10.3.0.0/27 is no block of this subnet"),
        (r#"{"nodes": {"n": ["10.2.0.0/27", "10.2.0.0/27"]}}"#, "10.2.0.0/27 is listed twice"),
        (r#"{"nodes": {"n": ["10.2.0.0/27"], "m": ["10.2.0.0/27"]}}"#, "10.2.0.0/27 is listed twice"),
        (r#"{"free": ["10.2.0.0/27"], "nodes": {"n": ["10.2.0.0/27"]}}"#, "10.2.0.0/27 is listed twice"),
        (r#"{"nodes": {"n": ["x"]}}"#, r#"nodes["n"]: "x" is no network"#),
        (r#"{"nodes": {"No de": ["10.2.0.0/27"]}}"#, r#"a block cannot name the node "No de""#),
    ];
    for (value, expected) in table {
        let errors = findings(&[pool(), entry("block/default/10.2.0.0", value)]);
        let errors: Vec<&String> = errors.iter().filter(|it| it.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{value}: {errors:?}");
    }
}

#[test]
fn what_coil_leaves_behind_is_noted_and_reserved() {
    let entries = state(&[
        ("ip/10.2.0.32/1", "a/in-a-free-block"),
        ("ip/10.2.0.64/1", "a/in-a-block-of-nobody"),
        ("ip/10.9.0.0/1", "a/of-a-removed-pool"),
        ("subnet/10.9.0.0", ""),
        ("lock/x", "\u{1b}"),
    ]);
    let plan = planned(&entries);
    assert_eq!(names(&plan), ["default-0", "default-1", "default-2"]);
    assert_eq!(plan.blocks[1].object.node(), None);
    assert!(plan.findings.iter().all(|finding| finding.severity == Severity::Note), "{:?}", plan.findings);
    let text = findings(&entries).join("\n");
    for expected in [
        "note: /coil/ip/10.2.0.32/1: 10.2.0.33 of pod a/in-a-free-block is in block 10.2.0.32/27, which no node has; the block is reserved",
        "note: /coil/ip/10.9.0.0/1: block 10.9.0.0 of pod a/of-a-removed-pool is in no pool",
        "note: /coil/subnet/10.9.0.0: no pool has this subnet",
        "note: /coil/lock/x: is no key of Coil v1",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_wrong_prefix_is_told_and_so_is_a_mistyped_rename() {
    let found = findings(&[]);
    assert!(
        found[0].contains("there is no pool of Coil v1 among 0 keys; accepted is a prefix (--prefix)"),
        "{found:?}"
    );
    let renames = Renames(BTreeMap::from([("defautl".into(), "x".into())]));
    let records = read("/coil/", &state(&[]), &renames);
    assert_eq!(
        records.findings[0].to_string(),
        "error: --rename defautl=x: there is no such pool; accepted are default"
    );
}

#[test]
fn a_renamed_pool_keeps_its_blocks_and_its_namespace() {
    let renames = Renames(BTreeMap::from([("default".into(), "old".into())]));
    let records = read("/coil/", &state(&[]), &renames);
    let plan = plan(&records);
    assert_eq!(names(&plan), ["old-0"]);
    assert_eq!(records.namespaces, BTreeMap::from([("default".to_owned(), "old".to_owned())]));
}
