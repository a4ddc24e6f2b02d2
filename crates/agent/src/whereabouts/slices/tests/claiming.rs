//! Nothing is assigned from a slice before its object says whose it is, and nobody else may take of it until that is let go.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::ListParams;
use tenure_testbed::faults::{Calls, Rule, Verb};
use tenure_whereabouts::ledger::{PoolId, State};
use tenure_whereabouts::slices::{CONFIRMED, identify, is_sliced};

use super::bed::{Bed, NODE, a_moment, options, until};
use crate::journal::Image;
use crate::whereabouts::slices::SlicesOptions;

const OURS: &[(&str, &str)] = &[("10.9.0.0/28", NODE)];
const NOT_OURS: &[(&str, &str)] = &[("10.9.0.0/28", "")];
const RECORD: &str = "net-node-1-10.9.0.0-28";

/// What the slice's object says.
async fn state(bed: &Bed) -> Option<State> {
    bed.records().get_opt(RECORD).await.unwrap().map(|object| State::of(&object))
}

/// Whether the controller would leave the whole range closed: it looks for pools first, for owners then.
async fn is_closed(bed: &Bed) -> bool {
    let pools = bed.pools().list(&ListParams::default()).await.unwrap().items;
    let records = bed.records().list(&ListParams::default()).await.unwrap().items;
    let networks = BTreeSet::from(["net".to_owned()]);
    let owned = records.iter().filter(|record| State::of(record) == State::Owned);
    let owned: Vec<PoolId> = owned.filter_map(|record| identify(record, &networks, &|_| true)).collect();
    is_sliced(&PoolId::shared("net", "10.9.0.0/24".parse().unwrap()), &pools, &owned)
}

#[tokio::test(start_paused = true)]
async fn a_slice_is_said_to_be_the_nodes_before_it_is_used_and_that_is_its_only_write_without_pods() {
    let bed = Bed::new(51).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    assert_eq!(state(&bed).await, Some(State::Unique), "the controller does not say it for the node");
    let whole = bed.ready().await;
    whole.slices.slice("net").await.unwrap();
    assert_eq!(state(&bed).await, Some(State::Owned));
    a_moment().await;
    assert_eq!(bed.faults.tally(&Calls::writes()).asked, 1);
    // Nor does a restart cost any.
    let journal = whole.journal();
    drop(whole);
    bed.faults.reset_tallies();
    let again = bed.ready_after(journal).await;
    a_moment().await;
    assert_eq!(bed.faults.tally(&Calls::writes()).asked, 0);
    // Whoever deletes it says nothing by that.
    bed.remove(RECORD).await;
    until("it again", async || (state(&bed).await == Some(State::Owned)).then_some(())).await;
    bed.give("net", NOT_OURS).await;
    until("its end", async || again.add("net", "a").await.err()).await;
    bed.until_said(RECORD, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_taken_for_gone_and_lives_takes_the_mark_off_its_ledger() {
    let bed = Bed::new(56).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    whole.add("net", "a").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    let mark = serde_json::json!({"metadata": {"annotations": {"tenure/releasing": "2026-11-17T00:00:00Z"}}});
    let unmarked = async || {
        let record = bed.records().get(RECORD).await.unwrap();
        (!record.metadata.annotations.unwrap().contains_key("tenure/releasing")).then_some(())
    };
    // While the mark cannot be taken off, nothing is assigned.
    let lost = bed.faults.add(Rule::lose_request().on(Calls::of(Verb::Update).to("ippools")));
    bed.edit(RECORD, mark.clone()).await;
    until("it to be tried", async || (bed.faults.struck(lost) > 0).then_some(())).await;
    assert!(whole.add("net", "b").await.is_err());
    bed.faults.remove(lost);
    until("the mark to go", unmarked).await;
    until("it to hand out again", async || whole.add("net", "b").await.ok()).await;
    // Also one that comes while no agent runs.
    let journal = whole.journal();
    drop(whole);
    bed.edit(RECORD, mark).await;
    let again = bed.ready_after(journal).await;
    until("the mark to go", unmarked).await;
    until("it to hand out again", async || again.add("net", "c").await.ok()).await;
    bed.until_said(RECORD, Some(&["1 a", "2 b", "3 c"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_ledger_was_released_looks_live_whether_it_still_has_the_slice() {
    let bed = Bed::new(57).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    whole.add("net", "a").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    bed.give_untold("net", NOT_OURS).await;
    bed.remove(RECORD).await;
    until("its end", async || whole.add("net", "b").await.err()).await;
    bed.until_said(RECORD, Some(&["1 a"])).await;
    assert!(
        whole.add("net", "c").await.is_err(),
        "the slice is not given any more, and what is held in it stays"
    );
    assert_eq!(whole.held().await, ["10.9.0.1 a"]);
}

#[tokio::test(start_paused = true)]
async fn a_range_whose_pool_goes_before_the_first_record_is_written_stays_closed_until_the_node_has_let_go() {
    let bed = Bed::new(52).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let late = SlicesOptions { debounce: Duration::from_mins(10), ..options() };
    let whole = bed.start_with(Image::default(), late);
    whole.ready().await;
    assert_eq!(whole.add("net", "a").await.unwrap(), "10.9.0.1");
    bed.uncut("net").await;
    until("its end", async || whole.add("net", "z").await.err()).await;
    assert_eq!(bed.said(RECORD).await.unwrap(), Vec::<String>::new(), "it never came to it");
    assert!(is_closed(&bed).await);
    let journal = whole.journal();
    drop(whole);
    let again = bed.start(journal);
    until("it to let go", async || {
        let (closed, said) = (is_closed(&bed).await, bed.said(RECORD).await.unwrap());
        assert!(closed || said == ["1 a"], "10.9.0.1 may be handed out again: {said:?}");
        (!closed).then_some(())
    })
    .await;
    assert_eq!(again.held().await, ["10.9.0.1 a"]);
    assert_eq!(again.del("a").await, 1);
    bed.until_said(RECORD, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_slice_whose_pool_goes_while_it_is_being_taken_is_not_used_and_its_object_goes_again() {
    let bed = Bed::new(53).await;
    let whole = bed.ready().await;
    let lost = bed.faults.add(Rule::lose_request().on(Calls::of(Verb::Update).to("ippools")));
    bed.cut("net", "10.9.0.0/24", OURS).await;
    until("it to be heard of", async || (bed.faults.struck(lost) > 0).then_some(())).await;
    bed.uncut_untold("net").await;
    bed.faults.remove(lost);
    until("it to be claimed", async || (state(&bed).await == Some(State::Owned)).then_some(())).await;
    a_moment().await;
    assert!(whole.add("net", "a").await.is_err(), "a live look shows that it is not given any more");
    bed.tell().await;
    bed.until_said(RECORD, None).await;
    assert!(whole.add("net", "a").await.is_err());
    // Another pool of the same name is another matter.
    bed.cut("net", "10.9.0.0/24", OURS).await;
    until("it again", async || whole.add("net", "a").await.ok()).await;
    assert_eq!(state(&bed).await, Some(State::Owned));
}

#[tokio::test(start_paused = true)]
async fn what_is_on_record_in_a_slice_that_goes_while_it_is_being_taken_is_held_on() {
    let bed = Bed::new(54).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    whole.add("net", "a").await.unwrap();
    bed.until_said(RECORD, Some(&["1 a"])).await;
    drop(whole);
    // It crashed before it could say that it has looked.
    bed.edit(RECORD, serde_json::json!({"metadata": {"annotations": {CONFIRMED: null}}})).await;
    let lost = bed.faults.add(Rule::lose_request().on(Calls::of(Verb::Get).to("nodeslicepools")));
    let again = bed.start(Image::default());
    until("it to be looked at", async || (bed.faults.struck(lost) > 0).then_some(())).await;
    bed.uncut("net").await;
    until("it to be marked", async || (state(&bed).await == Some(State::Unique)).then_some(())).await;
    assert_eq!(bed.said(RECORD).await.unwrap(), ["1 a"]);
    assert_eq!(again.held().await, ["10.9.0.1 a"]);
    assert_eq!(again.del("a").await, 1);
    bed.until_said(RECORD, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_is_given_again_while_its_object_is_being_taken_back_has_one() {
    let bed = Bed::new(55).await;
    bed.cut("net", "10.9.0.0/24", OURS).await;
    let whole = bed.ready().await;
    for round in 0..12 {
        bed.give("net", NOT_OURS).await;
        until("its end", async || {
            whole.node.look(|node| node.slices().is_empty().then_some(())).await.unwrap()
        })
        .await;
        // Before, while and after its object is taken back.
        tokio::time::sleep(Duration::from_millis(8 * round)).await;
        bed.give("net", OURS).await;
        until("it again", async || whole.slices.slice("net").await.ok()).await;
        assert_eq!(state(&bed).await, Some(State::Owned), "round {round}");
    }
}
