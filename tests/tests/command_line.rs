//! `tenure`, the program, on a host with `tenured --standalone`: it says what is there, and finds what somebody broke.
//! Needs root and iproute2.

use serde_json::{Value, json};
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::alone::Alone;

const TENURE: &str = env!("CARGO_BIN_EXE_bed-tenure");

fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "pods", "type": "tenure"})
}

/// Runs a verb on the host; gives the exit code, what it said, and what it noted.
fn tenure(alone: &Alone, arguments: &[&str]) -> (Option<i32>, String, String) {
    let command = alone.host.command(TENURE).args(arguments.iter().copied());
    // No kubeconfig of whoever runs the tests.
    let output = command.env("HOME", "/nowhere").env("KUBECONFIG", "").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn pools_blocks_holders_and_a_broken_route_are_seen_on_one_host() {
    let spec = json!({"blockSizeBits": 4, "subnets": [{"ipv4": "10.70.0.0/24"}], "exclude": ["10.70.0.0"]});
    let alone = Alone::running(&spec);
    let pods: Vec<_> = ["a", "b", "c"].iter().map(|name| alone.pod(name)).collect();
    let addresses: Vec<_> =
        pods.iter().map(|pod| alone.attach("ADD", pod, &config()).address().to_string()).collect();
    alone.attach("DEL", &pods[2], &config()).result();

    let (code, text, notes) = tenure(&alone, &["pools", "-o", "json"]);
    assert_eq!((code, notes.as_str()), (Some(0), ""), "{text}");
    let pools: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({"size": "255", "used": "2", "cooling": "1", "free": "252", "unknownNodes": []});
    assert_eq!(pools[0]["addresses"], expected);

    let (code, text, _) = tenure(&alone, &["blocks"]);
    let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(code, Some(0));
    assert_eq!(
        (cells[0], cells[3], &cells[5..]),
        ("default-0", "10.70.0.0/28", &["2", "1", "12", "ok"][..]),
        "{text}"
    );

    let (code, text, _) = tenure(&alone, &["who", &addresses[0], "-o", "json"]);
    let who: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &who["state"], &who["block"]),
        (Some(0), &json!("held"), &json!("default-0")),
        "{text}"
    );
    let (_, text, _) = tenure(&alone, &["who", &addresses[2]]);
    assert!(text.starts_with(&format!("{} cools on node ", addresses[2])), "{text}");
    let (_, text, _) = tenure(&alone, &["who", "10.70.0.0"]);
    assert!(text.starts_with("nobody has 10.70.0.0: pool default excludes it\n"), "{text}");

    let (code, text, notes) = tenure(&alone, &["node", "-o", "json"]);
    let node: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, node["holds"].as_array().map(Vec::len)), (Some(0), Some(2)), "{notes}");
    assert!(node["holds"][0]["traffic"]["sentPackets"].is_u64(), "{text}");

    let (code, text, notes) = tenure(&alone, &["check"]);
    assert_eq!(code, Some(0), "{text}{notes}");
    alone.host.ip(&format!("route del {} table 116\n", addresses[0])).unwrap();
    let (code, text, notes) = tenure(&alone, &["check", "--settle", "200ms"]);
    assert_eq!(code, Some(1), "{text}{notes}");
    let expected = format!(": {}: is held by ", addresses[0]);
    assert!(text.starts_with("kernel: node ") && text.contains(&expected), "{text}");
}

#[test]
fn a_block_that_drains_serves_nobody_new_and_is_returned_when_its_last_pod_has_ended() {
    let spec = json!({"blockSizeBits": 2, "subnets": [{"ipv4": "10.71.0.0/24"}], "cooling": "1s"});
    let alone = Alone::running(&spec);
    let (stays, late) = (alone.pod("stays"), alone.pod("late"));
    let first = alone.attach("ADD", &stays, &config()).address().to_string();
    assert_eq!(first, "10.71.0.0");
    let (code, text, notes) = tenure(&alone, &["drain", "default-0"]);
    assert_eq!(code, Some(0), "{notes}");
    assert!(text.starts_with("block default-0 of node ") && text.contains(" drains: 1 holders"), "{text}");
    until("the agent to see the mark", || {
        let (_, text, _) = tenure(&alone, &["node", "-o", "json"]);
        let node: Value = serde_json::from_str(&text).unwrap();
        let block = node["blocks"].as_array().unwrap().iter().find(|it| it["name"] == "default-0").cloned();
        (block.unwrap()["usable"] == false).then_some(())
    });
    let second = alone.attach("ADD", &late, &config()).address().to_string();
    assert!(!["10.71.0.0", "10.71.0.1", "10.71.0.2", "10.71.0.3"].contains(&second.as_str()), "{second}");
    alone.host.ping(first.parse().unwrap(), PATIENCE).unwrap();
    alone.attach("DEL", &stays, &config()).result();
    let (code, text, notes) = tenure(&alone, &["drain", "default-0", "--wait", "5m"]);
    assert_eq!((code, text.as_str()), (Some(0), "block default-0 is returned\n"), "{notes}");
    alone.host.ping(second.parse().unwrap(), PATIENCE).unwrap();
}

#[test]
fn what_somebody_broke_on_one_host_is_repaired_and_its_pods_do_not_notice() {
    let spec = json!({"blockSizeBits": 4, "subnets": [{"ipv4": "10.72.0.0/24"}]});
    let alone = Alone::running(&spec);
    let pod = alone.pod("a");
    let address = alone.attach("ADD", &pod, &config()).address();
    alone.host.ip(&format!("route del {address} table 116\n")).unwrap();
    let (code, text, notes) = tenure(&alone, &["check", "--settle", "200ms"]);
    assert_eq!(code, Some(1), "{text}{notes}");
    // A route is the agent's: `repair` waits until it is there again.
    let (code, text, notes) = tenure(&alone, &["repair", "--yes", "--settle", "200ms", "--wait", "5m"]);
    assert_eq!(code, Some(0), "{text}{notes}");
    assert!(text.contains("    nothing to do: the node's agent repairs what it sees twice"), "{text}");
    alone.host.ping(address, PATIENCE).unwrap();
    let (code, text, notes) = tenure(&alone, &["check"]);
    assert_eq!(code, Some(0), "{text}{notes}");
}
