//! Our definitions on the real kube-apiserver and on the embedded one: both take them, apply their defaults, show
//! their columns, and accept and refuse what the table of the `api` crate says, within the budget for rules.
//! Needs etcd and kube-apiserver.

mod pools;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::response::Status;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{
    self, AddressBlock, AddressPool, AddressPoolStatus, BlockRequest, PoolUsage, RequestOutcome,
};
use tenure_api::examples::Example;
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::PATIENCE;

/// Whoever serves our definitions.
enum Server {
    Real(Box<ControlPlane>),
    Embedded(LocalApi),
}

impl Server {
    async fn real() -> Result<Self> {
        let plane = ControlPlane::start(ControlPlaneOptions::default().without_controller_manager()).await?;
        Ok(Self::Real(Box::new(plane)))
    }

    fn embedded() -> Self {
        Self::Embedded(LocalApi::temporary(SystemClock, SeededEntropy::new(1)))
    }

    fn client(&self) -> Result<Client> {
        match self {
            Self::Real(plane) => Ok(plane.client()?),
            Self::Embedded(server) => Ok(server.client()),
        }
    }

    /// A client of it, once it serves these definitions.
    async fn with(&self, crds: Vec<CustomResourceDefinition>) -> Result<Client> {
        let client = self.client()?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in crds {
            let name = crd.name_any();
            definitions
                .create(&PostParams::default(), &crd)
                .await
                .with_context(|| format!("creating {name}"))?;
            let established = await_condition(definitions.clone(), &name, conditions::is_crd_established());
            tokio::time::timeout(PATIENCE, established)
                .await
                .with_context(|| format!("waiting for {name}"))??;
        }
        Ok(client)
    }
}

mod on_kube_apiserver {
    use super::{Result, Server};

    #[tokio::test]
    async fn pools_are_accepted_and_refused_as_by_coil() -> Result<()> {
        super::pools::pools_are_accepted_and_refused_as_by_coil(&Server::real().await?).await
    }

    #[tokio::test]
    async fn what_the_table_says_is_accepted_and_refused() -> Result<()> {
        super::what_the_table_says_is_accepted_and_refused(&Server::real().await?).await
    }

    #[tokio::test]
    async fn the_kinds_are_served_as_people_know_them() -> Result<()> {
        super::the_kinds_are_served_as_people_know_them(&Server::real().await?).await
    }

    #[tokio::test]
    async fn the_rules_stay_within_the_budget_at_their_bounds() -> Result<()> {
        super::the_rules_stay_within_the_budget_at_their_bounds(&Server::real().await?).await
    }

    #[tokio::test]
    async fn a_pool_from_before_the_rules_keeps_working_but_does_not_grow() -> Result<()> {
        super::a_pool_from_before_the_rules_keeps_working_but_does_not_grow(&Server::real().await?).await
    }
}

mod on_the_embedded_server {
    use super::{Result, Server};

    #[tokio::test]
    async fn pools_are_accepted_and_refused_as_by_coil() -> Result<()> {
        super::pools::pools_are_accepted_and_refused_as_by_coil(&Server::embedded()).await
    }

    #[tokio::test]
    async fn what_the_table_says_is_accepted_and_refused() -> Result<()> {
        super::what_the_table_says_is_accepted_and_refused(&Server::embedded()).await
    }

    #[tokio::test]
    async fn the_kinds_are_served_as_people_know_them() -> Result<()> {
        super::the_kinds_are_served_as_people_know_them(&Server::embedded()).await
    }

    #[tokio::test]
    async fn the_rules_stay_within_the_budget_at_their_bounds() -> Result<()> {
        super::the_rules_stay_within_the_budget_at_their_bounds(&Server::embedded()).await
    }

    #[tokio::test]
    async fn a_pool_from_before_the_rules_keeps_working_but_does_not_grow() -> Result<()> {
        super::a_pool_from_before_the_rules_keeps_working_but_does_not_grow(&Server::embedded()).await
    }
}

fn api_of(client: &Client, crd: &CustomResourceDefinition) -> Api<DynamicObject> {
    let version = &crd.spec.versions[0].name;
    let resource = ApiResource {
        group: crd.spec.group.clone(),
        version: version.clone(),
        api_version: format!("{}/{version}", crd.spec.group),
        kind: crd.spec.names.kind.clone(),
        plural: crd.spec.names.plural.clone(),
    };
    if crd.spec.scope == "Namespaced" {
        Api::default_namespaced_with(client.clone(), &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

/// Writes what the example writes, and returns what became of it.
async fn write(api: &Api<DynamicObject>, example: &Example) -> Result<Result<DynamicObject, Box<Status>>> {
    let mut object: DynamicObject = serde_json::from_value(example.object.clone())?;
    let written = match &example.old {
        None => api.create(&PostParams::default(), &object).await,
        Some(old) => {
            let old = api.create(&PostParams::default(), &serde_json::from_value(old.clone())?).await?;
            object.metadata.resource_version = old.metadata.resource_version;
            api.replace(&object.name_any(), &PostParams::default(), &object).await
        }
    };
    let answer = match written {
        Ok(object) => Ok(object),
        Err(kube::Error::Api(status)) => Err(status),
        Err(error) => return Err(error.into()),
    };
    if answer.is_ok() || example.old.is_some() {
        api.delete(&object.name_any(), &DeleteParams::default()).await?;
    }
    Ok(answer)
}

/// What an answer has against the example; empty if they agree.
fn disagreement(example: &Example, answer: Result<DynamicObject, Box<Status>>) -> Option<String> {
    let status = match answer {
        Ok(_) if example.is_accepted() => return None,
        Ok(_) => return Some("it was accepted".to_owned()),
        Err(status) => status,
    };
    let causes: Vec<(String, String)> = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .map(|cause| (cause.field.replace("<nil>", ""), cause.message.clone()))
        .collect();
    let expected = if example.schema.is_empty() { &example.refused } else { &example.schema };
    let all_said = expected.iter().all(|refusal| {
        causes.iter().any(|(field, message)| *field == refusal.field && message.contains(&refusal.message))
    });
    // Beside a refusal of the plain schema the server says that it did not get as far as the rules.
    let no_more = !example.schema.is_empty() || causes.len() == expected.len();
    let agreed = status.code == 422 && !example.is_accepted() && all_said && no_more;
    (!agreed).then(|| format!("{} {causes:#?}", status.code))
}

async fn what_the_table_says_is_accepted_and_refused(server: &Server) -> Result<()> {
    let client = server.with(tenure_api::crds()).await?;
    let examples = Example::all()?;
    ensure!(examples.len() > 100, "the table has {} lines", examples.len());
    let mut wrong = Vec::new();
    for example in examples {
        let api = api_of(&client, example.definition()?);
        let answer = write(&api, &example).await.with_context(|| example.name.clone())?;
        if let Some(said) = disagreement(&example, answer) {
            wrong.push(format!("{}: {said}", example.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The manifests of the two design documents, with names where they have placeholders.
fn manifests() -> [Value; 3] {
    [
        json!({
            "apiVersion": "coil.cybozu.com/v2",
            "kind": "AddressPool",
            "metadata": {"name": "pool1"},
            "spec": {
                "blockSizeBits": 5,
                "subnets": [{"ipv4": "10.2.0.0/16", "ipv6": "fd01:0203:0405:0607::/112"}],
            },
        }),
        json!({
            "apiVersion": "coil.cybozu.com/v2",
            "kind": "AddressBlock",
            "metadata": {
                "name": "pool1-16",
                "labels": {"coil.cybozu.com/pool": "pool1", "coil.cybozu.com/node": "node1"},
                "finalizers": ["coil.cybozu.com"],
                "ownerReferences": [{
                    "apiVersion": "coil.cybozu.com/v2",
                    "controller": true,
                    "blockOwnerDeletion": true,
                    "kind": "AddressPool",
                    "name": "pool1",
                    "uid": "d9607e19-f88f-11e6-a518-42010a800195",
                }],
            },
            "index": 16,
            "ipv4": "10.2.2.0/27",
            "ipv6": "fd01:0203:0405:0607::0200/123",
        }),
        json!({
            "apiVersion": "coil.cybozu.com/v2",
            "kind": "BlockRequest",
            "metadata": {
                "name": "random-name",
                "ownerReferences": [{
                    "apiVersion": "v1",
                    "controller": false,
                    "blockOwnerDeletion": false,
                    "kind": "Node",
                    "name": "node1",
                    "uid": "d9607e19-f88f-11e6-a518-42010a800195",
                }],
            },
            "spec": {"nodeName": "node1", "poolName": "pool1"},
            "status": {
                "addressBlockName": "pool1-16",
                "conditions": [{"type": "Complete", "status": true, "reason": "reason of the error", "message": "a human readable message"}],
            },
        }),
    ]
}

/// What `kubectl apply` does with a manifest of something that does not exist.
async fn apply(client: &Client, manifest: &Value) -> Result<DynamicObject> {
    let crd = tenure_api::crds().into_iter().find(|crd| crd.spec.names.kind == manifest["kind"]);
    let api = api_of(client, &crd.context("no definition")?);
    Ok(api.create(&PostParams::default(), &serde_json::from_value(manifest.clone())?).await?)
}

/// What `kubectl get` shows: the names of the columns, and the cells of each row.
async fn table(client: &Client, path: &str) -> Result<(Vec<String>, Vec<Value>)> {
    let request =
        Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").body(vec![])?;
    let table: Value = client.request(request).await?;
    let each = |list: &str, field: &str| -> Vec<Value> {
        table[list].as_array().into_iter().flatten().map(|item| item[field].clone()).collect()
    };
    let columns = each("columnDefinitions", "name").into_iter();
    let columns = columns.map(|name| name.as_str().unwrap_or_default().to_owned());
    Ok((columns.collect(), each("rows", "cells")))
}

async fn the_kinds_are_served_as_people_know_them(server: &Server) -> Result<()> {
    let client = server.with(tenure_api::crds()).await?;
    let pools: Api<AddressPool> = Api::all(client.clone());
    let blocks: Api<AddressBlock> = Api::all(client.clone());
    let requests: Api<BlockRequest> = Api::all(client.clone());

    // Manifests that exist apply unchanged, and keep every field.
    for mut manifest in manifests() {
        // Its owner has another UID here, and what has no owner left is collected.
        if let Some(metadata) = manifest["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
        }
        let applied = apply(&client, &manifest).await.with_context(|| manifest["kind"].to_string())?;
        let applied = serde_json::to_value(applied)?;
        for field in ["spec", "index", "ipv4", "ipv6"] {
            assert_eq!(applied.get(field), manifest.get(field), "{field} of {}", manifest["kind"]);
        }
        assert_eq!(applied["metadata"]["finalizers"], manifest["metadata"]["finalizers"]);
    }
    let block = blocks.get("pool1-16").await?;
    assert_eq!((block.pool(), block.node(), block.spec.index), (Some("pool1"), Some("node1"), 16));

    // A block size that is not given is 5.
    let small = json!({
        "apiVersion": "coil.cybozu.com/v2",
        "kind": "AddressPool",
        "metadata": {"name": "default"},
        "spec": {"subnets": [{"ipv4": "10.3.0.0/16"}]},
    });
    assert_eq!(apply(&client, &small).await?.data["spec"]["blockSizeBits"], json!(5));

    // A status is written by its own door, and shows in the columns.
    let status =
        AddressPoolStatus { blocks: Some(PoolUsage::new(2048, 1, 2047)), ..AddressPoolStatus::default() };
    let patch = Patch::Merge(json!({"status": status}));
    let pool = pools.patch_status("pool1", &PatchParams::default(), &patch).await?;
    assert_eq!(pool.status, Some(status));
    let (columns, rows) = table(&client, "/apis/coil.cybozu.com/v2/addresspools").await?;
    assert_eq!(columns, ["Name", "BlockSize Bits", "Allocated", "Free", "Ready"]);
    assert_eq!(rows, [json!(["default", 5, null, null, null]), json!(["pool1", 5, "1", "2047", null])]);
    let (columns, rows) = table(&client, "/apis/coil.cybozu.com/v2/addressblocks").await?;
    assert_eq!(columns, ["Name", "Node", "Pool", "IPv4", "IPv6"]);
    assert_eq!(rows, [json!(["pool1-16", "node1", "pool1", "10.2.2.0/27", "fd01:0203:0405:0607::0200/123"])]);
    for path in ["coil.cybozu.com/v2/blockrequests", "whereabouts.cni.cncf.io/v1alpha1/ippools"] {
        assert_eq!(table(&client, &format!("/apis/{path}")).await?.0, ["Name", "Age"], "{path}");
    }

    // A request's answer, as Coil writes it.
    assert_eq!(
        requests.get("random-name").await?.outcome(),
        RequestOutcome::Pending,
        "the status is not for the creator"
    );
    let answer = json!({"status": {"addressBlockName": "pool1-16", "conditions": [
        {"type": "Complete", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}});
    let request =
        requests.patch_status("random-name", &PatchParams::default(), &Patch::Merge(answer)).await?;
    assert_eq!(request.outcome(), RequestOutcome::Block("pool1-16"));

    // Blocks and requests of a node are selected by the server.
    for (node, count) in [("node1", 1), ("node2", 0)] {
        let of_node = ListParams::default().labels(&coil::blocks_of_node(node));
        assert_eq!(blocks.list(&of_node).await?.items.len(), count, "blocks of {node}");
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        assert_eq!(requests.list(&of_node).await?.items.len(), count, "requests of {node}");
    }
    let of_pool = ListParams::default().labels(&format!("{}=pool1", coil::label::POOL));
    assert_eq!(blocks.list(&of_pool).await?.items.len(), 1);

    // A carved block is accepted as it is.
    let carved = AddressBlock::carve(&pool, 17, "node2", Some("d9607e19")).context("carving")?;
    blocks.create(&PostParams::default(), &carved).await?;
    let again = blocks.create(&PostParams::default(), &carved).await;
    assert!(
        matches!(&again, Err(kube::Error::Api(status)) if status.code == 409),
        "the name is the lock: {again:?}"
    );

    // Whereabouts writes the status of slices with the object.
    let slices: Api<NodeSlicePool> = Api::default_namespaced(client.clone());
    let pool: NodeSlicePool = serde_json::from_value(json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
        "kind": "NodeSlicePool",
        "metadata": {"name": "test"},
        "spec": {"range": "10.0.0.0/8", "sliceSize": "/10"},
        "status": {"allocations": [{"nodeName": "node1", "sliceRange": "10.0.0.0/10"}]},
    }))?;
    let created = slices.create(&PostParams::default(), &pool).await?;
    assert_eq!(created.slice_of("node1"), Some("10.0.0.0/10"));
    Ok(())
}

fn causes(error: kube::Error) -> Vec<String> {
    match error {
        kube::Error::Api(status) => {
            status.details.into_iter().flat_map(|details| details.causes).map(|cause| cause.message).collect()
        }
        other => vec![other.to_string()],
    }
}

async fn the_rules_stay_within_the_budget_at_their_bounds(server: &Server) -> Result<()> {
    let client = server.with(tenure_api::crds()).await?;
    let pools: Api<AddressPool> = Api::all(client.clone());
    let pool = |name: &str, spec: Value| -> Result<AddressPool> {
        Ok(AddressPool::new(name, serde_json::from_value(spec)?))
    };

    // As many subnets as there may be, in the longest spelling, and as many exclusions.
    let group = "ffff:ffff:ffff:ffff:ffff";
    let subnets: Vec<Value> = (0..128)
        .map(|n| json!({"ipv4": format!("250.250.{n}.250/24"), "ipv6": format!("fd00:{group}:ff{n:02x}:ffff/120")}))
        .collect();
    let exclude: Vec<String> =
        (0..1024).map(|n| format!("fd00:{group}:ff00:{n:04x}-fd00:{group}:ff00:ffff")).collect();
    let spec = json!({"blockSizeBits": 8, "subnets": subnets, "exclude": exclude, "cooling": "1h30m999ms999ms999ms999ms"});
    let full = pool("full", spec)?;
    let mut full = pools.create(&PostParams::default(), &full).await.map_err(causes_of("a full pool"))?;

    // The last of the full list overlaps the one before: found, and named, within the budget.
    let mut bad = full.clone();
    bad.metadata = kube::api::ObjectMeta { name: Some("bad".to_owned()), ..Default::default() };
    bad.spec.subnets[127] = bad.spec.subnets[126].clone();
    let refused = causes(pools.create(&PostParams::default(), &bad).await.err().context("accepted")?);
    assert_eq!(refused.len(), 2, "{refused:#?}");
    assert!(
        refused.iter().all(|message| message.contains("subnets must not overlap, but ipv")),
        "{refused:#?}"
    );

    // Appending beyond the bound says what the bound is; changing the last entry names it.
    full.spec.subnets.push(full.spec.subnets[0].clone());
    let refused =
        causes(pools.replace("full", &PostParams::default(), &full).await.err().context("accepted")?);
    assert!(refused[0].contains("must have at most 128 items"), "{refused:#?}");
    full.spec.subnets.truncate(128);
    full.spec.subnets.swap(126, 127);
    let refused =
        causes(pools.replace("full", &PostParams::default(), &full).await.err().context("accepted")?);
    assert!(refused[0].contains("entry 126, \""), "{refused:#?}");

    // A ledger as large as an object can be still takes its next allocation.
    let ledgers: Api<IPPool> = Api::default_namespaced(client.clone());
    let entry = json!({"id": "f".repeat(64), "podref": "namespace/pod-0", "ifname": "net1"});
    let allocations: serde_json::Map<String, Value> =
        (1..9000).map(|n| (n.to_string(), entry.clone())).collect();
    let ledger: IPPool = serde_json::from_value(json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": "10.0.0.0-8"},
        "spec": {"range": "10.0.0.0/8", "allocations": allocations},
    }))?;
    let mut ledger =
        ledgers.create(&PostParams::default(), &ledger).await.map_err(causes_of("a full ledger"))?;
    let first = ledger.spec.allocations.values().next().cloned().context("empty")?;
    ledger.spec.allocations.insert("9000".to_owned(), first.clone());
    let mut ledger = ledgers
        .replace("10.0.0.0-8", &PostParams::default(), &ledger)
        .await
        .map_err(causes_of("the next"))?;
    ledger.spec.allocations.insert("-1".to_owned(), first);
    let refused = causes(
        ledgers.replace("10.0.0.0-8", &PostParams::default(), &ledger).await.err().context("accepted")?,
    );
    assert!(refused[0].contains("every key must be the decimal offset"), "{refused:#?}");
    Ok(())
}

fn causes_of(what: &'static str) -> impl FnOnce(kube::Error) -> anyhow::Error {
    move |error| anyhow::anyhow!("{what}: {:#?}", causes(error))
}

/// The definition without its rules: what people have who come from Coil.
fn without_rules(node: &mut Value) {
    match node {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

async fn a_pool_from_before_the_rules_keeps_working_but_does_not_grow(server: &Server) -> Result<()> {
    let ours = tenure_api::crd_of::<AddressPool>();
    let mut before = serde_json::to_value(&ours)?;
    without_rules(&mut before);
    let client = server.with(vec![serde_json::from_value(before)?]).await?;
    let pools: Api<AddressPool> = Api::all(client.clone());
    let overlapping = json!({"subnets": [{"ipv4": "10.0.0.0/16"}, {"ipv4": "10.0.1.0/24"}]});
    let mut pool = AddressPool::new("default", serde_json::from_value(overlapping)?);
    pool.metadata.finalizers = Some(vec![coil::FINALIZER.to_owned()]);
    pools.create(&PostParams::default(), &pool).await?;

    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut stored = definitions.get(&ours.name_any()).await?;
    stored.spec = ours.spec.clone();
    definitions.replace(&ours.name_any(), &PostParams::default(), &stored).await?;
    let bad = AddressPool::new("bad", pool.spec.clone());
    let in_force = async {
        while pools.create(&PostParams::default(), &bad).await.is_ok() {
            pools.delete("bad", &DeleteParams::default()).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, in_force).await.context("waiting for the rules to come into force")??;

    // Labels, exclusions and the status of the old pool can be written; its subnets cannot be made worse.
    let merge = |value: Value| (PatchParams::default(), Patch::Merge(value));
    for (what, change) in [
        ("a label", json!({"metadata": {"labels": {"team": "a"}}})),
        ("an exclusion", json!({"spec": {"exclude": ["10.0.0.1"]}})),
    ] {
        let (parameters, patch) = merge(change);
        pools.patch("default", &parameters, &patch).await.map_err(causes_of(what))?;
    }
    let usage = PoolUsage::new(2048, 0, 2048);
    let (parameters, patch) = merge(json!({"status": {"blocks": usage}}));
    pools.patch_status("default", &parameters, &patch).await.map_err(causes_of("a status"))?;
    let (parameters, patch) = merge(
        json!({"spec": {"subnets": [{"ipv4": "10.0.0.0/16"}, {"ipv4": "10.0.1.0/24"}, {"ipv4": "10.3.0.0/16"}]}}),
    );
    let refused = causes(pools.patch("default", &parameters, &patch).await.err().context("accepted")?);
    assert!(refused[0].contains("subnets must not overlap"), "{refused:#?}");

    // And it can go.
    pools.delete("default", &DeleteParams::default()).await?;
    let (parameters, patch) = merge(json!({"metadata": {"finalizers": null}}));
    pools.patch("default", &parameters, &patch).await.map_err(causes_of("the finalizer"))?;
    assert_eq!(pools.get_opt("default").await?, None);
    Ok(())
}
