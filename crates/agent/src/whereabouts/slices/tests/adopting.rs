//! What was on record before.

use serde_json::json;
use tenure_whereabouts::ledger::PoolId;

use super::bed::{Bed, NODE, a_moment, until};
use crate::journal::Image;

const OURS: &[(&str, &str)] = &[("10.9.0.0/28", NODE), ("10.9.0.16/28", "node-2")];
const RECORD: &str = "net-node-1-10.9.0.0-28";

#[tokio::test(start_paused = true)]
async fn whereabouts_own_records_are_adopted_written_on_and_drained() {
    let bed = Bed::new(21).await;
    bed.record(RECORD, "10.9.0.0/28", &[("1", "a", "a"), ("2", "b", "b"), ("14", "c", "c")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    assert_eq!(whole.held().await, ["10.9.0.1 a", "10.9.0.2 b", "10.9.0.14 c"]);
    assert_eq!(whole.add("net", "d").await.unwrap(), "10.9.0.3");
    bed.until_said(RECORD, Some(&["1 a", "14 c", "2 b", "3 d"])).await;
    assert_eq!(whole.add("net", "b").await.unwrap(), "10.9.0.2", "its own");
    // Nobody says that the container of before is gone, or that it was of this pod.
    assert_eq!(whole.add_part("net", "new", "a", 0).await.unwrap(), "10.9.0.4", "d8");
    bed.until_said(RECORD, Some(&["1 a", "14 c", "2 b", "3 d", "4 new"])).await;
    for container in ["a", "new", "b", "c", "d"] {
        assert_eq!(whole.del(container).await, 1, "{container}");
    }
    bed.until_said(RECORD, Some(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_journal_our_own_records_are_held_on() {
    let bed = Bed::new(22).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    for container in ["a", "b"] {
        whole.add("net", container).await.unwrap();
    }
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    drop(whole);
    let again = bed.ready_after(Image::default()).await;
    assert_eq!(again.held().await, ["10.9.0.1 a", "10.9.0.2 b"]);
    assert_eq!(again.add("net", "c").await.unwrap(), "10.9.0.3");
    assert_eq!(again.del("a").await, 1);
    bed.until_said(RECORD, Some(&["2 b", "3 c"])).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_journal_what_is_held_of_a_slice_that_is_gone_is_released_by_its_del() {
    let bed = Bed::new(23).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    for container in ["a", "b"] {
        whole.add("net", container).await.unwrap();
    }
    bed.until_said(RECORD, Some(&["1 a", "2 b"])).await;
    drop(whole);
    bed.uncut("net").await;
    let again = bed.ready_after(Image::default()).await;
    assert_eq!(again.held().await, ["10.9.0.1 a", "10.9.0.2 b"]);
    assert_eq!(again.del("a").await, 1);
    bed.until_said(RECORD, Some(&["2 b"])).await;
    assert_eq!(again.del("b").await, 1);
    bed.until_said(RECORD, None).await;
}

#[tokio::test(start_paused = true)]
async fn records_that_make_no_sense_stay() {
    let bed = Bed::new(24).await;
    bed.record(RECORD, "10.9.0.0/28", &[("300", "x", "x"), ("1", "a", "a")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    assert_eq!(whole.held().await, ["10.9.0.1 a"]);
    whole.add("net", "b").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a", "2 b", "300 x"])).await;
    bed.uncut("net").await;
    until("its end", async || whole.add("net", "z").await.err()).await;
    assert_eq!(whole.del("a").await + whole.del("b").await, 2);
    bed.until_said(RECORD, Some(&["300 x"])).await;
    a_moment().await;
    assert_eq!(bed.said(RECORD).await.unwrap(), ["300 x"]);
}

#[tokio::test(start_paused = true)]
async fn addresses_that_the_whole_range_holds_are_kept_back_and_come_back_one_by_one() {
    let bed = Bed::new(25).await;
    // Of the slice, of another slice, and of another network.
    bed.record("net-10.9.0.0-24", "10.9.0.0/24", &[("1", "a", "a"), ("3", "b", "b"), ("20", "c", "c")]).await;
    bed.record("10.9.0.0-24", "10.9.0.0/24", &[("2", "d", "d")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    assert_eq!(whole.add("net", "e").await.unwrap(), "10.9.0.2");
    assert_eq!(whole.add("net", "f").await.unwrap(), "10.9.0.4");
    bed.until_said(RECORD, Some(&["2 e", "4 f"])).await;
    bed.edit("net-10.9.0.0-24", json!({"spec": {"allocations": {"3": null}}})).await;
    let free = async |address: &str| {
        let address: tenure_ipam::Address = address.parse().unwrap();
        let who = whole.node.look(move |node| node.who(address)).await.unwrap();
        matches!(who, crate::node::view::Who::Free { .. }).then_some(())
    };
    until("10.9.0.3", async || free("10.9.0.3").await).await;
    assert!(free("10.9.0.1").await.is_none());
    assert_eq!(whole.add("net", "g").await.unwrap(), "10.9.0.3");
    bed.remove("net-10.9.0.0-24").await;
    until("10.9.0.1", async || free("10.9.0.1").await).await;
    assert_eq!(whole.add("net", "h").await.unwrap(), "10.9.0.1");
}

#[tokio::test(start_paused = true)]
async fn addresses_that_any_range_that_overlaps_holds_are_kept_back_and_come_back_one_by_one() {
    let bed = Bed::new(29).await;
    // Inside the slice, around what is cut, beside the slice, and of another network.
    bed.record("net-10.9.0.0-30", "10.9.0.0/30", &[("1", "a", "a")]).await;
    bed.record("net-10.8.0.0-13", "10.8.0.0/13", &[("65538", "b", "b")]).await;
    bed.record("net-10.9.0.16-30", "10.9.0.16/30", &[("3", "c", "c")]).await;
    bed.record("10.9.0.0-29", "10.9.0.0/29", &[("3", "d", "d")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    assert_eq!(whole.add("net", "e").await.unwrap(), "10.9.0.3", "1 and 2 are held");
    for (object, key, address) in
        [("net-10.8.0.0-13", "65538", "10.9.0.2"), ("net-10.9.0.0-30", "1", "10.9.0.1")]
    {
        bed.edit(object, json!({"spec": {"allocations": {key: null}}})).await;
        let address: tenure_ipam::Address = address.parse().unwrap();
        until("it to come back", async || {
            let who = whole.node.look(move |node| node.who(address)).await.unwrap();
            matches!(who, crate::node::view::Who::Free { .. }).then_some(())
        })
        .await;
    }
    assert_eq!(whole.add("net", "f").await.unwrap(), "10.9.0.1");
}

#[tokio::test(start_paused = true)]
async fn a_large_range_keeps_back_what_its_further_objects_hold() {
    let bed = Bed::new(26).await;
    let range = PoolId::shared("net", "10.8.0.0/16".parse().unwrap());
    let number = range.home("10.8.8.1".parse().unwrap());
    assert_ne!(number, 0);
    bed.record(&range.object_name(number).unwrap(), "10.8.0.0/16", &[("2049", "a", "a")]).await;
    bed.cut("net", "10.8.0.0/16", &[("10.8.8.0/28", NODE)]).await;
    let whole = bed.ready().await;
    assert_eq!(whole.add("net", "b").await.unwrap(), "10.8.8.2");
}

#[tokio::test(start_paused = true)]
async fn a_range_that_grows_keeps_its_slices_and_what_was_kept_back_of_it() {
    let bed = Bed::new(27).await;
    bed.record("net-10.9.0.0-24", "10.9.0.0/24", &[("1", "a", "a")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    assert_eq!(whole.add("net", "b").await.unwrap(), "10.9.0.2");
    bed.grow("net", "10.9.0.0/23").await;
    a_moment().await;
    assert_eq!(whole.add("net", "c").await.unwrap(), "10.9.0.3");
    assert_eq!(whole.node.look(|node| node.blocks().len()).await.unwrap(), 1, "the same block");
    bed.until_said(RECORD, Some(&["2 b", "3 c"])).await;
    let journal = whole.journal();
    drop(whole);
    let again = bed.ready_after(journal).await;
    assert_eq!(again.del("b").await, 1);
    assert_eq!(again.add("net", "d").await.unwrap(), "10.9.0.2", "10.9.0.1 is kept back still");
    bed.remove("net-10.9.0.0-24").await;
    until("10.9.0.1", async || {
        let added = again.add("net", "e").await.unwrap();
        again.del("e").await;
        (added == "10.9.0.1").then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_network_is_called_may_be_learnt_late() {
    let bed = Bed::new(28).await;
    // A configuration without network_name: Whereabouts has put nothing but the node before the range.
    bed.record("node-1-10.9.0.0-28", "10.9.0.0/28", &[("1", "a", "a"), ("4", "d", "d")]).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    assert_eq!(whole.add("net", "b").await.unwrap(), "10.9.0.1", "nobody said so yet");
    bed.until_said(RECORD, Some(&["1 b"])).await;
    bed.name("net", "").await;
    bed.until_said("node-1-10.9.0.0-28", Some(&["1 b", "4 d"])).await;
    bed.until_said(RECORD, None).await;
    assert_eq!(until("it", async || whole.add("net", "c").await.ok()).await, "10.9.0.2");
}
