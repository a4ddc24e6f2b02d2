//! Records stay what the node holds, whoever writes to them.

use serde_json::json;
use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::{Bed, NODE, a_moment};

const OURS: &[(&str, &str)] = &[("10.9.0.0/28", NODE)];
const RECORD: &str = "net-node-1-10.9.0.0-28";

#[tokio::test(start_paused = true)]
async fn a_record_that_somebody_edited_or_deleted_is_put_right() {
    let bed = Bed::new(31).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    for container in ["a", "b"] {
        whole.add("net", container).await.unwrap();
    }
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    bed.edit(RECORD, json!({"spec": {"allocations": {"1": null, "7": {"id": "x", "podref": "a/b"}}}})).await;
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    bed.remove(RECORD).await;
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    let record = bed.records().get(RECORD).await.unwrap();
    assert_eq!(record.spec.allocations["1"].podref, "shop/a");
    assert_eq!(record.spec.allocations["1"].ifname.as_deref(), Some("net1"));
    let labels = record.metadata.labels.unwrap();
    assert_eq!(labels["whereabouts.cni.cncf.io/node"], NODE);
    assert_eq!(labels["whereabouts.cni.cncf.io/network"], "net");
}

#[tokio::test(start_paused = true)]
async fn what_was_written_in_between_is_read_and_the_write_made_again() {
    let bed = Bed::new(32).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    whole.add("net", "a").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    a_moment().await;
    let _held = bed.faults.hold_watches(Calls::all().to("ippools"));
    bed.edit(RECORD, json!({"metadata": {"annotations": {"note": "mine"}}})).await;
    bed.faults.reset_tallies();
    whole.add("net", "b").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    assert_eq!(bed.faults.tally(&Calls::of(Verb::Update)).asked, 2, "a conflict, and the write");
    let record = bed.records().get(RECORD).await.unwrap();
    assert_eq!(record.metadata.annotations.unwrap()["note"], "mine", "what is others' stays");
}

#[tokio::test(start_paused = true)]
async fn on_a_bad_connection_the_record_is_exact_in_the_end() {
    let bed = Bed::new(33).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    let struck = [
        bed.faults.add(Rule::lose_answer().on(Calls::writes()).percent(30)),
        bed.faults.add(Rule::lose_request().on(Calls::writes()).percent(20)),
        bed.faults.add(Rule::fail(http::StatusCode::CONFLICT).on(Calls::of(Verb::Update)).percent(30)),
    ];
    for round in 0..30 {
        whole.add("net", &format!("c{round}")).await.unwrap();
        if round >= 3 {
            whole.del(&format!("c{}", round - 3)).await;
        }
        if round % 10 == 9 {
            bed.faults.cut_watches(&Calls::all());
        }
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    }
    let held = whole.held().await;
    let mut wanted: Vec<String> =
        held.iter().map(|line| line.strip_prefix("10.9.0.").unwrap().to_owned()).collect();
    wanted.sort();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    assert_eq!(wanted.len(), 3);
    bed.until_said(RECORD, Some(&wanted)).await;
    assert!(
        struck.iter().any(|rule| bed.faults.struck(*rule) > 0),
        "a fault that never happened proves nothing"
    );
}
