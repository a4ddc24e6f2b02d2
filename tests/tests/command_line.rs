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

/// What a verb says as JSON, and its exit code.
fn tenure_json(alone: &Alone, arguments: &[&str]) -> (Option<i32>, Value) {
    let (code, text, notes) = tenure(alone, &[arguments, &["-o", "json"]].concat());
    (code, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{notes}")))
}

/// The periods of an address or a container, once there are so many that have ended in this way.
fn periods(alone: &Alone, arguments: &[&str], ends: &[Value]) -> Value {
    until("the history to be written", || {
        let (_, past) = tenure_json(alone, arguments);
        let found: Vec<Value> = past["periods"].as_array()?.iter().map(|it| it["end"].clone()).collect();
        (found == ends).then_some(past["periods"].clone())
    })
}

#[test]
fn who_had_an_address_is_said_after_the_pod_a_crash_and_a_reboot() {
    let spec = json!({"blockSizeBits": 4, "subnets": [{"ipv4": "10.73.0.0/24"}]});
    let mut alone = Alone::running(&spec);
    let (first, second) = (alone.pod("first"), alone.pod("second"));
    let address = alone.attach("ADD", &first, &config()).address().to_string();
    let stays = alone.attach("ADD", &second, &config()).address().to_string();
    alone.attach("DEL", &first, &config()).result();
    let history = ["who", &address, "--history"];
    let found = periods(&alone, &history, &[json!("released")]);
    assert_eq!((&found[0]["container"], &found[0]["pool"]), (&json!("first"), &json!("default")), "{found}");
    let (from, to) = (found[0]["from"].as_str().unwrap(), found[0]["to"].as_str().unwrap());

    let (code, answer) = tenure_json(&alone, &["who", &address, "--at", from]);
    assert_eq!(
        (code, &answer["state"], &answer["holders"][0]["container"]),
        (Some(0), &json!("held"), &json!("first"))
    );
    let (code, text, notes) = tenure(&alone, &["who", &address, "--at", to]);
    assert_eq!((code, notes.as_str()), (Some(0), ""), "{text}");
    assert_eq!(text, format!("nobody held {address} at {to}\n"));
    let (code, text, notes) = tenure(&alone, &["who", &address, "--at", "3h"]);
    assert_eq!(code, Some(2), "{text}{notes}");
    assert!(
        text.starts_with("it is not known whether anybody held ") && notes.contains("its log begins at "),
        "{notes}"
    );
    let (code, text, _) = tenure(&alone, &["pod", "--container", "sec"]);
    assert!(
        code == Some(0) && text.lines().count() == 2 && text.contains(&stays) && text.contains(" now "),
        "{text}"
    );
    for (arguments, said) in [
        (vec!["who", &address, "--at", "yesterday"], "\"yesterday\" is no time; accepted are such as"),
        (vec!["pod", "a/b/c"], "accepted are NAME and NAMESPACE/NAME"),
        (vec!["who", &address, "--node", "x"], "accepted is --node with --at or --history"),
    ] {
        let (code, _, notes) = tenure(&alone, &arguments);
        assert!(code == Some(2) && notes.contains(said), "{notes}");
    }

    alone.kill();
    alone.start();
    let (code, answer) = tenure_json(&alone, &["who", &address, "--at", from]);
    assert_eq!((code, &answer["state"]), (Some(0), &json!("held")), "{answer}");
    let (_, text, notes) = tenure(&alone, &["who", &stays, "--history"]);
    assert!(
        text.contains(" now ") && notes.contains(": its agent was killed, or wrote no history, between "),
        "{text}{notes}"
    );
    // A reboot ends every pod, and nobody sees it.
    drop((first, second));
    alone.reboot();
    alone.start();
    let found = periods(&alone, &["pod", "--container", "second"], &[json!("unseen")]);
    assert!(found[0]["seen"].is_string(), "{found}");
    periods(&alone, &history, &[json!("released")]);
}

#[test]
fn a_full_disk_stops_no_pod_and_what_happened_meanwhile_is_known_once_there_is_room() {
    let spec = json!({"blockSizeBits": 5, "subnets": [{"ipv4": "10.74.0.0/24"}]});
    let mut alone = Alone::new();
    let log = "/var/lib/tenure/history";
    std::fs::create_dir_all(alone.path(log)).unwrap();
    let mount = |arguments: &[&str]| {
        let done = alone.host.command("mount").args(arguments.iter().copied()).arg(log).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    mount(&["-t", "tmpfs", "-o", "size=64k", "none"]);
    alone.write("/etc/tenure/pools/default.yaml", &tenure_tests::alone::pool("default", &spec));
    alone.start();
    until("a pool", || (alone.call("STATUS", "", None, &config()).code == 0).then_some(()));
    let fill = format!("cat /dev/zero >{log}/filler");
    let filled = alone.host.command("sh").args(["-c", &fill]).output().unwrap();
    assert!(!filled.status.success(), "it is full: {filled:?}");
    // More than the rest of the last page of the file.
    let pods: Vec<_> = (0..20).map(|number| alone.pod(&format!("p{number}"))).collect();
    let addresses: Vec<_> = pods.iter().map(|pod| alone.attach("ADD", pod, &config()).address()).collect();
    alone.attach("DEL", &pods[19], &config()).result();
    let waiting = || {
        let (_, metrics) = alone.state("/metrics");
        let line =
            metrics.as_str()?.lines().find(|line| line.starts_with("tenure_agent_history_waiting "))?;
        line.split(' ').nth(1)?.parse::<u64>().ok()
    };
    until("records to wait", || waiting().filter(|count| *count > 0));
    alone.host.ping(addresses[0], PATIENCE).unwrap();
    // What waits is known already.
    let last = addresses[19].to_string();
    periods(&alone, &["who", &last, "--history"], &[json!("released")]);
    let done = alone.host.command("mount").args(["-o", "remount,size=10m", log]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    until("nothing to wait", || waiting().filter(|count| *count == 0));
    alone.kill();
    alone.start();
    periods(&alone, &["who", &last, "--history"], &[json!("released")]);
}
