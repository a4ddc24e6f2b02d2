//! Whereabouts' ranges and the controller on the real kube-apiserver, with the rights that `deploy/controller/rbac.yaml`
//! gives it. Needs etcd and kube-apiserver.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_controller::{Settings, Timing, Whereabouts};
use tenure_controller_testbed as bed;
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::faults::{Calls, Faults, Rule, Verb};
use tenure_tests::definitions::{define, established};

use bed::ranges::{
    attach, attachment_crd, condition, define_attachments, delete_pod, detach, given, ledger, ledgers, phase,
    pod, record, records, reservations, reserve, slice_pools, slices, state, told,
};
use bed::{Running, delete_node, node, until};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
const ACCOUNT: &str = "system:serviceaccount:kube-system:tenure-controller";

/// A control plane with our definitions and the controller's rights.
async fn plane(options: ControlPlaneOptions) -> Result<(ControlPlane, Client)> {
    let plane = ControlPlane::start(options).await?;
    let client = plane.client()?;
    define(&client, tenure_api::crds()).await?;
    plane.kubectl(&["apply", "-f", &format!("{DEPLOY}/controller/rbac.yaml")]).await?;
    Ok((plane, client))
}

/// With attachment definitions, too.
async fn with_attachments() -> Result<(ControlPlane, Client)> {
    let (plane, client) = plane(ControlPlaneOptions::default().without_controller_manager()).await?;
    define_attachments(&client).await;
    established(&client, &attachment_crd().name_any()).await?;
    Ok((plane, client))
}

/// Short times, so that two looks are soon; the real ones are the defaults.
fn settings() -> Settings {
    let timing = Timing {
        duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry: Duration::from_millis(300),
    };
    let whereabouts = Whereabouts {
        release_after: Some(Duration::from_secs(4)),
        node_gone_after: Duration::from_secs(2),
        ..Whereabouts::default()
    };
    Settings { timing, whereabouts, tick: Duration::from_secs(1), ..Settings::new("a") }
}

/// Starts a controller with the rights of its service account.
fn start(plane: &ControlPlane) -> Result<Running> {
    start_with(plane, settings())
}

fn start_with(plane: &ControlPlane, settings: Settings) -> Result<Running> {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    Ok(bed::start_with(plane.client_as(ACCOUNT, &groups)?, settings))
}

fn sliced(range: &str, size: &str) -> Value {
    json!({"range": range, "node_slice_size": size})
}

/// No right was missing, and no write was wrong.
fn all_worked(controller: &Running) -> Result<()> {
    let text = controller.metrics.text()?;
    ensure!(!text.contains("outcome=\"failed\""), "a right is missing, or a write is wrong:\n{text}");
    Ok(())
}

/// Upstream's own scenario 12 and its defects 10 and #614: a definition may be in any namespace and needs no `network_name`.
#[tokio::test]
async fn a_definition_of_any_namespace_becomes_slices_and_its_deletion_takes_them_away_within_a_second()
-> Result<()> {
    let (plane, client) = with_attachments().await?;
    for name in ["node1", "node2", "node3"] {
        node(&client, name).await;
    }
    let controller = start(&plane)?;
    let list = json!({"name": "far", "cniVersion": "1.0.0", "plugins": [
        {"type": "tuning"},
        {"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.0.0.0/8", "node_slice_size": "/20", "ipRanges": [{"range": "fd00::/48"}]}},
    ]});
    let far = json!({"metadata": {"name": "far"}, "spec": {"config": list.to_string()}});
    let api = bed::ranges::attachments(&client, "apps");
    api.create(&PostParams::default(), &serde_json::from_value(far)?).await?;
    let pool = slices(&client, "far", &["node1", "node2", "node3"]).await;
    let all = pool.status.as_ref().context("a status")?.allocations.len();
    ensure!(all == 4096, "{all} slices");
    let expected = [("node1", "10.0.0.0/20"), ("node2", "10.0.16.0/20"), ("node3", "10.0.32.0/20")];
    ensure!(
        given(&pool) == expected.map(|(node, slice)| (node.to_owned(), slice.to_owned())),
        "{:?}",
        given(&pool)
    );
    let six = slices(&client, "far-fd00---48", &["node1", "node2", "node3"]).await;
    ensure!(
        six.spec.slice_size == "/60",
        "as many slices of the second range as of the first: {:?}",
        six.spec
    );
    detach(&client, "apps", "far").await;
    until("the pools to go", async || {
        let left = slice_pools(&client).list(&ListParams::default()).await.ok()?;
        left.items.is_empty().then_some(())
    })
    .await;
    all_worked(&controller)?;
    controller.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_definition_of_attachments_may_be_missing_and_appear_later_without_an_error_storm() -> Result<()>
{
    let (plane, client) = plane(ControlPlaneOptions::default().without_controller_manager()).await?;
    node(&client, "node1").await;
    let faults = Faults::seeded(1);
    let controller = bed::start_with(plane.client_with(&faults)?, settings());
    let ready =
        async || controller.pages.answer(&http::Method::GET, "/readyz", None).await.status().is_success();
    until("readiness", async || ready().await.then_some(())).await;
    let asked = || faults.tally(&Calls::all().to("network-attachment-definitions")).asked;
    let before = asked();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let asked = asked() - before;
    ensure!((1..=4).contains(&asked), "the kind was looked for {asked} times in six seconds");
    ensure!(ready().await);
    define_attachments(&client).await;
    established(&client, &attachment_crd().name_any()).await?;
    attach(&client, "apps", "net", &sliced("10.0.0.0/24", "/26")).await;
    slices(&client, "net", &["node1"]).await;
    controller.stop().await;
    Ok(())
}

/// Upstream gives it away at once.
#[tokio::test]
async fn a_dead_nodes_slice_is_reused_only_when_nothing_is_held_in_it() -> Result<()> {
    let (plane, client) = with_attachments().await?;
    let controller = start(&plane)?;
    for name in ["node1", "node2"] {
        node(&client, name).await;
    }
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/24", "/25")).await;
    let before = slices(&client, "net", &["node1", "node2"]).await;
    let slice = given(&before).into_iter().find(|(node, _)| node == "node1").context("a slice")?.1;
    let name = format!("node1-{}", slice.replace('/', "-"));
    pod(&client, "stays", None).await;
    ledger(
        &client,
        &name,
        &slice,
        Some("node1"),
        Some("owned"),
        &[("3", "default/stays"), ("4", "default/gone")],
    )
    .await;
    node(&client, "node3").await;
    told(&client, "default", "NoSliceFree", "node3").await;
    told(&client, "kube-system", "NoSliceFree", "net").await;
    delete_node(&client, "node1").await;
    until("the record of the pod that is gone to go", async || {
        (records(&client, &name).await.len() == 1).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let waiting = slice_pools(&client).get("net").await?;
    ensure!(given(&waiting) == given(&before), "an address of the slice is held: {waiting:?}");
    delete_pod(&client, "stays").await;
    let after = slices(&client, "net", &["node2", "node3"]).await;
    ensure!(given(&after).contains(&("node3".to_owned(), slice)), "{after:?}");
    until("the dead node's ledger to go", async || {
        ledgers(&client).get_opt(&name).await.ok()?.is_none().then_some(())
    })
    .await;
    all_worked(&controller)?;
    controller.stop().await;
    Ok(())
}

/// Upstream cuts anew, whatever is held.
#[tokio::test]
async fn a_range_that_grows_keeps_what_is_assigned_and_serves_who_had_none() -> Result<()> {
    let (plane, client) = with_attachments().await?;
    for name in ["node1", "node2", "node3"] {
        node(&client, name).await;
    }
    let controller = start(&plane)?;
    attach(&client, "kube-system", "net", &sliced("10.0.1.0/25", "/26")).await;
    let before = slices(&client, "net", &["node1", "node2"]).await;
    let without = condition(&before, "NodesWithoutSlice");
    ensure!(without.0 == "True" && without.2.contains("node3"), "{without:?}");
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/23", "/26")).await;
    let after = slices(&client, "net", &["node1", "node2", "node3"]).await;
    for slice in given(&before) {
        ensure!(given(&after).contains(&slice), "{slice:?} is not in {:?}", given(&after));
    }
    all_worked(&controller)?;
    controller.stop().await;
    Ok(())
}

/// Upstream: an error, tried for ever; and two networks without a name block each other.
#[tokio::test]
async fn definitions_that_contradict_each_other_are_a_condition_and_two_without_a_name_do_not_meet()
-> Result<()> {
    let (plane, client) = with_attachments().await?;
    node(&client, "node1").await;
    let controller = start(&plane)?;
    let of = |size: &str| json!({"range": "10.0.0.0/24", "node_slice_size": size, "network_name": "blue"});
    attach(&client, "kube-system", "first", &of("/26")).await;
    slices(&client, "blue", &["node1"]).await;
    attach(&client, "apps", "second", &of("/27")).await;
    let pool = until("the condition", async || {
        let pool = slice_pools(&client).get("blue").await.ok()?;
        (condition(&pool, "Conflict").0 == "True").then_some(pool)
    })
    .await;
    ensure!(pool.spec.slice_size == "/26" && given(&pool).len() == 1, "{pool:?}");
    told(&client, "apps", "Conflict", "second").await;
    told(&client, "kube-system", "Conflict", "blue").await;
    for (name, range) in [("one", "10.1.0.0/24"), ("two", "10.2.0.0/24")] {
        attach(&client, "apps", name, &sliced(range, "/26")).await;
    }
    attach(&client, "apps", "unsliced", &json!({"range": "10.3.0.0/24"})).await;
    for name in ["one", "two"] {
        slices(&client, name, &["node1"]).await;
    }
    attach(&client, "apps", "wrong", &sliced("10.4.0.0/24", "/2x")).await;
    let event = told(&client, "apps", "Refused", "wrong").await;
    ensure!(event.message.context("a message")?.contains("node_slice_size"));
    all_worked(&controller)?;
    controller.stop().await;
    Ok(())
}

/// Five thousand nodes that are there already are one write, and five hundred that join are few.
#[tokio::test]
async fn five_thousand_nodes_in_one_pool_are_one_write() -> Result<()> {
    let (plane, client) = with_attachments().await?;
    let make = |numbers: std::ops::Range<usize>| {
        let client = client.clone();
        async move {
            let nodes: Api<Node> = Api::all(client);
            let made: Vec<_> = stream::iter(numbers)
                .map(|number| {
                    let nodes = nodes.clone();
                    async move {
                        let node = json!({"metadata": {"name": format!("node-{number:04}.rack.example")}});
                        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
                        anyhow::Ok(())
                    }
                })
                .buffer_unordered(16)
                .collect()
                .await;
            made.into_iter().collect::<Result<Vec<()>>>()
        }
    };
    make(0..5_000).await?;
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/8", "/21")).await;
    let faults = Faults::seeded(5);
    let before = SystemClock.now();
    let controller = bed::start_with(plane.client_with(&faults)?, settings());
    let served = async |count: usize| {
        until(&format!("{count} slices"), async || {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let pool = slice_pools(&client).get_opt("net").await.ok()??;
            (given(&pool).len() == count).then_some(pool)
        })
        .await
    };
    let pool = served(5_000).await;
    let took = SystemClock.now().since(before);
    let writes = || faults.tally(&Calls::writes().to("nodeslicepools")).asked;
    ensure!(writes() == 1, "{} writes", writes());
    let size = serde_json::to_vec(&pool)?.len();
    ensure!(size < 1_000_000, "{size} bytes");
    writeln!(std::io::stderr(), "5,000 nodes: one write of {size} bytes, {took:?} after the start")?;
    let before = SystemClock.now();
    make(5_000..5_500).await?;
    served(5_500).await;
    let (took, joined) = (SystemClock.now().since(before), writes() - 1);
    writeln!(std::io::stderr(), "500 nodes joined within {took:?}: {joined} writes")?;
    ensure!(u128::from(joined) <= took.as_millis() / 500 + 2, "{joined} writes within {took:?}");
    let still = writes();
    tokio::time::sleep(Duration::from_secs(7)).await;
    ensure!(writes() == still, "nothing changed, and something was written");
    controller.stop().await;
    Ok(())
}

#[tokio::test]
async fn from_unsliced_to_sliced_the_range_is_sealed_first_and_on_the_way_back_opened_last() -> Result<()> {
    let (plane, client) = with_attachments().await?;
    node(&client, "node1").await;
    pod(&client, "old", Some(&["10.0.0.1"])).await;
    let unsliced = json!({"range": "10.0.0.0/24"});
    attach(&client, "kube-system", "net", &unsliced).await;
    ledger(&client, "10.0.0.0-24", "10.0.0.0/24", None, Some("unique"), &[("1", "default/old")]).await;
    let controller = start(&plane)?;
    attach(&client, "kube-system", "net", &sliced("10.0.0.0/24", "/26")).await;
    let pool = slices(&client, "net", &["node1"]).await;
    let sealed = ledgers(&client).get("10.0.0.0-24").await?;
    ensure!(state(&sealed).as_deref() == Some("sliced"), "{sealed:?}");
    let version = |version: Option<String>| version.and_then(|it| it.parse::<u64>().ok()).unwrap_or_default();
    let (seal, gave) = (version(sealed.resource_version()), version(pool.resource_version()));
    ensure!(seal < gave, "sealed at {seal}, given away at {gave}");
    ensure!(records(&client, "10.0.0.0-24").await.len() == 1, "who runs keeps what it has");
    // The node holds something in its slice when the network becomes whole again.
    let held = [("5", "default/old")];
    ledger(&client, "node1-10.0.0.0-26", "10.0.0.0/26", Some("node1"), Some("owned"), &held).await;
    attach(&client, "kube-system", "net", &unsliced).await;
    until("the pool to go", async || slice_pools(&client).get_opt("net").await.ok()?.is_none().then_some(()))
        .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let still = ledgers(&client).get("10.0.0.0-24").await?;
    ensure!(state(&still).as_deref() == Some("sliced"), "a node still hands out of its slice: {still:?}");
    let heard = json!({"metadata": {"annotations": {"whereabouts.cni.cncf.io/state": "unique"}}});
    ledgers(&client).patch("node1-10.0.0.0-26", &PatchParams::default(), &Patch::Merge(heard)).await?;
    until("the range to be opened", async || {
        let pool = ledgers(&client).get("10.0.0.0-24").await.ok()?;
        (state(&pool).as_deref() == Some("unique")).then_some(())
    })
    .await;
    all_worked(&controller)?;
    controller.stop().await;
    Ok(())
}

/// Upstream's defects 3, 4 and 15: it frees what running pods have, leaks what was forgotten while its daemon was down or
/// whose definition is gone, and deletes reservations of named networks.
#[tokio::test]
async fn what_the_runtime_forgot_is_released_after_two_looks_and_a_successors_record_is_not() -> Result<()> {
    let (plane, client) = with_attachments().await?;
    node(&client, "node1").await;
    pod(&client, "web-0", Some(&["10.9.0.1"])).await;
    pod(&client, "silent", None).await;
    pod(&client, "moved", Some(&["10.9.0.4"])).await;
    pod(&client, "ended", None).await;
    phase(&client, "ended", "Failed").await;
    let held = [
        ("1", "default/web-0"),
        ("2", "default/silent"),
        ("3", "default/gone"),
        ("4", "default/moved"),
        ("5", "default/moved"),
        ("6", "default/ended"),
    ];
    // There is no definition of this network any more, and Whereabouts wrote no labels.
    ledger(&client, "blue-10.9.0.0-24", "10.9.0.0/24", None, Some("overlapping"), &held).await;
    for (key, podref) in held {
        reserve(&client, &format!("blue-10.9.0.{key}"), podref).await;
    }
    reserve(&client, "blue-10.9.0.77", "default/gone").await;
    let start_time = SystemClock.now();
    let controller = start(&plane)?;
    let left: Vec<_> = [("1", "default/web-0"), ("2", "default/silent"), ("4", "default/moved")]
        .map(|(key, podref)| (key.to_owned(), podref.to_owned()))
        .into();
    until("what nobody uses to go", async || {
        (records(&client, "blue-10.9.0.0-24").await == left).then_some(())
    })
    .await;
    let took = SystemClock.now().since(start_time);
    ensure!(took >= Duration::from_secs(4), "it went after {took:?}: one look was enough");
    until("the reservations to go", async || {
        let all = reservations(&client).list(&ListParams::default()).await.ok()?;
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        (names == ["blue-10.9.0.1", "blue-10.9.0.2", "blue-10.9.0.4"]).then_some(())
    })
    .await;
    told(&client, "kube-system", "AddressReleased", "blue-10.9.0.0-24").await;
    // A StatefulSet's pod is deleted, its record is suspected, and its successor takes the record over.
    delete_pod(&client, "web-0").await;
    // The record, and its reservation.
    until("a suspicion", async || {
        controller.metrics.text().ok()?.contains("tenure_whereabouts_suspects 2").then_some(())
    })
    .await;
    let mut taken_over = record("default/web-0", "net1");
    taken_over.id = "successor".to_owned();
    let patch = Patch::Merge(json!({"spec": {"allocations": {"1": taken_over}}}));
    ledgers(&client).patch("blue-10.9.0.0-24", &PatchParams::default(), &patch).await?;
    pod(&client, "web-0", None).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    ensure!(records(&client, "blue-10.9.0.0-24").await == left);
    let text = controller.metrics.text()?;
    ensure!(text.contains("tenure_whereabouts_released_total{kind=\"record\"} 3"), "{text}");
    ensure!(text.contains("tenure_whereabouts_suspects 0"), "{text}");
    all_worked(&controller)?;
    controller.stop().await;
    Ok(())
}

/// Writers of other records of the same ledger, lost answers and late watches: what is used stays, what is not goes.
#[tokio::test]
async fn releases_among_busy_writers_and_lost_answers_touch_nothing_that_is_used() -> Result<()> {
    let (plane, client) = with_attachments().await?;
    let numbers = 1..=60_u32;
    let held: Vec<(String, String)> =
        numbers.clone().map(|number| (number.to_string(), format!("default/p{number}"))).collect();
    let texts: Vec<(&str, &str)> = held.iter().map(|(key, podref)| (key.as_str(), podref.as_str())).collect();
    for number in numbers.clone().filter(|number| number % 2 == 0) {
        pod(&client, &format!("p{number}"), None).await;
    }
    ledger(&client, "10.9.0.0-24", "10.9.0.0/24", None, Some("unique"), &texts).await;
    let faults = Faults::seeded(8);
    let lost = faults.add(Rule::lose_answer().on(Calls::of(Verb::Patch).to("ippools")).times(1));
    let controller = bed::start_with(plane.client_with(&faults)?, settings());
    let next = std::cell::Cell::new(100_u32);
    until("what nobody uses to go", async || {
        next.set(next.get() + 1);
        let patch = json!({"spec": {"allocations": {next.get().to_string(): record("default/p2", "net2")}}});
        ledgers(&client).patch("10.9.0.0-24", &PatchParams::default(), &Patch::Merge(patch)).await.ok()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let records = records(&client, "10.9.0.0-24").await;
        let odd =
            records.iter().any(|(key, _)| key.parse::<u32>().is_ok_and(|key| key <= 60 && key % 2 == 1));
        (!odd).then_some(())
    })
    .await;
    let records = records(&client, "10.9.0.0-24").await;
    let even = records.iter().filter(|(key, _)| key.parse::<u32>().is_ok_and(|key| key <= 60)).count();
    let added = records.len() - even;
    ensure!(even == 30, "{records:?}");
    ensure!(
        u32::try_from(added)? == next.get() - 100,
        "{added} of {} records of the busy writer",
        next.get() - 100
    );
    ensure!(faults.struck(lost) > 0, "a fault that never happened proves nothing");
    controller.stop().await;
    Ok(())
}
