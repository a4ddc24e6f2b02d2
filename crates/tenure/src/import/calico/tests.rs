use serde_json::{Value, json};

use super::*;
use crate::import::plan::{Plan, plan};

fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    let value = json!({"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(value).unwrap()
}

fn ip_pool(name: &str, cidr: &str) -> DynamicObject {
    object("IPPool", name, &json!({"cidr": cidr, "blockSize": 29, "ipipMode": "Always", "natOutgoing": true}))
}

fn block(cidr: &str, affinity: Option<&str>, allocations: &Value, attributes: &Value) -> DynamicObject {
    let spec = json!({
        "cidr": cidr, "affinity": affinity, "allocations": allocations, "attributes": attributes,
        "unallocated": [], "strictAffinity": false, "deleted": false,
    });
    object("IPAMBlock", &cidr.replace(['.', '/', ':'], "-"), &spec)
}

fn pod(name: &str, node: &str) -> Value {
    json!({"handle_id": format!("k8s-pod-network.{name}"), "secondary": {"namespace": "default", "pod": name, "node": node}})
}

fn planned(objects: &Objects) -> Plan {
    plan(&read(objects, &Renames::default()))
}

#[test]
fn allocations_of_pods_and_tunnels_are_uses_and_blocks_belong_to_the_node_of_their_affinity() {
    let tunnel =
        json!({"handle_id": "ipip-tunnel-addr-n1", "secondary": {"type": "ipipTunnelAddress", "node": "n1"}});
    let objects = Objects {
        pools: vec![ip_pool("default-ipv4-ippool", "10.244.0.0/24")],
        blocks: vec![
            block(
                "10.244.0.8/29",
                Some("host:n1"),
                &json!([0, null, 1, null, null, null, null, 2]),
                &json!([pod("a", "n1"), pod("borrowed", "n2"), tunnel]),
            ),
            block("10.244.0.16/29", None, &json!([null]), &json!([])),
        ],
        handles: vec![object(
            "IPAMHandle",
            "k8s-pod-network.a",
            &json!({"handleID": "k8s-pod-network.a", "block": {"10.244.0.8/29": 1}}),
        )],
    };
    let records =
        read(&objects, &Renames(BTreeMap::from([("default-ipv4-ippool".into(), "default".into())])));
    let holders: Vec<&str> = records.uses.iter().map(|it| it.holder.as_str()).collect();
    let tunnel = r#""ipipTunnelAddress" handle "ipip-tunnel-addr-n1""#;
    assert_eq!(holders, [r#"pod "default/a""#, r#"pod "default/borrowed""#, tunnel]);
    let plan = plan(&records);
    assert_eq!(plan.errors().count(), 0, "{:?}", plan.findings);
    let blocks: Vec<(&str, Option<&str>, usize)> = plan
        .blocks
        .iter()
        .map(|it| (it.object.metadata.name.as_deref().unwrap(), it.object.node(), it.used))
        .collect();
    assert_eq!(blocks, [("default-1", Some("n1"), 3), ("default-2", None, 0)]);
    assert_eq!(plan.pools[0].spec.block_size_bits, 3);
}

#[test]
fn a_handle_of_a_missing_block_reserves_it_and_wrong_counts_are_noted() {
    let objects = Objects {
        pools: vec![ip_pool("p", "10.244.0.0/24")],
        blocks: vec![block("10.244.0.0/29", Some("host:n"), &json!([0]), &json!([pod("a", "n")]))],
        handles: vec![object(
            "IPAMHandle",
            "k8s-pod-network.a",
            &json!({"block": {"10.244.0.0/29": 2, "10.244.0.64/29": 1}}),
        )],
    };
    let plan = planned(&objects);
    let notes: Vec<String> = plan.findings.iter().map(ToString::to_string).collect();
    assert!(
        notes
            .iter()
            .any(|it| it.contains("it has 1 addresses of 10.244.0.64/29, of which there is no IPAMBlock")),
        "{notes:?}"
    );
    assert!(
        notes.iter().any(
            |it| it.contains("it has 2 addresses of 10.244.0.0/29, and the IPAMBlock has another number")
        ),
        "{notes:?}"
    );
    assert_eq!(plan.blocks.len(), 2);
}

#[test]
fn objects_that_contradict_themselves_are_errors() {
    let table = [
        (
            block(
                "10.244.0.0/29",
                None,
                &json!([null, null, null, null, null, null, null, null, 0]),
                &json!([pod("a", "n")]),
            ),
            "spec.allocations[8] is beyond 10.244.0.0/29; accepted are at most 8 entries",
        ),
        (
            block("10.244.0.0/29", None, &json!([1]), &json!([pod("a", "n")])),
            "spec.allocations[0]: there is no spec.attributes[1]; accepted is 0 to 0",
        ),
        (block("10.244.0.0/29", None, &json!(["x"]), &json!([])), "cannot read spec"),
        (block("10.244.0.0", None, &json!([]), &json!([])), "spec.cidr: \"10.244.0.0\" is no network"),
        (block("fd00::/122", None, &json!([-1]), &json!([])), "cannot read spec"),
    ];
    for (block, expected) in table {
        let plan = planned(&Objects {
            pools: vec![ip_pool("p", "10.244.0.0/24")],
            blocks: vec![block],
            handles: Vec::new(),
        });
        let errors: Vec<String> = plan.errors().map(ToString::to_string).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{expected}: {errors:?}");
    }
    let none = planned(&Objects::default());
    assert!(none.errors().any(|it| it.to_string().contains("IPPools: there is none")));
}

#[test]
fn an_address_that_two_blocks_have_is_an_error() {
    let objects = Objects {
        pools: vec![ip_pool("p", "10.244.0.0/24")],
        blocks: vec![
            block("10.244.0.0/29", Some("host:n"), &json!([0]), &json!([pod("a", "n")])),
            block("10.244.0.0/28", Some("host:m"), &json!([0]), &json!([pod("b", "m")])),
        ],
        handles: Vec::new(),
    };
    let errors: Vec<String> = planned(&objects).errors().map(ToString::to_string).collect();
    assert!(
        errors.iter().any(|it| it.contains("10.244.0.0 is used twice: by pod \"default/b\"")),
        "{errors:?}"
    );
    assert!(errors.iter().any(|it| it.contains("has addresses of several nodes: m, n")), "{errors:?}");
}
