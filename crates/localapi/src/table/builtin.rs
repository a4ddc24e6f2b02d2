//! The columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, Cell, Column, age, name_column, pod};

type Make = fn(&Value, Timestamp) -> Value;

/// The columns of a built-in kind; kinds without columns of their own show their name and when they were made.
pub(super) fn columns<'a>(kind: &str) -> Vec<Column<'a>> {
    let mut columns = vec![name_column()];
    match kind {
        "Namespace" => columns.extend([
            text("Status", "Whether the namespace is in use or going.", |o, _| json!(at(o, "/status/phase"))),
            age_column(),
        ]),
        "Node" => columns.extend(node()),
        "Pod" => columns.extend(pods()),
        "Service" => columns.extend(service()),
        "ConfigMap" => columns.extend([
            text("Data", "Number of entries.", |o, _| json!(entries(o, "data") + entries(o, "binaryData"))),
            age_column(),
        ]),
        "Secret" => columns.extend([
            text("Type", "What the data is for.", |o, _| json!(at(o, "/type"))),
            text("Data", "Number of entries.", |o, _| json!(entries(o, "data"))),
            age_column(),
        ]),
        "ServiceAccount" => columns.push(age_column()),
        "Lease" => columns.extend([
            text("Holder", "Who holds the lease.", |o, _| json!(at(o, "/spec/holderIdentity"))),
            age_column(),
        ]),
        "Event" => return event(),
        "Deployment" => columns.extend(deployment()),
        "ReplicaSet" => columns.extend(replica_set()),
        "StatefulSet" => columns.extend(stateful_set()),
        "DaemonSet" => columns.extend(daemon_set()),
        "PodDisruptionBudget" => columns.extend(disruption_budget()),
        _ => columns.push(Column {
            ty: "date",
            ..text("Created At", "When the object was created.", |o, _| {
                json!(at(o, "/metadata/creationTimestamp"))
            })
        }),
    }
    columns
}

fn text<'a>(name: &'a str, description: &str, make: Make) -> Column<'a> {
    Column {
        name,
        ty: "string",
        format: "",
        description: description.to_owned(),
        priority: 0,
        cell: Cell::Made(make),
    }
}

fn wide<'a>(name: &'a str, description: &str, make: Make) -> Column<'a> {
    Column { priority: 1, ..text(name, description, make) }
}

fn integer<'a>(name: &'a str, description: &str, make: Make) -> Column<'a> {
    Column { ty: "integer", ..text(name, description, make) }
}

fn age_column<'a>() -> Column<'a> {
    text("Age", AGE, |o, now| json!(age::of(&o["metadata"]["creationTimestamp"], now)))
}

/// The text at a pointer; empty when there is none.
fn at<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn or<'v>(text: &'v str, absent: &'static str) -> &'v str {
    if text.is_empty() { absent } else { text }
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn entries(object: &Value, field: &str) -> usize {
    object[field].as_object().map_or(0, serde_json::Map::len)
}

fn items<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn joined(items: &[Value], field: &str) -> String {
    let texts: Vec<&str> = items.iter().map(|item| item[field].as_str().unwrap_or_default()).collect();
    texts.join(",")
}

/// Labels as `a=b,c=d`.
fn labels(map: Option<&Value>) -> String {
    let mut pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

fn selector(object: &Value) -> String {
    let chosen = object.pointer("/spec/selector/matchLabels");
    let mut parts = match labels(chosen).as_str() {
        "<none>" => Vec::new(),
        text => text.split(',').map(str::to_owned).collect::<Vec<_>>(),
    };
    for requirement in items(object, "/spec/selector/matchExpressions") {
        let key = requirement["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = items(requirement, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        parts.push(match requirement["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}

fn containers<'a>() -> [Column<'a>; 2] {
    const TEMPLATE: &str = "/spec/template/spec/containers";
    [
        wide("Containers", "Names of the template's containers.", |o, _| {
            json!(joined(items(o, TEMPLATE), "name"))
        }),
        wide("Images", "Images of the template's containers.", |o, _| {
            json!(joined(items(o, TEMPLATE), "image"))
        }),
    ]
}

fn selector_column<'a>() -> Column<'a> {
    wide("Selector", "Which pods belong to it.", |o, _| json!(selector(o)))
}

fn ready_of(object: &Value) -> String {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas"))
}

fn node<'a>() -> Vec<Column<'a>> {
    fn address(node: &Value, kind: &str) -> String {
        let found = items(node, "/status/addresses").iter().find(|address| address["type"] == kind);
        found.and_then(|address| address["address"].as_str()).unwrap_or("<none>").to_owned()
    }
    vec![
        text("Status", "Whether the node is ready.", |o, _| {
            let ready = items(o, "/status/conditions").iter().find(|c| c["type"] == "Ready");
            let state = match ready {
                Some(condition) if condition["status"] == "True" => "Ready",
                Some(_) => "NotReady",
                None => "Unknown",
            };
            let closed = if o["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
            json!(format!("{state}{closed}"))
        }),
        text("Roles", "What the node is for.", |o, _| {
            let mut roles: Vec<&str> = Vec::new();
            for (key, value) in o["metadata"]["labels"].as_object().into_iter().flatten() {
                if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
                    roles.extend(Some(role).filter(|role| !role.is_empty()));
                } else if key == "kubernetes.io/role" {
                    roles.extend(value.as_str().filter(|role| !role.is_empty()));
                }
            }
            roles.sort_unstable();
            roles.dedup();
            json!(or(&roles.join(","), "<none>"))
        }),
        age_column(),
        text("Version", "Version of the kubelet.", |o, _| json!(at(o, "/status/nodeInfo/kubeletVersion"))),
        wide("Internal-IP", "First internal address.", |o, _| json!(address(o, "InternalIP"))),
        wide("External-IP", "First external address.", |o, _| json!(address(o, "ExternalIP"))),
        wide("OS-Image", "Operating system.", |o, _| {
            json!(or(at(o, "/status/nodeInfo/osImage"), "<unknown>"))
        }),
        wide("Kernel-Version", "Kernel.", |o, _| {
            json!(or(at(o, "/status/nodeInfo/kernelVersion"), "<unknown>"))
        }),
        wide("Container-Runtime", "Container runtime.", |o, _| {
            json!(or(at(o, "/status/nodeInfo/containerRuntimeVersion"), "<unknown>"))
        }),
    ]
}

fn pods<'a>() -> Vec<Column<'a>> {
    vec![
        text("Ready", "How many of its containers are ready.", |o, now| json!(pod::summary(o, now).ready)),
        text("Status", "What its containers amount to.", |o, now| json!(pod::summary(o, now).status)),
        text("Restarts", "How often containers were restarted.", |o, now| {
            json!(pod::summary(o, now).restarts)
        }),
        age_column(),
        wide("IP", "First address.", |o, _| json!(or(at(o, "/status/podIPs/0/ip"), "<none>"))),
        wide("Node", "Where it runs.", |o, _| json!(or(at(o, "/spec/nodeName"), "<none>"))),
        wide("Nominated Node", "Where room is being made for it.", |o, _| {
            json!(or(at(o, "/status/nominatedNodeName"), "<none>"))
        }),
        wide("Readiness Gates", "Further conditions that hold, of how many.", |o, _| {
            json!(pod::readiness_gates(o))
        }),
    ]
}

fn service<'a>() -> Vec<Column<'a>> {
    fn external(service: &Value) -> String {
        let own: Vec<&str> = items(service, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
        match at(service, "/spec/type") {
            "ExternalName" => at(service, "/spec/externalName").to_owned(),
            "LoadBalancer" => {
                let given = items(service, "/status/loadBalancer/ingress");
                let mut all: Vec<&str> =
                    given.iter().filter_map(|i| i["ip"].as_str().or(i["hostname"].as_str())).collect();
                all.extend(own);
                or(&all.join(","), "<pending>").to_owned()
            }
            "ClusterIP" | "NodePort" => or(&own.join(","), "<none>").to_owned(),
            _ => "<unknown>".to_owned(),
        }
    }
    fn ports(service: &Value) -> String {
        let ports: Vec<String> = items(service, "/spec/ports")
            .iter()
            .map(|port| {
                let (number, protocol) = (number(port, "/port"), or(at(port, "/protocol"), "TCP"));
                match self::number(port, "/nodePort") {
                    0 => format!("{number}/{protocol}"),
                    node_port => format!("{number}:{node_port}/{protocol}"),
                }
            })
            .collect();
        or(&ports.join(","), "<none>").to_owned()
    }
    vec![
        text("Type", "How the service is reached.", |o, _| json!(at(o, "/spec/type"))),
        text("Cluster-IP", "Its address inside the cluster.", |o, _| {
            json!(or(or(at(o, "/spec/clusterIPs/0"), "<none>"), "<none>"))
        }),
        text("External-IP", "Its addresses outside the cluster.", |o, _| json!(external(o))),
        text("Port(s)", "Its ports.", |o, _| json!(ports(o))),
        age_column(),
        wide("Selector", "Which pods serve it.", |o, _| json!(labels(o.pointer("/spec/selector")))),
    ]
}

fn event<'a>() -> Vec<Column<'a>> {
    fn first_seen(event: &Value, now: Timestamp) -> String {
        match age::of(&event["firstTimestamp"], now).as_str() {
            "<unknown>" => age::of(&event["eventTime"], now),
            known => known.to_owned(),
        }
    }
    fn last_seen(event: &Value, now: Timestamp) -> String {
        if !event["series"].is_null() {
            return age::of(&event["series"]["lastObservedTime"], now);
        }
        match age::of(&event["lastTimestamp"], now).as_str() {
            "<unknown>" => first_seen(event, now),
            known => known.to_owned(),
        }
    }
    fn target(event: &Value) -> String {
        let kind = at(event, "/involvedObject/kind").to_lowercase();
        match at(event, "/involvedObject/name") {
            "" => kind,
            name => format!("{kind}/{name}"),
        }
    }
    fn source(event: &Value) -> String {
        let component = or_else(at(event, "/source/component"), at(event, "/reportingComponent"));
        let instance = or_else(at(event, "/source/host"), at(event, "/reportingInstance"));
        if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") }
    }
    fn or_else<'v>(first: &'v str, second: &'v str) -> &'v str {
        if first.is_empty() { second } else { first }
    }
    vec![
        text("Last Seen", "Time since it was last seen.", |o, now| json!(last_seen(o, now))),
        text("Type", "Normal or Warning.", |o, _| json!(at(o, "/type"))),
        text("Reason", "Why it happened, in one word.", |o, _| json!(at(o, "/reason"))),
        text("Object", "What it is about.", |o, _| json!(target(o))),
        wide("Subobject", "Which part of that.", |o, _| json!(at(o, "/involvedObject/fieldPath"))),
        wide("Source", "Who says so.", |o, _| json!(source(o))),
        text("Message", "What happened.", |o, _| json!(at(o, "/message").trim())),
        wide("First Seen", "Time since it was first seen.", |o, now| json!(first_seen(o, now))),
        wide("Count", "How often it was seen.", |o, _| {
            let series = number(o, "/series/count");
            let count = if o["series"].is_null() { number(o, "/count").max(1) } else { series };
            json!(count)
        }),
        Column { priority: 1, ..name_column() },
    ]
}

fn deployment<'a>() -> Vec<Column<'a>> {
    let mut columns = vec![
        text("Ready", "Ready replicas, of how many.", |o, _| json!(ready_of(o))),
        text("Up-to-date", "Replicas of the newest template.", |o, _| {
            json!(number(o, "/status/updatedReplicas"))
        }),
        text("Available", "Available replicas.", |o, _| json!(number(o, "/status/availableReplicas"))),
        age_column(),
    ];
    columns.extend(containers());
    columns.push(selector_column());
    columns
}

fn replica_set<'a>() -> Vec<Column<'a>> {
    let mut columns = vec![
        integer("Desired", "Wanted replicas.", |o, _| json!(number(o, "/spec/replicas"))),
        integer("Current", "Replicas there are.", |o, _| json!(number(o, "/status/replicas"))),
        integer("Ready", "Ready replicas.", |o, _| json!(number(o, "/status/readyReplicas"))),
        age_column(),
    ];
    columns.extend(containers());
    columns.push(selector_column());
    columns
}

fn stateful_set<'a>() -> Vec<Column<'a>> {
    let mut columns =
        vec![text("Ready", "Ready replicas, of how many.", |o, _| json!(ready_of(o))), age_column()];
    columns.extend(containers());
    columns
}

fn daemon_set<'a>() -> Vec<Column<'a>> {
    let mut columns = vec![
        integer("Desired", "Nodes that should run it.", |o, _| {
            json!(number(o, "/status/desiredNumberScheduled"))
        }),
        integer("Current", "Nodes that run it.", |o, _| json!(number(o, "/status/currentNumberScheduled"))),
        integer("Ready", "Nodes where it is ready.", |o, _| json!(number(o, "/status/numberReady"))),
        integer("Up-to-date", "Nodes with the newest template.", |o, _| {
            json!(number(o, "/status/updatedNumberScheduled"))
        }),
        integer("Available", "Nodes where it is available.", |o, _| {
            json!(number(o, "/status/numberAvailable"))
        }),
        text("Node Selector", "Which nodes should run it.", |o, _| {
            json!(labels(o.pointer("/spec/template/spec/nodeSelector")))
        }),
        age_column(),
    ];
    columns.extend(containers());
    columns.push(selector_column());
    columns
}

fn disruption_budget<'a>() -> Vec<Column<'a>> {
    fn bound(budget: &Value, field: &str) -> String {
        match &budget["spec"][field] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => "N/A".to_owned(),
        }
    }
    vec![
        text("Min Available", "Pods that must be available.", |o, _| json!(bound(o, "minAvailable"))),
        text("Max Unavailable", "Pods that may be unavailable.", |o, _| json!(bound(o, "maxUnavailable"))),
        integer("Allowed Disruptions", "Pods that may be disrupted now.", |o, _| {
            json!(number(o, "/status/disruptionsAllowed"))
        }),
        age_column(),
    ]
}
