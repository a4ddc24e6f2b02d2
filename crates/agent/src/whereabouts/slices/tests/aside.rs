//! Slices that cannot be taken.

use http::StatusCode;
use tenure_testbed::faults::{Calls, Rule, Verb};

use super::bed::{Bed, NODE, until};
use crate::journal::Image;

const OURS: &[(&str, &str)] = &[("10.9.0.0/28", NODE)];
const OTHERS: &[(&str, &str)] = &[("10.8.0.0/28", NODE)];
const RECORD: &str = "net-node-1-10.9.0.0-28";

#[tokio::test(start_paused = true)]
async fn a_slice_that_can_never_be_taken_keeps_nobody_waiting_but_its_own_network() {
    let bed = Bed::new(61).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    bed.cut("other", "10.8.0.0/24", OTHERS).await;
    let refused = bed.faults.add(Rule::fail(StatusCode::FORBIDDEN).on(Calls::of(Verb::Get).named(RECORD)));
    let whole = bed.start(Image::default());
    whole.ready().await;
    assert_eq!(whole.add("other", "a").await.unwrap(), "10.8.0.1");
    let failure = whole.add("net", "b").await.unwrap_err();
    for part in [RECORD, "403", "10.9.0.0/28"] {
        assert!(failure.message.contains(part), "{failure:?}");
    }
    // Whatever was in the way is not any more.
    bed.faults.remove(refused);
    until("it", async || whole.add("net", "b").await.ok()).await;
    assert!(whole.held().await.contains(&"10.9.0.1 b".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_in_a_slice_that_cannot_be_taken_after_a_restart_stays_held() {
    let bed = Bed::new(62).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    bed.cut("other", "10.8.0.0/24", OTHERS).await;
    let whole = bed.start(Image::default());
    whole.ready().await;
    until("its slice", async || whole.add("net", "a").await.ok()).await;
    bed.until_said(RECORD, Some(&["1 a"])).await;
    let journal = whole.journal();
    drop(whole);
    let refused = bed.faults.add(Rule::fail(StatusCode::FORBIDDEN).on(Calls::of(Verb::Get).named(RECORD)));
    let again = bed.ready_after(journal).await;
    assert_eq!(again.add("other", "b").await.unwrap(), "10.8.0.1");
    assert!(again.add("net", "c").await.is_err());
    assert!(again.held().await.contains(&"10.9.0.1 a".to_owned()));
    bed.faults.remove(refused);
    until("it again", async || again.add("net", "c").await.ok()).await;
    let mut held = again.held().await;
    held.sort();
    assert_eq!(held, ["10.8.0.1 b", "10.9.0.1 a", "10.9.0.2 c"]);
    assert_eq!(again.del("a").await, 1);
    bed.until_said(RECORD, Some(&["2 c"])).await;
}
