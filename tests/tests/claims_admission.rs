//! Who may say what a claim has, on the real kube-apiserver with `deploy/` as it is applied. Needs etcd and kube-apiserver.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::PATIENCE;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

async fn make<K>(api: Api<K>, object: Value) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + serde::Serialize,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// A client of a service account.
async fn client_of(plane: &ControlPlane, namespace: &str, account: &str) -> Result<Client> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client()?, namespace);
    if accounts.get_opt(account).await?.is_none() {
        make(accounts.clone(), json!({"metadata": {"name": account}})).await?;
    }
    let asked: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let granted = accounts.create_token_request(account, &PostParams::default(), &asked).await?;
    Ok(plane.client_with_token(&granted.status.context("a token")?.token)?)
}

fn status(ip: &str) -> Patch<Value> {
    Patch::Merge(json!({"status": {"ips": [ip], "conditions": [{
        "type": "Held", "status": "True", "reason": "Recorded", "message": "made up",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}}))
}

fn annotations(all: &Value) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": all}}))
}

fn refused<T: Debug>(what: &str, outcome: kube::Result<T>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(it)) if it.message.contains("are written by whoever gives the addresses") => {
            Ok(())
        }
        other => bail!("{what} was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn only_who_gives_addresses_may_write_what_a_claim_has_and_who_has_it() -> Result<()> {
    let plane = ControlPlane::start(ControlPlaneOptions::default().without_controller_manager()).await?;
    let admin = plane.client()?;
    plane.kubectl(&["apply", "-k", DEPLOY]).await?;
    let kind = serde_json::to_value(tenure_api::claims::crd())?;
    make::<CustomResourceDefinition>(Api::all(admin.clone()), kind).await?;
    plane.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=300s"]).await?;
    // A tenant who may do anything in his own namespace, and an IPAM controller of somebody else's, as docs/claims.md has it.
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let ns = |name: &str| json!({"name": name, "namespace": "default"});
    make::<Role>(Api::default_namespaced(admin.clone()), json!({"metadata": ns("tenant"), "rules": rules}))
        .await?;
    let tenant = client_of(&plane, "default", "tenant").await?;
    let subject = |name: &str| json!([{"kind": "ServiceAccount", "name": name, "namespace": "default"}]);
    let role =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let binding =
        json!({"metadata": ns("tenant"), "roleRef": role("Role", "tenant"), "subjects": subject("tenant")});
    make::<RoleBinding>(Api::default_namespaced(admin.clone()), binding).await?;
    let other = client_of(&plane, "default", "other-ipam").await?;
    let rules = json!([
        {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["ipamclaims", "ipamclaims/status"],
         "verbs": ["get", "list", "watch", "patch", "update", "hold"]},
    ]);
    make::<ClusterRole>(Api::all(admin.clone()), json!({"metadata": {"name": "other"}, "rules": rules}))
        .await?;
    let binding = json!({
        "metadata": {"name": "other"}, "roleRef": role("ClusterRole", "other"), "subjects": subject("other-ipam"),
    });
    make::<ClusterRoleBinding>(Api::all(admin.clone()), binding).await?;

    let claims = |client: &Client| Api::<IPAMClaim>::namespaced(client.clone(), "default");
    let (of_tenant, patching) = (claims(&tenant), PatchParams::default());
    let spec = json!({"network": "blue", "interface": "net1"});
    // As KubeVirt's ipam-extensions makes them: labels, an owner, a finalizer. What a creation says of a status is dropped.
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "1"}]);
    let metadata = json!({
        "name": "vm.blue", "labels": {"kubevirt.io/vm": "vm"}, "ownerReferences": owner,
        "finalizers": ["kubevirt.io/persistent-ipam"], "annotations": {"tenure/ips": "10.0.0.7"},
    });
    make(of_tenant.clone(), json!({"metadata": metadata, "spec": spec, "status": {"ips": ["10.0.0.1/24"]}}))
        .await?;
    // The policy begins to hold a moment after it was applied.
    let start = SystemClock.now();
    let holders = json!({"tenure/holders": "{}"});
    while of_tenant.patch("vm.blue", &patching, &annotations(&holders)).await.is_ok() {
        ensure!(SystemClock.now().since(start) < PATIENCE, "the policy does not hold");
        tokio::time::sleep(Duration::from_millis(200)).await;
        claims(&admin).patch("vm.blue", &patching, &annotations(&json!({"tenure/holders": null}))).await?;
    }
    refused("holders", of_tenant.patch("vm.blue", &patching, &annotations(&holders)).await)?;
    refused("a status", of_tenant.patch_status("vm.blue", &patching, &status("10.0.0.1/24")).await)?;
    let born = json!({"metadata": {"name": "born", "annotations": holders}, "spec": spec});
    let born: IPAMClaim = serde_json::from_value(born)?;
    refused("a claim with holders", of_tenant.create(&PostParams::default(), &born).await)?;
    // What is his he may change, also after the claim has its addresses.
    for giver in [claims(&other), claims(&admin)] {
        giver.patch_status("vm.blue", &patching, &status("10.0.0.7/24")).await?;
        giver.patch("vm.blue", &patching, &annotations(&json!({"tenure/holders": "{\"number\":1}"}))).await?;
    }
    of_tenant.patch("vm.blue", &patching, &annotations(&json!({"tenure/ips": null, "mine": "yes"}))).await?;
    let gone = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    of_tenant.patch("vm.blue", &patching, &gone).await?;
    refused(
        "no holders",
        of_tenant.patch("vm.blue", &patching, &annotations(&json!({"tenure/holders": null}))).await,
    )?;
    refused("another status", of_tenant.patch_status("vm.blue", &patching, &status("10.0.0.1/24")).await)?;
    // The controller, by the role that it is installed with.
    let controller = claims(&client_of(&plane, "kube-system", "tenure-controller").await?);
    controller.patch_status("vm.blue", &patching, &status("10.0.0.8/24")).await?;
    controller.patch("vm.blue", &patching, &annotations(&json!({"tenure/holders": "{}"}))).await?;
    Ok(())
}
