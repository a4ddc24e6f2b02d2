//! The rights of a node's agent on the real kube-apiserver, with `deploy/` as it is applied: all that it needs for its own
//! node, by the token that it has there, and nothing for any other. Needs etcd and kube-apiserver.

mod aliases;
mod attacks;
mod bed;
mod clients;
mod enactments;
mod everything;
mod viewers;

use anyhow::{Context as _, Result, bail, ensure};
use bed::{Bed, event, ledger, networks, only_finalizers, refused, request, taken};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, blocks_of_node, label};
use tenure_api::release::RELEASING;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};

#[tokio::test]
async fn an_agent_may_write_its_own_ledgers_and_those_that_all_nodes_share() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let agent = bed.agent_of("node-1").await?;
    let (defaults, patching, deleting) =
        (PostParams::default(), PatchParams::default(), DeleteParams::default());
    let slices: Api<NodeSlicePool> = Api::namespaced(agent.clone(), "kube-system");
    // Whose a slice is; a node does not list those of all nodes.
    ensure!(slices.get_opt("net").await?.is_none() && slices.get_metadata_opt("net").await?.is_none());
    refused("all slices", slices.list(&ListParams::default()).await)?;
    let ledgers: Api<IPPool> = Api::namespaced(agent.clone(), "kube-system");
    for (name, network) in [("node-1-10.9.0.0-26", None), ("blue-node-1-10.9.0.0-26", Some("blue"))] {
        let mut own = ledger(name, "10.9.0.0/26", Some("node-1"), Some("owned"))?;
        own.labels_mut()
            .extend(network.map(|it| ("whereabouts.cni.cncf.io/network".to_owned(), it.to_owned())));
        let made = ledgers.create(&defaults, &own).await?;
        let mut changed = made.clone();
        changed
            .spec
            .allocations
            .insert("1".into(), serde_json::from_value(json!({"id": "c", "podref": "ns/p"}))?);
        ledgers.replace(name, &defaults, &changed).await?;
        ledgers.delete(name, &deleting).await?;
    }
    // What Whereabouts left has no label; the node takes it over.
    let theirs: Api<IPPool> = Api::namespaced(bed.admin.clone(), "kube-system");
    theirs.create(&defaults, &ledger("node-1-10.9.0.64-26", "10.9.0.64/26", None, None)?).await?;
    let mine = Patch::Merge(json!({"metadata": {
        "labels": {"whereabouts.cni.cncf.io/node": "node-1"}, "annotations": {"whereabouts.cni.cncf.io/state": "owned"},
    }}));
    ledgers.patch("node-1-10.9.0.64-26", &patching, &mine).await?;

    // Shared by all nodes: both make, mark and fill it.
    ledgers.create(&defaults, &ledger("10.8.0.0-24", "10.8.0.0/24", None, Some("unique"))?).await?;
    ledgers.patch("10.8.0.0-24", &patching, &taken("1", "node-1")).await?;
    let other: Api<IPPool> = Api::namespaced(bed.agent_of("node-2").await?, "kube-system");
    other.patch("10.8.0.0-24", &patching, &taken("2", "node-2")).await?;
    let overlapping =
        Patch::Merge(json!({"metadata": {"annotations": {"whereabouts.cni.cncf.io/state": "overlapping"}}}));
    other.patch("10.8.0.0-24", &patching, &overlapping).await?;
    let reservations: Api<OverlappingRangeIPReservation> = Api::namespaced(agent.clone(), "kube-system");
    let of_node = json!({"name": "10.8.0.1", "annotations": {"tenure/node": "node-1"}});
    let reservation = serde_json::from_value(json!({"metadata": of_node, "spec": {"podref": "ns/p"}}))?;
    reservations.create(&defaults, &reservation).await?;
    reservations.list(&ListParams::default()).await?;
    reservations.delete("10.8.0.1", &deleting).await?;
    // A record's pod may be anywhere.
    ensure!(Api::<Pod>::namespaced(agent, "default").get_opt("p").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn an_agent_may_write_no_ledger_of_another_node_and_open_no_range_that_is_cut() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (defaults, patching, deleting) =
        (PostParams::default(), PatchParams::default(), DeleteParams::default());
    let admin: Api<IPPool> = Api::namespaced(bed.admin.clone(), "kube-system");
    for (name, range, node, state) in [
        ("node-2-10.9.0.0-26", "10.9.0.0/26", Some("node-2"), Some("owned")),
        // One whose node's name does not fit into a label.
        ("far-10.9.0.64-26", "10.9.0.64/26", None, Some("owned")),
        ("10.9.0.0-24", "10.9.0.0/24", None, Some("sliced")),
        ("10.8.0.0-24", "10.8.0.0/24", None, Some("unique")),
    ] {
        admin.create(&defaults, &ledger(name, range, node, state)?).await?;
    }
    let agent: Api<IPPool> = Api::namespaced(bed.agent_of("node-1").await?, "kube-system");
    let said = refused(
        "another's ledger",
        agent.patch("node-2-10.9.0.0-26", &patching, &taken("1", "node-1")).await,
    )?;
    ensure!(said.contains(r#"of another node than "node-1""#), "{said}");
    refused("another's ledger", agent.delete("node-2-10.9.0.0-26", &deleting).await)?;
    let stolen = Patch::Merge(json!({"metadata": {"labels": {"whereabouts.cni.cncf.io/node": "node-1"}}}));
    refused("a theft", agent.patch("node-2-10.9.0.0-26", &patching, &stolen).await)?;
    let said = refused(
        "a ledger without a label",
        agent.patch("far-10.9.0.64-26", &patching, &taken("1", "node-1")).await,
    )?;
    ensure!(said.contains(r#"is not named for node "node-1""#), "{said}");
    refused("a shared ledger made its own", agent.patch("10.8.0.0-24", &patching, &stolen).await)?;
    let owned =
        Patch::Merge(json!({"metadata": {"annotations": {"whereabouts.cni.cncf.io/state": "owned"}}}));
    refused("a shared ledger made its own", agent.patch("10.8.0.0-24", &patching, &owned).await)?;
    refused("the deletion of a shared ledger", agent.delete("10.8.0.0-24", &deleting).await)?;
    for made in [
        ledger("node-2-10.7.0.0-26", "10.7.0.0/26", Some("node-2"), Some("owned"))?,
        ledger("node-2-10.7.0.0-26", "10.7.0.0/26", Some("node-1"), Some("owned"))?,
        ledger("10.7.0.0-26", "10.7.0.0/26", None, Some("sliced"))?,
    ] {
        refused("a ledger that is not its own", agent.create(&defaults, &made).await)?;
    }
    let opened =
        Patch::Merge(json!({"metadata": {"annotations": {"whereabouts.cni.cncf.io/state": "unique"}}}));
    let said = refused("a range that is cut", agent.patch("10.9.0.0-24", &patching, &opened).await)?;
    ensure!(said.contains("only the controller says"), "{said}");
    let slices: Api<NodeSlicePool> = Api::namespaced(bed.agent_of("node-1").await?, "kube-system");
    let pool = json!({"metadata": {"name": "net"}, "spec": {"range": "10.0.0.0/24", "sliceSize": "/26"}});
    refused("slices", slices.create(&defaults, &serde_json::from_value(pool)?).await)?;
    let elsewhere: Api<IPPool> = Api::namespaced(bed.agent_of("node-1").await?, "default");
    refused("ledgers elsewhere", elsewhere.list(&ListParams::default()).await)?;
    Ok(())
}

#[tokio::test]
async fn an_agent_may_do_for_its_own_node_all_that_it_does() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let own = bed.block(0, "node-1").await?;
    let agent = bed.agent_of("node-1").await?;

    Api::<AddressPool>::all(agent.clone()).list(&ListParams::default()).await?;
    Api::<Namespace>::all(agent.clone()).list_metadata(&ListParams::default()).await?;
    Api::<Node>::all(agent.clone()).get("node-1").await?;
    let requests: Api<BlockRequest> = Api::all(agent.clone());
    // As the agent makes it: the block is its answer.
    let asked = request("req-default-node-1", "node-1")?.answered_by_block();
    requests.create(&PostParams::default(), &asked).await?;
    let read = requests.get("req-default-node-1").await?;
    ensure!(read.is_answered_by_block(), "{read:?}");
    requests.list(&ListParams::default().fields("spec.nodeName=node-1")).await?;
    requests.delete("req-default-node-1", &DeleteParams::default()).await?;

    let blocks: Api<AddressBlock> = Api::all(agent.clone());
    let listed = blocks.list(&ListParams::default().labels(&blocks_of_node("node-1"))).await?;
    ensure!(listed.items.len() == 1, "{listed:?}");
    let freed = Patch::Merge(only_finalizers(&own, &[]));
    blocks.patch("default-0", &PatchParams::default(), &freed).await?;
    blocks.delete("default-0", &DeleteParams::default()).await?;

    let events: Api<Event> = Api::namespaced(agent, "default");
    events.create(&PostParams::default(), &event("told", "node-1")?).await?;
    let again = json!({"count": 2, "message": "still none"});
    events.patch("told", &PatchParams::default(), &Patch::Merge(again)).await?;
    let other = bed.agent_of("node-2").await?;
    let theirs: Api<Event> = Api::namespaced(other, "default");
    let taken = Patch::Merge(json!({"source": {"host": "node-2"}}));
    refused("another's event", theirs.patch("told", &PatchParams::default(), &taken).await)?;
    Ok(())
}

#[tokio::test]
async fn an_agent_may_read_claims_networks_and_its_pods_and_write_none_of_them() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    // The controller makes it at its start, where it is missing.
    let definition = serde_json::to_value(tenure_api::claims::crd())?;
    bed.make::<CustomResourceDefinition>(definition).await?;
    let established = ["wait", "crd", "ipamclaims.k8s.cni.cncf.io", "--for=condition=Established"];
    bed.plane.kubectl(&established).await?;
    let claim = json!({"metadata": {"name": "db"}, "spec": {"network": "net", "interface": "net1"}});
    let claim: IPAMClaim = serde_json::from_value(claim)?;
    let defaults = PostParams::default();
    Api::namespaced(bed.admin.clone(), "default").create(&defaults, &claim).await?;

    let agent = bed.agent_of("node-1").await?;
    let all: Api<IPAMClaim> = Api::all(agent.clone());
    let listed = all.list(&ListParams::default()).await?;
    ensure!(listed.items.len() == 1, "{listed:?}");
    let own = ListParams::default().fields("spec.nodeName=node-1");
    let pods = Api::<Pod>::all(agent.clone()).list_metadata(&own).await?;
    ensure!(pods.items.len() == 1, "its own pod: {pods:?}");
    match networks(agent.clone()).list(&ListParams::default()).await {
        // It may, and the kind is not there.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => bail!("{other:?}"),
    }

    let claims: Api<IPAMClaim> = Api::namespaced(agent, "default");
    let patching = PatchParams::default();
    let holders = Patch::Merge(json!({"metadata": {"annotations": {"tenure/holders": "{}"}}}));
    refused("a claim's holders", claims.patch("db", &patching, &holders).await)?;
    let given = Patch::Merge(json!({"status": {"ips": ["10.0.0.1/24"]}}));
    refused("a claim's status", claims.patch_status("db", &patching, &given).await)?;
    refused("the end of a claim", claims.delete("db", &DeleteParams::default()).await)?;
    let mut another = claim;
    another.metadata.name = Some("another".into());
    refused("a claim of its own making", claims.create(&defaults, &another).await)?;
    Ok(())
}

#[tokio::test]
async fn an_agent_may_write_nothing_of_another_node() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (own, other) = (bed.block(0, "node-1").await?, bed.block(1, "node-2").await?);
    Api::all(bed.admin.clone())
        .create(&PostParams::default(), &request("req-default-node-2", "node-2")?)
        .await
        .context("the policy is for agents only")?;
    let agent = bed.agent_of("node-1").await?;
    let (defaults, patching, deleting) =
        (PostParams::default(), PatchParams::default(), DeleteParams::default());

    let blocks: Api<AddressBlock> = Api::all(agent.clone());
    let freed = Patch::Merge(only_finalizers(&other, &[]));
    let said = refused("a finalizer", blocks.patch("default-1", &patching, &freed).await)?;
    ensure!(
        said.contains(r#"AddressBlock "default-1" is not of node "node-1", whose agent wants to change it"#),
        "{said}"
    );
    refused("a deletion", blocks.delete("default-1", &deleting).await)?;
    let all = ListParams::default();
    refused("a deletion of all", blocks.delete_collection(&deleting, &all).await.map(|_| ()))?;
    for labels in
        [json!({label::NODE: "node-2"}), json!({label::NODE: null}), json!({label::RESERVED: "true"})]
    {
        let taken = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let said = refused("labels", blocks.patch("default-0", &patching, &taken).await)?;
        ensure!(said.contains("an agent changes only the finalizers"), "{said}");
    }
    // Of annotations it removes the mark of a block that is to be released, and writes none.
    let marked =
        Patch::Merge(json!({"metadata": {"annotations": {RELEASING: "2026-11-17T02:00:00Z", "other": "1"}}}));
    for block in ["default-0", "default-1"] {
        Api::<AddressBlock>::all(bed.admin.clone()).patch(block, &patching, &marked).await?;
    }
    for annotations in
        [json!({RELEASING: "now"}), json!({"other": null}), json!({"mine": "2", RELEASING: null})]
    {
        let changed = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        refused("annotations", blocks.patch("default-0", &patching, &changed).await)?;
    }
    let kept = Patch::Merge(json!({"metadata": {"annotations": {RELEASING: null}}}));
    blocks.patch("default-0", &patching, &kept).await.context("keeping its own block")?;
    refused("keeping another's block", blocks.patch("default-1", &patching, &kept).await)?;
    let stolen = Patch::Merge(json!({"metadata": {"labels": {label::NODE: "node-1"}}}));
    refused("another's block", blocks.patch("default-1", &patching, &stolen).await)?;
    let mut made = own.clone();
    (made.metadata.name, made.metadata.resource_version) = (Some("default-2".into()), None);
    (made.metadata.uid, made.spec.index) = (None, 2);
    refused("a block of its own making", blocks.create(&defaults, &made).await)?;

    let requests: Api<BlockRequest> = Api::all(agent.clone());
    let said = refused("a request", requests.create(&defaults, &request("r", "node-2")?).await)?;
    ensure!(
        said.contains(
            r#"spec.nodeName of the BlockRequest is "node-2"; accepted from this agent is "node-1""#
        ),
        "{said}"
    );
    refused("another's request", requests.delete("req-default-node-2", &deleting).await)?;
    requests.create(&defaults, &request("req-default-node-1", "node-1")?).await?;
    let answered = Patch::Merge(json!({"status": {"addressBlockName": "default-1"}}));
    refused("an answer", requests.patch_status("req-default-node-1", &patching, &answered).await)?;

    let events: Api<Event> = Api::namespaced(agent, "default");
    let said = refused("an event", events.create(&defaults, &event("told", "node-2")?).await)?;
    ensure!(said.contains(r#"source.host of the Event must be "node-1""#), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_agent_may_neither_read_nor_write_what_is_not_its_business() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let agent = bed.agent_of("node-1").await?;
    let patching = PatchParams::default();
    let pools: Api<AddressPool> = Api::all(agent.clone());
    let larger = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    refused("a pool", pools.patch("default", &patching, &larger).await)?;
    refused("a pool's status", pools.patch_status("default", &patching, &larger).await)?;
    let nodes: Api<Node> = Api::all(agent.clone());
    refused("its node", nodes.patch("node-1", &patching, &larger).await)?;
    refused("secrets", Api::<Secret>::all(agent.clone()).list(&ListParams::default()).await)?;
    let pods: Api<Pod> = Api::namespaced(agent.clone(), "kube-system");
    refused("a pod", pods.patch("tenured-node-1", &patching, &larger).await)?;
    refused("a pod's status", pods.patch_status("tenured-node-1", &patching, &larger).await)?;

    // A token of the same account that is of no pod.
    let nowhere = bed.with_token(json!({"spec": {"audiences": []}})).await?;
    let requests: Api<BlockRequest> = Api::all(nowhere);
    let asked = requests.create(&PostParams::default(), &request("r", "node-1")?).await;
    let said = refused("a token of no node", asked)?;
    ensure!(said.contains("the token does not say which node it is of"), "{said}");
    Ok(())
}
