//! What goes wrong with KubeVirt's ipam-extensions, each under the name of what happens instead.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_testbed::wait::eventually;

use crate::kubevirt::kinds::{Kind, Nic, devices};
use crate::looks::has;
use crate::place::ScenarioNamespace;
use tenure_tests::networks::NETS;

/// A range of the place's own network, on the wire of another.
fn network(name: &str, subnet: u8, opt_in: &Value) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "lan4", "mode": "bridge",
        "allowPersistentIPs": opt_in, "ipam": {"type": "whereabouts", "range": format!("10.120.{subnet}.0/24")},
    })
}

async fn define(place: &ScenarioNamespace<'_>, name: &str, config: &str) -> Result<()> {
    let api: Api<NetworkAttachmentDefinition> = Api::namespaced(place.stage.client.clone(), &place.namespace);
    if api.get_opt(name).await?.is_some() {
        api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"config": config}}))).await?;
        return Ok(());
    }
    let object = json!({"metadata": {"name": name}, "spec": {"config": config}});
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Defect (a): a definition that cannot be read is taken for one that does not opt in.
pub async fn a_definition_that_cannot_be_read_never_lets_a_machine_start_without_its_claim(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    define(place, "own", &network("own-unreadable", 1, &json!("yes")).to_string()).await?;
    let nics = [Nic::on("red", "own")];
    place.create_machine("web", &nics).await?;
    let pods = kube::api::ListParams::default();
    let pod = eventually("there is a launcher", async || {
        Ok(place.pods().list(&pods).await?.items.into_iter().find_map(|pod| pod.metadata.name))
    })
    .await?;
    place.is_refused(&pod, &["allowPersistentIPs", "yes"]).await?;
    ensure!(place.running(&pod).await?.is_none(), "it runs without a claim");
    ensure!(place.claims().get_opt("web.red").await?.is_none());
    // As soon as it can be read, the same pod gets what it was to have.
    define(place, "own", &network("own-unreadable", 1, &json!(true)).to_string()).await?;
    let claims = place.claims_of("web", &nics).await?;
    let pod = place.runs("web", None).await?;
    has(&pod, &nics, &claims)
}

/// The same, of one that comes later than the machine.
pub async fn a_definition_that_comes_late_never_lets_a_machine_start_without_its_claim(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let nics = [Nic::on("red", "own")];
    place.create_machine("web", &nics).await?;
    let pods = kube::api::ListParams::default();
    let pod = eventually("there is a launcher", async || {
        Ok(place.pods().list(&pods).await?.items.into_iter().find_map(|pod| pod.metadata.name))
    })
    .await?;
    place.is_refused(&pod, &["own"]).await?;
    define(place, "own", &network("own-late", 2, &json!(true)).to_string()).await?;
    let claims = place.claims_of("web", &nics).await?;
    let pod = place.runs("web", None).await?;
    has(&pod, &nics, &claims)
}

/// Defect (b): two interfaces on one definition get the same claim.
pub async fn two_interfaces_on_one_network_are_two_claims(place: &ScenarioNamespace<'_>) -> Result<()> {
    let [shared, sliced] = place.family.networks().map(|name| format!("{NETS}/{name}"));
    let nics = [Nic::on("red", &shared), Nic::on("green", &shared), Nic::on("blue", &sliced)];
    place.create_machine("web", &nics).await?;
    let claims = place.claims_of("web", &nics).await?;
    let before = place.runs("web", None).await?;
    has(&before, &nics, &claims)?;
    ensure!(claims["red"].addresses.is_disjoint(&claims["green"].addresses), "{claims:?}");
    place.restart("web").await?;
    let after = place.runs("web", Some(&before)).await?;
    has(&after, &nics, &claims)
}

/// Defect (c): an interface that is unplugged keeps its address until the machine is deleted. Here the claim goes at once and
/// the address with the pod that had it: its annotations alone do not prove that it uses the address no more.
pub async fn hot_unplug_deletes_the_claim_and_hot_plug_makes_one(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let [shared, sliced] = place.family.networks().map(|name| format!("{NETS}/{name}"));
    let (red, green) = (Nic::on("red", &shared), Nic::on("green", &sliced));
    let first = [Nic::of_pods(), red.clone()];
    place.create_machine("web", &first).await?;
    let claims = place.claims_of("web", &first).await?;
    let pod = place.runs("web", None).await?;
    has(&pod, &first, &claims)?;

    let both = [Nic::of_pods(), red, green.clone()];
    let template = |devices: &Value| json!({"spec": {"template": {"spec": devices}}});
    place.change_machine("web", template(&devices(&both))).await?;
    let plugged = place.claims_of("web", &both).await?;
    let with_both = eventually("the machine has what was plugged in", async || {
        Ok(place.running(&pod.name).await?.filter(|now| now.interfaces.len() == 3))
    })
    .await?;
    ensure!(with_both.uid == pod.uid, "the pod was made again");
    has(&with_both, &both, &plugged)?;

    let mut absent = devices(&both);
    absent["domain"]["devices"]["interfaces"][1]["state"] = json!("absent");
    place.change_machine("web", template(&absent)).await?;
    let after = eventually("the machine has lost what was unplugged", async || {
        Ok(place.running(&pod.name).await?.filter(|now| now.interfaces.len() == 2))
    })
    .await?;
    ensure!(after.uid == pod.uid, "the pod was made again");
    let left = [Nic::of_pods(), green];
    has(&after, &left, &plugged)?;
    eventually("the machine's list is without it", async || {
        let machine = place.objects(Kind::Machine).get("web").await?;
        let networks =
            machine.data["spec"]["template"]["spec"]["networks"].as_array().context("networks")?.len();
        Ok((networks == 2).then_some(()))
    })
    .await?;
    place.claims_of("web", &left).await?;
    eventually("the claim of what was unplugged is gone", async || {
        Ok(place.claims().get_opt("web.red").await?.is_none().then_some(()))
    })
    .await?;
    place.stop("web").await?;
    place.are_freed([&claims["red"]]).await?;
    ensure!(place.claims().get_opt("web.red").await?.is_none(), "it was made again");
    Ok(())
}

/// Defect (d): a pod that is there before its claim gets an address of its own, or none ever.
pub async fn a_pod_that_comes_before_its_claim_waits_for_it(place: &ScenarioNamespace<'_>) -> Result<()> {
    let [shared, sliced] = place.family.networks();
    let networks = json!([
        {"name": shared, "namespace": NETS, "ipam-claim-reference": "late-shared"},
        {"name": sliced, "namespace": NETS, "ipam-claim-reference": "late-sliced"},
    ]);
    let annotations =
        json!({"tenure/claim": "late-own", "k8s.v1.cni.cncf.io/networks": networks.to_string()});
    place.create_pod("early", &annotations, None).await?;
    place.is_kept_waiting("early", &["late-own"]).await?;
    place.create_claim("late-own", crate::stage::CLUSTER_NETWORK, &json!({})).await?;
    place.is_refused("early", &["late-shared"]).await?;
    place.create_claim("late-shared", shared, &json!({})).await?;
    place.is_refused("early", &["late-sliced"]).await?;
    place.create_claim("late-sliced", sliced, &json!({})).await?;
    let pod = place.pod_runs("early").await?;
    for (claim, interface) in [("late-own", "eth0"), ("late-shared", "net1"), ("late-sliced", "net2")] {
        let claim = place.claimed(claim).await?;
        ensure!(pod.interfaces[interface] == claim.addresses, "{pod:?} and not {claim:?}");
        place.owner_is([&claim], "early").await?;
    }
    Ok(())
}
