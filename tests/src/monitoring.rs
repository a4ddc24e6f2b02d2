//! The rules and the dashboard of `deploy/monitoring`, and a real Prometheus that asks a real cluster for all of their queries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::prometheus::Prometheus;
use tenure_testbed::wait::eventually;

use crate::installed::DEPLOY;

/// Objects of every kind that has metrics of its own. `NODE` is a node without an interface `none0`, so the policy changes nothing
/// there.
const EVERY_KIND: &str = r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: kept, namespace: default}
spec: {config: '{"cniVersion": "1.0.0", "name": "kept", "type": "tenure", "allowPersistentIPs": true}'}
---
apiVersion: k8s.cni.cncf.io/v1alpha1
kind: IPAMClaim
metadata: {name: printer, namespace: default}
spec: {network: kept, interface: net1}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: sliced, namespace: default}
spec:
  config: '{"cniVersion": "1.0.0", "name": "sliced", "type": "macvlan", "master": "eth0", "ipam": {"type": "whereabouts",
    "range": "10.251.0.0/24", "node_slice_size": "/26"}}'
---
apiVersion: whereabouts.cni.cncf.io/v1alpha1
kind: IPPool
metadata: {name: 10.250.0.0-24, namespace: kube-system}
spec: {range: 10.250.0.0/24, allocations: {}}
---
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata: {name: storage}
spec: {range: {cidr: 10.252.0.0/24}}
---
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: storage}
spec:
  nodeSelector: {kubernetes.io/hostname: NODE}
  capture: {address: ippool.storage.allocate}
  desiredState:
    interfaces:
      - name: none0
        type: ethernet
        state: up
        ipv4:
          enabled: true
          dhcp: false
          address:
            - {ip: "{{ capture.address.ip }}", prefix-length: "{{ capture.address.prefix-length }}"}
"#;

/// Where the files are.
pub fn path(file: &str) -> PathBuf {
    PathBuf::from(DEPLOY).join("monitoring").join(file)
}

/// A file, read.
pub fn file(name: &str) -> Result<String> {
    fs::read_to_string(path(name)).with_context(|| format!("reading {name}"))
}

/// Metrics that only some clusters have, by how their names begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// All but those of a cloud.
    Egress,
    /// Only those of a cloud.
    Cloud,
}

impl Has {
    fn metric(self, name: &str) -> bool {
        let of_cloud = ["tenure_cloud_", "tenure_alias_"].iter().any(|prefix| name.starts_with(prefix));
        let recorded = name.contains(':');
        recorded || of_cloud == (self == Self::Cloud)
    }
}

/// An expression, and what asks it.
#[derive(Clone, Debug)]
pub struct Query {
    pub of: String,
    pub expression: String,
    /// Whether it is empty as long as all is well.
    pub is_alert: bool,
}

impl Query {
    /// The metrics in it.
    pub fn metrics(&self) -> BTreeSet<String> {
        let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let words = self.expression.split(|c: char| !in_name(c));
        let is_metric =
            |word: &&str| word.starts_with("tenure_") || word.starts_with("tenure:") || *word == "up";
        words.filter(is_metric).map(str::to_owned).collect()
    }
}

/// The rules, as they are in the file.
pub fn rules() -> Result<Vec<Value>> {
    let read: Value = serde_saphyr::from_str(&file("rules.yaml")?)?;
    let groups = read["groups"].as_array().context("groups")?;
    Ok(groups.iter().filter_map(|group| group["rules"].as_array()).flatten().cloned().collect())
}

/// The panels of the dashboard.
pub fn panels() -> Result<Vec<Value>> {
    let read: Value = serde_json::from_str(&file("dashboard.json")?)?;
    Ok(read["panels"].as_array().context("panels")?.clone())
}

/// All queries of rules and dashboard. Where Grafana would write its variables, these have every node and pool, and half a minute.
pub fn queries() -> Result<Vec<Query>> {
    let text =
        |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("{value} is no text"));
    let mut queries = Vec::new();
    for rule in rules()? {
        let is_alert = rule["alert"].is_string();
        let of = text(&rule[if is_alert { "alert" } else { "record" }])?;
        queries.push(Query { of, expression: text(&rule["expr"])?, is_alert });
    }
    for panel in panels()? {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = text(&target["expr"])?.replace("$__rate_interval", "30s");
            let expression = expression.replace("$node", ".*").replace("$pool", ".*");
            ensure!(!expression.contains('$'), "panel {}: a variable in {expression}", panel["title"]);
            queries.push(Query { of: format!("panel {}", panel["title"]), expression, is_alert: false });
        }
    }
    Ok(queries)
}

/// Creates an object of every kind that has metrics.
pub async fn apply_every_kind(cluster: &Cluster) -> Result<()> {
    let definition = format!("{DEPLOY}/optional/network-attachment-definitions.yaml");
    cluster.kubectl(&["apply", "-f", &definition]).await?;
    cluster.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=300s"]).await?;
    cluster.apply(&EVERY_KIND.replace("NODE", cluster.node(0).name())).await?;
    Ok(())
}

/// Deletes them.
pub async fn delete_every_kind(cluster: &Cluster) -> Result<()> {
    for what in ["nncp/storage", "nodeippool/storage", "ipamclaim/printer"] {
        cluster.kubectl(&["delete", what, "--timeout=300s"]).await?;
    }
    cluster.kubectl(&["delete", "net-attach-def", "--all", "--timeout=300s"]).await?;
    Ok(())
}

/// What the discovery of Prometheus finds in the cluster with `role: pod`: each port of each container of each pod.
async fn discovered(cluster: &Cluster) -> Result<Vec<Value>> {
    let pods: Api<core::Pod> = Api::all(cluster.client()?);
    let mut found = Vec::new();
    for pod in pods.list(&ListParams::default()).await?.items {
        let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { continue };
        let Some(address) = &status.pod_ip else { continue };
        let own = [
            ("namespace", pod.namespace()),
            ("pod_name", pod.name_any().into()),
            ("pod_phase", status.phase.clone()),
            ("pod_node_name", spec.node_name.clone()),
        ];
        let meta = |name: &str| format!("__meta_kubernetes_{name}");
        let own = own.map(|(name, value)| (meta(name), value.unwrap_or_default()));
        let mut labels = BTreeMap::from(own);
        for (name, value) in pod.labels() {
            let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            labels.insert(meta(&format!("pod_label_{name}")), value.clone());
        }
        for port in spec.containers.iter().flat_map(|container| container.ports.iter().flatten()) {
            let mut labels = labels.clone();
            let name = port.name.clone().unwrap_or_default();
            labels.insert(meta("pod_container_port_name"), name);
            let target = format!("{address}:{}", port.container_port);
            found.push(json!({"targets": [target], "labels": labels}));
        }
    }
    Ok(found)
}

/// Has a real Prometheus find so many targets in the cluster and scrape them, until all is there that a query of the rules or the
/// dashboard needs, as far as such a cluster has it. The Prometheus goes on.
pub async fn every_query_returns_data(cluster: &Cluster, targets: usize, has: Has) -> Result<Prometheus> {
    let found = discovered(cluster).await?;
    let prometheus = Prometheus::start(&file("scrape.yaml")?, &path("rules.yaml"), &found).await?;
    eventually(&format!("{targets} targets are up"), async || {
        let found = prometheus.targets()?;
        let up = found.iter().filter(|it| it["health"] == "up").count();
        ensure!((up, found.len()) == (targets, targets), "{found:?}");
        Ok(Some(()))
    })
    .await?;
    let mut asked = 0;
    for query in queries()? {
        let (of, metrics) = (&query.of, query.metrics());
        let there: Vec<&String> = metrics.iter().filter(|name| has.metric(name)).collect();
        // An alert is empty while all is well; then each metric in it has data.
        if there.is_empty() {
            prometheus.query(&query.expression).with_context(|| format!("{of} in {}", query.expression))?;
            continue;
        }
        let expressions: Vec<String> = if query.is_alert {
            there.into_iter().cloned().collect()
        } else {
            vec![query.expression.clone()]
        };
        for expression in &expressions {
            eventually(&format!("{of}: data for {expression}"), async || {
                Ok((!prometheus.query(expression)?.is_empty()).then_some(()))
            })
            .await?;
            asked += 1;
        }
        prometheus.query(&query.expression).with_context(|| format!("{of} in {}", query.expression))?;
    }
    ensure!(asked > 0, "nothing was asked");
    // What people are called for at night is not so in a cluster that works.
    eventually("no critical alert", async || {
        let alerts = prometheus.query(r#"ALERTS{severity="critical"}"#)?;
        ensure!(alerts.is_empty(), "{alerts:?}");
        Ok(Some(()))
    })
    .await?;
    Ok(prometheus)
}
