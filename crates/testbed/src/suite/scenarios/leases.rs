//! Leases as leader election uses them: taken, renewed, lost, taken over.

use serde_json::json;

use super::super::objects::{lease, leases};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![leases:
    a_lease_is_taken_renewed_and_taken_over,
    only_one_of_two_takers_wins,
    times_of_a_lease_have_microseconds,
    a_lease_that_makes_no_sense_is_refused,
];

async fn a_lease_is_taken_renewed_and_taken_over(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let one = format!("{all}/leader");
    let mut first = lease("leader", "one");
    first["spec"]["acquireTime"] = json!("2021-06-01T10:00:00.000000Z");
    first["spec"]["renewTime"] = json!("2021-06-01T10:00:00.000000Z");
    first["spec"]["leaseTransitions"] = json!(0);
    let taken = r.post(&all, &first).await?;
    let renewed = r.put(&one, &taken.with("/spec/renewTime", json!("2021-06-01T10:00:05.000000Z"))).await?;
    let mut over = renewed.with("/spec/holderIdentity", json!("two"));
    over["spec"]["leaseTransitions"] = json!(1);
    r.put(&one, &over).await?;
    r.put(&one, &renewed.with("/spec/renewTime", json!("2021-06-01T10:00:10.000000Z"))).await?;
    r.get(&one).await?;
    Ok(())
}

async fn only_one_of_two_takers_wins(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let free = r.post(&all, &lease("leader", "")).await?;
    let client = r.client();
    let take = |holder: &'static str| {
        let body = free.with("/spec/holderIdentity", json!(holder)).to_string();
        let request = http::Request::put(format!("{all}/leader"))
            .header("content-type", "application/json")
            .body(body.into_bytes());
        let client = client.clone();
        async move {
            match request {
                Ok(request) => client.request::<serde_json::Value>(request).await.is_ok(),
                Err(_) => false,
            }
        }
    };
    let results = futures::future::join_all(["a", "b", "c", "d", "e", "f", "g", "h"].map(take)).await;
    r.note("winners", json!(results.iter().filter(|won| **won).count()));
    Ok(())
}

async fn times_of_a_lease_have_microseconds(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for (name, time) in [
        ("a", "2021-06-01T10:00:00.123456Z"),
        ("d", "2021-06-01T12:00:00.000000+02:00"),
        ("e", "yesterday"),
        ("f", ""),
    ] {
        let mut object = lease(name, "h");
        object["spec"]["renewTime"] = json!(time);
        let answer = r.peek(super::super::recorder::Call::new("POST", &all).json(&object)).await?;
        // As text, because the scenario chose this time.
        let seen = answer.body["spec"]["renewTime"].as_str().map(|time| format!("is {time}"));
        r.note(time, json!({"status": answer.status(), "reason": answer.body["reason"], "renewTime": seen}));
    }
    Ok(())
}

async fn a_lease_that_makes_no_sense_is_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for (field, value) in [
        ("leaseDurationSeconds", json!(0)),
        ("leaseDurationSeconds", json!(-5)),
        ("leaseTransitions", json!(-1)),
        ("leaseDurationSeconds", json!("15")),
        ("holderIdentity", json!(7)),
        ("leaseDurationSeconds", json!(1.5)),
    ] {
        let mut object = lease("a", "h");
        object["spec"][field] = value;
        r.post(&format!("{all}?dryRun=All"), &object).await?;
    }
    Ok(())
}
