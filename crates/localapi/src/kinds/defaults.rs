//! What the server fills in when a field of a built-in kind is left out.

use serde_json::{Map, Value, json};

/// Fills in the defaults of `kind`.
pub(super) fn apply(group: &str, kind: &str, object: &mut Value) {
    match kind {
        "Event" => event(group, object),
        "Namespace" => {
            default(object, &["spec"], json!({}));
            default(object, &["status", "phase"], json!("Active"));
            label_with_name(object);
        }
        "Node" => node(object),
        "Lease" => default(object, &["spec"], json!({})),
        "Secret" => secret(object),
        "ConfigMap" => drop_if_empty(object, &["data", "binaryData"]),
        "Service" => service(object),
        "Pod" => pod(object),
        "Deployment" => deployment(object),
        "ReplicaSet" => {
            default(object, &["spec", "replicas"], json!(1));
            template(object);
        }
        "DaemonSet" => daemon_set(object),
        "StatefulSet" => stateful_set(object),
        "CustomResourceDefinition" => custom_resource_definition(object),
        _ => {}
    }
}

/// Namespaces carry their name as a label, so that selectors can name one.
pub(super) fn label_with_name(object: &mut Value) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !name.is_empty() {
        set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], json!(name));
    }
}

/// Sets what `path` names unless it is there, making the objects on the way.
pub(super) fn default(object: &mut Value, path: &[&str], value: Value) {
    put(object, path, value, false);
}

/// Sets what `path` names.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) {
    put(object, path, value, true);
}

fn put(object: &mut Value, path: &[&str], value: Value, replace: bool) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = object;
    for name in parents {
        let Value::Object(fields) = at else { return };
        at = fields.entry(*name).or_insert_with(|| Value::Object(Map::new()));
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    let Value::Object(fields) = at else { return };
    let field = fields.entry(*last).or_insert(Value::Null);
    if replace || field.is_null() || *field == json!("") {
        *field = value;
    }
}

fn drop_if_empty(object: &mut Value, fields: &[&str]) {
    let Value::Object(object) = object else { return };
    for field in fields {
        if object.get(*field).and_then(Value::as_object).is_some_and(Map::is_empty) {
            object.remove(*field);
        }
    }
}

fn each<'v>(value: &'v mut Value, list: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

fn node(object: &mut Value) {
    default(object, &["spec"], json!({}));
    default(object, &["status", "daemonEndpoints", "kubeletEndpoint", "Port"], json!(0));
    let facts = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    for fact in facts {
        default(object, &["status", "nodeInfo", fact], json!(""));
    }
    if object["status"]["capacity"].is_object() {
        let capacity = object["status"]["capacity"].clone();
        default(object, &["status", "allocatable"], capacity);
    }
}

fn secret(object: &mut Value) {
    default(object, &["type"], json!("Opaque"));
    let Value::Object(fields) = object else { return };
    // Written as text, kept as bytes.
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(data) = data {
            use base64::Engine;
            for (key, text) in texts {
                let bytes = text.as_str().unwrap_or_default().as_bytes();
                data.insert(key, json!(base64::engine::general_purpose::STANDARD.encode(bytes)));
            }
        }
    }
    drop_if_empty(object, &["data"]);
}

fn service(object: &mut Value) {
    default(object, &["spec", "sessionAffinity"], json!("None"));
    default(object, &["spec", "type"], json!("ClusterIP"));
    let kind = object["spec"]["type"].as_str().unwrap_or_default().to_owned();
    if kind != "ExternalName" {
        default(object, &["spec", "internalTrafficPolicy"], json!("Cluster"));
    }
    if kind == "NodePort" || kind == "LoadBalancer" {
        default(object, &["spec", "externalTrafficPolicy"], json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(object, &["spec", "allocateLoadBalancerNodePorts"], json!(true));
    }
    for port in object.get_mut("spec").into_iter().flat_map(|spec| each(spec, "ports")) {
        default(port, &["protocol"], json!("TCP"));
        let number = port["port"].clone();
        default(port, &["targetPort"], number);
    }
    if kind != "ExternalName" {
        default(object, &["spec", "ipFamilies"], json!(["IPv4"]));
        default(object, &["spec", "ipFamilyPolicy"], json!("SingleStack"));
        if let Some(address) = object["spec"]["clusterIP"].as_str().filter(|address| !address.is_empty()) {
            let addresses = json!([address]);
            default(object, &["spec", "clusterIPs"], addresses);
        }
    }
    default(object, &["status", "loadBalancer"], json!({}));
}

/// Events write fields that say nothing.
fn event(group: &str, object: &mut Value) {
    default(object, &["eventTime"], Value::Null);
    if group.is_empty() {
        default(object, &["source"], json!({}));
        for field in ["firstTimestamp", "lastTimestamp"] {
            default(object, &[field], Value::Null);
        }
        for field in ["reportingComponent", "reportingInstance"] {
            default(object, &[field], json!(""));
        }
    } else {
        default(object, &["deprecatedSource"], json!({}));
        for field in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
            default(object, &[field], Value::Null);
        }
    }
}

fn pod(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    pod_spec(spec);
    default(spec, &["enableServiceLinks"], json!(true));
    let on_host = spec["hostNetwork"] == json!(true);
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            requests_from_limits(container);
            if on_host {
                for port in each(container, "ports") {
                    let number = port["containerPort"].clone();
                    default(port, &["hostPort"], number);
                }
            }
        }
    }
    default(object, &["status"], json!({}));
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container.pointer("/resources/limits").and_then(Value::as_object).cloned() else {
        return;
    };
    for (resource, limit) in limits {
        default(container, &["resources", "requests", &resource], limit);
    }
}

fn template(object: &mut Value) {
    if let Some(spec) = object.pointer_mut("/spec/template/spec") {
        pod_spec(spec);
    }
    default(object, &["status"], json!({}));
}

fn pod_spec(spec: &mut Value) {
    default(spec, &["dnsPolicy"], json!("ClusterFirst"));
    default(spec, &["restartPolicy"], json!("Always"));
    default(spec, &["securityContext"], json!({}));
    default(spec, &["terminationGracePeriodSeconds"], json!(30));
    default(spec, &["schedulerName"], json!("default-scheduler"));
    if let Some(account) = spec["serviceAccountName"].as_str().filter(|name| !name.is_empty()) {
        // The old name of the same field is kept in step.
        let account = json!(account);
        set(spec, &["serviceAccount"], account);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, list).for_each(container_defaults);
    }
    each(spec, "volumes").for_each(volume);
}

fn container_defaults(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    default(container, &["imagePullPolicy"], json!(policy));
    default(container, &["terminationMessagePath"], json!("/dev/termination-log"));
    default(container, &["terminationMessagePolicy"], json!("File"));
    default(container, &["resources"], json!({}));
    each(container, "ports").for_each(|port| default(port, &["protocol"], json!("TCP")));
    for variable in each(container, "env") {
        if variable.pointer("/valueFrom/fieldRef").is_some() {
            default(variable, &["valueFrom", "fieldRef", "apiVersion"], json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                default(probe, &[field], json!(value));
            }
            if probe["httpGet"].is_object() {
                default(probe, &["httpGet", "path"], json!("/"));
                default(probe, &["httpGet", "scheme"], json!("HTTP"));
            }
        }
    }
}

/// Whether an image name means whatever is newest.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    if name.contains('@') {
        return false;
    }
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.keys().all(|key| key == "name")) {
        set(volume, &["emptyDir"], json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if volume[source].is_object() {
            default(volume, &[source, "defaultMode"], json!(0o644));
        }
    }
    if volume["hostPath"].is_object() && volume["hostPath"]["type"].is_null() {
        set(volume, &["hostPath", "type"], json!(""));
    }
    let sources = volume.get_mut("projected").into_iter().flat_map(|projected| each(projected, "sources"));
    for source in sources.filter(|source| source["serviceAccountToken"].is_object()) {
        default(source, &["serviceAccountToken", "expirationSeconds"], json!(3600));
    }
}

fn deployment(object: &mut Value) {
    template(object);
    default(object, &["spec", "replicas"], json!(1));
    default(object, &["spec", "strategy", "type"], json!("RollingUpdate"));
    if object["spec"]["strategy"]["type"] == "RollingUpdate" {
        for field in ["maxUnavailable", "maxSurge"] {
            default(object, &["spec", "strategy", "rollingUpdate", field], json!("25%"));
        }
    }
    default(object, &["spec", "revisionHistoryLimit"], json!(10));
    default(object, &["spec", "progressDeadlineSeconds"], json!(600));
}

fn daemon_set(object: &mut Value) {
    template(object);
    default(object, &["spec", "updateStrategy", "type"], json!("RollingUpdate"));
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        default(object, &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"], json!(1));
        default(object, &["spec", "updateStrategy", "rollingUpdate", "maxSurge"], json!(0));
    }
    default(object, &["spec", "revisionHistoryLimit"], json!(10));
}

fn stateful_set(object: &mut Value) {
    template(object);
    default(object, &["spec", "podManagementPolicy"], json!("OrderedReady"));
    default(object, &["spec", "updateStrategy", "type"], json!("RollingUpdate"));
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        default(object, &["spec", "updateStrategy", "rollingUpdate", "partition"], json!(0));
    }
    for event in ["whenDeleted", "whenScaled"] {
        default(object, &["spec", "persistentVolumeClaimRetentionPolicy", event], json!("Retain"));
    }
    default(object, &["spec", "replicas"], json!(1));
    default(object, &["spec", "revisionHistoryLimit"], json!(10));
}

fn custom_resource_definition(object: &mut Value) {
    let kind = object["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    if !kind.is_empty() {
        default(object, &["spec", "names", "singular"], json!(kind.to_lowercase()));
        default(object, &["spec", "names", "listKind"], json!(format!("{kind}List")));
    }
    default(object, &["spec", "conversion", "strategy"], json!("None"));
}
