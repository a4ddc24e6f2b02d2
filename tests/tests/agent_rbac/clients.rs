//! Clients of Egresses: an agent writes those of its own node, and nobody's else.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::egress::EgressClient;
use tenure_api::coil::{Egress, EgressClients};

use crate::bed::{Bed, refused};

#[tokio::test]
async fn an_agent_writes_the_clients_of_its_own_node_and_of_no_other() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let (defaults, patching, deleting) =
        (PostParams::default(), PatchParams::default(), DeleteParams::default());
    let egress = json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "Egress",
        "metadata": {"name": "internet"}, "spec": {"destinations": ["0.0.0.0/0"]},
    });
    let egresses: Api<Egress> = Api::namespaced(bed.admin.clone(), "default");
    let egress = egresses.create(&defaults, &serde_json::from_value(egress)?).await?;
    let agent = bed.agent_of("node-1").await?;
    Api::<Egress>::all(agent.clone()).list(&ListParams::default()).await?;
    Api::<Service>::all(agent.clone()).list(&ListParams::default()).await?;
    let change = Patch::Merge(json!({"spec": {"replicas": 2}}));
    refused(
        "an Egress",
        Api::<Egress>::namespaced(agent.clone(), "default").patch("internet", &patching, &change).await,
    )?;

    // Its own: made, changed, marked and unmarked, deleted.
    let client = EgressClient {
        namespace: "default".to_owned(),
        pod: "a".to_owned(),
        uid: "u".to_owned(),
        addresses: vec!["10.1.0.1".to_owned(), "fd00::1".to_owned()],
    };
    let own: Api<EgressClients> = Api::namespaced(agent.clone(), "default");
    let object = |node: &str| EgressClients::of(&egress, node, vec![client.clone()]);
    let made = own.create(&defaults, &object("node-1")?).await?;
    let name = made.name_any();
    own.patch(&name, &patching, &Patch::Merge(json!({"spec": {"clients": []}}))).await?;
    let admin: Api<EgressClients> = Api::namespaced(bed.admin.clone(), "default");
    let mark = |mark: Value| Patch::Merge(json!({"metadata": {"annotations": {"tenure/releasing": mark}}}));
    admin.patch(&name, &patching, &mark(json!("2026-01-01T00:00:00Z"))).await?;
    own.patch(&name, &patching, &mark(Value::Null)).await?;

    // Another's: neither made nor changed nor deleted, and no name of another's occupied.
    let said = refused("another node's clients", own.create(&defaults, &object("node-2")?).await)?;
    ensure!(said.contains(r#"accepted from this agent is "node-1""#), "{said}");
    admin.create(&defaults, &object("node-2")?).await?;
    let theirs = "internet.node-2";
    refused(
        "another node's clients",
        own.patch(theirs, &patching, &Patch::Merge(json!({"spec": {"clients": []}}))).await,
    )?;
    refused("another node's clients", own.delete(theirs, &deleting).await)?;
    let theft = Patch::Merge(json!({"spec": {"nodeName": "node-1"}}));
    refused("another node's clients", own.patch(theirs, &patching, &theft).await)?;
    let with = |change: Value| -> Result<EgressClients> {
        let mut value = serde_json::to_value(object("node-1")?)?;
        json_patch_merge(&mut value, &change);
        Ok(serde_json::from_value(value)?)
    };
    let nobody = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "11111111-2222-3333-4444-555555555555"}]);
    for (what, change) in [
        ("the name of another node", json!({"metadata": {"name": "internet.gpu.node-1"}})),
        (
            "the label of another node",
            json!({"metadata": {"name": "other.node-1", "labels": {"coil.cybozu.com/node": "node-2"}}}),
        ),
        ("the label of another Egress", json!({"metadata": {"name": "other.node-1"}})),
        ("another owner", json!({"metadata": {"ownerReferences": nobody}})),
        ("a finalizer", json!({"metadata": {"finalizers": ["example.org/never"]}})),
        (
            "an address that is none",
            json!({"spec": {"clients": [{"namespace": "a", "pod": "b", "uid": "c", "addresses": ["x"]}]}}),
        ),
    ] {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        refused(what, own.create(&dry_run, &with(change)?).await)?;
    }
    own.delete(&name, &deleting).await?;
    Ok(())
}

/// Puts the fields of one into the other.
fn json_patch_merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                json_patch_merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
