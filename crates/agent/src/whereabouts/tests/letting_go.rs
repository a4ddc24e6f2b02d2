//! DEL: once, twice, late, with a configuration that has changed, and when the API server is away.

use std::fs;

use serde_json::json;

use super::bed::*;

const FIRST: At = ("web-0", "c1", "net1");

#[tokio::test(start_paused = true)]
async fn a_del_may_come_twice_and_for_what_never_was() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, FIRST).await.unwrap();
        for at in [FIRST, FIRST, ("never", "c9", "net1")] {
            assert_eq!(agent.del(&network, at).await.unwrap(), json!(null));
        }
        bed.until_recorded(&[]).await;
        assert_eq!((agent.held().await.len(), agent.left().len(), agent.remembered()), (0, 0, 0));
        // Also when nobody can look whether there is anything.
        bed.away();
        agent.del(&network, FIRST).await.unwrap();
        bed.back();
        agent.tombstones.replay().await;
        assert_eq!(agent.left().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_del_that_the_api_server_missed_is_done_when_it_is_back() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.add(&network, FIRST).await.unwrap();
    agent.add(&network, ("web-1", "c2", "net1")).await.unwrap();
    bed.away();
    for _ in 0..2 {
        agent.del(&network, FIRST).await.unwrap();
        assert_eq!(agent.left().len(), 1, "it is left for later, once");
    }
    agent.tombstones.replay().await;
    assert_eq!(agent.left().len(), 1, "it cannot be done yet, and is not forgotten");
    assert_eq!(bed.records().await.len(), 2);
    bed.back();
    agent.tombstones.replay().await;
    assert_eq!(agent.left().len(), 0);
    assert_eq!(bed.records().await, ["10.0.0.0-24 2 c2 net1"]);
    assert_eq!(agent.remembered(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_del_that_the_api_server_missed_is_done_by_the_next_agent() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.add(&network, FIRST).await.unwrap();
    bed.away();
    agent.del(&network, FIRST).await.unwrap();
    let journal = agent.journal();
    drop(agent);
    bed.back();
    let next = bed.agent_after("node-1", journal).await;
    assert_eq!(next.left().len(), 1);
    next.tombstones.replay().await;
    assert_eq!((next.left().len(), next.remembered()), (0, 0));
    assert_eq!(bed.records().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_del_that_came_while_no_agent_ran_is_done_on_both_kinds() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, FIRST).await.unwrap();
        agent.add(&network, ("web-1", "c2", "net1")).await.unwrap();
        let journal = agent.journal();
        let left = agent.leave(&network, FIRST);
        drop(agent);
        let next = bed.agent_after("node-1", journal).await;
        next.tombstones.replay().await;
        assert!(!left.exists());
        let object = if network == sliced() { "node-1-10.0.0.0-28" } else { "10.0.0.0-24" };
        bed.until_recorded(&[&format!("{object} 2 c2 net1")]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_takes_nothing_that_its_container_was_given_later() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, FIRST).await.unwrap();
        let left = agent.leave(&network, FIRST);
        agent.del(&network, FIRST).await.unwrap();
        agent.add(&network, FIRST).await.unwrap();
        assert!(!left.exists(), "an ADD takes it back");
        agent.tombstones.replay().await;
        agent.check(&network, FIRST, &["10.0.0.1/24"]).await.unwrap();
    }
}

/// The clock may be set back between an ADD and the DEL that follows it.
#[tokio::test(start_paused = true)]
async fn a_tombstone_is_done_whatever_the_clock_says_of_its_age() {
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_hours(1);
    let far_ahead = std::time::UNIX_EPOCH + std::time::Duration::from_hours(24 * 365 * 200);
    for modified in [long_ago, far_ahead] {
        for (bed, network) in both().await {
            let agent = bed.agent("node-1").await;
            agent.add(&network, FIRST).await.unwrap();
            let left = agent.leave(&network, FIRST);
            fs::File::options().write(true).open(&left).unwrap().set_modified(modified).unwrap();
            agent.tombstones.replay().await;
            assert!(!left.exists());
            bed.until_recorded(&[]).await;
            assert_eq!(agent.held().await, [""; 0], "what was deleted is held for ever");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_del_with_a_configuration_that_has_changed_or_broken_releases_what_there_is() {
    let bed = Bed::new().await;
    let agent = bed.agent("node-1").await;
    let blue = network("conf", json!({"range": "10.0.0.0/24", "network_name": "blue"}));
    let changes = [
        network("conf", json!({"range": "10.0.0.0/24", "network_name": "green"})),
        network("conf", json!({"range": "10.9.0.0/24", "network_name": "blue"})),
        network("conf", json!({"range": "10.0.0.0/nonsense", "network_name": "blue"})),
        network("conf", json!({})),
    ];
    for changed in changes {
        agent.add(&blue, FIRST).await.unwrap();
        assert_eq!(bed.records().await, ["blue-10.0.0.0-24 1 c1 net1"]);
        agent.del(&changed, FIRST).await.unwrap();
        assert_eq!((bed.records().await, agent.remembered()), (Vec::new(), 0), "{changed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_del_of_a_slice_with_a_broken_configuration_releases_it() {
    let bed = Bed::cutting(&sliced()).await;
    let agent = bed.agent("node-1").await;
    agent.add(&sliced(), FIRST).await.unwrap();
    let broken = network("conf", json!({"range": "10.0.0.0/24", "node_slice_size": "/99"}));
    agent.del(&broken, FIRST).await.unwrap();
    bed.until_recorded(&[]).await;
    assert_eq!(agent.held().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_one_node_gave_another_nodes_del_of_a_like_named_interface_leaves() {
    for (bed, network) in both().await {
        let (one, other) = (bed.agent("node-1").await, bed.agent("node-2").await);
        one.add(&network, FIRST).await.unwrap();
        other.add(&network, ("web-1", "c2", "net1")).await.unwrap();
        other.del(&network, ("web-0", "c3", "net1")).await.unwrap();
        one.check(&network, FIRST, &["10.0.0.1/24"]).await.unwrap();
    }
}
