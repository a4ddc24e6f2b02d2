//! ADD, again and again: the same container, the same pod with another one, another interface, another agent.

use std::time::Duration;

use serde_json::json;
use tenure_testbed::faults::Rule;

use super::bed::*;
use crate::journal::Image;

const FIRST: At = ("web-0", "c1", "net1");

#[tokio::test(start_paused = true)]
async fn an_add_that_is_repeated_after_a_restart_has_its_address_again() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, ("other", "c0", "net1")).await.unwrap();
        let given = agent.add(&network, FIRST).await.unwrap();
        assert_eq!(agent.add(&network, FIRST).await.unwrap(), given);
        agent.del(&network, ("other", "c0", "net1")).await.unwrap();
        let journal = agent.journal();
        drop(agent);
        let next = bed.agent_after("node-1", journal).await;
        assert_eq!(next.add(&network, FIRST).await.unwrap(), given, "although a lower one is free");
        assert_eq!(given, ["10.0.0.2"]);
        next.del(&network, FIRST).await.unwrap();
        bed.until_recorded(&[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_add_that_is_repeated_after_the_journal_was_lost_has_its_address_again() {
    let (bed, network) = (Bed::cutting(&sliced()).await, sliced());
    let agent = bed.agent("node-1").await;
    agent.add(&network, ("other", "c0", "net1")).await.unwrap();
    agent.add(&network, FIRST).await.unwrap();
    agent.del(&network, ("other", "c0", "net1")).await.unwrap();
    bed.until_recorded(&["node-1-10.0.0.0-28 2 c1 net1"]).await;
    drop(agent);
    let next = bed.agent_after("node-1", Image::default()).await;
    assert_eq!(next.add(&network, FIRST).await.unwrap(), ["10.0.0.2"]);
    assert_eq!(next.held().await, ["10.0.0.2 c1 net1"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_made_again_keeps_its_address_and_the_late_del_of_the_old_container_takes_nothing() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        let first = ("web-0@1", "c1", "net1");
        let given = agent.add(&network, first).await.unwrap();
        let again = ("web-0@1", "c2", "net1");
        assert_eq!(agent.add(&network, again).await.unwrap(), given, "as Whereabouts has it");
        agent.del(&network, first).await.unwrap();
        let checked = agent.check(&network, again, &["10.0.0.1/24"]).await;
        assert!(checked.is_ok(), "{network}: {checked:?}");
        // Nor does a GC that still hears of nobody but the new one.
        agent.gc(&network, &[("c2", "net1")]).await.unwrap();
        assert_eq!(agent.add(&network, ("web-1", "c3", "net1")).await.unwrap(), ["10.0.0.2"]);
        agent.del(&network, again).await.unwrap();
        assert_eq!(agent.add(&network, ("web-2", "c4", "net1")).await.unwrap(), ["10.0.0.1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_deleted_by_force_and_made_again_shares_no_address_with_the_one_that_still_runs() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        assert_eq!(agent.add(&network, FIRST).await.unwrap(), ["10.0.0.1"]);
        let again = ("web-0@2", "c2", "net1");
        assert_eq!(agent.add(&network, again).await.unwrap(), ["10.0.0.2"]);
        assert_eq!(agent.add(&network, FIRST).await.unwrap(), ["10.0.0.1"]);
        agent.check(&network, again, &["10.0.0.2/24"]).await.unwrap();
        agent.del(&network, FIRST).await.unwrap();
        agent.check(&network, again, &["10.0.0.2/24"]).await.unwrap();
        agent.del(&network, again).await.unwrap();
        bed.until_recorded(&[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_del_that_was_left_while_the_api_server_was_away_takes_nothing_of_the_successor() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    let first = ("web-0@1", "c1", "net1");
    agent.add(&network, first).await.unwrap();
    bed.away();
    agent.del(&network, first).await.unwrap();
    bed.back();
    assert_eq!(agent.add(&network, ("web-0@1", "c2", "net1")).await.unwrap(), ["10.0.0.1"]);
    assert_eq!(agent.left().len(), 1, "it is another container's");
    agent.tombstones.replay().await;
    assert_eq!(agent.left().len(), 0);
    assert_eq!(bed.records().await, ["10.0.0.0-24 1 c2 net1"]);
}

#[tokio::test(start_paused = true)]
async fn two_interfaces_of_a_pod_on_one_network_come_and_go_by_themselves() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        let second = ("web-0", "c1", "net2");
        assert_eq!(agent.add(&network, FIRST).await.unwrap(), ["10.0.0.1"]);
        assert_eq!(agent.add(&network, second).await.unwrap(), ["10.0.0.2"]);
        assert_eq!(agent.add(&network, FIRST).await.unwrap(), ["10.0.0.1"]);
        agent.del(&network, FIRST).await.unwrap();
        agent.check(&network, second, &["10.0.0.2/24"]).await.unwrap();
        assert_eq!(agent.add(&network, second).await.unwrap(), ["10.0.0.2"], "the other one stays");
        agent.del(&network, second).await.unwrap();
        bed.until_recorded(&[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_networks_of_one_range_share_no_address_also_for_one_container() {
    let bed = Bed::new().await;
    let agent = bed.agent("node-1").await;
    let range = || json!({"range": "10.0.0.0/24", "network_name": "blue"});
    let (one, other) = (network("one", range()), network("other", range()));
    assert_eq!(agent.add(&one, FIRST).await.unwrap(), ["10.0.0.1"]);
    assert_eq!(agent.add(&other, ("web-0", "c1", "net2")).await.unwrap(), ["10.0.0.2"]);
    agent.del(&one, FIRST).await.unwrap();
    assert_eq!(bed.records().await, ["blue-10.0.0.0-24 2 c1 net2"]);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_slices_go_on_and_shared_ranges_say_to_try_again() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, FIRST).await.unwrap();
        bed.away();
        let second = agent.add(&network, ("web-1", "c2", "net1")).await;
        if network == sliced() {
            assert_eq!(second.unwrap(), ["10.0.0.2"]);
            agent.del(&network, FIRST).await.unwrap();
            assert_eq!(agent.left().len(), 0, "it is done");
            bed.back();
            bed.until_recorded(&["node-1-10.0.0.0-28 2 c2 net1"]).await;
        } else {
            assert_eq!(second.unwrap_err().code, 11);
            bed.back();
            // What may have been written of it goes, and nobody gets its address twice.
            assert_eq!(agent.add(&network, ("web-2", "c3", "net1")).await.unwrap(), ["10.0.0.2"]);
            assert_eq!(bed.records().await, ["10.0.0.0-24 1 c1 net1", "10.0.0.0-24 2 c3 net1"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_attached_before_its_range_was_cut_keeps_its_address() {
    let bed = Bed::new().await;
    let agent = bed.agent("node-1").await;
    assert_eq!(agent.add(&shared(), FIRST).await.unwrap(), ["10.0.0.1"]);
    bed.edit(
        "10.0.0.0-24",
        json!({"metadata": {"annotations": {tenure_whereabouts::ledger::STATE: "sliced"}}}),
    )
    .await;
    bed.cut(&sliced()).await;
    let new = ("web-1", "c2", "net1");
    let given = until("the slice", async || agent.add(&sliced(), new).await.ok()).await;
    assert_eq!(given, ["10.0.0.2"], "what the whole range has on record is kept back");
    agent.check(&sliced(), FIRST, &["10.0.0.1/24"]).await.unwrap();
    assert_eq!(agent.add(&sliced(), FIRST).await.unwrap(), ["10.0.0.1"], "what it has");
    agent.check(&sliced(), FIRST, &["10.0.0.1/24"]).await.unwrap();
    assert_eq!(agent.held().await, ["10.0.0.2 c2 net1"]);
    agent.del(&sliced(), FIRST).await.unwrap();
    bed.until_recorded(&["node-1-10.0.0.0-28 2 c2 net1"]).await;
    // Its address comes back to the slice.
    let third = ("web-2", "c3", "net1");
    until("its address", async || {
        let given = agent.add(&sliced(), third).await.unwrap();
        agent.del(&sliced(), third).await.unwrap();
        (given == ["10.0.0.1"]).then_some(())
    })
    .await;
}

/// A network that was cut and is whole again: nothing of it is lost, and nothing is had twice.
#[tokio::test(start_paused = true)]
async fn a_container_attached_while_its_range_was_cut_lets_go_of_everything_later() {
    let bed = Bed::cutting(&sliced()).await;
    let agent = bed.agent("node-1").await;
    assert_eq!(agent.add(&sliced(), FIRST).await.unwrap(), ["10.0.0.1"]);
    bed.until_recorded(&["node-1-10.0.0.0-28 1 c1 net1"]).await;
    agent.del(&shared(), FIRST).await.unwrap();
    bed.until_recorded(&[]).await;
    assert_eq!(agent.held().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_for_an_add_leaves_nothing_when_it_is_deleted() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.add(&network, ("other", "c0", "net1")).await.unwrap();
    bed.faults.add(Rule::delay(Duration::from_millis(200)..=Duration::from_millis(200)));
    let add = tokio::time::timeout(Duration::from_millis(100), agent.add(&network, FIRST));
    assert!(add.await.is_err(), "it is given up");
    agent.del(&network, FIRST).await.unwrap();
    bed.until_recorded(&["10.0.0.0-24 1 c0 net1"]).await;
    assert_eq!(agent.remembered(), 1);
}
