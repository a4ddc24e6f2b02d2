//! An API server that takes its time for writes, or has too much to do: a slow write delays its own object and nothing else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::*;
use http::StatusCode;
use tenure_controller::Settings;
use tenure_controller_testbed as bed;
use tenure_handles::Clock as _;
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Faults, Rule};

/// Less than a write takes here, and more than it takes to look again.
const SHORT: Duration = Duration::from_millis(100);
const FOREVER: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_delays_its_own_object_and_nothing_else() {
    let api = server(81).await;
    let client = api.client();
    pool(&client, "default", 5, "10.2.0.0/16").await;
    node(&client, "node1").await;
    let faults = Faults::seeded(81);
    let slow = Calls::writes().to("blockrequests").named("slow");
    let slow = faults.add(Rule::delay(FOREVER..=FOREVER).on(slow));
    let settings = Settings { patience: FOREVER, ..settings("a") };
    let controller = start_with(faults.client(api.clone(), "default"), settings);
    ask(&client, "slow", "node1", "default").await;
    until("the slow write to begin", async || (faults.struck(slow) > 0).then_some(())).await;
    let (begun, requests) = (RuntimeClock.elapsed(), 20);
    for number in 0..requests {
        let name = format!("r{number}");
        ask(&client, &name, "node1", "default").await;
        answer(&client, &name).await.unwrap();
    }
    // Time is paused: it passes only while everybody waits for it.
    let waited = RuntimeClock.elapsed().saturating_sub(begun);
    assert!(waited < SHORT * requests, "each of {requests} requests waited for another's write: {waited:?}");
    assert_eq!(check_blocks(&client).await, 21, "also the block of the request whose answer is slow");
    assert_eq!(faults.struck(slow), 1, "it was waited for, and not tried again");
    faults.clear();
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_no_write_of_another() {
    let api = server(84).await;
    let client = api.client();
    pool(&client, "default", 5, "10.2.0.0/16").await;
    node(&client, "node1").await;
    let faults = Faults::seeded(84);
    let controller = start_with(faults.client(api.clone(), "default"), settings("a"));
    ask(&client, "before", "node1", "default").await;
    answer(&client, "before").await.unwrap();
    faults.add(Rule::delay(SHORT * 5..=SHORT * 5).on(Calls::writes()));
    let creations = Calls::writes().to("addressblocks");
    let creations = faults.add(Rule::delay(Duration::ZERO..=Duration::ZERO).on(creations));
    let mut took = Vec::new();
    for name in ["alone", "first"] {
        let (began, before) = (RuntimeClock.elapsed(), faults.struck(creations));
        ask(&client, name, "node1", "default").await;
        until("its block to be on its way", async || (faults.struck(creations) > before).then_some(())).await;
        if name == "first" {
            ask(&client, "second", "node1", "default").await;
            answer(&client, "second").await.unwrap();
        } else {
            answer(&client, name).await.unwrap();
        }
        took.push(RuntimeClock.elapsed().saturating_sub(began));
    }
    // Time is paused: it passes only while everybody waits for it.
    assert!(took[1] < took[0] + SHORT, "alone and beside another's writes: {took:?}");
    answer(&client, "first").await.unwrap();
    assert_eq!(check_blocks(&client).await, 4);
    faults.clear();
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_takes_long_for_every_write_is_served_in_its_own_time() {
    let api = server(82).await;
    let client = api.client();
    pool(&client, "default", 5, "10.2.0.0/16").await;
    node(&client, "node1").await;
    let faults = Faults::seeded(82);
    let delay = Duration::from_secs(10);
    faults.add(Rule::delay(delay..=delay).on(Calls::writes()));
    let Settings { timing, patience, .. } = Settings::new("a");
    let settings = Settings { timing, patience, ..settings("a") };
    let controller = start_with(faults.client(api.clone(), "default"), settings);
    for number in 0..40 {
        ask(&client, &format!("r{number}"), "node1", "default").await;
    }
    all_served(&client, 40).await;
    assert_eq!(check_blocks(&client).await, 40);
    assert!(controller.leads());
    let text = controller.metrics.text().unwrap();
    assert!(!text.contains("outcome=\"failed\""), "nothing was given up: {text}");
    faults.clear();
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_api_server_is_given_time_and_everybody_is_served() {
    let api = server(83).await;
    let client = api.client();
    pool(&client, "default", 5, "10.2.0.0/16").await;
    node(&client, "node1").await;
    let faults = Faults::seeded(83);
    let refused = Calls::writes().to("blockrequests").named("refused");
    let seen = faults.add(Rule::delay(Duration::ZERO..=Duration::ZERO).on(refused.clone()));
    faults.add(Rule::fail(StatusCode::TOO_MANY_REQUESTS).on(refused.clone()).times(1));
    faults.add(Rule::fail(StatusCode::SERVICE_UNAVAILABLE).on(refused).after(1).times(1));
    let controller = start_with(faults.client(api.clone(), "default"), settings("a"));
    ask(&client, "refused", "node1", "default").await;
    until("both refusals", async || (faults.struck(seen) >= 2).then_some(())).await;
    ask(&client, "other", "node1", "default").await;
    answer(&client, "other").await.unwrap();
    answer(&client, "refused").await.unwrap();
    assert_eq!(check_blocks(&client).await, 2);
    assert!(faults.struck(seen) <= 6, "it was asked again and again");
    controller.stop().await;
}
