//! What goes wrong elsewhere (`docs/coil-differences.md`) and shows only on the whole: `tenured`, the plugin, the kernel and an
//! API server. Needs root and iproute2.

#![allow(dead_code, reason = "the bed of the agent's tests does more than these need")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tenure_tests::agent::{Cluster, Machine, Pod};

/// An embedded API server with a controller and a pool.
fn cluster() -> Cluster {
    let cluster = Cluster::embedded();
    cluster.control("defects");
    cluster.pool("default", 5, json!([{"ipv4": "10.64.0.0/16", "ipv6": "fd64::/112"}]));
    cluster
}

/// The memory of a machine's agent, in bytes.
fn memory(machine: &Machine) -> u64 {
    let of_agent = |process: &std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("bed-tenured") && line.contains(&format!("--node-name\0{}\0", machine.name))
    };
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    // Nodes of other tests may have the same name: theirs is another network namespace.
    let here = machine.host.namespace().inode().unwrap();
    let in_host = |process: &std::fs::DirEntry| {
        std::fs::read_link(process.path().join("ns/net"))
            .is_ok_and(|link| link.ends_with(format!("net:[{here}]")))
    };
    let agent = processes.filter(of_agent).find(in_host).expect("an agent");
    let status = std::fs::read_to_string(agent.path().join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

/// How long an ADD takes elsewhere that reads the pod from an API server that does not answer.
const ELSEWHERE: Duration = Duration::from_secs(52);

/// Elsewhere ADD reads the pod from the API server, and fails after 52 s; and a DEL that empties a block fails too.
#[test]
fn with_a_frozen_api_server_adds_and_dels_on_owned_blocks_are_as_quick_as_ever() {
    let cluster = cluster();
    let machine = Machine::running(&cluster);
    machine.add(&machine.pod("first"));
    machine.gate.freeze();
    let pods: Vec<Pod> = (0..20).map(|number| machine.pod(&format!("pod{number}"))).collect();
    for verb in ["ADD", "DEL"] {
        for pod in &pods {
            let called = machine.call(verb, pod);
            called.succeeded();
            assert!(called.took < ELSEWHERE, "{called:?}");
        }
    }
    machine.gate.thaw();
}

/// Elsewhere every agent keeps all pods of the cluster in memory.
#[test]
fn memory_does_not_grow_with_pods_of_other_nodes() {
    let cluster = cluster();
    let machine = Machine::running(&cluster);
    machine.add(&machine.pod("first"));
    let before = memory(&machine);
    let pods: Api<PodObject> = Api::namespaced(cluster.client.clone(), "default");
    // A few kilobytes each, as pods are.
    let filler = "x".repeat(4096);
    cluster.runtime.block_on(async {
        for number in 0..2000 {
            let pod = json!({
                "metadata": {"name": format!("stranger-{number}"), "annotations": {"filler": filler}},
                "spec": {"nodeName": "elsewhere", "containers": [{"name": "c", "image": "i"}]},
            });
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        }
    });
    machine.add(&machine.pod("second"));
    let grown = memory(&machine).saturating_sub(before);
    assert!(grown < 2 << 20, "8 MB of other nodes' pods cost this node's agent {grown} bytes");
}
