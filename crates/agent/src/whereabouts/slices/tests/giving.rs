//! Slices come and go.

use std::time::Duration;

use tenure_testbed::faults::Calls;
use tenure_whereabouts::ledger::State;

use super::bed::{Bed, NODE, a_moment, options, until};
use crate::journal::Image;

const OURS: &[(&str, &str)] = &[("10.9.0.0/28", NODE), ("10.9.0.16/28", "node-2")];
const NOT_OURS: &[(&str, &str)] = &[("10.9.0.0/28", ""), ("10.9.0.16/28", "node-2")];
const RECORD: &str = "net-node-1-10.9.0.0-28";

#[tokio::test(start_paused = true)]
async fn adds_and_dels_make_no_call_and_their_record_is_one_write_behind() {
    let bed = Bed::new(1).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.start_with(
        Image::default(),
        crate::whereabouts::slices::SlicesOptions { debounce: Duration::from_secs(2), ..options() },
    );
    whole.ready().await;
    a_moment().await;
    bed.faults.reset_tallies();
    for number in 0..10 {
        assert_eq!(whole.add("net", &format!("c{number}")).await.unwrap(), format!("10.9.0.{}", number + 1));
    }
    for number in 0..5 {
        assert_eq!(whole.del(&format!("c{number}")).await, 1);
    }
    assert_eq!(bed.faults.tally(&Calls::all()).asked, 0, "no call");
    bed.until_said(RECORD, Some(&["10 c9", "6 c5", "7 c6", "8 c7", "9 c8"])).await;
    assert_eq!(bed.faults.tally(&Calls::writes()).asked, 1, "one write for all");
    assert_eq!(bed.names().await, [RECORD], "named as in the seed");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_slice_is_told_why() {
    let bed = Bed::new(2).await;
    bed.cut("net", "10.9.0.0/24", NOT_OURS).await;
    let whole = bed.ready().await;
    let refused = whole.add("net", "a").await.unwrap_err();
    for part in ["node-1 has no slice", "NodeSlicePool net", "10.9.0.0/24 has 2 slices, 1 without a node"] {
        assert!(refused.message.contains(part), "{refused:?}");
    }
    let refused = whole.add("nothing", "a").await.unwrap_err();
    assert!(refused.message.contains("there is no NodeSlicePool nothing"), "{refused:?}");
    bed.give("net", OURS).await;
    until("a slice", async || whole.add("net", "a").await.ok()).await;
}

#[tokio::test(start_paused = true)]
async fn where_the_kinds_are_missing_nothing_is_sliced_until_they_appear() {
    let bed = Bed::without_kinds(3).await;
    let whole = bed.ready().await;
    assert!(whole.add("net", "a").await.unwrap_err().message.contains("there is no NodeSlicePool"));
    assert!(whole.slices.health().works(), "{:?}", whole.slices.health());
    bed.learn().await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    assert_eq!(until("a slice", async || whole.add("net", "a").await.ok()).await, "10.9.0.1");
    bed.until_said(RECORD, Some(&["1 a"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_slice_keeps_what_is_held_until_it_is_released_and_then_its_record_goes() {
    let bed = Bed::new(4).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    for container in ["a", "b"] {
        whole.add("net", container).await.unwrap();
    }
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    assert_eq!(State::of(&bed.records().get(RECORD).await.unwrap()), State::Owned);
    bed.give("net", NOT_OURS).await;
    until("its end", async || whole.add("net", "c").await.err()).await;
    let state = async || State::of(&bed.records().get(RECORD).await.unwrap());
    until("it to be marked", async || (state().await == State::Unique).then_some(())).await;
    assert_eq!(whole.del("a").await, 1);
    bed.until_said(RECORD, Some(&["2 b"])).await;
    assert_eq!(whole.del("b").await, 1);
    bed.until_said(RECORD, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_is_withdrawn_and_given_again_goes_on_with_what_is_held() {
    let bed = Bed::new(5).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    whole.add("net", "a").await.unwrap();
    for _ in 0..3 {
        bed.give("net", NOT_OURS).await;
        until("its end", async || whole.add("net", "z").await.err()).await;
        bed.give("net", OURS).await;
        until("it again", async || whole.add("net", "b").await.ok()).await;
        assert_eq!(whole.held().await, ["10.9.0.1 a", "10.9.0.2 b"]);
        whole.del("b").await;
    }
    // Also when the pool is deleted and made again.
    bed.uncut("net").await;
    until("its end", async || whole.add("net", "z").await.err()).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    until("it again", async || whole.add("net", "b").await.ok()).await;
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    assert_eq!(State::of(&bed.records().get(RECORD).await.unwrap()), State::Owned);
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_its_journal_has_the_same_slice_and_nothing_is_written_anew() {
    let bed = Bed::new(6).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    for container in ["a", "b", "c"] {
        whole.add("net", container).await.unwrap();
    }
    whole.del("b").await;
    bed.until_said(RECORD, Some(&["1 a", "3 c"])).await;
    let journal = whole.journal();
    drop(whole);
    bed.faults.reset_tallies();
    let again = bed.ready_after(journal).await;
    assert_eq!(again.held().await, ["10.9.0.1 a", "10.9.0.3 c"]);
    a_moment().await;
    assert_eq!(bed.faults.tally(&Calls::writes()).asked, 0);
    assert_eq!(again.add("net", "d").await.unwrap(), "10.9.0.2");
    let uids = again.node.look(|node| node.blocks().len()).await.unwrap();
    assert_eq!(uids, 1, "the same block");
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_an_agent_whose_record_was_behind_makes_it_exact() {
    let bed = Bed::new(7).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.start_with(
        Image::default(),
        crate::whereabouts::slices::SlicesOptions { debounce: Duration::from_mins(10), ..options() },
    );
    whole.ready().await;
    for container in ["a", "b"] {
        whole.add("net", container).await.unwrap();
    }
    let journal = whole.journal();
    drop(whole);
    assert_eq!(bed.said(RECORD).await.unwrap(), Vec::<String>::new(), "it never came to it");
    let _again = bed.ready_after(journal).await;
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_adds_and_dels_go_on_and_the_record_is_exact_when_it_is_back() {
    let bed = Bed::new(8).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    whole.add("net", "a").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    bed.away();
    for container in ["b", "c", "d"] {
        whole.add("net", container).await.unwrap();
    }
    assert_eq!(whole.del("a").await + whole.del("c").await, 2);
    until("it to be said", async || {
        whole.slices.health().watches.get(crate::whereabouts::slices::RECORD_WRITES)?.failing.clone()
    })
    .await;
    assert_eq!(bed.said(RECORD).await.unwrap(), ["1 a"]);
    bed.faults.clear();
    bed.until_said(RECORD, Some(&["2 b", "4 d"])).await;
    let failing =
        async || whole.slices.health().watches[crate::whereabouts::slices::RECORD_WRITES].failing.is_some();
    until("health", async || (!failing().await).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_comes_while_its_records_cannot_be_read_is_not_used_before_they_are() {
    let bed = Bed::new(9).await;
    bed.record(RECORD, "10.9.0.0/28", &[("1", "old", "old")]).await;
    let whole = bed.ready().await;
    let lost = bed.faults.add(tenure_testbed::faults::Rule::lose_request().on(Calls::all().to("ippools")));
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let refused = until("a refusal that says so", async || {
        whole.add("net", "a").await.err().filter(|failure| failure.message.contains("10.9.0.0/28"))
    })
    .await;
    assert!(refused.message.contains("cannot be used yet"), "{refused:?}");
    bed.faults.remove(lost);
    assert_eq!(until("it", async || whole.add("net", "a").await.ok()).await, "10.9.0.2");
}

#[tokio::test(start_paused = true)]
async fn several_ranges_are_several_slices_and_end_together() {
    let bed = Bed::new(10).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    bed.cut("net-fd00---64", "fd00::/64", &[("fd00::/72", NODE)]).await;
    let whole = bed.ready().await;
    assert_eq!(whole.add("net", "a").await.unwrap(), "10.9.0.1");
    assert_eq!(whole.add_part("net-fd00---64", "a", "a", 1).await.unwrap(), "fd00::1");
    bed.until_said(RECORD, Some(&["1 a"])).await;
    bed.until_said("net-node-1-fd00---72", Some(&["1 a"])).await;
    assert_eq!(whole.del("a").await, 2);
    bed.until_said(RECORD, Some(&[])).await;
    bed.until_said("net-node-1-fd00---72", Some(&[])).await;
}
