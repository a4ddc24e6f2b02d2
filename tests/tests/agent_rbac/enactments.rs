//! Enactments of node addresses: an agent says what its own node did, and neither which address it has nor anything of others.

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::nmstate::{
    NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy, definitions,
};
use tenure_testbed::wait::eventually;

use crate::bed::{Bed, refused};

fn enactment(node: &str) -> Result<NodeNetworkConfigurationEnactment> {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": "11111111-2222-3333-4444-555555555555"});
    Ok(serde_json::from_value(json!({
        "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment",
        "metadata": {
            "name": format!("{node}.static-ip"), "ownerReferences": [owner], "finalizers": ["tenure/node-addresses"],
            "labels": {"nmstate.io/node": node, "nmstate.io/policy": "static-ip"},
        },
    }))?)
}

fn status(status: &Value) -> Patch<Value> {
    Patch::Merge(json!({ "status": status }))
}

#[tokio::test]
async fn an_agent_writes_what_its_own_node_did_and_never_an_address() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (defaults, patching, deleting) =
        (PostParams::default(), PatchParams::default(), DeleteParams::default());
    let kinds: Api<CustomResourceDefinition> = Api::all(bed.admin.clone());
    for definition in definitions() {
        kinds.create(&defaults, &definition).await?;
    }
    let admin: Api<NodeNetworkConfigurationEnactment> = Api::all(bed.admin.clone());
    eventually("the kind to be served", async || Ok(admin.list(&ListParams::default()).await.ok())).await?;
    for node in ["node-1", "node-2"] {
        admin.create(&defaults, &enactment(node)?).await?;
        let record = json!({"ippool": {"p": {"allocated": ["10.0.0.1"]}}, "policyGeneration": 1});
        admin.patch_status(&format!("{node}.static-ip"), &patching, &status(&record)).await?;
    }
    let agent = bed.agent_of("node-1").await?;
    let own: Api<NodeNetworkConfigurationEnactment> = Api::all(agent.clone());
    ensure!(own.list(&ListParams::default().labels("nmstate.io/node=node-1")).await?.items.len() == 1);
    let did = json!({"applied": {"policyGeneration": 1, "mode": "kernel", "addresses": [{"interface": "eth1", "address": "10.0.0.1/24"}]}});
    own.patch_status("node-1.static-ip", &patching, &status(&did)).await?;

    let said = refused("another's", own.patch_status("node-2.static-ip", &patching, &status(&did)).await)?;
    ensure!(said.contains(r#"the agent of node "node-1" changes only the status of its own"#), "{said}");
    for (what, change) in [
        ("another address", json!({"ippool": {"p": {"allocated": ["10.0.0.2"]}}})),
        ("an address of another pool", json!({"ippool": {"q": {"allocated": ["10.1.0.2"]}}})),
        ("a captured value", json!({"capturedStates": {"x": {"ip": "10.0.0.2", "prefix-length": 24}}})),
        ("its turn", json!({"policyGeneration": 2})),
    ] {
        let said = refused(what, own.patch_status("node-1.static-ip", &patching, &status(&change)).await)?;
        ensure!(said.contains("only the controller changes ippool"), "{what}: {said}");
    }
    let released = json!({"applied": {"addresses": [], "released": true}});
    let said =
        refused("a release", own.patch_status("node-1.static-ip", &patching, &status(&released)).await)?;
    ensure!(said.contains("is accepted only while it is being deleted"), "{said}");
    let metadata = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    refused("its finalizers", own.patch("node-1.static-ip", &patching, &metadata).await)?;
    refused("its deletion", own.delete("node-1.static-ip", &deleting).await)?;
    refused("one of its own making", own.create(&defaults, &enactment("node-1")?).await)?;

    // While it is being deleted, the node says once that nothing is left.
    admin.delete("node-1.static-ip", &deleting).await?;
    own.patch_status("node-1.static-ip", &patching, &status(&released)).await?;
    let back = json!({"applied": {"released": false}});
    refused("taking it back", own.patch_status("node-1.static-ip", &patching, &status(&back)).await)?;
    ensure!(admin.get("node-1.static-ip").await?.finalizers().len() == 1);

    // Pools it does not see, and policies it reads one at a time.
    refused("pools", Api::<NodeIPPool>::all(agent.clone()).list(&ListParams::default()).await)?;
    let policies: Api<NodeNetworkConfigurationPolicy> = Api::all(agent);
    refused("all policies", policies.list(&ListParams::default()).await)?;
    ensure!(policies.get_opt("static-ip").await?.is_none());
    Ok(())
}
