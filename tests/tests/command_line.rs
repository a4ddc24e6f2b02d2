//! `tenure`, the program, on a host with `tenured --standalone`: it says what is there, and finds what somebody broke.
//! Needs root and iproute2.

use serde_json::{Value, json};
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
