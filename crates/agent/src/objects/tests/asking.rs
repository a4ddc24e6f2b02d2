//! Block requests: every wish is answered, whatever happens on the way, and no request is left.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::coil::condition::reason;
use tenure_api::coil::{AddressBlock, BlockRequest, BlockRequestStatus, RequestOutcome};
use tenure_handles::Clock;
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::{Bed, NODE, a_moment, until};
use crate::node::{AskId, Event, Refusal, RefusalKind};
use crate::objects::{ObjectsOptions, watched};

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
    assert!(request.is_answered_by_block(), "{request:?}");
    let owner = &request.owner_references()[0];
    assert_eq!((owner.kind.as_str(), &owner.uid), ("Node", &node.uid().unwrap()));
    bed.grant(&request, "default", 0).await;
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
    for (number, request) in (0..).zip(&requests) {
        bed.grant(request, "default", number).await;
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
async fn a_block_that_is_seen_before_anyone_knows_of_its_request_is_the_answer() {
    let bed = Bed::new(13).await;
    let agent = bed.ready().await;
    // The request is created and its block is seen while the agent believes that its creation failed.
    let lost = bed.faults.add(Rule::lose_answer().on(Calls::of(Verb::Create).to(REQUESTS)).times(1));
    let unread =
        bed.faults.add(Rule::fail(StatusCode::SERVICE_UNAVAILABLE).on(Calls::of(Verb::Get).to(REQUESTS)));
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.grant(&request, "default", 0).await;
    agent.seen("default-0").await;
    assert!(!agent.told().iter().any(is_answer), "{:?}", agent.story());
    assert_eq!(bed.faults.struck(lost), 1);
    bed.faults.remove(unread);
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    bed.no_requests().await;
    a_moment().await;
    assert_eq!(agent.told().iter().filter(|event| is_answer(event)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_comes_while_the_watch_is_broken_is_seen_and_the_answer_afterwards() {
    let bed = Bed::with_history(14, 2).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.blind("addressblocks");
    bed.grant(&request, "default", 0).await;
    for index in 10..15 {
        bed.block("default", index, "node-2").await;
    }
    a_moment().await;
    assert!(!agent.told().iter().any(is_answer), "{:?}", agent.story());
    bed.faults.clear();
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    agent.seen("default-0").await;
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn a_block_that_cannot_be_used_ends_the_wish_as_well() {
    let bed = Bed::new(26).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    let request = bed.a_request().await;
    // Coil had no rules for its schema, and stored objects stay.
    let definitions: Api<CustomResourceDefinition> = bed.api();
    let mut lax = definitions.get("addressblocks.coil.cybozu.com").await.unwrap();
    for version in &mut lax.spec.versions {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        version.schema.as_mut().unwrap().open_api_v3_schema = serde_json::from_value(schema).unwrap();
    }
    definitions.replace("addressblocks.coil.cybozu.com", &PostParams::default(), &lax).await.unwrap();
    let mut block = super::bed::block("default", 0, NODE);
    block["metadata"]["labels"]["coil.cybozu.com/request"] = json!(request.uid().unwrap());
    block["ipv4"] = json!("10.1.0.0/33");
    bed.create::<AddressBlock>(block).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"), "the node asks again if it never sees it");
    assert!(!agent.told().iter().any(|event| matches!(event, Event::BlockSeen(_))), "{:?}", agent.story());
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_the_status_counts_too() {
    let bed = Bed::new(27).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.answer(&request.name_any(), &carved("default-0")).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    bed.block("default", 0, NODE).await;
    agent.seen("default-0").await;
    bed.no_requests().await;
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

fn is_answer(event: &Event) -> bool {
    matches!(event, Event::BlockGranted { .. } | Event::BlockRefused { .. })
}

#[tokio::test(start_paused = true)]
async fn without_a_controller_a_wish_goes_on_waiting_with_one_request_that_is_read_more_and_more_seldom() {
    let bed = Bed::new(18).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.faults.reset_tallies();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let read = bed.faults.tally(&Calls::of(Verb::Get).to(REQUESTS)).asked;
    // After 1, 3, 7, 15, 25 s and so on, or up to twice as early.
    assert!((12..=27).contains(&read), "it was read {read} times within two minutes");
    assert!(!agent.told().iter().any(is_answer), "{:?}", agent.story());
    assert_eq!(bed.requests().await.len(), 1);
    bed.grant(&request, "default", 0).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"), "late, but not too late");
    bed.no_requests().await;
    let watched = bed.faults.tally(&Calls::of(Verb::Watch).to(REQUESTS)).asked;
    assert_eq!(watched, 0, "every node would hear of the requests of all others");
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_refused_when_its_request_cannot_be_read_for_long_and_the_request_goes_later() {
    let bed = Bed::new(28).await;
    let agent = bed.ready_and_impatient().await;
    agent.ask(1, "default");
    bed.a_request().await;
    a_moment().await;
    let away = bed.faults.add(Rule::lose_request().on(Calls::all().to(REQUESTS)));
    let refusal = refusal(agent.answer_to(1).await);
    assert_eq!(refusal.kind, RefusalKind::Unreachable);
    assert!(refusal.message.contains("reading BlockRequest"), "{}", refusal.message);
    assert!(bed.faults.struck(away) >= 3, "one failed read proves nothing");
    assert_eq!(bed.requests().await.len(), 1);
    bed.faults.clear();
    bed.no_requests().await;
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
    bed.grant(&request, "default", 0).await;
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
async fn a_creation_that_happens_after_everybody_has_given_it_up_does_not_stay() {
    let bed = Bed::new(30).await;
    let agent = bed.ready_and_impatient().await;
    bed.faults.add(Rule::lose_request().on(Calls::of(Verb::Create).to(REQUESTS)));
    agent.ask(1, "default");
    let refusal = refusal(agent.answer_to(1).await);
    let name = refusal.message.split('"').nth(1).expect("the request's name");
    assert!(name.starts_with("req-default-node-1-"), "{}", refusal.message);
    let deletes = || Calls::of(Verb::Delete).to(REQUESTS);
    until("a deletion", async || (bed.faults.tally(&deletes()).asked > 0).then_some(())).await;
    a_moment().await;
    let spec = json!({"nodeName": NODE, "poolName": "default"});
    bed.create::<BlockRequest>(json!({"metadata": {"name": name}, "spec": spec})).await;
    bed.no_requests().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(bed.faults.tally(&deletes()).asked, 2, "then that is over");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_the_api_server_refuses_needs_no_deletion() {
    let bed = Bed::new(31).await;
    let agent = bed.ready().await;
    bed.faults.add(Rule::fail(StatusCode::FORBIDDEN).on(Calls::of(Verb::Create).to(REQUESTS)));
    agent.ask(1, "default");
    assert_eq!(refusal(agent.answer_to(1).await).kind, RefusalKind::Unreachable);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(bed.faults.tally(&Calls::of(Verb::Delete).to(REQUESTS)).asked, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_stays_to_be_deleted_until_the_api_server_is_back() {
    let bed = Bed::new(21).await;
    let agent = bed.ready().await;
    let deletes = || Calls::of(Verb::Delete).to(REQUESTS);
    let failing = bed.faults.add(Rule::fail(StatusCode::INTERNAL_SERVER_ERROR).on(deletes()));
    agent.ask(1, "default");
    let request = bed.a_request().await;
    bed.grant(&request, "default", 0).await;
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
    bed.grant(&requests[0], "default", 0).await;
    let peer = json!({"metadata": {"name": "req-default-node-1"}, "spec": {"nodeName": NODE, "poolName": "default"}});
    bed.create::<BlockRequest>(peer).await;
    let agent = bed.ready().await;
    agent.seen("default-0").await;
    bed.no_requests().await;
    assert!(!agent.told().iter().any(is_answer), "nobody in this life has asked");
}

#[tokio::test(start_paused = true)]
async fn the_agent_is_ready_when_it_has_listed_its_requests() {
    let bed = Bed::new(32).await;
    let listing = || Calls::of(Verb::List).to(REQUESTS);
    let failing = bed.faults.add(Rule::fail(StatusCode::SERVICE_UNAVAILABLE).on(listing()));
    let agent = bed.agent();
    until("some tries", async || (bed.faults.struck(failing) > 2).then_some(())).await;
    let health = agent.objects.health();
    assert!(!agent.told().contains(&Event::ApiRead) && !health.complete, "{health:?}");
    assert!(health.watches[watched::OWN_REQUESTS].failing.is_some(), "{health:?}");
    bed.faults.clear();
    agent.until("the first lists", |event| *event == Event::ApiRead).await;
    let health = agent.objects.health();
    assert!(health.complete && !health.watches.contains_key(watched::OWN_REQUESTS), "{health:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_slipped_through_goes_at_a_later_list() {
    let bed = Bed::new(33).await;
    let agent = bed.ready().await;
    agent.ask(1, "default");
    bed.a_request().await;
    let stray =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": NODE, "poolName": "default"}});
    let names = async || -> Vec<String> { bed.requests().await.iter().map(ResourceExt::name_any).collect() };
    let only_ours = async || (names().await.len() == 1).then_some(());
    bed.create::<BlockRequest>(stray("stray-1")).await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    until("the first to go", only_ours).await;
    bed.create::<BlockRequest>(stray("stray-2")).await;
    // The API server was restarted.
    bed.faults.expire_watches(&Calls::all().to("addressblocks"));
    bed.block("default", 7, NODE).await;
    until("the second to go", only_ours).await;
    // What an earlier run of the agent has sent last arrives now, and is served.
    let late = bed.create::<BlockRequest>(stray("stray-3")).await;
    a_moment().await;
    assert_eq!(names().await.len(), 2);
    bed.grant(&late, "default", 8).await;
    until("the third to go", only_ours).await;
    agent.seen("default-8").await;
    assert!(names().await[0].starts_with("req-default-node-1-"), "whoever waits goes on waiting");
    assert!(!agent.told().iter().any(is_answer), "{:?}", agent.story());
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
    bed.grant(&request, "default", 0).await;
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
    bed.grant(&request, "default", 0).await;
    assert_eq!(agent.answer_to(1).await, granted(1, "default-0"));
    assert_eq!(bed.faults.struck(delayed), 1, "the first try was let finish");
}
