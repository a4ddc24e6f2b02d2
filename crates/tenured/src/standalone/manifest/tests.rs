//! Files that people write, and what they are told about them.

use super::*;

const GOOD: &str = "
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata: {name: default, labels: {a: b}}
spec:
  blockSizeBits: 4
  subnets: [{ipv4: 10.2.0.0/16, ipv6: 'fd02::/112'}]
";

#[test]
fn a_file_may_hold_several_pools() {
    let text = format!("# pools\n---{GOOD}---{}", GOOD.replace("default", "other"));
    let pools = read("a.yaml", &text).unwrap();
    let names: Vec<_> = pools.iter().map(|pool| (pool.document, pool.name.as_str())).collect();
    assert_eq!(names, [(1, "default"), (2, "other")]);
    assert_eq!(pools[0].labels["a"], "b");
    assert_eq!(pools[0].spec["subnets"][0]["ipv4"], "10.2.0.0/16");
}

#[test]
fn what_kubectl_prints_can_be_used_as_a_file() {
    let text =
        GOOD.replace("metadata: {", "metadata: {uid: x, resourceVersion: '7', creationTimestamp: null, ");
    let text = format!("{text}status: {{conditions: []}}\n");
    assert_eq!(read("a.yaml", &text).unwrap(), read("a.yaml", GOOD).unwrap());
}

#[test]
fn json_is_yaml() {
    let text = r#"{"apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool", "metadata": {"name": "x"}, "spec": {"subnets": []}}"#;
    assert_eq!(read("a.json", text).unwrap()[0].name, "x");
}

#[test]
fn a_mistake_names_file_document_field_value_and_what_is_accepted() {
    let second = |text: &str| format!("{GOOD}---\n{text}");
    let cases = [
        (String::new(), "pool file p.yaml: is empty; accepted are AddressPools"),
        ("# nothing\n".to_owned(), "pool file p.yaml: is empty"),
        ("a: [".to_owned(), "pool file p.yaml: is no YAML: "),
        ("- a\n".to_owned(), r#"pool file p.yaml, document 1: is ["a"]; accepted is an AddressPool"#),
        (
            second("apiVersion: v1\nkind: Pod\n"),
            r#"document 2: apiVersion is "v1"; accepted is "coil.cybozu.com/v2""#,
        ),
        (GOOD.replace("AddressPool", "AddressBlock"), r#"kind is "AddressBlock"; accepted is "AddressPool""#),
        (GOOD.replace("kind: AddressPool", ""), r#"kind is missing; accepted is "AddressPool""#),
        (GOOD.replace("name: default, ", ""), "metadata.name is missing"),
        (GOOD.replace("name: default", "name: 7"), "metadata.name is 7; accepted is the pool's name"),
        (
            GOOD.replace("labels", "label"),
            "metadata.label is unknown; accepted are annotations, labels, name",
        ),
        (GOOD.replace("{a: b}", "{a: 1}"), r#"metadata.labels is {"a":1}; accepted is a mapping of strings"#),
        (
            GOOD.replace("blockSizeBits", "blockSize"),
            "spec.blockSize is unknown; accepted are blockSizeBits, ",
        ),
        (GOOD.replace("ipv6", "ip6"), "spec.subnets[0].ip6 is unknown; accepted are ipv4, ipv6"),
        (GOOD.replace("spec:", "specs:"), "specs is unknown"),
        (second(GOOD), r#"document 2: metadata.name is "default", as in document 1"#),
    ];
    for (text, expected) in cases {
        let mistake = read("p.yaml", &text).unwrap_err().to_string();
        assert!(mistake.contains(expected), "{text}\nsays {mistake}\nand not {expected}");
    }
}
