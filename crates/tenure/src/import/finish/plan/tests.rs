use serde_json::{Value, json};

use super::*;

fn block(name: &str, ipv4: &str, node: Option<&str>) -> AddressBlock {
    let mut labels = json!({"coil.cybozu.com/pool": "default", "coil.cybozu.com/reserved": "true", "tenure/imported": "coil-v1"});
    if let Some(node) = node {
        labels["coil.cybozu.com/node"] = json!(node);
    }
    let index: i64 = name.rsplit_once('-').unwrap().1.parse().unwrap();
    let value = json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlock", "index": index, "ipv4": ipv4,
        "metadata": {"name": name, "uid": format!("{name}-uid"), "labels": labels},
    });
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, node: &str, ip: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a"}, "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "podIPs": [{"ip": ip}]},
    })
}

fn node(name: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn verdict_of(pods: &[Value], nodes: &[Value]) -> Verdict {
    let parse = |values: &[Value]| {
        values.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect::<Vec<Pod>>()
    };
    let nodes: Vec<Node> = nodes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect();
    let state =
        State::of(vec![block("default-0", "10.2.0.0/27", Some("n"))], &parse(pods), &nodes, HashMap::new());
    state.verdicts().remove("default-0").unwrap()
}

#[test]
fn a_block_is_used_while_a_pod_has_an_address_of_it() {
    let ready = [node("n", "True"), node("m", "True")];
    assert_eq!(verdict_of(&[], &ready), Verdict::Unused);
    assert_eq!(verdict_of(&[pod("p", "n", "10.2.0.32")], &ready), Verdict::Unused, "of the next block");
    let used = Verdict::Used(vec!["pod a/p (10.2.0.31)".into()]);
    assert_eq!(verdict_of(&[pod("p", "n", "10.2.0.31")], &ready), used);
    assert_eq!(verdict_of(&[pod("p", "m", "10.2.0.31")], &ready), used, "wherever it runs");
    let mut further = pod("p", "n", "192.0.2.1");
    further["metadata"]["annotations"] =
        json!({"k8s.v1.cni.cncf.io/network-status": r#"[{"name": "x", "ips": ["10.2.0.31"]}]"#});
    assert_eq!(verdict_of(&[further], &ready), used);
    let mut leaving = pod("p", "n", "10.2.0.31");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(verdict_of(&[leaving], &ready), used);
}

#[test]
fn a_pod_that_has_ended_counts_while_its_node_does_not_answer() {
    let mut over = pod("p", "n", "10.2.0.1");
    over["status"]["phase"] = json!("Failed");
    assert_eq!(verdict_of(&[over.clone()], &[node("n", "True")]), Verdict::Unused);
    assert!(matches!(verdict_of(&[over], &[node("n", "Unknown")]), Verdict::Used(_)));
}

#[test]
fn a_block_of_a_node_that_does_not_answer_stays_until_the_node_is_out_of_service_or_gone() {
    for state in ["False", "Unknown"] {
        assert!(matches!(verdict_of(&[], &[node("n", state)]), Verdict::Kept(_)), "{state}");
    }
    let mut out = node("n", "Unknown");
    out["spec"] = json!({"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]});
    assert_eq!(verdict_of(&[], &[out]), Verdict::Unused);
    assert_eq!(verdict_of(&[], &[]), Verdict::Unused);
}

#[test]
fn addresses_of_calicos_tunnels_are_used_by_their_nodes() {
    let mut there = node("n", "True");
    there["metadata"]["annotations"] = json!({
        "projectcalico.org/IPv4IPIPTunnelAddr": "10.2.0.9", "projectcalico.org/IPv4Address": "192.0.2.1/24",
    });
    assert_eq!(verdict_of(&[], &[there]), Verdict::Used(vec!["node n (10.2.0.9)".into()]));
}

#[test]
fn a_block_rests_as_long_as_its_pool_says_and_one_that_is_not_reserved_is_no_longer_ours() {
    let mut given = block("default-1", "10.2.0.32/27", None);
    given.labels_mut().remove("coil.cybozu.com/reserved");
    let rests = HashMap::from([("default".to_owned(), Duration::from_mins(5))]);
    let blocks = vec![given, block("default-0", "10.2.0.0/27", None)];
    let state = State::of(blocks, &[], &[], rests);
    assert_eq!((state.blocks.len(), state.has("default-0-uid")), (1, true));
    let rest = |least| state.rest_of(&state.blocks[0], Duration::from_secs(least));
    assert_eq!((rest(30), rest(1_000)), (Duration::from_mins(5), Duration::from_secs(1_000)));
}
