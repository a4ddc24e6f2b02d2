//! The pods of gateways: the template, completed.
//!
//! The template is merged as JSON, so that fields newer than this program are kept. Unexpected shapes stay as they
//! are, and the API server reports what is wrong.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Map, Value, json};
use tenure_api::coil::Egress;
use tenure_api::coil::egress::{CONTAINER, account_name, gateway_labels};

/// The port of the gateway's metrics and health.
const METRICS: u16 = 8080;
const HEALTH: u16 = 8081;

/// Labels, annotations and spec of a gateway's pods.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodTemplate {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) spec: Map<String, Value>,
}

/// The pods of an Egress's gateways.
pub(super) fn pods_of(egress: &Egress, image: &str) -> PodTemplate {
    let template = egress.spec.template.clone().unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    let mut labels = metadata.labels;
    labels.extend(gateway_labels(&egress.name_any()));
    let mut spec = template.spec;
    spec.entry("serviceAccountName").or_insert_with(|| json!(account_name(&egress.name_any())));
    let containers = spec.entry("containers").or_insert_with(|| json!([]));
    if let Value::Array(containers) = containers {
        if !containers.iter().any(is_gateway) {
            containers.push(json!({"name": CONTAINER}));
        }
        let gateways = containers.iter_mut().filter(|it| is_gateway(it)).filter_map(Value::as_object_mut);
        gateways.for_each(|container| complete(container, egress, image));
    }
    PodTemplate { labels, annotations: metadata.annotations, spec }
}

/// The account that the gateways run as.
pub(super) fn account_of(egress: &Egress) -> String {
    let template = egress.spec.template.as_ref();
    let named = template.and_then(|template| template.spec.get("serviceAccountName")?.as_str());
    named.map_or_else(|| account_name(&egress.name_any()), str::to_owned)
}

fn is_gateway(container: &Value) -> bool {
    container["name"] == CONTAINER
}

/// Completes the gateway's container.
fn complete(container: &mut Map<String, Value>, egress: &Egress, image: &str) {
    let mut default = |field: &str, value: Value| {
        container.entry(field).or_insert(value);
    };
    default("image", json!(image));
    default("command", json!(["tenure-egress"]));
    if egress.spec.fou_source_port_auto {
        default("args", json!(["--enable-sport-auto=true"]));
    }
    default("livenessProbe", json!({"httpGet": {"path": "/healthz", "port": "health"}}));
    default("readinessProbe", json!({"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 1}));
    let env = ["COIL_POD_NAMESPACE", "COIL_EGRESS_NAME", "COIL_POD_ADDRESSES"];
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    add(
        container,
        "env",
        env.map(|name| match name {
            "COIL_POD_NAMESPACE" => json!({"name": name, "valueFrom": field("metadata.namespace")}),
            "COIL_EGRESS_NAME" => json!({"name": name, "value": egress.name_any()}),
            _ => json!({"name": name, "valueFrom": field("status.podIPs")}),
        }),
    );
    let ports = [("metrics", METRICS), ("health", HEALTH)];
    add(
        container,
        "ports",
        ports.map(|(name, port)| json!({"name": name, "containerPort": port, "protocol": "TCP"})),
    );
    requests(container);
    rights(container);
}

/// Adds entries to a list of named entries, replacing those of the same name.
fn add<const N: usize>(container: &mut Map<String, Value>, field: &str, entries: [Value; N]) {
    let list = container.entry(field).or_insert_with(|| json!([]));
    if let Value::Array(list) = list {
        list.retain(|it| !entries.iter().any(|entry| entry["name"] == it["name"]));
        list.extend(entries);
    }
}

/// The resource requests of a gateway. With a limit and no request, Kubernetes uses the limit.
fn requests(container: &mut Map<String, Value>) {
    let Value::Object(resources) = container.entry("resources").or_insert_with(|| json!({})) else { return };
    let limits = resources.get("limits").cloned().unwrap_or_default();
    let Value::Object(requests) = resources.entry("requests").or_insert_with(|| json!({})) else { return };
    for (resource, amount) in [("cpu", "100m"), ("memory", "200Mi")] {
        if limits.get(resource).is_none() {
            requests.entry(resource).or_insert_with(|| json!(amount));
        }
    }
}

/// The capabilities of a gateway: it may change its own network, nothing else.
fn rights(container: &mut Map<String, Value>) {
    let Value::Object(context) = container.entry("securityContext").or_insert_with(|| json!({})) else {
        return;
    };
    context.entry("capabilities").or_insert_with(|| json!({"drop": ["ALL"], "add": ["NET_ADMIN"]}));
    context.entry("readOnlyRootFilesystem").or_insert_with(|| json!(true));
    // A privileged container cannot drop capabilities.
    if context.get("privileged") != Some(&json!(true)) {
        context.entry("allowPrivilegeEscalation").or_insert_with(|| json!(false));
    }
}
