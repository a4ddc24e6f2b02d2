//! What an agent hears and reads of slices does not grow with the nodes of the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tenure_testbed::faults::{Calls, Verb};
use tenure_whereabouts::slices::{CONFIRMED, GIVEN, TAKEN};

use super::bed::{Bed, NODE, a_moment, until};
use crate::journal::Image;

const RECORD: &str = "net-node-1-10.9.0.0-28";

/// This node's slice, and those of so many others.
fn slices(others: usize) -> Vec<(String, String)> {
    let slice = |number: usize| format!("10.9.{}.{}/28", number / 16, number % 16 * 16);
    let others = (1..=others).map(|number| (slice(number), format!("node-{}", number + 1)));
    std::iter::once((slice(0), NODE.to_owned())).chain(others).collect()
}

fn borrowed(slices: &[(String, String)]) -> Vec<(&str, &str)> {
    slices.iter().map(|(slice, node)| (slice.as_str(), node.as_str())).collect()
}

/// What it costs an agent to take its slice of a pool with so many others: calls and bytes.
async fn start_beside(others: usize, seed: u64) -> (u64, u64) {
    let bed = Bed::new(seed).await;
    bed.cut_counted("net", "10.9.0.0/16", &borrowed(&slices(others))).await;
    let heard = Arc::new(AtomicU64::new(0));
    let whole = bed.start_hearing(Image::default(), &heard);
    whole.ready().await;
    until("its slice", async || whole.slices.slice("net").await.ok()).await;
    (bed.faults.tally(&Calls::all()).asked, heard.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_as_much_beside_a_thousand_nodes_as_beside_one() {
    let (few, many) = (start_beside(1, 71).await, start_beside(1_000, 72).await);
    assert_eq!(few.0, many.0, "calls");
    // Versions and times have a digit more or less.
    assert!(many.1 < few.1 + 200, "{} and {} bytes", few.1, many.1);
    assert!(few.1 > 500, "what is not counted proves nothing: {}", few.1);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_join_are_not_heard_of() {
    let bed = Bed::new(73).await;
    bed.cut_counted("net", "10.9.0.0/16", &borrowed(&slices(0))).await;
    let heard = Arc::new(AtomicU64::new(0));
    let whole = bed.start_hearing(Image::default(), &heard);
    whole.ready().await;
    whole.add("net", "a").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    a_moment().await;
    heard.store(0, Ordering::Relaxed);
    bed.faults.reset_tallies();
    for others in 1..=50 {
        bed.give("net", &borrowed(&slices(others))).await;
        bed.tell_node(&format!("node-{}", others + 1)).await;
    }
    a_moment().await;
    assert_eq!((bed.faults.tally(&Calls::all()).asked, heard.load(Ordering::Relaxed)), (0, 0));
    bed.edit(RECORD, json!({"metadata": {"annotations": {"note": "mine"}}})).await;
    until("its own", async || (heard.load(Ordering::Relaxed) > 0).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_ask_again_and_a_hint_of_before_somebody_lost_a_slice_is_looked_into() {
    let bed = Bed::new(74).await;
    bed.cut_counted("net", "10.9.0.0/16", &borrowed(&slices(3))).await;
    let whole = bed.ready().await;
    let looks = || bed.faults.tally(&Calls::of(Verb::Get).to("nodeslicepools")).asked;
    assert_eq!(looks(), 1, "its metadata");
    whole.add("net", "a").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    let record = bed.records().get(RECORD).await.unwrap();
    assert!(record.metadata.annotations.unwrap().contains_key(CONFIRMED));
    let journal = whole.journal();
    drop(whole);
    // Somebody has lost a slice: this node's hint is older.
    let taken = json!({"metadata": {"annotations": {TAKEN: "9.1"}}});
    bed.edit_pool("net", taken).await;
    bed.faults.reset_tallies();
    let again = bed.ready_after(journal).await;
    again.add("net", "b").await.unwrap();
    assert_eq!(looks(), 0, "while the object says that the slice is its own, nobody else gets it");
    drop(again);
    bed.edit(RECORD, json!({"metadata": {"annotations": {CONFIRMED: null}}})).await;
    let third = bed.ready().await;
    third.add("net", "c").await.unwrap();
    assert_eq!(looks(), 2, "its metadata, which prove nothing, and the pool");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_an_earlier_version_is_taken_after_one_look_and_told_later() {
    let bed = Bed::new(75).await;
    bed.cut("net", "10.9.0.0/24", &[("10.9.0.0/28", NODE)]).await;
    // Another range of the network: only the journal knows the name of its pool.
    bed.cut("net-fd00---64", "fd00::/64", &[("fd00::/72", NODE)]).await;
    let whole = bed.ready().await;
    whole.add("net", "a").await.unwrap();
    whole.add_part("net-fd00---64", "a", "a", 1).await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    bed.until_said("net-node-1-fd00---72", Some(&["1 a"])).await;
    let journal = whole.journal();
    drop(whole);
    let unsaid = json!({"metadata": {"annotations": {GIVEN: null, CONFIRMED: null}}});
    bed.edit(RECORD, unsaid.clone()).await;
    bed.edit("net-node-1-fd00---72", unsaid).await;
    let again = bed.ready_after(journal).await;
    assert_eq!(again.held().await, ["10.9.0.1 a", "fd00::1 a"]);
    assert_eq!(again.add("net", "b").await.unwrap(), "10.9.0.2");
    assert_eq!(again.add_part("net-fd00---64", "b", "b", 1).await.unwrap(), "fd00::2");
    assert_eq!(again.node.look(|node| node.blocks().len()).await.unwrap(), 2, "the same blocks");
    bed.tell().await;
    a_moment().await;
    assert_eq!(again.add("net", "c").await.unwrap(), "10.9.0.3");
    assert_eq!(again.node.look(|node| node.blocks().len()).await.unwrap(), 2, "the same blocks");
    // One that is not this node's any more is not taken, and what is held in it stays held.
    let journal = again.journal();
    drop(again);
    bed.edit(RECORD, json!({"metadata": {"annotations": {GIVEN: null}}})).await;
    bed.give_untold("net", &[("10.9.0.0/28", "")]).await;
    let third = bed.ready_after(journal).await;
    assert!(third.add("net", "d").await.is_err());
    assert!(third.held().await.contains(&"10.9.0.1 a".to_owned()));
}
