//! The annotation that names the address a pod would like: read when nothing is known yet, watched from then on.

use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::*;

fn reads_of_pods(bed: &Bed) -> u64 {
    bed.faults.tally(&Calls::of(Verb::Get).to("pods")).asked
}

fn all_calls_for_pods(bed: &Bed) -> u64 {
    bed.faults.tally(&Calls::all().to("pods")).asked
}

#[tokio::test(start_paused = true)]
async fn the_first_add_reads_the_pod_and_later_ones_know_it() {
    for (bed, network) in both().await {
        bed.pod("web-0", "10.0.0.7").await;
        bed.pod("web-1", "10.0.0.9").await;
        let agent = bed.agent("node-1").await;
        assert_eq!(all_calls_for_pods(&bed), 0, "nobody has asked for an address yet");
        assert_eq!(agent.add(&network, ("web-0", "c1", "net1")).await.unwrap(), ["10.0.0.7"]);
        assert!(reads_of_pods(&bed) <= 1, "none, if the watch was quick");
        // The watch knows both now, and hears of a third.
        bed.pod("web-2", "10.0.0.11").await;
        until("the watch", async || {
            let known = agent.wish_of("web-2").await == "10.0.0.11";
            let before = reads_of_pods(&bed);
            agent.wish_of("web-2").await;
            (known && reads_of_pods(&bed) == before).then_some(())
        })
        .await;
        bed.faults.reset_tallies();
        assert_eq!(agent.add(&network, ("web-1", "c2", "net1")).await.unwrap(), ["10.0.0.9"]);
        until("the third", async || (agent.wish_of("web-2").await == "10.0.0.11").then_some(())).await;
        assert_eq!(agent.add(&network, ("web-2", "c3", "net1")).await.unwrap(), ["10.0.0.11"]);
        assert_eq!(agent.add(&network, ("none", "c4", "net1")).await.unwrap(), ["10.0.0.1"]);
        assert_eq!(all_calls_for_pods(&bed), 0, "no call is needed");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_watch_does_not_work_the_pod_is_read() {
    let (bed, network) = (Bed::new().await, shared());
    let agent = bed.agent("node-1").await;
    bed.faults.add(Rule::lose_request().on(Calls::of(Verb::List).or(Verb::Watch).to("pods")));
    for (pod, container, preferred) in [("web-0", "c1", "10.0.0.7"), ("web-1", "c2", "10.0.0.9")] {
        bed.pod(pod, preferred).await;
        assert_eq!(agent.add(&network, (pod, container, "net1")).await.unwrap(), [preferred]);
    }
    assert_eq!(reads_of_pods(&bed), 2);
    // It is only a wish: without it, there is the lowest.
    bed.faults.add(Rule::lose_request().on(Calls::all().to("pods")));
    bed.pod("web-2", "10.0.0.11").await;
    assert_eq!(agent.add(&network, ("web-2", "c3", "net1")).await.unwrap(), ["10.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_cut_is_made_up_for_by_reads() {
    let (bed, network) = (Bed::new().await, shared());
    bed.pod("web-0", "10.0.0.7").await;
    let agent = bed.agent("node-1").await;
    assert_eq!(agent.add(&network, ("web-0", "c1", "net1")).await.unwrap(), ["10.0.0.7"]);
    until("the watch", async || {
        let before = reads_of_pods(&bed);
        agent.wish_of("web-0").await;
        (reads_of_pods(&bed) == before).then_some(())
    })
    .await;
    bed.faults.add(Rule::lose_request().on(Calls::of(Verb::List).or(Verb::Watch).to("pods")));
    bed.faults.cut_watches(&Calls::all().to("pods"));
    bed.pod("web-1", "10.0.0.9").await;
    // From when the agent hears of the cut on, it does not rely on what the watch said.
    until("a read", async || (agent.wish_of("web-1").await == "10.0.0.9").then_some(())).await;
    assert_eq!(agent.add(&network, ("web-1", "c2", "net1")).await.unwrap(), ["10.0.0.9"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_or_of_another_nodes_slice_gives_way_to_the_lowest() {
    for (bed, network) in both().await {
        bed.pod("web-0", "10.0.0.7").await;
        bed.pod("web-1", "10.0.0.7").await;
        let agent = bed.agent("node-1").await;
        let first = ("web-0", "c1", "net1");
        assert_eq!(agent.add(&network, first).await.unwrap(), ["10.0.0.7"]);
        assert_eq!(agent.add(&network, ("web-1", "c2", "net1")).await.unwrap(), ["10.0.0.1"], "it is taken");
        assert_eq!(agent.add(&network, first).await.unwrap(), ["10.0.0.7"]);
        if network == sliced() {
            bed.pod("web-2", "10.0.0.20").await;
            assert_eq!(agent.add(&network, ("web-2", "c3", "net1")).await.unwrap(), ["10.0.0.2"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_makes_no_sense_is_refused_by_name_and_one_for_another_network_is_left_to_it() {
    for (bed, network) in both().await {
        for (pod, preferred) in [("web-0", "10.0.0.300"), ("web-1", "192.0.2.1")] {
            bed.pod(pod, preferred).await;
        }
        let agent = bed.agent("node-1").await;
        let failure = agent.add(&network, ("web-0", "c1", "net1")).await.unwrap_err();
        let said = format!("{failure}");
        assert!(failure.code == 7 && said.contains("preferred-ip") && said.contains("10.0.0.300"), "{said}");
        assert_eq!((bed.records().await.len(), agent.held().await.len()), (0, 0));
        agent.add(&network, ("web-1", "c2", "net1")).await.unwrap();
    }
}
