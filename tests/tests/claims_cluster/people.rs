//! Claims that people make, and what OVN-Kubernetes is weak at: each under the name of what happens instead.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tenure_testbed::wait::eventually;

use crate::looks::{Claimed, condition};
use crate::place::{Running, ScenarioNamespace, stays};
use crate::stage::CLUSTER_NETWORK;
use tenure_tests::networks::NETS;

/// The interfaces of a pod that uses [`three`] claims.
const INTERFACES: [&str; 3] = ["eth0", "net1", "net2"];

/// Claims for a pod's own network, and for two additional ones.
async fn three(place: &ScenarioNamespace<'_>, name: &str) -> Result<[Claimed; 3]> {
    let [shared, sliced] = place.family.networks();
    let names = [format!("{name}-own"), format!("{name}-shared"), format!("{name}-sliced")];
    for (name, network) in names.iter().zip([CLUSTER_NETWORK, shared, sliced]) {
        place.create_claim(name, network, &json!({})).await?;
    }
    let [own, of_shared, of_sliced] = names;
    Ok([place.claimed(&own).await?, place.claimed(&of_shared).await?, place.claimed(&of_sliced).await?])
}

/// Annotations of a pod that uses them.
fn uses(place: &ScenarioNamespace<'_>, name: &str) -> Value {
    let [shared, sliced] = place.family.networks();
    let networks = json!([
        {"name": shared, "namespace": NETS, "ipam-claim-reference": format!("{name}-shared")},
        {"name": sliced, "namespace": NETS, "ipam-claim-reference": format!("{name}-sliced")},
    ]);
    json!({"tenure/claim": format!("{name}-own"), "k8s.v1.cni.cncf.io/networks": networks.to_string()})
}

fn has(pod: &Running, claims: &[Claimed; 3]) -> Result<()> {
    for (claim, interface) in claims.iter().zip(INTERFACES) {
        ensure!(pod.interfaces[interface] == claim.addresses, "{pod:?} and not {claim:?}");
    }
    Ok(())
}

/// A reservation. The pods may be on any node, and the attachment definitions in another namespace than pods and claims.
pub async fn a_claim_that_nobody_owns_stays_and_serves_one_pod_after_the_other_on_any_node(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let claims = three(place, "kept").await?;
    for node in place.stage.cluster.nodes().map(tenure_testbed::cluster::Node::name) {
        let name = format!("on-{node}");
        place.create_pod(&name, &uses(place, "kept"), Some(node)).await?;
        let pod = place.pod_runs(&name).await?;
        has(&pod, &claims)?;
        place.owner_is(&claims, &name).await?;
        place.is_delivered_at(&claims[0].addresses, node).await?;
        place.delete_pod(&name).await?;
    }
    place.are_held(&claims).await?;
    for claim in &claims {
        let finalizers = place.claims().get(&claim.name).await?.finalizers().to_vec();
        ensure!(finalizers.is_empty(), "{finalizers:?} would keep it after we are gone");
        place.claims().delete(&claim.name, &DeleteParams::default()).await?;
    }
    place.are_freed(&claims).await
}

/// There a pod that has completed releases, or blocks its claim.
pub async fn a_pod_that_has_completed_keeps_nothing_and_the_next_one_gets_the_claims(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let claims = three(place, "kept").await?;
    place.create_pod("first", &uses(place, "kept"), None).await?;
    has(&place.pod_runs("first").await?, &claims)?;
    let done = ["exec", "-n", &place.namespace, "first", "--", "touch", "/tmp/done"];
    place.stage.cluster.kubectl(&done).await?;
    eventually("the pod has completed", async || {
        let phase = place.pods().get("first").await?.status.and_then(|status| status.phase);
        Ok(phase.filter(|phase| phase == "Succeeded").map(drop))
    })
    .await?;
    place.are_held(&claims).await?;
    place.create_pod("second", &uses(place, "kept"), None).await?;
    let second = place.pod_runs("second").await?;
    has(&second, &claims)?;
    place.owner_is(&claims, "second").await?;
    // The first one is deleted long after: its late end is not the second one's.
    place.delete_pod("first").await?;
    place.owner_is(&claims, "second").await?;
    place.is_delivered_at(&claims[0].addresses, &second.node).await
}

/// There the addresses are released when the claim is not found.
pub async fn a_claim_deleted_while_a_pod_uses_it_keeps_the_addresses_until_the_pod_is_gone(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let claims = three(place, "kept").await?;
    place.create_pod("user", &uses(place, "kept"), None).await?;
    let pod = place.pod_runs("user").await?;
    has(&pod, &claims)?;
    for claim in &claims {
        place.claims().delete(&claim.name, &DeleteParams::default()).await?;
    }
    stays("the addresses stay the pod's", Duration::from_secs(6), async || place.are_held(&claims).await)
        .await?;
    place.is_delivered_at(&claims[0].addresses, &pod.node).await?;
    // One of the same name is another one: it gets others.
    let anew = three(place, "kept").await?;
    for (anew, before) in anew.iter().zip(&claims) {
        ensure!(
            anew.uid != before.uid && anew.addresses.is_disjoint(&before.addresses),
            "{anew:?}, {before:?}"
        );
    }
    place.delete_pod("user").await?;
    place.are_freed(&claims).await?;
    place.are_held(&anew).await
}

/// There the namespace of the attachment definition counts.
pub async fn a_pod_never_gets_a_claim_of_another_namespace(place: &ScenarioNamespace<'_>) -> Result<()> {
    let other =
        ScenarioNamespace::make(place.stage, format!("{}-other", place.namespace), place.family).await?;
    // Where the pod is, and where the definition is, there are claims of that name or not.
    let claims = three(&other, "theirs").await?;
    place.create_pod("thief", &uses(place, "theirs"), None).await?;
    place.is_kept_waiting("thief", &["theirs-own"]).await?;
    place.create_claim("theirs-own", CLUSTER_NETWORK, &json!({})).await?;
    place.is_refused("thief", &["theirs-shared"]).await?;
    let own = place.claimed("theirs-own").await?;
    ensure!(own.addresses.is_disjoint(&claims[0].addresses));
    let pod = place.pods().get("thief").await?;
    let has = pod.status.and_then(|status| status.pod_ips).unwrap_or_default();
    ensure!(
        !has.is_empty() && has.iter().all(|ip| ip.ip.parse().is_ok_and(|ip| own.addresses.contains(&ip))),
        "{has:?}"
    );
    for claim in &claims {
        ensure!(other.claimed(&claim.name).await?.owner_pod.is_none());
    }
    Ok(())
}

/// There `ips` beside a claim are an error, or replace it.
pub async fn addresses_that_are_not_the_claims_are_refused_to_the_pod_and_those_that_are_are_not(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let [shared, _] = place.family.networks();
    let claim = place.create_claim("kept", shared, &json!({})).await.map(|claim| claim.name_any())?;
    let claim = place.claimed(&claim).await?;
    let other = place.create_claim("other", shared, &json!({})).await.map(|claim| claim.name_any())?;
    let other = place.claimed(&other).await?;
    let asks = |ips: &Claimed| {
        let ips: Vec<String> = ips.addresses.iter().map(ToString::to_string).collect();
        let element = json!({"name": shared, "namespace": NETS, "ipam-claim-reference": "kept", "ips": ips});
        json!({"k8s.v1.cni.cncf.io/networks": json!([element]).to_string()})
    };
    place.create_pod("wrong", &asks(&other), None).await?;
    let wrong = other.addresses.first().context("an address")?.to_string();
    place.is_refused("wrong", &["kept", &wrong]).await?;
    place.delete_pod("wrong").await?;
    place.create_pod("right", &asks(&claim), None).await?;
    let pod = place.pod_runs("right").await?;
    ensure!(pod.interfaces["net1"] == claim.addresses, "{pod:?} and not {claim:?}");
    Ok(())
}

/// The pod is refused, because no other address takes the place of the claim's, and the claim says why it has none.
pub async fn on_a_network_that_does_not_opt_in_a_pod_that_refers_to_a_claim_is_refused_and_the_claim_says_why(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    place.create_claim("futile", "not-so", &json!({})).await?;
    let element = json!({"name": "not-so", "namespace": NETS, "ipam-claim-reference": "futile"});
    place
        .create_pod("plain", &json!({"k8s.v1.cni.cncf.io/networks": json!([element]).to_string()}), None)
        .await?;
    place.is_refused("plain", &["futile", "not-so", "allowPersistentIPs"]).await?;
    eventually("the claim says why", async || {
        let claim = place.claims().get("futile").await?;
        let (status, reason, message) = condition(&claim);
        ensure!(status == "False" && reason == "PersistentIPsNotAllowed", "{status} {reason} {message}");
        ensure!(
            message.contains("not-so") && claim.status.is_some_and(|status| status.ips.is_empty()),
            "{message}"
        );
        Ok(Some(()))
    })
    .await
}

/// Two pods have a claim, and a third one is not let in; whoever moves them says which one is reached.
pub async fn any_other_mover_says_by_an_annotation_which_of_two_pods_is_reached(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    let claims = three(place, "kept").await?;
    let nodes: Vec<&str> = place.stage.cluster.nodes().map(tenure_testbed::cluster::Node::name).collect();
    let mut pods = Vec::new();
    for (name, node) in ["first", "second"].into_iter().zip(&nodes) {
        place.create_pod(name, &uses(place, "kept"), Some(node)).await?;
        let pod = place.pod_runs(name).await?;
        has(&pod, &claims)?;
        pods.push(pod);
    }
    place.is_delivered_at(&claims[0].addresses, nodes[0]).await?;
    place.create_pod("third", &uses(place, "kept"), Some(nodes[2])).await?;
    place.is_kept_waiting("third", &["kept-own"]).await?;
    let says = async |pod: &str, stamp: &str| -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"tenure/active": stamp}}}));
        place.pods().patch(pod, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    for (index, stamp) in [(1, "1"), (0, "2"), (1, "3")] {
        says(&pods[index].name, stamp).await?;
        place.owner_is(&claims, &pods[index].name).await?;
        place.is_delivered_at(&claims[0].addresses, &pods[index].node).await?;
        for (claim, (network, interface)) in
            claims[1..].iter().zip(place.family.networks().into_iter().zip(&INTERFACES[1..]))
        {
            place.answers_at(network, &claim.addresses, &pods[index].macs[*interface]).await?;
        }
    }
    // One that is not newer says nothing.
    says(&pods[0].name, "3").await?;
    stays("the active pod", Duration::from_secs(3), async || Ok(place.claimed("kept-own").await?.owner_pod))
        .await?;
    // Without any word, the other one follows when the active one goes, and the third comes in.
    place.delete_pod("second").await?;
    place.owner_is(&claims, "first").await?;
    place.is_delivered_at(&claims[0].addresses, nodes[0]).await?;
    let third = place.pod_runs("third").await?;
    has(&third, &claims)
}
