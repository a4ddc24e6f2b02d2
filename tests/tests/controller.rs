//! The controller on the real kube-apiserver, with the rights that `deploy/controller/rbac.yaml` gives it.
//! Needs etcd and kube-apiserver.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::coil::{AddressPool, BlockRequest, FINALIZER};
use tenure_controller::{Settings, Timing};
use tenure_controller_testbed as bed;
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions, Part};
use tenure_testbed::faults::{Calls, Faults, Rule};
use tenure_tests::definitions::define;

use bed::{
    Running, all_served, answer, ask, blocks, check_blocks, delete_node, node, orphan, pool, pools, requests,
    until,
};

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/controller");
/// What lies between two observations of a missing node, here.
const REST: Duration = Duration::from_secs(10);
const ACCOUNT: &str = "system:serviceaccount:kube-system:tenure-controller";

/// A control plane with our definitions and the controller's manifests, and a client of an administrator.
async fn plane(options: ControlPlaneOptions) -> Result<(ControlPlane, Client)> {
    let plane = ControlPlane::start(options).await?;
    let client = plane.client()?;
    define(&client, tenure_api::crds()).await?;
    plane.kubectl(&["apply", "-f", MANIFESTS]).await?;
    Ok((plane, client))
}

fn small() -> ControlPlaneOptions {
    ControlPlaneOptions::default().without_controller_manager()
}

fn settings(identity: &str) -> Settings {
    let timing = Timing {
        duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry: Duration::from_millis(300),
    };
    Settings { timing, missing_node_rest: REST, ..Settings::new(identity) }
}

/// Starts a controller with the rights of its service account.
fn start(plane: &ControlPlane, identity: &str) -> Result<Running> {
    let client =
        plane.client_as(ACCOUNT, &["system:serviceaccounts", "system:serviceaccounts:kube-system"])?;
    Ok(bed::start_with(client, settings(identity)))
}

async fn leading(running: &Running) {
    until("it to lead", async || running.leads().then_some(())).await;
}

#[tokio::test]
async fn an_unused_pool_that_is_deleted_goes_away_and_only_the_default_one_stays() -> Result<()> {
    let (plane, client) = plane(small()).await?;
    let controller = start(&plane, "a")?;
    pool(&client, "default", 5, "10.2.0.0/16").await;
    pool(&client, "unused", 5, "10.3.0.0/16").await;
    let kept = async || (pools(&client).get("unused").await.ok()?.finalizers() == [FINALIZER]).then_some(());
    until("the finalizer", kept).await;
    pools(&client).delete("unused", &DeleteParams::default()).await?;
    until("the pool to go", async || pools(&client).get_opt("unused").await.ok()?.is_none().then_some(()))
        .await;
    let left: Vec<_> =
        pools(&client).list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    ensure!(left == ["default"], "{left:?}");
    controller.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_lease_has_the_name_that_coils_has_and_is_released_at_the_end() -> Result<()> {
    let (plane, client) = plane(small()).await?;
    let controller = start(&plane, "a")?;
    leading(&controller).await;
    let leases: Api<Lease> = Api::namespaced(client, "kube-system");
    let holder =
        async || anyhow::Ok(leases.get("coil-ipam-leader").await?.spec.and_then(|spec| spec.holder_identity));
    ensure!(holder().await?.as_deref() == Some("a"));
    controller.stop().await;
    ensure!(holder().await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_pool_that_is_too_small_for_a_block_is_refused() -> Result<()> {
    let (_plane, client) = plane(small()).await?;
    let spec = json!({"blockSizeBits": 5, "subnets": [{"ipv4": "10.1.0.0/30"}]});
    let small = AddressPool::new("small", serde_json::from_value(spec)?);
    let refused = pools(&client).create(&PostParams::default(), &small).await;
    let Err(kube::Error::Api(status)) = refused else { anyhow::bail!("it was accepted: {refused:?}") };
    ensure!(status.code == 422 && status.message.contains("10.1.0.0/30"), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_block_of_a_node_that_never_was_goes_after_two_observations() -> Result<()> {
    let (plane, client) = plane(small()).await?;
    pool(&client, "default", 0, "10.250.0.0/24").await;
    orphan(&client, "default-0", 0, "default", "coil-worker100").await;
    let controller = start(&plane, "a")?;
    let before = SystemClock.now();
    until("the block to go", async || {
        blocks(&client).get_opt("default-0").await.ok()?.is_none().then_some(())
    })
    .await;
    let took = SystemClock.now().since(before);
    ensure!(took >= REST, "it went after {took:?}: one observation was enough");
    controller.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_thousand_waiting_requests_are_served_within_the_rights_of_the_manifest() -> Result<()> {
    let (plane, client) = plane(small()).await?;
    pool(&client, "default", 5, "10.0.0.0/8").await;
    for number in 0..1000 {
        ask(&client, &format!("r{number}"), &format!("n{}", number % 100), "default").await;
    }
    // The nodes do not exist; blocks of missing nodes go after two looks, so these come first.
    for number in 0..100 {
        node(&client, &format!("n{number}")).await;
    }
    let controller = start(&plane, "a")?;
    all_served(&client, 1000).await;
    ensure!(check_blocks(&client).await == 1000);
    let text = controller.metrics.text()?;
    ensure!(!text.contains("outcome=\"failed\""), "a right is missing, or a write is wrong:\n{text}");
    controller.stop().await;
    Ok(())
}

#[tokio::test]
async fn blocks_and_requests_go_with_their_node_and_an_event_says_so() -> Result<()> {
    let (plane, client) = plane(ControlPlaneOptions::default()).await?;
    pool(&client, "default", 0, "10.5.0.0/30").await;
    let (gone, stays) = (node(&client, "gone").await, node(&client, "stays").await);
    let controller = start(&plane, "a")?;
    for node in [&gone, &stays] {
        let request = BlockRequest::of(node, "default")?;
        requests(&client).create(&PostParams::default(), &request).await?;
        let served = answer(&client, &request.name_any()).await;
        ensure!(served.is_ok(), "{served:?}");
    }
    delete_node(&client, "gone").await;
    let left = async || {
        let requests = requests(&client).list(&ListParams::default()).await.ok()?;
        let blocks = blocks(&client).list(&ListParams::default()).await.ok()?;
        (requests.items.len() == 1 && blocks.items.len() == 1).then(|| blocks.items[0].clone())
    };
    let left = until("the block and the request to go", left).await;
    ensure!(left.node() == Some("stays"), "{left:?}");
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let told = async || {
        let events = events.list(&ListParams::default()).await.ok()?;
        events.items.into_iter().find(|event| event.reason.as_deref() == Some("BlockReleased"))
    };
    let event = until("an event", told).await;
    ensure!(event.involved_object.name.as_deref() == Some("gone"), "{event:?}");
    controller.stop().await;
    Ok(())
}

#[tokio::test]
async fn two_controllers_outlive_a_killed_leader_and_a_killed_api_server() -> Result<()> {
    let (plane, client) = plane(small()).await?;
    pool(&client, "default", 0, "10.6.0.0/24").await;
    node(&client, "node1").await;
    let first = start(&plane, "first")?;
    leading(&first).await;
    let second = start(&plane, "second")?;
    for number in 0..20 {
        ask(&client, &format!("r{number}"), "node1", "default").await;
    }
    first.kill().await;
    for number in 0..20 {
        let served = answer(&client, &format!("r{number}")).await;
        ensure!(served.is_ok(), "r{number}: {served:?}");
    }
    leading(&second).await;
    plane.kill(Part::ApiServer).await?;
    let ready = async || second.pages.answer(&http::Method::GET, "/readyz", None).await.status().is_success();
    until("the truth about the API server", async || (!ready().await).then_some(())).await;
    plane.restart(Part::ApiServer).await?;
    ask(&client, "after", "node1", "default").await;
    let served = answer(&client, "after").await;
    ensure!(served.is_ok(), "{served:?}");
    ensure!(check_blocks(&client).await == 21);
    until("readiness", async || ready().await.then_some(())).await;
    second.stop().await;
    Ok(())
}

#[tokio::test]
async fn lost_answers_and_late_writes_give_nothing_twice() -> Result<()> {
    let (plane, client) = plane(small()).await?;
    pool(&client, "default", 0, "10.7.0.0/24").await;
    node(&client, "node1").await;
    let faults = Faults::seeded(31);
    let lost = faults.add(Rule::lose_answer().on(Calls::writes()).percent(15));
    let late =
        faults.add(Rule::delay(Duration::ZERO..=Duration::from_millis(300)).on(Calls::writes()).percent(30));
    let controllers = [
        bed::start_with(plane.client_with(&faults)?, settings("first")),
        bed::start_with(plane.client_with(&faults)?, settings("second")),
    ];
    for number in 0..60 {
        ask(&client, &format!("r{number}"), "node1", "default").await;
    }
    for number in 0..60 {
        let served = answer(&client, &format!("r{number}")).await;
        ensure!(served.is_ok(), "r{number}: {served:?}");
    }
    ensure!(faults.struck(lost) > 0 && faults.struck(late) > 0, "a fault that never happened proves nothing");
    faults.clear();
    ensure!(check_blocks(&client).await == 60);
    for controller in controllers {
        controller.stop().await;
    }
    Ok(())
}
