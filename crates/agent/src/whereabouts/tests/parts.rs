//! Several ranges: an address of each or none.

use serde_json::{Value, json};

use super::bed::*;
use crate::journal::Image;

/// Two ranges, of which the second has room for few.
fn dual(sizes: Option<(&str, &str)>) -> Value {
    let mut ipam = json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/126"}]});
    if let Some((first, second)) = sizes {
        ipam["node_slice_size"] = json!(first);
        ipam["ipRanges"] = json!([{"range": "fd00::/120", "node_slice_size": second}]);
    }
    network("conf", ipam)
}

/// The first range alone.
fn first_of(network: &Value) -> Value {
    let mut first = network.clone();
    first["ipam"]["ipRanges"] = json!([]);
    first
}

async fn beds() -> [(Bed, Value); 2] {
    let cut = dual(Some(("/28", "/126")));
    [(Bed::new().await, dual(None)), (Bed::cutting(&cut).await, cut)]
}

/// Adds pods until the second range is full; says how many there are.
async fn fill(agent: &Agent, network: &Value) -> usize {
    for number in 0..8 {
        let (pod, container) = (format!("full-{number}"), format!("f{number}"));
        match agent.add(network, (&pod, &container, "net1")).await {
            Ok(given) => assert_eq!(given.len(), 2, "{given:?}"),
            Err(failure) => {
                assert_eq!(failure.code, 11, "{failure}");
                assert!(number > 0, "{failure}");
                return number;
            }
        }
    }
    panic!("the second range is never full");
}

#[tokio::test(start_paused = true)]
async fn an_add_that_finds_one_range_full_leaves_nothing_of_the_others() {
    for (bed, network) in beds().await {
        let agent = bed.agent("node-1").await;
        let room = fill(&agent, &network).await;
        let after = format!("10.0.0.{}", room + 1);
        let failure = agent.add(&network, ("late", "c1", "net1")).await.unwrap_err();
        assert_eq!(failure.code, 11, "{failure}");
        assert_eq!(
            agent.add(&first_of(&network), ("v4", "c2", "net1")).await.unwrap(),
            [after.as_str()],
            "the lowest is still free"
        );
        agent.del(&network, ("full-0", "f0", "net1")).await.unwrap();
        assert_eq!(agent.add(&network, ("late", "c1", "net1")).await.unwrap(), ["10.0.0.1", "fd00::1"]);
        for (pod, container) in [("late", "c1"), ("v4", "c2")] {
            agent.del(&network, (pod, container, "net1")).await.unwrap();
        }
        agent.gc(&network, &[]).await.unwrap();
        bed.until_recorded(&[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_add_of_many_ranges_gives_back_all_that_came_before_the_one_that_is_full() {
    let network = network(
        "conf",
        json!({"range": "10.0.0.0/24", "node_slice_size": "/28", "ipRanges": [
            {"range": "10.1.0.0/24"}, {"range": "fd00::/120", "node_slice_size": "/126"}, {"range": "10.2.0.0/24"}]}),
    );
    let bed = Bed::cutting(&network).await;
    let agent = bed.agent("node-1").await;
    let mut held = 0;
    let failure = loop {
        match agent.add(&network, ("p", &format!("c{held}"), &format!("net{held}"))).await {
            Ok(given) => assert_eq!(given.len(), 4),
            Err(failure) => break failure,
        }
        held += 1;
        assert!(held < 8);
    };
    assert!(failure.message.contains("fd00"), "{failure}");
    assert_eq!(agent.held().await.len(), 4 * held);
    assert!(!agent.held().await.iter().any(|it| it.ends_with(&format!("net{held}"))));
}

#[tokio::test(start_paused = true)]
async fn an_add_that_fails_leaves_what_the_container_had_before() {
    for (bed, network) in beds().await {
        let agent = bed.agent("node-1").await;
        let at = ("web-0", "c1", "net1");
        assert_eq!(agent.add(&first_of(&network), at).await.unwrap(), ["10.0.0.1"]);
        fill(&agent, &network).await;
        agent.add(&network, at).await.unwrap_err();
        agent.check(&first_of(&network), at, &["10.0.0.1/24"]).await.unwrap();
        // And a GC still knows of it.
        agent.gc(&network, &[]).await.unwrap();
        bed.until_recorded(&[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_add_that_fails_leaves_what_was_adopted_for_the_container() {
    let network = dual(Some(("/28", "/126")));
    let bed = Bed::cutting(&network).await;
    let agent = bed.agent("node-1").await;
    let at = ("web-0", "c1", "net1");
    assert_eq!(agent.add(&first_of(&network), at).await.unwrap(), ["10.0.0.1"]);
    let room = fill(&agent, &network).await;
    until("records", async || (bed.records().await.len() == 1 + 2 * room).then_some(())).await;
    drop(agent);
    // The journal is lost: what is on record is all that is known.
    let next = bed.agent_after("node-1", Image::default()).await;
    next.add(&network, at).await.unwrap_err();
    next.check(&first_of(&network), at, &["10.0.0.1/24"]).await.unwrap();
    assert_eq!(next.add(&first_of(&network), at).await.unwrap(), ["10.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn every_part_is_the_same_again_after_a_restart_and_goes_with_one_del() {
    for (bed, network) in beds().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, ("other", "c0", "net1")).await.unwrap();
        let at = ("web-0", "c1", "net1");
        let given = agent.add(&network, at).await.unwrap();
        agent.del(&network, ("other", "c0", "net1")).await.unwrap();
        let journal = agent.journal();
        drop(agent);
        let next = bed.agent_after("node-1", journal).await;
        assert_eq!(next.add(&network, at).await.unwrap(), given);
        assert_eq!(given, ["10.0.0.2", "fd00::2"]);
        next.check(&network, at, &["10.0.0.2/24", "fd00::2/120"]).await.unwrap();
        next.del(&network, at).await.unwrap();
        bed.until_recorded(&[]).await;
        assert_eq!(next.held().await, [""; 0]);
    }
}

/// No range is cut by itself: what an address of the network is depends on one key.
#[tokio::test(start_paused = true)]
async fn a_network_is_cut_as_a_whole_or_not_at_all() {
    let bed = Bed::new().await;
    let agent = bed.agent("node-1").await;
    let half = network(
        "conf",
        json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/120", "node_slice_size": "/126"}]}),
    );
    let failure = agent.add(&half, ("web-0", "c1", "net1")).await.unwrap_err();
    assert!(failure.code == 7 && failure.message.contains("ipRanges[0].node_slice_size"), "{failure}");
}
