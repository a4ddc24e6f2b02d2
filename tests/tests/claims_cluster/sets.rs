//! `StatefulSet`s whose pods keep their addresses.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};
use tenure_testbed::wait::eventually;

use crate::looks::Claimed;
use crate::place::{Running, ScenarioNamespace, pod_spec};
use tenure_tests::networks::NETS;

fn sets(place: &ScenarioNamespace<'_>) -> Api<StatefulSet> {
    Api::namespaced(place.stage.client.clone(), &place.namespace)
}

/// A set of two pods with an own network and two additional ones.
async fn create(place: &ScenarioNamespace<'_>, policy: Value) -> Result<()> {
    let networks: Vec<String> = place.family.networks().iter().map(|name| format!("{NETS}/{name}")).collect();
    let annotations =
        json!({"tenure/keep-addresses": "true", "k8s.v1.cni.cncf.io/networks": networks.join(",")});
    let mut spec = pod_spec(None, "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done");
    spec["restartPolicy"] = json!("Always");
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 2, "podManagementPolicy": "Parallel", "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}}, "persistentVolumeClaimRetentionPolicy": policy,
            "template": {"metadata": {"labels": {"app": "db"}, "annotations": annotations}, "spec": spec},
        },
    });
    sets(place).create(&PostParams::default(), &serde_json::from_value(set)?).await?;
    Ok(())
}

async fn change(place: &ScenarioNamespace<'_>, change: Value) -> Result<()> {
    sets(place).patch("db", &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

/// The claims of a pod, by the order of its interfaces.
async fn claims_of(place: &ScenarioNamespace<'_>, pod: &str) -> Result<Vec<Claimed>> {
    let [shared, sliced] = place.family.networks();
    let mut all = Vec::new();
    for (network, interface) in [("tenure", "eth0"), (shared, "net1"), (sliced, "net2")] {
        all.push(place.claimed(&format!("{pod}.{network}.{interface}")).await?);
    }
    Ok(all)
}

fn has(pod: &Running, claims: &[Claimed]) -> Result<()> {
    for (claim, interface) in claims.iter().zip(["eth0", "net1", "net2"]) {
        ensure!(pod.interfaces[interface] == claim.addresses, "{pod:?} and not {claim:?}");
    }
    Ok(())
}

pub async fn a_stateful_sets_pod_keeps_its_addresses_on_whichever_node_it_runs_next(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    create(place, json!({"whenScaled": "Retain", "whenDeleted": "Retain"})).await?;
    let claims = [claims_of(place, "db-0").await?, claims_of(place, "db-1").await?];
    let mut pods = Vec::new();
    for (name, claims) in ["db-0", "db-1"].into_iter().zip(&claims) {
        let pod = place.pod_runs(name).await?;
        has(&pod, claims)?;
        place.owner_is(claims, name).await?;
        pods.push(pod);
    }
    let other =
        place.stage.cluster.nodes().map(tenure_testbed::cluster::Node::name).find(|it| *it != pods[0].node);
    let selector = json!({"kubernetes.io/hostname": other});
    change(place, json!({"spec": {"template": {"spec": {"nodeSelector": selector}}}})).await?;
    let moved = eventually("db-0 runs on another node", async || {
        Ok(place.running("db-0").await?.filter(|now| now.uid != pods[0].uid))
    })
    .await?;
    ensure!(Some(moved.node.as_str()) == other, "{moved:?}");
    has(&moved, &claims[0])?;
    place.is_delivered_at(&claims[0][0].addresses, &moved.node).await
}

pub async fn a_stateful_set_that_shrinks_keeps_or_frees_addresses_as_its_retention_policy_says(
    place: &ScenarioNamespace<'_>,
) -> Result<()> {
    create(place, json!({"whenScaled": "Retain", "whenDeleted": "Delete"})).await?;
    let (first, second) = (claims_of(place, "db-0").await?, claims_of(place, "db-1").await?);
    let pod = place.pod_runs("db-1").await?;
    has(&pod, &second)?;
    change(place, json!({"spec": {"replicas": 1}})).await?;
    place.pod_is_gone("db-1", &pod.uid).await?;
    place.are_held(&second).await?;
    // The same ones again.
    change(place, json!({"spec": {"replicas": 2}})).await?;
    let again = eventually("db-1 runs again", async || {
        Ok(place.running("db-1").await?.filter(|now| now.uid != pod.uid))
    })
    .await?;
    has(&again, &second)?;
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
    change(place, json!({"spec": {"replicas": 1, "persistentVolumeClaimRetentionPolicy": policy}})).await?;
    place.are_freed(&second).await?;
    place.are_held(&first).await?;
    // With the set, what is left of it goes.
    let background =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    sets(place).delete("db", &background).await?;
    place.are_freed(&first).await
}
