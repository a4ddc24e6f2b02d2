//! Two controllers on one embedded API server, one of them cut off, killed, or on a bad connection.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::*;
use http::StatusCode;
use tenure_controller_testbed as bed;
use tenure_testbed::faults::{Answer, Calls, Faults, Rule, Verb};

const LEASES: &str = "leases";

#[tokio::test(start_paused = true)]
async fn one_leads_and_when_it_is_killed_the_other_one_takes_over() {
    let client = server(11).await.client();
    pool(&client, "default", 0, "10.10.0.0/24").await;
    node(&client, "node1").await;
    let first = start(client.clone(), "first");
    until("the first to lead", async || first.leads().then_some(())).await;
    let second = start(client.clone(), "second");
    for number in 0..20 {
        ask(&client, &format!("r{number}"), "node1", "default").await;
    }
    for number in 0..20 {
        answer(&client, &format!("r{number}")).await.unwrap();
    }
    assert!(!second.leads());
    first.kill().await;
    ask(&client, "after", "node1", "default").await;
    answer(&client, "after").await.unwrap();
    until("the second to say that it leads", async || second.leads().then_some(())).await;
    assert_eq!(check_blocks(&client).await, 21);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_and_its_late_writes_change_nothing() {
    let server = server(12).await;
    let client = server.client();
    pool(&client, "default", 0, "10.11.0.0/24").await;
    node(&client, "node1").await;
    let faults = Faults::seeded(12);
    let first = start(faults.client(server.clone(), "default"), "first");
    until("the first to lead", async || first.leads().then_some(())).await;
    // It hears nothing more and cannot renew; its status writes arrive two seconds late.
    let held = faults.hold_watches(Calls::all());
    faults.add(Rule::lose_request().on(Calls::writes().to(LEASES)));
    faults.add(Rule::delay(Duration::from_secs(2)..=Duration::from_secs(2)).on(Calls::writes()));
    let second = start(client.clone(), "second");
    until("the second to lead", async || second.leads().then_some(())).await;
    until("the first to say that it does not", async || (!first.leads()).then_some(())).await;
    for number in 0..10 {
        ask(&client, &format!("r{number}"), "node1", "default").await;
    }
    for number in 0..10 {
        answer(&client, &format!("r{number}")).await.unwrap();
    }
    drop(held);
    faults.clear();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(check_blocks(&client).await, 10);
    first.stop().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_losses_repetitions_and_delays_lose_no_request_and_give_nothing_twice() {
    let server = server(13).await;
    let client = server.client();
    pool(&client, "default", 0, "10.12.0.0/24").await;
    for number in 0..5 {
        node(&client, &format!("n{number}")).await;
    }
    let faults = Faults::seeded(13);
    let writes = || Calls::writes();
    let struck = [
        faults.add(Rule::delay(Duration::ZERO..=Duration::from_millis(20)).on(writes()).percent(30)),
        faults.add(Rule::lose_answer().on(writes()).percent(10)),
        faults.add(Rule::lose_request().on(writes()).percent(10)),
        faults.add(Rule::duplicate(Answer::Second).on(writes()).percent(10)),
        faults.add(Rule::fail(StatusCode::INTERNAL_SERVER_ERROR).on(writes()).percent(5)),
        faults.add(Rule::fail(StatusCode::CONFLICT).on(Calls::of(Verb::Patch)).percent(10)),
    ];
    let controllers = [
        start(faults.client(server.clone(), "default"), "first"),
        start(faults.client(server.clone(), "default"), "second"),
    ];
    for number in 0..100 {
        ask(&client, &format!("r{number}"), &format!("n{}", number % 5), "default").await;
        if number % 30 == 29 {
            faults.cut_watches(&Calls::all());
        }
    }
    for number in 0..100 {
        answer(&client, &format!("r{number}")).await.unwrap();
    }
    for rule in struck {
        assert!(faults.struck(rule) > 0, "a fault that never happened proves nothing");
    }
    faults.clear();
    assert_eq!(check_blocks(&client).await, 100);
    for controller in controllers {
        controller.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn controllers_killed_one_after_the_other_finish_each_others_work() {
    let server = server(14).await;
    let client = server.client();
    pool(&client, "default", 0, "10.13.0.0/24").await;
    node(&client, "node1").await;
    for number in 0..60 {
        ask(&client, &format!("r{number}"), "node1", "default").await;
    }
    let faults = Faults::seeded(14);
    faults.add(Rule::delay(Duration::ZERO..=Duration::from_millis(30)).on(Calls::writes()));
    for life in 0..3 {
        let name = format!("life{life}");
        let controller = start(faults.client(server.clone(), "default"), &name);
        until("it to lead", async || controller.leads().then_some(())).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        controller.kill().await;
    }
    let last = start(client.clone(), "last");
    for number in 0..60 {
        answer(&client, &format!("r{number}")).await.unwrap();
    }
    assert_eq!(check_blocks(&client).await, 60);
    last.stop().await;
}
