//! containerd over its socket, with no Kubernetes anywhere.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::cluster::{Node, NodePart, RuntimeHost};
use tenure_testbed::hosts::HostChild;
use tenure_testbed::wait::{PATIENCE, until};

use tenure_tests::alone::{http, pool};
use tenure_tests::cri::Runtime;
use tenure_tests::programs;

fn start_tenured(node: &Node) -> HostChild {
    let socket = node.path("/run/tenure/tenured.sock").unwrap();
    // One that was killed left it behind.
    drop(fs::remove_file(&socket));
    let log = File::options().create(true).append(true).open(node.logs().join("tenured.log")).unwrap();
    let command = node.command(programs::tenured()).arg("--standalone").env("NO_COLOR", "1");
    let tenured = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    until("tenured answers", || {
        assert_eq!(tenured.try_wait(), None, "it ended; see {}", node.logs().display());
        socket.exists().then_some(())
    });
    tenured
}

/// Who holds addresses: namespace and name of the pods.
fn holders(node: &Node) -> BTreeSet<String> {
    let (code, view) = http(&node.path("/run/tenure/state.sock").unwrap(), "/v1/node");
    assert_eq!(code, 200, "{view}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let holds = view["holds"].as_array().unwrap().iter();
    holds.map(|hold| format!("{}/{}", text(&hold["pod"]["namespace"]), text(&hold["pod"]["name"]))).collect()
}

fn reaches_all(node: &Node, addresses: &[String]) {
    assert_eq!(addresses.len(), 2, "one of each family: {addresses:?}");
    for address in addresses {
        let address: IpAddr = address.parse().unwrap();
        node.host().ping(address, PATIENCE).unwrap_or_else(|error| panic!("{address}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_runs_pods_over_its_socket_without_kubernetes() {
    let host = RuntimeHost::start().await.unwrap();
    let node = host.node();
    fs::copy(programs::plugin(), node.path("/opt/cni/bin/tenure").unwrap()).unwrap();
    let spec = json!({"blockSizeBits": 1, "subnets": [{"ipv4": "10.73.0.0/24", "ipv6": "fd73::/120"}]});
    node.write("/etc/tenure/pools/default.yaml", &pool("default", &spec)).unwrap();
    let list = json!({"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "tenure"}]});
    node.write("/etc/cni/net.d/10-tenure.conflist", &list.to_string()).unwrap();
    let runtime = Runtime::new(&node.path("/run/containerd/containerd.sock").unwrap(), node.cgroup());

    // containerd asks the plugin for its STATUS, as soon as it has seen the configuration.
    until("containerd knows that tenured is down", || {
        let condition = runtime.network_ready().unwrap();
        (!condition.status && condition.message.contains("tenured")).then_some(())
    });
    let refused = runtime.run("default", "early").unwrap_err().to_string();
    assert!(refused.contains("tenured"), "{refused}");

    let tenured = start_tenured(node);
    until("the network is ready", || runtime.network_ready().unwrap().status.then_some(()));
    let names = [("default", "a"), ("default", "b"), ("of-nobody", "c")];
    let ids = names.map(|(namespace, name)| runtime.run(namespace, name).unwrap());
    let before: Vec<Vec<String>> = ids.iter().map(|id| runtime.addresses(id).unwrap()).collect();
    for addresses in &before {
        reaches_all(node, addresses);
    }
    let expected = |names: &[(&str, &str)]| {
        names.iter().map(|(of, name)| format!("{of}/{name}")).collect::<BTreeSet<_>>()
    };
    assert_eq!(holders(node), expected(&names));

    // Neither containerd nor tenured is needed for what runs.
    node.restart(NodePart::Containerd).await.unwrap();
    node.await_containerd().unwrap();
    let after: Vec<Vec<String>> = ids.iter().map(|id| runtime.addresses(id).unwrap()).collect();
    assert_eq!(after, before);
    tenured.kill().unwrap();
    reaches_all(node, &before[0]);
    // A pod that is stopped meanwhile is remembered.
    runtime.stop(&ids[0]).unwrap();
    let tenured = start_tenured(node);
    until("the DEL was made up for", || (holders(node) == expected(&names[1..])).then_some(()));
    reaches_all(node, &before[1]);

    for id in &ids {
        runtime.stop(id).unwrap();
        runtime.stop(id).unwrap();
        runtime.remove(id).unwrap();
    }
    assert_eq!(holders(node), BTreeSet::new());
    let gone: IpAddr = before[1][0].parse().unwrap();
    assert!(node.host().ping(gone, Duration::from_millis(300)).is_err());
    tenured.kill().unwrap();
}
