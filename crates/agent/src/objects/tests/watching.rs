//! Events of pools and blocks.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_api::coil::{AddressBlock, AddressPool};
use tenure_testbed::faults::{Calls, Verb};

use super::bed::{Bed, NODE, a_moment, until};
use crate::node::Event;
use crate::objects::watched;

async fn free(bed: &Bed, block: &str) {
    bed.merge::<AddressBlock>(block, json!({"metadata": {"finalizers": []}})).await;
    bed.delete::<AddressBlock>(block).await;
}

#[tokio::test(start_paused = true)]
async fn what_there_is_is_told_and_then_once_that_all_was_read() {
    let bed = Bed::new(1).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    bed.pool("other", 2, "10.2.0.0/24").await;
    let own = bed.block("default", 0, NODE).await.uid().unwrap();
    bed.block("default", 1, "node-2").await;
    let agent = bed.ready().await;
    let mut story = agent.story();
    assert_eq!(story.pop().as_deref(), Some("ApiRead"));
    story.sort();
    assert_eq!(story, ["+default".to_owned(), format!("+default-0 {own}"), "+other".to_owned()]);
    bed.faults.cut_watches(&Calls::all());
    let later = bed.block("default", 2, NODE).await.uid().unwrap();
    agent.seen("default-2").await;
    let again = agent.told().iter().filter(|event| **event == Event::ApiRead).count();
    assert_eq!((again, agent.story().len()), (1, 5), "{later}: {:?}", agent.story());
}

#[tokio::test(start_paused = true)]
async fn nothing_of_other_nodes_and_no_pod_at_all_is_asked_for() {
    let bed = Bed::new(2).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    bed.block("default", 1, "node-2").await;
    let agent = bed.ready().await;
    bed.block("default", 2, "node-2").await;
    bed.block("default", 3, NODE).await;
    agent.seen("default-3").await;
    assert_eq!(agent.story().iter().filter(|line| line.starts_with("+default-")).count(), 1);
    assert_eq!(bed.faults.tally(&Calls::all().to("pods")).asked, 0);
    let node_calls = bed.faults.tally(&Calls::all().to("nodes"));
    assert!(node_calls.asked > 0, "only this node's own object is watched");
}

#[tokio::test(start_paused = true)]
async fn blocks_and_pools_that_vanished_between_two_lists_are_told_gone() {
    let bed = Bed::with_history(3, 2).await;
    for pool in ["default", "short-lived"] {
        bed.pool(pool, 2, if pool == "default" { "10.1.0.0/24" } else { "10.2.0.0/24" }).await;
    }
    let stays = bed.block("default", 0, NODE).await.uid().unwrap();
    let goes = bed.block("default", 1, NODE).await.uid().unwrap();
    let agent = bed.ready().await;
    agent.forget();
    bed.blind("addressblocks");
    bed.blind("addresspools");
    free(&bed, "default-1").await;
    bed.delete::<AddressPool>("short-lived").await;
    // So many events that the server has forgotten the watches' versions.
    for index in 10..20 {
        bed.block("default", index, "node-2").await;
        bed.pool(&format!("p{index}"), 2, &format!("10.{index}.0.0/24")).await;
    }
    a_moment().await;
    assert!(agent.told().is_empty(), "{:?}", agent.story());
    bed.faults.clear();
    agent.gone("default-1", &goes).await;
    agent.until("the pool's end", |event| *event == Event::PoolGone { name: "short-lived".into() }).await;
    assert!(!agent.story().iter().any(|line| line.contains(&stays)), "{:?}", agent.story());
}

#[tokio::test(start_paused = true)]
async fn a_block_with_the_same_name_and_another_uid_is_an_end_and_a_beginning() {
    let bed = Bed::with_history(4, 2).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    let first = bed.block("default", 0, NODE).await.uid().unwrap();
    let agent = bed.ready().await;
    agent.forget();
    free(&bed, "default-0").await;
    let second = bed.block("default", 0, NODE).await.uid().unwrap();
    let expected = [format!("-default-0 {first}"), format!("+default-0 {second}")];
    until("both", async || (agent.story() == expected).then_some(())).await;
    agent.forget();
    // The same while the watches are cut, for longer than the server remembers.
    bed.blind("addressblocks");
    free(&bed, "default-0").await;
    let third = bed.block("default", 0, NODE).await.uid().unwrap();
    for index in 10..15 {
        bed.block("default", index, "node-2").await;
    }
    bed.faults.clear();
    let expected = [format!("-default-0 {second}"), format!("+default-0 {third}")];
    until("both again", async || (agent.story() == expected).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_given_to_another_node_is_gone_and_one_that_comes_is_seen() {
    let bed = Bed::new(5).await;
    let uid = bed.block("default", 0, NODE).await.uid().unwrap();
    let agent = bed.ready().await;
    let to = |node: &str| json!({"metadata": {"labels": {"coil.cybozu.com/node": node}}});
    bed.merge::<AddressBlock>("default-0", to("node-2")).await;
    agent.gone("default-0", &uid).await;
    agent.forget();
    bed.merge::<AddressBlock>("default-0", to(NODE)).await;
    assert_eq!(agent.seen("default-0").await.uid, uid);
}

#[tokio::test(start_paused = true)]
async fn a_reserved_block_and_one_that_is_being_deleted_are_told_as_such() {
    let bed = Bed::new(6).await;
    let agent = bed.ready().await;
    let mut reserved = super::bed::block("default", 0, NODE);
    reserved["metadata"]["labels"]["coil.cybozu.com/reserved"] = json!("true");
    bed.create::<AddressBlock>(reserved).await;
    assert!(agent.seen("default-0").await.reserved);
    bed.block("default", 1, NODE).await;
    assert!(!agent.seen("default-1").await.deleting);
    agent.forget();
    bed.api::<AddressBlock>().delete("default-1", &DeleteParams::default()).await.unwrap();
    assert!(agent.seen("default-1").await.deleting, "our finalizer keeps it");
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_told_when_something_changes_that_matters_to_a_node() {
    let bed = Bed::new(7).await;
    let agent = bed.ready().await;
    let mut pool = json!({
        "metadata": {"name": "default", "finalizers": ["coil.cybozu.com"]},
        "spec": {"blockSizeBits": 3, "subnets": [{"ipv4": "10.1.0.0/24"}],
                 "exclude": ["10.1.0.0", "10.1.0.7"], "cooling": "90s"},
    });
    bed.create::<AddressPool>(pool.take()).await;
    let facts = async || {
        let is_it = |event: &Event| matches!(event, Event::PoolChanged { .. });
        let Event::PoolChanged { facts, .. } = agent.until("the pool", is_it).await else { unreachable!() };
        facts
    };
    let first = facts().await;
    assert_eq!((first.block_bits, first.exclusions.len(), first.cooling.unwrap().as_secs()), (3, 2, 90));
    assert!(!first.exhausted && !first.deleting);
    agent.forget();
    let status = |allocated: &str, exhausted: &str| {
        let condition = json!({"type": "Exhausted", "status": exhausted, "reason": "OutOfBlocks", "message": "",
                               "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let blocks = json!({"capacity": "32", "allocated": allocated, "free": "0"});
        Patch::Merge(json!({"status": {"blocks": blocks, "conditions": [condition]}}))
    };
    let (pools, plain) = (bed.api::<AddressPool>(), PatchParams::default());
    pools.patch_status("default", &plain, &status("7", "False")).await.unwrap();
    a_moment().await;
    assert!(agent.told().is_empty(), "how much is used elsewhere is no news here: {:?}", agent.story());
    pools.patch_status("default", &plain, &status("32", "True")).await.unwrap();
    assert!(facts().await.exhausted);
    agent.forget();
    bed.delete::<AddressPool>("default").await;
    assert!(facts().await.deleting);
    bed.merge::<AddressPool>("default", json!({"metadata": {"finalizers": []}})).await;
    agent.until("its end", |event| *event == Event::PoolGone { name: "default".into() }).await;
}

#[tokio::test(start_paused = true)]
async fn health_says_which_watch_fails_while_what_is_known_stays_known() {
    let bed = Bed::new(8).await;
    let agent = bed.ready().await;
    let health = agent.objects.health();
    assert!(health.works() && health.complete && health.last_answer.is_some(), "{health:?}");
    assert_eq!(health.watches.len(), 4, "{health:?}");
    bed.away();
    let health = until("a failing watch", async || {
        let health = agent.objects.health();
        health.watches.values().all(|watch| watch.failing.is_some()).then_some(health)
    })
    .await;
    assert!(!health.works() && health.complete && health.watches[watched::POOLS].listed, "{health:?}");
    bed.faults.clear();
    bed.pool("default", 2, "10.1.0.0/24").await;
    until("the watch of pools", async || {
        agent.objects.health().watches[watched::POOLS].failing.is_none().then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn with_the_api_server_away_at_the_start_everything_is_told_when_it_comes() {
    let bed = Bed::new(9).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    bed.away();
    let agent = bed.agent();
    a_moment().await;
    assert!(agent.told().is_empty() && !agent.objects.health().complete);
    bed.faults.clear();
    agent.until("the first lists", |event| *event == Event::ApiRead).await;
    assert_eq!(agent.story(), ["+default", "ApiRead"]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_asked_more_and_more_seldom() {
    let bed = Bed::new(10).await;
    bed.away();
    let agent = bed.agent();
    // 0, 50, 150, 350 and 750 ms after the start.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let asked = bed.faults.tally(&Calls::of(Verb::List).to("addresspools")).asked;
    assert!((2..=5).contains(&asked), "it was asked {asked} times within a second");
    bed.faults.clear();
    agent.until("the first lists", |event| *event == Event::ApiRead).await;
}
