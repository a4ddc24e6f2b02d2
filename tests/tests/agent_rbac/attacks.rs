//! What somebody with a stolen token of a node would try on what all nodes share.

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::BlockRequest;
use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation};

use crate::bed::{Bed, DEPLOY, ledger, refused, request};

fn reservation(name: &str, metadata: &Value) -> Result<OverlappingRangeIPReservation> {
    let mut object = json!({"metadata": metadata, "spec": {"podref": "ns/p"}});
    object["metadata"]["name"] = json!(name);
    Ok(serde_json::from_value(object)?)
}

/// An owner that does not exist: the garbage collector deletes what it is said to own.
fn nobody() -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "11111111-2222-3333-4444-555555555555"});
    json!([owner])
}

#[tokio::test]
async fn a_stolen_token_deletes_no_reservation_of_another_node_and_makes_none_for_it() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (defaults, deleting) = (PostParams::default(), DeleteParams::default());
    let admin: Api<OverlappingRangeIPReservation> = Api::namespaced(bed.admin.clone(), "kube-system");
    let other: Api<OverlappingRangeIPReservation> =
        Api::namespaced(bed.agent_of("node-2").await?, "kube-system");
    // Of a claim; of another node; of Whereabouts.
    let of_claim = json!({"annotations": {"tenure/node": ":controller"}});
    admin.create(&defaults, &reservation("10.8.0.1", &of_claim)?).await?;
    admin.create(&defaults, &reservation("10.8.0.3", &json!({}))?).await?;
    let theirs = json!({"annotations": {"tenure/node": "node-2"}});
    other.create(&defaults, &reservation("10.8.0.2", &theirs)?).await?;
    let thief: Api<OverlappingRangeIPReservation> =
        Api::namespaced(bed.agent_of("node-1").await?, "kube-system");
    for name in ["10.8.0.1", "10.8.0.2"] {
        let said = refused(name, thief.delete(name, &deleting).await)?;
        ensure!(said.contains(r#"is not "node-1""#), "{said}");
    }
    thief.delete("10.8.0.3", &deleting).await.context("what Whereabouts left goes with its record")?;
    let own = |more: Value| {
        let mut metadata = json!({"annotations": {"tenure/node": "node-1"}});
        metadata
            .as_object_mut()
            .into_iter()
            .for_each(|it| it.extend(more.as_object().cloned().unwrap_or_default()));
        metadata
    };
    for (what, metadata) in [
        ("one of nobody", json!({})),
        ("one of another node", theirs),
        ("one with an owner", own(json!({"ownerReferences": nobody()}))),
        ("one that cannot be deleted", own(json!({"finalizers": ["example.org/never"]}))),
    ] {
        refused(what, thief.create(&defaults, &reservation("10.8.0.9", &metadata)?).await)?;
    }
    thief.create(&defaults, &reservation("10.8.0.9", &own(json!({})))?).await?;
    thief.delete("10.8.0.9", &deleting).await?;
    Ok(())
}

#[tokio::test]
async fn a_stolen_token_neither_empties_nor_discards_nor_squats_ledgers_that_all_share() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (defaults, patching) = (PostParams::default(), PatchParams::default());
    let admin: Api<IPPool> = Api::namespaced(bed.admin.clone(), "kube-system");
    for (name, range, state) in [
        ("10.8.0.0-24", "10.8.0.0/24", Some("overlapping")),
        ("10.7.0.0-24", "10.7.0.0/24", Some("unique")),
        ("10.6.0.0-24", "10.6.0.0/24", None),
    ] {
        admin.create(&defaults, &ledger(name, range, None, state)?).await?;
    }
    let mut floating = ledger("tenure-claims-10.5.0.0-26", "10.5.0.0/26", None, Some("owned"))?;
    floating.labels_mut().insert("tenure/floating".to_owned(), "true".to_owned());
    admin.create(&defaults, &floating).await?;
    let thief: Api<IPPool> = Api::namespaced(bed.agent_of("node-1").await?, "kube-system");
    let state = |state: Value| json!({"metadata": {"annotations": {"whereabouts.cni.cncf.io/state": state}}});
    for (name, what, patch) in [
        ("10.8.0.0-24", "an owner", json!({"metadata": {"ownerReferences": nobody()}})),
        ("10.8.0.0-24", "a finalizer", json!({"metadata": {"finalizers": ["example.org/never"]}})),
        ("10.8.0.0-24", "a label", json!({"metadata": {"labels": {"whereabouts.cni.cncf.io/network": "x"}}})),
        (
            "10.8.0.0-24",
            "an annotation",
            json!({"metadata": {"annotations": {"whereabouts.cni.cncf.io/opened": "1"}}}),
        ),
        ("10.8.0.0-24", "that ranges do not overlap", state(json!("unique"))),
        ("10.8.0.0-24", "that nothing is agreed on", state(Value::Null)),
        ("10.7.0.0-24", "that nothing is agreed on", state(Value::Null)),
        ("10.7.0.0-24", "nonsense", state(json!("free"))),
        (
            "tenure-claims-10.5.0.0-26",
            "a record of claims",
            json!({"spec": {"allocations": {"1": {"id": "c", "podref": "ns/p"}}}}),
        ),
    ] {
        refused(&format!("{what} on {name}"), thief.patch(name, &patching, &Patch::Merge(patch)).await)?;
    }
    for (name, to) in
        [("10.6.0.0-24", "unique"), ("10.6.0.0-24", "overlapping"), ("10.7.0.0-24", "overlapping")]
    {
        let patched = thief.patch(name, &patching, &Patch::Merge(state(json!(to)))).await;
        patched.with_context(|| format!("{name} to {to}"))?;
    }

    // Names that another node, or another range, will need.
    let labelled = |name: &str, network: &str, node: Option<&str>, state| -> Result<IPPool> {
        let mut made = ledger(name, "10.9.0.0/26", node, Some(state))?;
        made.labels_mut().insert("whereabouts.cni.cncf.io/network".to_owned(), network.to_owned());
        Ok(made)
    };
    for made in [
        // The ledger of node gpu-node-1, as one of its own, and as one that all share.
        ledger("gpu-node-1-10.9.0.0-26", "10.9.0.0/26", Some("node-1"), Some("owned"))?,
        ledger("gpu-node-1-10.9.0.0-26", "10.9.0.0/26", None, Some("unique"))?,
        ledger("node-2-10.9.0.0-26", "10.9.0.0/26", None, None)?,
        labelled("node-2-10.9.0.0-26", "blue", None, "unique")?,
        labelled("blue-node-2-10.9.0.0-26", "blue", Some("node-1"), "owned")?,
        // The name of another range.
        ledger("10.4.0.0-24", "10.9.0.0/26", None, Some("unique"))?,
        ledger("10.4.0.0-24.3", "10.9.0.0/26", None, Some("unique"))?,
    ] {
        refused(&format!("the creation of {}", made.name_any()), thief.create(&defaults, &made).await)?;
    }
    for made in [
        ledger("10.9.0.0-26", "10.9.0.0/26", None, Some("unique"))?,
        ledger("10.9.0.0-26.3", "10.9.0.0/26", None, Some("unique"))?,
        labelled("blue-10.9.0.0-26", "blue", None, "unique")?,
        labelled("blue-node-1-10.9.0.0-26", "blue", Some("node-1"), "owned")?,
        ledger("0---126", "::/126", None, Some("unique"))?,
        ledger("fd00---64", "fd00::/64", None, Some("unique"))?,
    ] {
        thief.create(&defaults, &made).await.with_context(|| made.name_any())?;
    }
    Ok(())
}

#[tokio::test]
async fn a_stolen_token_takes_and_frees_only_its_own_nodes_records_of_ledgers_that_all_share() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (defaults, patching) = (PostParams::default(), PatchParams::default());
    let admin: Api<IPPool> = Api::namespaced(bed.admin.clone(), "kube-system");
    let mut shared = ledger("10.8.0.0-24", "10.8.0.0/24", None, Some("unique"))?;
    let record = |id: &str, node: Option<&str>| json!({"id": id, "podref": "ns/p", "node": node});
    for (key, id, node) in [
        ("1", "of-whereabouts", None),
        ("2", "c", Some("node-2")),
        ("3", "claim/uid", None),
        ("4", "c", Some("node-1")),
    ] {
        shared.spec.allocations.insert(key.to_owned(), serde_json::from_value(record(id, node))?);
    }
    admin.create(&defaults, &shared).await?;
    let thief: Api<IPPool> = Api::namespaced(bed.agent_of("node-1").await?, "kube-system");
    let change = |key: &str, record: Value| Patch::Merge(json!({"spec": {"allocations": {key: record}}}));
    for (what, patch) in [
        ("another node's record", change("2", Value::Null)),
        ("another node's record, changed", change("2", json!({"id": "x"}))),
        ("another node's record, taken over", change("2", json!({"node": "node-1"}))),
        ("a claim's", change("3", Value::Null)),
        ("a claim's, taken over", change("3", json!({"id": "c", "node": "node-1"}))),
        ("a record for another node", change("9", record("c", Some("node-2")))),
        ("a record of nobody", change("9", record("c", None))),
        ("a record of a claim", change("9", record("claim/x", Some("node-1")))),
        (
            "all of them",
            Patch::Merge(json!({"spec": {"allocations": {"1": null, "2": null, "3": null, "4": null}}})),
        ),
    ] {
        let said = refused(what, thief.patch("10.8.0.0-24", &patching, &patch).await)?;
        ensure!(said.contains("an agent"), "{what}: {said}");
    }
    for (what, patch) in [
        ("its own", change("4", Value::Null)),
        ("what Whereabouts left, taken over", change("1", json!({"id": "c", "node": "node-1"}))),
        ("its own again", change("1", Value::Null)),
        ("a new one", change("9", record("c", Some("node-1")))),
    ] {
        thief.patch("10.8.0.0-24", &patching, &patch).await.with_context(|| what.to_owned())?;
    }
    // A large one costs no more than the server lets a rule cost.
    let mut large = ledger("10.0.0.0-16", "10.0.0.0/16", None, Some("unique"))?;
    for key in 0..4_000 {
        let record = serde_json::from_value(record(&"c".repeat(64), Some("node-2")))?;
        large.spec.allocations.insert(key.to_string(), record);
    }
    admin.create(&defaults, &large).await?;
    thief.patch("10.0.0.0-16", &patching, &change("5000", record("c", Some("node-1")))).await?;
    refused("one of many", thief.patch("10.0.0.0-16", &patching, &change("77", Value::Null)).await)?;
    Ok(())
}

/// Whoever installs with kustomize chooses the namespace and may change all names. The rules follow the rights.
#[tokio::test]
async fn installed_in_another_namespace_under_other_names_agents_are_held_to_the_same_rules() -> Result<()> {
    let overlay = tempfile::tempdir()?;
    let up = "../".repeat(overlay.path().components().count() - 1);
    let base = std::fs::canonicalize(DEPLOY)?;
    let base = format!("{up}{}", base.display().to_string().trim_start_matches('/'));
    let kustomization = json!({"namespace": "tenure-system", "namePrefix": "our-", "resources": [base]});
    std::fs::write(overlay.path().join("kustomization.yaml"), kustomization.to_string())?;
    let directory = overlay.path().display().to_string();
    let bed = Box::pin(Bed::start_with(&directory, "tenure-system", "our-tenured")).await?;
    let agent: Api<BlockRequest> = Api::all(bed.agent_of("node-1").await?);
    let defaults = PostParams::default();
    let said = refused("another node's request", agent.create(&defaults, &request("r", "node-2")?).await)?;
    ensure!(said.contains(r#"accepted from this agent is "node-1""#), "{said}");
    agent.create(&defaults, &request("r", "node-1")?).await.context("its own")?;
    let nowhere: Api<BlockRequest> = Api::all(bed.with_token(json!({"spec": {"audiences": []}})).await?);
    refused("a token of no node", nowhere.create(&defaults, &request("s", "node-1")?).await)?;
    // Who may do everything is no agent.
    let admin: Api<BlockRequest> = Api::all(bed.admin.clone());
    admin.create(&defaults, &request("t", "node-2")?).await?;
    Ok(())
}
