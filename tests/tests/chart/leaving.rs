//! Tenure leaves its nodes: each is as it was before, link by link, route by route, file by file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tenure_testbed::cluster::{Cluster, Node};
use tenure_testbed::wait::eventually;
use tenure_tests::chart::Helm;
use tenure_tests::installed::product;

use crate::{RELEASE, Running};

/// What of a node Tenure may change.
const DIRECTORIES: [&str; 4] = ["/opt/cni/bin", "/etc/cni/net.d", "/run/tenure", "/var/lib/tenure"];
const PARAMETERS: [&str; 3] = ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/eth0/accept_ra"];
/// A program that is not ours, under a name that ours would take.
const FOREIGN: &str = "/opt/cni/bin/whereabouts";

/// A node without forwarding, and one with a program of somebody else.
pub fn prepare(cluster: &Cluster) -> Result<()> {
    for parameter in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        cluster.node(0).host().namespace().sysctl(parameter, "0")?;
    }
    cluster.node(1).write(FOREIGN, "#!/bin/sh\n# somebody else's\n")?;
    Ok(())
}

/// What all nodes have.
pub fn nodes(cluster: &Cluster) -> Result<Vec<BTreeSet<String>>> {
    cluster.nodes().map(node).collect()
}

fn node(node: &Node) -> Result<BTreeSet<String>> {
    let mut there = BTreeSet::new();
    let namespace = node.host().namespace();
    for (what, arguments) in [
        ("link", &["link", "show"][..]),
        ("rule", &["-4", "rule", "show"]),
        ("rule", &["-6", "rule", "show"]),
        ("route", &["-4", "route", "show", "table", "all"]),
        ("route", &["-6", "route", "show", "table", "all"]),
    ] {
        for object in namespace.ip_json(arguments)?.as_array().into_iter().flatten() {
            let keys = [
                "ifname", "group", "priority", "src", "dst", "table", "gateway", "dev", "protocol", "metric",
            ];
            let facts: Vec<String> = keys.iter().map(|key| object[key].to_string()).collect();
            there.insert(format!("{what} {}", facts.join(" ")));
        }
    }
    for parameter in PARAMETERS {
        let value = node.host().run(|| fs::read_to_string(format!("/proc/sys/net/{parameter}")))??;
        there.insert(format!("{parameter} = {}", value.trim()));
    }
    for directory in DIRECTORIES {
        files(&node.path(directory)?, &mut there)?;
    }
    Ok(there)
}

/// The files below a directory, which need not be there.
fn files(directory: &Path, there: &mut BTreeSet<String>) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        there.insert(path.display().to_string());
        if path.is_dir() {
            files(&path, there)?;
        }
    }
    Ok(())
}

/// Taking it off is refused on nodes with pods, names one, and changes nothing; the agents come back to the same pods.
pub async fn it_stays_while_pods_have_addresses(cluster: &Cluster, helm: &Helm, chart: &str) -> Result<()> {
    let (running, before) = (Running::now(cluster).await?, nodes(cluster)?);
    // Without --wait: it is not done before pods are gone.
    let switch = |on: &'static str| {
        ["upgrade", "tenure", chart, "-n=kube-system", "--reset-then-reuse-values", "--set", on]
    };
    helm.run(&switch("remove.enabled=true")).await?;
    let said = eventually("each node says what keeps it", async || {
        let pods = [
            "logs",
            "-n",
            "kube-system",
            "-l",
            "app.kubernetes.io/name=tenure-remove",
            "--tail=-1",
            "--prefix",
        ];
        let said = cluster.kubectl(&pods).await.unwrap_or_default();
        let refused = said.lines().filter(|line| line.contains("still uses addresses")).count();
        Ok((refused >= 3).then_some(said))
    })
    .await?;
    let named = running.pods.iter().filter(|pod| said.contains(&pod.name)).count();
    ensure!(named > 0, "no pod is named: {said}");
    let ready = product(cluster, "tenure-remove").await?;
    ensure!(ready.is_none(), "a node is clean while pods run: {ready:?}");
    for (before, after) in before.iter().zip(nodes(cluster)?) {
        let lost: Vec<&String> = before.difference(&after).filter(|it| !it.contains(".sock")).collect();
        ensure!(lost.is_empty(), "removed although it was refused: {lost:?}");
    }
    helm.run(&switch("remove.enabled=false")).await?;
    running.go_on(cluster, crate::PODS + 12).await
}

/// After the pods and their pool, all that was put on nodes and into the API server goes.
pub async fn nothing_is_left(
    cluster: &Cluster,
    helm: &Helm,
    chart: &str,
    before: &[BTreeSet<String>],
) -> Result<()> {
    cluster.kubectl(&["delete", "deployment/web", "--cascade=foreground", "--timeout=300s"]).await?;
    cluster.kubectl(&["delete", "service/web"]).await?;
    cluster.kubectl(&["delete", "addresspools", "--all", "--timeout=300s"]).await?;
    for (before, now) in before.iter().zip(nodes(cluster)?) {
        ensure!(
            now.difference(before).count() > 10 && now != *before,
            "there is nothing to remove: {now:#?}"
        );
    }
    let remove = ["upgrade", "tenure", chart, "--reset-then-reuse-values", "--set", "remove.enabled=true"];
    helm.run(&[&remove[..], &RELEASE].concat()).await?;
    let clean = product(cluster, "tenure-remove").await?.context("pods of the removal")?;
    ensure!(clean.len() == 3, "{clean:?}");
    for ((before, after), name) in before.iter().zip(nodes(cluster)?).zip(cluster.nodes().map(Node::name)) {
        let (left, lost): (Vec<_>, Vec<_>) =
            (after.difference(before).collect(), before.difference(&after).collect());
        ensure!(left.is_empty() && lost.is_empty(), "{name} has {left:#?} more, and not {lost:#?}");
    }
    helm.run(&["uninstall", "tenure", "--namespace=kube-system", "--wait", "--timeout=10m"]).await?;
    let kinds = cluster.kubectl(&["get", "crd", "-o", "name"]).await?;
    let kinds: Vec<&str> = kinds.lines().collect();
    cluster.kubectl(&[&["delete", "--timeout=300s"], kinds.as_slice()].concat()).await?;
    let kinds = "pods,deployments,daemonsets,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,prioritylevelconfigurations,\
                 poddisruptionbudgets,leases,crd";
    // Pods end a moment later than what made them.
    eventually("nothing of ours is left", async || {
        let left: Value = serde_json::from_str(&cluster.kubectl(&["get", kinds, "-A", "-o", "json"]).await?)?;
        let of = |it: &Value| Some(format!("{} {}", it["kind"].as_str()?, it["metadata"]["name"].as_str()?));
        let mut ours: Vec<String> = left["items"].as_array().into_iter().flatten().filter_map(of).collect();
        ours.retain(|name| name.contains("tenure") || name.contains("coil"));
        if ours.iter().any(|name| name.starts_with("Pod ")) {
            return Ok(None);
        }
        // The guide says so.
        ensure!(ours == ["Lease coil-ipam-leader"], "{ours:?}");
        Ok(Some(()))
    })
    .await
}
