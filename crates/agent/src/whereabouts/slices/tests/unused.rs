//! What nobody uses any more.

use std::time::Duration;

use tenure_testbed::faults::{Calls, Rule};

use super::bed::{Bed, NODE, a_moment, options, until};
use crate::journal::Image;
use crate::whereabouts::slices::SlicesOptions;

const OURS: &[(&str, &str)] = &[("10.9.0.0/28", NODE)];
const RECORD: &str = "net-node-1-10.9.0.0-28";

#[tokio::test(start_paused = true)]
async fn invariant_9_what_was_adopted_for_a_pod_that_is_gone_is_released_after_two_looks_and_nothing_else_is()
{
    let bed = Bed::new(41).await;
    bed.pod("here").await;
    bed.record(RECORD, "10.9.0.0/28", &[("1", "a", "gone"), ("2", "b", "here"), ("3", "c", "asked")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.start_with(
        Image::default(),
        SlicesOptions { look_at_pods: Duration::from_millis(400), ..options() },
    );
    whole.ready().await;
    // Its pod is not there either; but it has shown that it is alive, and its namespace is known now.
    assert_eq!(whole.add_part("net", "c", "asked", 0).await.unwrap(), "10.9.0.3");
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(whole.held().await.len(), 3, "one look is none");
    until("its release", async || (whole.held().await == ["10.9.0.2 b", "10.9.0.3 c"]).then_some(())).await;
    bed.until_said(RECORD, Some(&["2 b", "3 c"])).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_pod_of_the_same_name_had_is_released_after_two_looks() {
    let bed = Bed::new(43).await;
    bed.pod("web-0").await;
    let uid = bed.uid_of("web-0").await;
    bed.record(RECORD, "10.9.0.0/28", &[("1", "a", "web-0"), ("2", "b", "web-0"), ("3", "c", "web-0")]).await;
    let said =
        serde_json::json!({"spec": {"allocations": {"1": {"poduid": "earlier"}, "2": {"poduid": uid}}}});
    bed.edit(RECORD, said).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.start_with(
        Image::default(),
        SlicesOptions { look_at_pods: Duration::from_millis(400), ..options() },
    );
    whole.ready().await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(whole.held().await.len(), 3, "one look is none");
    // Nobody says whose the third was; but the pod of that name has another on the same interface.
    until("its release", async || (whole.held().await == ["10.9.0.2 b"]).then_some(())).await;
    bed.until_said(RECORD, Some(&["2 b"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_asked_for_is_not_taken_for_gone() {
    let bed = Bed::new(42).await;
    bed.record(RECORD, "10.9.0.0/28", &[("1", "a", "gone")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    bed.faults.add(Rule::fail(http::StatusCode::FORBIDDEN).on(Calls::all().to("pods")));
    let whole = bed
        .start_with(Image::default(), SlicesOptions { look_at_pods: Duration::from_millis(20), ..options() });
    whole.ready().await;
    a_moment().await;
    assert_eq!(whole.held().await, ["10.9.0.1 a"]);
}
