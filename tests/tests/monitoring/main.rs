//! What `deploy/monitoring` has, without a cluster: rules that fire when they must and only then, by Debian's promtool; a dashboard
//! whose queries can be read; and documentation, manifests of the operator and manifests of the product that agree with them. That
//! the queries return data is tested where a cluster runs anyway: in `egress_cluster` and `cloud_cluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tenure_api::coil::egress::gateway_labels;
use tenure_testbed::binaries::{Binaries, Program};
use tenure_tests::installed::DEPLOY;
use tenure_tests::monitoring::{file, panels, path, queries, rules};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/monitoring/alerts.yaml");

fn promtool(arguments: &[&str], file: &Path) -> Result<()> {
    let binaries = Binaries::locate(Program::MONITORING)?;
    let output = Command::new(binaries.path(Program::Promtool)?).args(arguments).arg(file).output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "promtool {arguments:?} {}: {said}", file.display());
    Ok(())
}

/// The alerts, by name.
fn alerts() -> Result<BTreeMap<String, Value>> {
    let all = rules()?.into_iter().filter_map(|rule| Some((rule["alert"].as_str()?.to_owned(), rule)));
    Ok(all.collect())
}

fn read(text: &str) -> Result<Value> {
    Ok(serde_saphyr::from_str(text)?)
}

#[test]
fn each_alert_fires_when_it_must_and_only_then() -> Result<()> {
    promtool(&["check", "rules"], &path("rules.yaml"))?;
    promtool(&["test", "rules"], Path::new(ALERTS))?;
    // Of each there is a scenario in which it fires, and one near it in which nothing fires.
    let scenarios = fs::read_to_string(ALERTS)?;
    for name in alerts()?.keys() {
        ensure!(scenarios.contains(&format!("alertname=\"{name}\"")), "no scenario fires {name}");
    }
    ensure!(
        scenarios.matches("promql_expr_test: *nothing").count() >= 10,
        "scenarios in which nothing fires"
    );
    Ok(())
}

#[test]
fn each_alert_says_what_is_wrong_and_what_to_do_and_has_a_place_in_the_documentation() -> Result<()> {
    let page = fs::read_to_string(format!("{DOCS}/monitoring.md"))?;
    let headings: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| [`Tenure")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, severity, after, _] = cells[..] else { anyhow::bail!("the row {line}") };
        let name = name.trim_start_matches("[`").split('`').next().unwrap_or_default();
        rows.insert(name.to_owned(), (severity.to_owned(), after.to_owned()));
    }
    let alerts = alerts()?;
    ensure!(rows.keys().eq(alerts.keys()), "the table has {:?}, the rules {:?}", rows.keys(), alerts.keys());
    for (name, alert) in &alerts {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let annotations = &alert["annotations"];
        ensure!(!text(&annotations["summary"]).is_empty(), "{name} has no summary");
        ensure!(text(&annotations["description"]).len() > 60, "{name} does not say what to do");
        let runbook = format!("docs/monitoring.md#{}", name.to_lowercase());
        ensure!(text(&annotations["runbook"]) == runbook, "the runbook of {name} is {runbook}");
        ensure!(headings.contains(name.as_str()), "docs/monitoring.md has no section {name}");
        let after = alert["for"].as_str().unwrap_or("at once").replace('m', " min");
        ensure!(rows[name] == (text(&alert["labels"]["severity"]), after), "{name}: {:?}", rows[name]);
    }
    Ok(())
}

#[test]
fn the_operator_gets_the_same_rules() -> Result<()> {
    let (rules, ours) = (file("rules.yaml")?, path("prometheusrule.yaml"));
    if std::env::var_os("TENURE_RECORD").is_some() {
        let before = file("prometheusrule.yaml")?;
        let head = before.split_once("  groups:\n").context("groups")?.0;
        let groups = rules.find("groups:").context("groups")?;
        let indent = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") };
        let body: String = rules[groups..].lines().map(indent).collect();
        fs::write(&ours, format!("{head}{body}"))?;
    }
    let manifest = read(&file("prometheusrule.yaml")?)?;
    ensure!(manifest["kind"] == "PrometheusRule" && manifest["apiVersion"] == "monitoring.coreos.com/v1");
    ensure!(
        manifest["spec"] == read(&rules)?,
        "write it again: TENURE_RECORD=1 cargo test --test monitoring"
    );
    Ok(())
}

#[test]
fn the_dashboard_can_be_read_and_each_of_its_queries_too() -> Result<()> {
    let panels = panels()?;
    let ids: BTreeSet<i64> = panels.iter().filter_map(|panel| panel["id"].as_i64()).collect();
    ensure!(ids.len() == panels.len(), "each panel has an ID of its own");
    let mut taken = BTreeMap::new();
    for panel in &panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().with_context(|| format!("{key} of {panel}"));
        let (left, top) = (at("x")?, at("y")?);
        let (right, bottom) = (left + at("w")?, top + at("h")?);
        ensure!(right <= 24, "{} is too wide", panel["title"]);
        for cell in (left..right).flat_map(|column| (top..bottom).map(move |row| (column, row))) {
            let other = taken.insert(cell, panel["title"].clone());
            ensure!(other.is_none(), "{} lies on {other:?}", panel["title"]);
        }
        let targets = panel["targets"].as_array().map_or(0, Vec::len);
        let described = panel["description"].as_str().is_some_and(|it| !it.is_empty());
        ensure!(panel["type"] == "row" || targets > 0 && described, "{} shows nothing", panel["title"]);
    }
    // What a panel says of alerts is right, and each alert is at a panel.
    let alerts = alerts()?;
    let said: BTreeSet<&str> = panels
        .iter()
        .filter_map(|panel| panel["description"].as_str())
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()))
        .filter(|word| word.starts_with("Tenure"))
        .collect();
    for name in &said {
        ensure!(alerts.contains_key(*name), "there is no alert {name}");
    }
    let rules: Vec<Value> = queries()?
        .into_iter()
        .enumerate()
        .map(|(number, it)| json!({"record": format!("test:query:{number}"), "expr": it.expression}))
        .collect();
    let directory = tempfile::tempdir()?;
    let all = directory.path().join("queries.yaml");
    fs::write(&all, json!({"groups": [{"name": "queries", "rules": rules}]}).to_string())?;
    promtool(&["check", "rules"], &all)
}

#[test]
fn each_metric_is_documented() -> Result<()> {
    let page = fs::read_to_string(format!("{DOCS}/reference/metrics.md"))?;
    let recorded: BTreeSet<String> =
        rules()?.iter().filter_map(|rule| Some(rule["record"].as_str()?.to_owned())).collect();
    for query in queries()? {
        for metric in query.metrics() {
            let own = ["_bucket", "_count", "_sum"].iter().find_map(|end| metric.strip_suffix(end));
            let own = own.unwrap_or(&metric);
            let is_there = page.contains(&format!("`{own}`"));
            ensure!(
                is_there || metric == "up" || recorded.contains(&metric),
                "{metric}, of {}, is not in docs/reference/metrics.md",
                query.of
            );
        }
    }
    Ok(())
}

#[test]
fn the_operators_monitors_select_the_pods_of_the_product() -> Result<()> {
    let monitors: Vec<Value> = file("podmonitor.yaml")?.split("\n---\n").map(read).collect::<Result<_>>()?;
    let pod = |manifest: &str| -> Result<Value> {
        let text = fs::read_to_string(format!("{DEPLOY}/{manifest}"))?;
        Ok(read(text.split("\n---\n").next().unwrap_or_default())?["spec"]["template"].clone())
    };
    let (agent, controller) = (pod("agent/daemonset.yaml")?, pod("controller/deployment.yaml")?);
    let gateway = json!({"metadata": {"labels": gateway_labels("nat")}});
    let expected = [("tenured", &agent), ("tenure-controller", &controller), ("tenure-egress", &gateway)];
    ensure!(monitors.len() == expected.len(), "{} monitors", monitors.len());
    for (monitor, (job, pod)) in monitors.iter().zip(expected) {
        let selector = monitor["spec"]["selector"]["matchLabels"].as_object().context("matchLabels")?;
        let labels = &pod["metadata"]["labels"];
        ensure!(!selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == *value), "{job}");
        let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
        ensure!(endpoint["honorLabels"] == true && endpoint["relabelings"][0]["replacement"] == job, "{job}");
        let ports = pod["spec"]["containers"][0]["ports"].as_array();
        let named = ports.map(|ports| ports.iter().any(|port| port["name"] == endpoint["port"]));
        // A gateway's port has its name from the controller; a real Prometheus finds it by that in `egress_cluster`.
        ensure!(named.unwrap_or(endpoint["port"] == "metrics"), "{job} has no port {}", endpoint["port"]);
    }
    Ok(())
}
