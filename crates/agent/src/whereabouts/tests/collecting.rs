//! GC: it takes the dead of its own CNI configuration on its own node, and nothing else.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::*;

/// Two configurations of one range, with slices or without.
fn twins(size: &str) -> [Value; 2] {
    let ipam = || json!({"range": "10.0.0.0/24", "network_name": "blue", "node_slice_size": size});
    [network("conf", ipam()), network("twin", ipam())]
}

#[tokio::test(start_paused = true)]
async fn gc_releases_the_dead_and_leaves_the_living_the_other_node_and_the_other_configuration() {
    for size in ["", "/28"] {
        let [network, twin] = twins(size);
        let bed = if size.is_empty() { Bed::new().await } else { Bed::cutting(&network).await };
        let (one, other) = (bed.agent("node-1").await, bed.agent("node-2").await);
        one.add(&network, ("dead", "c1", "net1")).await.unwrap();
        one.add(&network, ("alive", "c2", "net1")).await.unwrap();
        one.add(&network, ("alive", "c2", "net2")).await.unwrap();
        one.add(&twin, ("twin", "c3", "net1")).await.unwrap();
        one.add(&twin, ("dead", "c1", "net3")).await.unwrap();
        other.add(&network, ("far", "c4", "net1")).await.unwrap();
        one.gc(&network, &[("c2", "net1"), ("unknown", "net1")]).await.unwrap();
        if size.is_empty() {
            let left = ["2 c2 net1", "4 c3 net1", "5 c1 net3", "6 c4 net1"];
            let mut left = left.map(|record| format!("blue-10.0.0.0-24 {record}"));
            left.sort();
            assert_eq!(bed.records().await, left);
        } else {
            assert_eq!(one.held().await, ["10.0.0.2 c2 net1", "10.0.0.4 c3 net1", "10.0.0.5 c1 net3"]);
            assert_eq!(other.held().await, ["10.0.0.17 c4 net1"]);
        }
        // Nobody is alive.
        one.gc(&network, &[]).await.unwrap();
        one.gc(&twin, &[]).await.unwrap();
        let far = if size.is_empty() { "blue-10.0.0.0-24 6" } else { "blue-node-2-10.0.0.16-28 1" };
        bed.until_recorded(&[&format!("{far} c4 net1")]).await;
        assert_eq!(one.remembered(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn gc_knows_the_dead_of_the_agent_before() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, ("dead", "c1", "net1")).await.unwrap();
        agent.add(&network, ("alive", "c2", "net1")).await.unwrap();
        let journal = agent.journal();
        drop(agent);
        let next = bed.agent_after("node-1", journal).await;
        next.gc(&network, &[("c2", "net1")]).await.unwrap();
        let object = if network == sliced() { "node-1-10.0.0.0-28" } else { "10.0.0.0-24" };
        bed.until_recorded(&[&format!("{object} 2 c2 net1")]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn gc_leaves_what_whereabouts_wrote_and_what_is_not_known_to_be_this_nodes() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.add(&network, ("dead", "c1", "net1")).await.unwrap();
    let theirs = json!({"id": "old", "podref": "shop/old", "ifname": "net1"});
    bed.edit("10.0.0.0-24", json!({"spec": {"allocations": {"9": theirs}}})).await;
    agent.gc(&network, &[]).await.unwrap();
    assert_eq!(bed.records().await, ["10.0.0.0-24 9 old net1"]);
}

#[tokio::test(start_paused = true)]
async fn gc_leaves_what_is_being_added() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.add(&network, ("dead", "c1", "net1")).await.unwrap();
    let slow = Duration::from_millis(300)..=Duration::from_millis(300);
    bed.faults.add(Rule::delay(slow).on(Calls::of(Verb::Patch)));
    let gc = async {
        until("the ADD", async || (agent.remembered() == 2).then_some(())).await;
        // The list of those alive was made before that ADD began.
        agent.gc(&network, &[]).await.unwrap();
    };
    let (added, ()) = tokio::join!(agent.add(&network, ("new", "c2", "net1")), gc);
    assert_eq!(added.unwrap(), ["10.0.0.2"]);
    assert_eq!(bed.records().await, ["10.0.0.0-24 2 c2 net1"]);
    agent.gc(&network, &[]).await.unwrap();
    assert_eq!(bed.records().await, [""; 0], "it is not spared for ever");
}

#[tokio::test(start_paused = true)]
async fn gc_says_when_it_could_not_and_does_it_the_next_time() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.add(&network, ("dead", "c1", "net1")).await.unwrap();
    bed.away();
    let failure = agent.gc(&network, &[]).await.unwrap_err();
    assert!(failure.code == 11 && failure.message.contains("c1"), "{failure}");
    bed.back();
    agent.gc(&network, &[]).await.unwrap();
    assert_eq!(bed.records().await, [""; 0]);
}
