//! Machines that stop, start, move and go: on the pods' own network, on one that is not sliced and on one that is.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PropagationPolicy};
use serde_json::json;
use tenure_testbed::wait::eventually;

use crate::kubevirt::kinds::{Kind, Nic};
use crate::looks::{Claimed, has};
use crate::place::{Running, ScenarioNamespace, stays};

/// A machine that runs, with its claims.
async fn running(
    place: &ScenarioNamespace<'_>,
    name: &str,
) -> Result<(Vec<Nic>, BTreeMap<&'static str, Claimed>, Running)> {
    let nics = place.nics();
    place.create_machine(name, &nics).await?;
    let claims = place.claims_of(name, &nics).await?;
    let pod = place.runs(name, None).await?;
    has(&pod, &nics, &claims)?;
    place.owner_is(claims.values(), &pod.name).await?;
    Ok((nics, claims, pod))
}

/// A node that is not this one.
fn another_node<'p>(place: &'p ScenarioNamespace<'_>, node: &str) -> Result<&'p str> {
    let other =
        place.stage.cluster.nodes().map(tenure_testbed::cluster::Node::name).find(|name| *name != node);
    other.context("another node")
}

/// Name, owner, label, finalizer and interface of a machine's claims are those that KubeVirt's side expects.
pub async fn a_machines_claims_are_named_owned_labelled_and_finalized_as_kubevirt_expects(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let (nics, claims, _) = running(place, "web").await?;
    let machine = place.objects(Kind::Machine).get("web").await?;
    for nic in &nics {
        let claim = place.claims().get(&claims[nic.name].name).await?;
        ensure!(claim.name_any() == format!("web.{}", nic.name), "{claim:?}");
        ensure!(claim.finalizers() == ["kubevirt.io/persistent-ipam"], "{:?}", claim.finalizers());
        ensure!(claim.labels().get("kubevirt.io/vm").is_some_and(|it| it == "web"), "{:?}", claim.labels());
        let [owner] = claim.owner_references() else { anyhow::bail!("{:?}", claim.owner_references()) };
        ensure!(owner.kind == "VirtualMachine" && owner.api_version == "kubevirt.io/v1", "{owner:?}");
        ensure!(Some(&owner.uid) == machine.metadata.uid.as_ref() && owner.name == "web", "{owner:?}");
        ensure!(owner.controller == Some(true) && owner.block_owner_deletion == Some(true), "{owner:?}");
        ensure!(claim.spec.interface == nic.interface()?, "{:?}", claim.spec);
        let status = claim.status.context("a status")?;
        let told = status.condition("IPsAllocated").context("a condition")?;
        ensure!(told.message == "IP addresses successfully allocated", "{told:?}");
        ensure!(told.observed_generation == claim.metadata.generation, "{told:?}");
    }
    Ok(())
}

/// Restart, which deletes the pod and makes another.
pub async fn a_restarted_machine_keeps_its_addresses_and_its_claims_name_the_new_pod(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let (nics, claims, before) = running(place, "web").await?;
    place.is_active(&before, &nics).await.context("before")?;
    place.restart("web").await?;
    let after = place.runs("web", Some(&before)).await?;
    ensure!(after.uid != before.uid);
    has(&after, &nics, &claims)?;
    place.owner_is(claims.values(), &after.name).await?;
    place.is_active(&after, &nics).await?;
    ensure!(
        place.claims_of("web", &nics).await?.values().map(|it| &it.uid).eq(claims.values().map(|it| &it.uid))
    );
    Ok(())
}

/// Stop and start: on another node, and nobody else gets the addresses meanwhile.
pub async fn a_stopped_machine_keeps_its_addresses_and_starts_with_them_on_another_node(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let (nics, claims, before) = running(place, "web").await?;
    place.stop("web").await?;
    place.pod_is_gone(&before.name, &before.uid).await?;
    place.are_held(claims.values()).await?;
    let [shared, sliced] =
        place.family.networks().map(|name| format!("{}/{name}", tenure_tests::networks::NETS));
    let networks = json!({"k8s.v1.cni.cncf.io/networks": format!("{shared},{sliced}")});
    place.create_pod("stranger", &networks, Some(&before.node)).await?;
    let stranger = place.pod_runs("stranger").await?;
    let taken = claims.values().flat_map(|claim| &claim.addresses);
    let given: Vec<_> = stranger.interfaces.values().flatten().collect();
    ensure!(taken.clone().all(|address| !given.contains(&address)), "{stranger:?} has one of {claims:?}");
    for claim in claims.values() {
        let owner = place.claimed(&claim.name).await?.owner_pod;
        ensure!(owner.is_none(), "{} has {owner:?}, and nothing runs", claim.name);
    }
    let node = another_node(place, &before.node)?;
    place.start("web", Some(node)).await?;
    let after = place.runs("web", None).await?;
    ensure!(after.node == node);
    has(&after, &nics, &claims)?;
    place.owner_is(claims.values(), &after.name).await?;
    place.is_active(&after, &nics).await
}

/// Both pods have the addresses, and one is reached: first the source, then the target.
pub async fn a_live_migrated_machine_keeps_its_addresses_and_one_pod_at_a_time_is_reached(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let (nics, claims, source) = running(place, "web").await?;
    moves(place, &nics, &claims, source).await.map(drop)
}

/// The same for an instance that nobody made a machine for.
pub async fn a_bare_instance_keeps_its_addresses_over_a_live_migration_and_frees_them_at_its_end(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let nics = place.nics();
    place.create_instance("web", &nics).await?;
    let claims = place.claims_of("web", &nics).await?;
    let source = place.runs("web", None).await?;
    has(&source, &nics, &claims)?;
    let owners = place.claims().get(&claims["default"].name).await?.owner_references().to_vec();
    ensure!(owners.len() == 1 && owners[0].kind == "VirtualMachineInstance", "{owners:?}");
    moves(place, &nics, &claims, source).await?;
    place.delete(Kind::Instance, "web", PropagationPolicy::Background).await?;
    place.is_gone(Kind::Instance, "web").await?;
    place.are_freed(claims.values()).await
}

async fn moves(
    place: &ScenarioNamespace<'_>,
    nics: &[Nic],
    claims: &BTreeMap<&'static str, Claimed>,
    source: Running,
) -> Result<Running> {
    place.is_active(&source, nics).await.context("before the move")?;
    place.migrate("away", "web", true).await?;
    let target = target_of(place, "web", &source).await?;
    ensure!(target.node != source.node);
    has(&target, nics, claims)?;
    // The machine still runs where it was.
    place.is_active(&source, nics).await.context("while the target waits")?;
    place.owner_is(claims.values(), &source.name).await?;
    place.go_on("away").await?;
    let after = place.runs("web", Some(&source)).await?;
    ensure!(after.uid == target.uid);
    place.owner_is(claims.values(), &target.name).await?;
    place.is_active(&target, nics).await.context("after the move")?;
    eventually("the source has finished", async || {
        let pod = place.pods().get(&source.name).await?;
        Ok(pod.status.and_then(|status| status.phase).filter(|phase| phase == "Succeeded").map(drop))
    })
    .await?;
    // The pod that has finished stays there, as KubeVirt leaves it; a late DEL of it changes nothing.
    eventually("what the source had is taken away", async || {
        Ok(place.stage.multus.seen(&source.uid).ended.then_some(()))
    })
    .await?;
    place.is_active(&target, nics).await.context("after the end of the source")?;
    place.are_held(claims.values()).await?;
    Ok(target)
}

/// The pod of a migration that is held.
async fn target_of(place: &ScenarioNamespace<'_>, machine: &str, source: &Running) -> Result<Running> {
    let labels = kube::api::ListParams::default()
        .labels(&format!("vm.kubevirt.io/name={machine},kubevirt.io/migrationJobUID"));
    let name = eventually("there is a target", async || {
        let pods = place.pods().list(&labels).await?;
        Ok(pods.items.iter().map(ResourceExt::name_any).find(|name| *name != source.name))
    })
    .await?;
    place.pod_runs(&name).await
}

pub async fn an_aborted_migration_leaves_everything_with_the_source(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let (nics, claims, source) = running(place, "web").await?;
    place.migrate("away", "web", true).await?;
    let target = target_of(place, "web", &source).await?;
    has(&target, &nics, &claims)?;
    place.delete(Kind::Migration, "away", PropagationPolicy::Background).await?;
    place.pod_is_gone(&target.name, &target.uid).await?;
    place.owner_is(claims.values(), &source.name).await?;
    place.is_active(&source, &nics).await.context("after the move was taken back")?;
    place.are_held(claims.values()).await?;
    // And the next one works.
    place.migrate("again", "web", false).await?;
    let after = place.runs("web", Some(&source)).await?;
    has(&after, &nics, &claims)?;
    place.owner_is(claims.values(), &after.name).await?;
    place.is_active(&after, &nics).await
}

/// Deletes a machine and sees that nothing of it is left.
async fn goes(place: &ScenarioNamespace<'_>, stopped: bool, policy: PropagationPolicy) -> Result<()> {
    let (nics, claims, pod) = running(place, "web").await?;
    if stopped {
        place.stop("web").await?;
        place.pod_is_gone(&pod.name, &pod.uid).await?;
        place.are_held(claims.values()).await?;
    }
    place.delete(Kind::Machine, "web", policy).await?;
    place.is_gone(Kind::Machine, "web").await?;
    place.are_freed(claims.values()).await?;
    let left = place.claims().list(&kube::api::ListParams::default()).await?;
    ensure!(left.items.is_empty(), "{:?}", left.items);
    // A machine of the same name is another one.
    place.create_machine("web", &nics).await?;
    let anew = place.claims_of("web", &nics).await?;
    ensure!(anew.values().all(|claim| claims.values().all(|before| before.uid != claim.uid)));
    Ok(())
}

pub async fn a_running_machine_deleted_in_the_background_frees_its_addresses(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    goes(place, false, PropagationPolicy::Background).await
}

pub async fn a_running_machine_deleted_in_the_foreground_frees_its_addresses(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    goes(place, false, PropagationPolicy::Foreground).await
}

pub async fn a_stopped_machine_deleted_in_the_background_frees_its_addresses(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    goes(place, true, PropagationPolicy::Background).await
}

pub async fn a_stopped_machine_deleted_in_the_foreground_frees_its_addresses(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    goes(place, true, PropagationPolicy::Foreground).await
}

/// The foreground deletion wants the claims gone first; the instance is kept by somebody else meanwhile.
pub async fn a_foreground_deletion_keeps_the_claims_until_an_instance_with_another_finalizer_is_gone(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let (_, claims, pod) = running(place, "web").await?;
    let finalizers = |all: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    let instances = place.objects(Kind::Instance);
    let both = finalizers(&["foregroundDeleteVirtualMachine", "test/kept"]);
    instances.patch("web", &PatchParams::default(), &both).await?;
    place.delete(Kind::Machine, "web", PropagationPolicy::Foreground).await?;
    place.pod_is_gone(&pod.name, &pod.uid).await?;
    eventually("the claims are being deleted", async || {
        for claim in claims.values() {
            let deleting = place.claims().get(&claim.name).await?.metadata.deletion_timestamp;
            deleting.with_context(|| format!("{} is not", claim.name))?;
        }
        Ok(Some(()))
    })
    .await?;
    stays("the claims are held", Duration::from_secs(5), async || {
        place.are_held(claims.values()).await?;
        Ok(place.claims().list(&kube::api::ListParams::default()).await?.items.len())
    })
    .await?;
    instances.patch("web", &PatchParams::default(), &finalizers(&[])).await?;
    place.is_gone(Kind::Machine, "web").await?;
    place.are_freed(claims.values()).await
}
