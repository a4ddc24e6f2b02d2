//! Returning blocks.

use std::time::Duration;

use http::StatusCode;
use kube::ResourceExt;
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;
use tenure_api::coil::AddressBlock;
use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::{Bed, NODE, a_moment, block, until};
use crate::node::Event;

const BLOCKS: &str = "addressblocks";

async fn there(bed: &Bed, name: &str) -> Option<AddressBlock> {
    bed.api().get_opt(name).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_given_back_is_gone_and_told_so() {
    let bed = Bed::new(31).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    agent.seen("default-0").await;
    agent.return_block(&block);
    agent.gone("default-0", &block.uid().unwrap()).await;
    assert!(there(&bed, "default-0").await.is_none());
    a_moment().await;
    let back = agent.told().into_iter().filter(|event| matches!(event, Event::BlockSeen(_))).count();
    assert_eq!(back, 1, "a late event does not bring it back: {:?}", agent.story());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_given_back_behind_a_slow_watch_does_not_come_back() {
    let bed = Bed::new(32).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    agent.seen("default-0").await;
    let held = bed.faults.hold_watches(Calls::all().to(BLOCKS));
    agent.return_block(&block);
    agent.gone("default-0", &block.uid().unwrap()).await;
    drop(held);
    a_moment().await;
    let back = agent.told().into_iter().filter(|event| matches!(event, Event::BlockSeen(_))).count();
    assert_eq!(back, 1, "{:?}", agent.story());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_became_another_nodes_is_left_alone_and_told() {
    let bed = Bed::new(33).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    agent.seen("default-0").await;
    agent.forget();
    let _held = bed.faults.hold_watches(Calls::all().to(BLOCKS));
    let label = json!({"metadata": {"labels": {"coil.cybozu.com/node": "node-2"}}});
    bed.merge::<AddressBlock>("default-0", label).await;
    agent.return_block(&block);
    assert_eq!(agent.seen("default-0").await.node, "node-2");
    let left = there(&bed, "default-0").await.unwrap();
    assert_eq!((left.node(), left.finalizers().len()), (Some("node-2"), 1));
}

#[tokio::test(start_paused = true)]
async fn a_block_of_the_same_name_and_another_uid_is_left_alone_and_told() {
    let bed = Bed::new(34).await;
    let agent = bed.ready().await;
    let first = bed.block("default", 0, NODE).await;
    agent.seen("default-0").await;
    let _held = bed.faults.hold_watches(Calls::all().to(BLOCKS));
    bed.merge::<AddressBlock>("default-0", json!({"metadata": {"finalizers": []}})).await;
    bed.delete::<AddressBlock>("default-0").await;
    let second = bed.block("default", 0, NODE).await;
    agent.forget();
    agent.return_block(&first);
    agent.gone("default-0", &first.uid().unwrap()).await;
    assert_eq!(agent.seen("default-0").await.uid, second.uid().unwrap());
    assert_eq!(there(&bed, "default-0").await.unwrap().uid(), second.uid());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_gone_already_is_told_gone() {
    let bed = Bed::new(35).await;
    let agent = bed.ready().await;
    let never: AddressBlock = serde_json::from_value({
        let mut never = block("default", 0, NODE);
        never["metadata"]["uid"] = json!("of-long-ago");
        never
    })
    .unwrap();
    agent.return_block(&never);
    agent.gone("default-0", "of-long-ago").await;
}

#[tokio::test(start_paused = true)]
async fn a_block_that_became_reserved_stays() {
    let bed = Bed::new(36).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    agent.seen("default-0").await;
    agent.forget();
    let label = json!({"metadata": {"labels": {"coil.cybozu.com/reserved": "true"}}});
    bed.merge::<AddressBlock>("default-0", label).await;
    agent.return_block(&block);
    assert!(agent.seen("default-0").await.reserved);
    a_moment().await;
    assert!(there(&bed, "default-0").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_somebody_is_deleting_goes_with_its_finalizer() {
    let bed = Bed::new(37).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    let exactly = Preconditions { uid: block.uid(), resource_version: None };
    let exactly = DeleteParams::default().preconditions(exactly);
    bed.api::<AddressBlock>().delete("default-0", &exactly).await.unwrap();
    agent.return_block(&block);
    agent.gone("default-0", &block.uid().unwrap()).await;
    assert!(there(&bed, "default-0").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_a_block_goes_on_the_version_that_was_read_and_a_release_that_was_planned_before_fails() {
    let bed = Bed::new(137).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    let mark =
        json!({"metadata": {"annotations": {"tenure/releasing": "2026-11-17T02:00:00Z", "other": "stays"}}});
    bed.merge::<AddressBlock>("default-0", mark).await;
    let is_marked = |event: &Event| matches!(event, Event::BlockSeen(seen) if seen.releasing);
    agent.until("the mark", is_marked).await;
    agent.forget();
    let marked = there(&bed, "default-0").await.unwrap();
    let (name, uid) = ("default-0".to_owned(), block.uid().unwrap());
    agent.objects.carry_out(crate::node::Action::KeepBlock { pool: String::new(), name, uid });
    assert!(!agent.seen("default-0").await.releasing);
    let kept = there(&bed, "default-0").await.unwrap();
    assert_eq!(kept.annotations().keys().collect::<Vec<_>>(), ["other"]);
    let exactly = Preconditions { uid: block.uid(), resource_version: marked.resource_version() };
    let exactly = DeleteParams::default().preconditions(exactly);
    let late = bed.api::<AddressBlock>().delete("default-0", &exactly).await;
    assert!(matches!(late, Err(kube::Error::Api(status)) if status.code == 409));
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_others_stay_and_are_waited_for() {
    let bed = Bed::new(38).await;
    let agent = bed.ready().await;
    let mut shared = block("default", 0, NODE);
    shared["metadata"]["finalizers"] = json!(["coil.cybozu.com", "example.com/theirs"]);
    let shared: AddressBlock = bed.create(shared).await;
    agent.seen("default-0").await;
    agent.forget();
    agent.return_block(&shared);
    assert!(agent.seen("default-0").await.deleting);
    assert_eq!(there(&bed, "default-0").await.unwrap().finalizers(), ["example.com/theirs"]);
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_lost_answers_on_the_way_do_not_matter() {
    let bed = Bed::new(39).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    let struck = [
        bed.faults.add(Rule::fail(StatusCode::CONFLICT).on(Calls::of(Verb::Patch).to(BLOCKS)).times(2)),
        bed.faults.add(Rule::lose_answer().on(Calls::of(Verb::Delete).to(BLOCKS)).times(1)),
    ];
    agent.return_block(&block);
    agent.gone("default-0", &block.uid().unwrap()).await;
    assert!(there(&bed, "default-0").await.is_none());
    assert_eq!(struck.map(|rule| bed.faults.struck(rule)), [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn with_the_api_server_away_a_block_stays_until_it_is_tried_again() {
    let bed = Bed::new(40).await;
    let agent = bed.ready().await;
    let block = bed.block("default", 0, NODE).await;
    agent.seen("default-0").await;
    let away = bed.faults.add(Rule::lose_request().on(Calls::of(Verb::Get).to(BLOCKS)));
    agent.return_block(&block);
    until("some tries", async || (bed.faults.struck(away) > 2).then_some(())).await;
    bed.faults.clear();
    agent.return_block(&block);
    agent.gone("default-0", &block.uid().unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_block_goes_back_after_the_request_that_it_answers() {
    let bed = Bed::new(39).await;
    let agent = bed.ready().await;
    let failing =
        bed.faults.add(Rule::fail(StatusCode::FORBIDDEN).on(Calls::of(Verb::Delete).to("blockrequests")));
    agent.ask(1, "default");
    let request = bed.a_request().await;
    let block = bed.grant(&request, "default", 0).await;
    agent.answer_to(1).await;
    agent.return_block(&block);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(bed.faults.struck(failing) > 1);
    assert!(there(&bed, "default-0").await.is_some(), "the controller would carve another one");
    bed.faults.clear();
    bed.no_requests().await;
    // The node says it again.
    agent.return_block(&block);
    agent.gone("default-0", &block.uid().unwrap()).await;
}
