//! Block requests: every wish is answered, whatever happens on the way, and no request is left.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;
use tenure_api::coil::condition::reason;
use tenure_api::coil::{BlockRequest, BlockRequestStatus, RequestOutcome};
use tenure_handles::Clock;
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::{Bed, NODE, a_moment, until};
use crate::node::{AskId, Event, Refusal, RefusalKind};
use crate::objects::ObjectsOptions;

const REQUESTS: &str = "blockrequests";

fn carved(block: &str) -> BlockRequestStatus {
    BlockRequestStatus::carved(block, &Time(RuntimeClock.now().to_jiff()))
}

fn failed(reason: &str, message: &str) -> BlockRequestStatus {
    BlockRequestStatus::failed(reason, message, &Time(RuntimeClock.now().to_jiff()))
}

fn granted(ask: u64, block: &str) -> Event {
    Event::BlockGranted { ask: AskId(ask), block: block.into() }
}

fn refusal(event: Event) -> Refusal {
    let Event::BlockRefused { refusal, .. } = event else { panic!("{event:?} is no refusal") };
    refusal
}

#[tokio::test(start_paused = true)]
async fn a_request_of_this_node_is_answered_and_deleted_and_others_stay() {
    let bed = Bed::new(11).await;
    let agent = bed.ready().await;
    let node: Node = bed.api().get(NODE).await.unwrap();
    let other =
        json!({"metadata": {"name": "theirs"}, "spec": {"nodeName": "node-2", "poolName": "default"}});
    bed.create::<BlockRequest>(other).await;
    bed.answer("theirs", &carved("default-9")).await;
    agent.ask(1, "default");
    let request = until("a request of ours", async || {
        bed.requests().await.into_iter().find(|request| request.name_any() != "theirs")
    })
    .await;
    assert_eq!((request.spec.node_name.as_str(), request.spec.pool_name.as_str()), (NODE, "default"));
    assert!(request.name_any().starts_with("req-default-node-1-"), "{}", request.name_any());
    let owner = &request.owner_references()[0];
    assert_eq!((owner.kind.as_str(), &owner.uid), ("Node", &node.uid().unwrap()));
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    let left = until("ours to go", async || {
        let names: Vec<String> = bed.requests().await.iter().map(ResourceExt::name_any).collect();
        (names.len() == 1).then_some(names)
    });
    assert_eq!(left.await, ["theirs"]);
    assert_eq!(agent.told().iter().filter(|event| **event == granted(1, "default-0")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn several_wishes_have_requests_of_their_own() {
    let bed = Bed::new(12).await;
    let agent = bed.ready().await;
    for ask in 0..20 {
        agent.ask(ask, "default");
    }
    let requests =
        until("20 requests", async || Some(bed.requests().await).filter(|requests| requests.len() == 20))
            .await;
    for (number, request) in requests.iter().enumerate() {
        bed.answer(&request.name_any(), &carved(&format!("default-{number}"))).await;
    }
    let mut blocks = Vec::new();
    for ask in 0..20 {
        let Event::BlockGranted { block, .. } = agent.answer_to(ask).await else { panic!("a refusal") };
        blocks.push(block);
    }
    blocks.sort();
    blocks.dedup();
    assert_eq!(blocks.len(), 20);
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_before_anyone_knows_of_the_request_is_not_lost() {
    let bed = Bed::new(13).await;
    let agent = bed.ready().await;
    // The request is created and answered while the agent believes that its creation failed, and its watch is cut.
    let held = bed.faults.hold_watches(Calls::all());
    let lost = bed.faults.add(Rule::lose_answer().on(Calls::of(Verb::Create).to(REQUESTS)).times(1));
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    assert_eq!(bed.faults.struck(lost), 1);
    drop(held);
    bed.no_requests().await;
    a_moment().await;
    assert_eq!(agent.told().iter().filter(|event| **event == granted(1, "default-0")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_the_watch_is_broken_is_heard_afterwards() {
    let bed = Bed::with_history(14, 2).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.blind(REQUESTS);
    bed.answer(&request.name_any(), &carved("default-0")).await;
    for number in 0..5 {
        let name = format!("r{number}");
        let spec = json!({"nodeName": "node-2", "poolName": "default"});
        bed.create::<BlockRequest>(json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    bed.faults.clear();
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_what_it_means() {
    let bed = Bed::new(15).await;
    let agent = bed.ready().await;
    for (ask, reason, kind) in [
        (1, reason::OUT_OF_BLOCKS, RefusalKind::Exhausted),
        (2, "out of blocks", RefusalKind::Exhausted),
        (3, reason::INVALID, RefusalKind::Unusable),
        (4, reason::DELETING, RefusalKind::Unusable),
        (5, reason::POOL_NOT_FOUND, RefusalKind::Unusable),
    ] {
        agent.ask(ask, "default");
        let request = bed.a_request().await;
        bed.answer(&request.name_any(), &failed(reason, "append a subnet")).await;
        let refusal = refusal(agent.answer_to(ask).await);
        assert_eq!(refusal, Refusal { kind, message: "append a subnet".into() }, "{reason}");
        bed.no_requests().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_vanishes_is_a_refusal() {
    let bed = Bed::new(16).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.delete::<BlockRequest>(&request.name_any()).await;
    let refusal = refusal(agent.answer_to(1).await);
    assert_eq!(refusal.kind, RefusalKind::Unreachable);
    assert!(refusal.message.contains(&request.name_any()), "{}", refusal.message);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_vanishes_unseen_is_found_out_by_looking() {
    let bed = Bed::new(17).await;
    let agent = bed.ready().await;
    let _held = bed.faults.hold_watches(Calls::all().to(REQUESTS));
    for ask in [1, 2, 3] {
        agent.ask(ask, "default");
    }
    let requests = until("3 requests", async || Some(bed.requests().await).filter(|it| it.len() == 3)).await;
    a_moment().await;
    bed.delete::<BlockRequest>(&requests[0].name_any()).await;
    bed.answer(&requests[1].name_any(), &carved("default-7")).await;
    agent.objects.shared.look_at_requests().await;
    assert!(!agent.told().iter().any(is_answer), "they are not old enough to be looked at");
    agent.clock.advance(Duration::from_secs(10));
    agent.objects.shared.look_at_requests().await;
    let answers: Vec<Event> = agent.told().into_iter().filter(is_answer).collect();
    assert_eq!(answers.len(), 2, "one goes on waiting: {answers:?}");
    assert!(
        answers
            .iter()
            .any(|event| matches!(event, Event::BlockGranted { block, .. } if block == "default-7"))
    );
    assert!(answers.iter().any(|event| matches!(event, Event::BlockRefused { .. })));
}

fn is_answer(event: &Event) -> bool {
    matches!(event, Event::BlockGranted { .. } | Event::BlockRefused { .. })
}

#[tokio::test(start_paused = true)]
async fn without_a_controller_a_wish_goes_on_waiting_with_one_request() {
    let bed = Bed::new(18).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    let request = bed.a_request().await;
    a_moment().await;
    for _ in 0..3 {
        agent.clock.advance(Duration::from_secs(30));
        agent.objects.shared.look_at_requests().await;
    }
    assert!(!agent.told().iter().any(is_answer), "{:?}", agent.story());
    assert_eq!(bed.requests().await.len(), 1);
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"), "late, but not too late");
}

#[tokio::test(start_paused = true)]
async fn with_the_api_server_away_a_wish_is_refused() {
    let bed = Bed::new(19).await;
    let agent = bed.ready_and_impatient().await;
    bed.away();
    agent.ask(1, "default");
    let refusal = refusal(agent.answer_to(1).await);
    assert_eq!(refusal.kind, RefusalKind::Unreachable);
    assert!(refusal.message.contains("API server"), "{}", refusal.message);
    bed.faults.clear();
    agent.ask(2, "default");
    let request = bed.a_request().await;
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(2).await, granted(2, "default-0"));
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_creation_nobody_could_confirm_does_not_stay() {
    let bed = Bed::new(20).await;
    let agent = bed.ready_and_impatient().await;
    bed.faults.add(Rule::lose_answer().on(Calls::of(Verb::Create).to(REQUESTS)));
    bed.faults.add(Rule::fail(StatusCode::SERVICE_UNAVAILABLE).on(Calls::of(Verb::Get).to(REQUESTS)));
    agent.ask(1, "default");
    let request = bed.a_request().await;
    assert_eq!(request.outcome(), RequestOutcome::Pending);
    assert_eq!(refusal(agent.answer_to(1).await).kind, RefusalKind::Unreachable);
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_stays_to_be_deleted_until_the_api_server_is_back() {
    let bed = Bed::new(21).await;
    let agent = bed.ready().await;
    let deletes = || Calls::of(Verb::Delete).to(REQUESTS);
    let failing = bed.faults.add(Rule::fail(StatusCode::INTERNAL_SERVER_ERROR).on(deletes()));
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"), "it does not wait for the deletion");
    until("some tries", async || (bed.faults.struck(failing) > 2).then_some(())).await;
    bed.faults.clear();
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_former_life_go_and_their_blocks_are_seen() {
    let bed = Bed::new(22).await;
    let former = bed.ready().await;
    for ask in [1, 2] {
        former.ask(ask, "default");
    }
    let requests = until("2 requests", async || Some(bed.requests().await).filter(|it| it.len() == 2)).await;
    drop(former);
    bed.answer(&requests[0].name_any(), &carved("default-0")).await;
    bed.block("default", 0, NODE).await;
    let peer = json!({"metadata": {"name": "req-default-node-1"}, "spec": {"nodeName": NODE, "poolName": "default"}});
    bed.create::<BlockRequest>(peer).await;
    let agent = bed.ready().await;
    agent.seen("default-0").await;
    bed.no_requests().await;
    assert!(!agent.told().iter().any(is_answer), "nobody in this life has asked");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_owned_by_the_node_as_it_is_now() {
    let bed = Bed::new(23).await;
    let agent = bed.ready().await;
    bed.delete::<Node>(NODE).await;
    until("no node", async || {
        agent.objects.shared.own_node.lock().unwrap().uid(NODE).is_none().then_some(())
    })
    .await;
    agent.ask(1, "default");
    let refusal = refusal(agent.answer_to(1).await);
    assert_eq!(refusal.kind, RefusalKind::Unreachable);
    assert!(refusal.message.contains("there is no Node \"node-1\""), "{}", refusal.message);
    let registered = bed.node(NODE, &[]).await;
    agent.ask(2, "default");
    let request = bed.a_request().await;
    assert_eq!(request.owner_references()[0].uid, registered.uid().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_be_asked_for_is_unusable_and_not_unreachable() {
    let bed = Bed::new(24).await;
    let agent = bed.ready().await;
    agent.ask(1, "No_Pool");
    let name = refusal(agent.answer_to(1).await);
    assert!(name.kind == RefusalKind::Unusable && name.message.contains("No_Pool"), "{name:?}");
    agent.ask(2, &"a".repeat(64));
    let long = refusal(agent.answer_to(2).await);
    assert!(long.kind == RefusalKind::Unusable && long.message.contains("poolName"), "{long:?}");
}

#[tokio::test(start_paused = true)]
async fn a_block_that_was_granted_is_read_when_the_watch_does_not_show_it() {
    let bed = Bed::new(25).await;
    let agent = bed.ready().await;
    let _held = bed.faults.hold_watches(Calls::all().to("addressblocks"));
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.block("default", 0, NODE).await;
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    agent.seen("default-0").await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_takes_longer_than_failures_are_put_up_with_is_let_finish() {
    let bed = Bed::new(13).await;
    let agent = bed
        .ready_with(ObjectsOptions { patience: Duration::from_millis(200), ..ObjectsOptions::new(NODE) })
        .await;
    let slow = Duration::from_millis(600);
    let delayed = bed.faults.add(Rule::delay(slow..=slow).on(Calls::of(Verb::Create).to(REQUESTS)));
    agent.ask(1, "default");
    let request = until("a request", async || bed.requests().await.into_iter().next()).await;
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    assert_eq!(bed.faults.struck(delayed), 1, "the first try was let finish");
}
