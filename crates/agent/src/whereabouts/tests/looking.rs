//! CHECK and STATUS.

use serde_json::json;

use super::bed::*;

const FIRST: At = ("web-0", "c1", "net1");

#[tokio::test(start_paused = true)]
async fn a_check_is_good_for_what_the_add_answered_and_for_nothing_else() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, FIRST).await.unwrap();
        agent.add(&network, ("web-1", "c2", "net1")).await.unwrap();
        agent.check(&network, FIRST, &["10.0.0.1/24"]).await.unwrap();
        agent.check(&network, FIRST, &["10.0.0.1/24", "192.0.2.7/24"]).await.expect("others may add theirs");
        let failure = agent.check(&network, FIRST, &["10.0.0.2/24"]).await.unwrap_err();
        assert!(failure.message.contains("10.0.0.2"), "{failure}");
        for at in [("web-0", "c9", "net1"), ("web-0", "c1", "net2")] {
            assert!(agent.check(&network, at, &["10.0.0.1/24"]).await.is_err(), "{at:?} in {network}");
        }
        agent.del(&network, FIRST).await.unwrap();
        assert!(agent.check(&network, FIRST, &["10.0.0.1/24"]).await.is_err(), "it is gone: {network}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_sees_that_somebody_else_took_the_record_away() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.add(&network, FIRST).await.unwrap();
    bed.edit("10.0.0.0-24", json!({"spec": {"allocations": {"1": null}}})).await;
    let failure = agent.check(&network, FIRST, &["10.0.0.1/24"]).await.unwrap_err();
    assert!(failure.message.contains("10.0.0.1") && failure.message.contains("shop/web-0"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_check_of_slices_needs_no_api_server_and_one_of_shared_ranges_does() {
    for (bed, network) in both().await {
        let agent = bed.agent("node-1").await;
        agent.add(&network, FIRST).await.unwrap();
        bed.away();
        let checked = agent.check(&network, FIRST, &["10.0.0.1/24"]).await;
        if network == sliced() {
            checked.unwrap();
        } else {
            assert_eq!(checked.unwrap_err().code, 11);
            bed.back();
            agent.check(&network, FIRST, &["10.0.0.1/24"]).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_of_two_ranges_wants_an_address_of_each() {
    let (one, two) = (shared(), json!([{"range": "fd00::/120"}]));
    let mut dual = one.clone();
    dual["ipam"]["ipRanges"] = two;
    let bed = Bed::new().await;
    let agent = bed.agent("node-1").await;
    agent.add(&one, FIRST).await.unwrap();
    let failure = agent.check(&dual, FIRST, &["10.0.0.1/24"]).await.unwrap_err();
    assert!(failure.message.contains("should have 2"), "{failure}");
    assert_eq!(agent.add(&dual, FIRST).await.unwrap(), ["10.0.0.1", "fd00::1"]);
    agent.check(&dual, FIRST, &["10.0.0.1/24", "fd00::1/120"]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn status_says_when_the_api_server_is_away_and_when_it_is_back() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    agent.status(&network).await.unwrap();
    bed.away();
    assert_eq!(agent.add(&network, FIRST).await.unwrap_err().code, 11);
    let failure = agent.status(&network).await.unwrap_err();
    assert!(failure.code == 50 && failure.message.contains("conf"), "{failure}");
    bed.back();
    agent.status(&network).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn status_of_slices_is_good_without_the_api_server_but_not_without_a_slice() {
    let (bed, network) = (Bed::cutting(&sliced()).await, sliced());
    let (agent, without) = (bed.agent("node-1").await, bed.agent("node-9").await);
    bed.away();
    agent.status(&network).await.unwrap();
    let failure = without.status(&network).await.unwrap_err();
    assert!(failure.code == 50 && failure.message.contains("conf"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn status_names_what_is_wrong_with_a_configuration() {
    let bed = Bed::new().await;
    let agent = bed.agent("node-1").await;
    let failure = agent.status(&network("conf", json!({"range": "10.0.0.0/99"}))).await.unwrap_err();
    assert!(failure.code == 7 && failure.message.contains("10.0.0.0/99"), "{failure}");
}
