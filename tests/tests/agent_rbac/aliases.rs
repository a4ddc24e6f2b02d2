//! Alias addresses: an agent says what its own node wants, and never what any node has.

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases, NodeAliasesSpec};
use tenure_api::crd_of;
use tenure_testbed::wait::eventually;

use crate::bed::{Bed, refused};

fn of(node: &str) -> NodeAliases {
    NodeAliases::new(
        node,
        NodeAliasesSpec { pool: "live".to_owned(), wanted: 3, ..NodeAliasesSpec::default() },
    )
}

fn wants(count: i32) -> Patch<Value> {
    Patch::Merge(json!({"spec": {"wanted": count}}))
}

#[tokio::test]
async fn an_agent_says_what_its_own_node_wants_and_never_what_it_has() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (defaults, patching, deleting) =
        (PostParams::default(), PatchParams::default(), DeleteParams::default());
    let kinds: Api<CustomResourceDefinition> = Api::all(bed.admin.clone());
    for definition in [crd_of::<AliasPool>(), crd_of::<IPLedger>(), crd_of::<NodeAliases>()] {
        match kinds.create(&defaults, &definition).await {
            // It came with everything else.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made?),
        }
    }
    let admin: Api<NodeAliases> = Api::all(bed.admin.clone());
    eventually("the kind to be served", async || Ok(admin.list(&ListParams::default()).await.ok())).await?;
    admin.create(&defaults, &of("node-2")).await?;
    let agent = bed.agent_of("node-1").await?;
    let own: Api<NodeAliases> = Api::all(agent.clone());

    own.create(&defaults, &of("node-1")).await?;
    own.patch("node-1", &patching, &wants(4)).await?;
    let said = refused("another's", own.patch("node-2", &patching, &wants(0)).await)?;
    ensure!(
        said.contains(r#"the agent of node "node-1" writes only the spec of "node-1", not "node-2""#),
        "{said}"
    );
    refused("one of another", own.create(&defaults, &of("node-3")).await)?;
    refused("its end", own.delete("node-1", &deleting).await)?;
    let has =
        Patch::Merge(json!({"status": {"aliases": {"10.111.0.9/32": {"grant": "mine", "attached": true}}}}));
    refused("its status", own.patch_status("node-1", &patching, &has).await)?;
    own.patch("node-1", &patching, &has).await?;
    ensure!(admin.get("node-1").await?.status.is_none(), "the status was written beside the spec");
    let held_back = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/mine"]}}));
    let said = refused("a finalizer", own.patch("node-1", &patching, &held_back).await)?;
    ensure!(said.contains("neither owners nor finalizers"), "{said}");

    ensure!(Api::<AliasPool>::all(agent.clone()).list(&ListParams::default()).await?.items.is_empty());
    refused("the records", Api::<IPLedger>::all(agent).list(&ListParams::default()).await)?;
    Ok(())
}
