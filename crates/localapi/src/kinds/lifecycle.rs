//! Who may change what of a built-in kind: what a creation starts from, what an update may touch, when the
//! generation counts up.

use serde_json::{Value, json};

use super::defaults::{default, label_with_name, set};

/// Sets what a new object starts with, whatever its author wrote there.
pub(crate) fn prepare_create(kind: &str, object: &mut Value) {
    match kind {
        "Namespace" => {
            object["status"] = json!({"phase": "Active"});
            let finalizers = &mut object["spec"]["finalizers"];
            match finalizers.as_array_mut() {
                Some(list) if list.contains(&json!("kubernetes")) => {}
                Some(list) => list.push(json!("kubernetes")),
                None => *finalizers = json!(["kubernetes"]),
            }
            label_with_name(object);
        }
        "Pod" => {
            admit_pod(object);
            object["status"] = json!({"phase": "Pending", "qosClass": quality(&object["spec"])});
        }
        "Node" => admit_node(object),
        _ => {
            if let Some(status) = initial_status(kind) {
                object["status"] = status;
            }
        }
    }
    if kind == "DaemonSet" {
        set(object, &["metadata", "annotations", TEMPLATE_GENERATION], json!("1"));
    }
    if counts_generations(kind) {
        set(object, &["metadata", "generation"], json!(1));
    }
}

/// Counts the changes of a daemon set's template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A new node is not ready until someone says so.
fn admit_node(object: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    match object["spec"]["taints"].as_array_mut() {
        Some(taints) if taints.contains(&taint) => {}
        Some(taints) => taints.push(taint),
        None => set(object, &["spec", "taints"], json!([taint])),
    }
}

/// What a cluster's admission fills into every pod: an account, a priority, patience with failing nodes.
fn admit_pod(object: &mut Value) {
    default(object, &["spec", "serviceAccountName"], json!("default"));
    let account = object["spec"]["serviceAccountName"].clone();
    default(object, &["spec", "serviceAccount"], account);
    default(object, &["spec", "priority"], json!(0));
    default(object, &["spec", "preemptionPolicy"], json!("PreemptLowerPriority"));
    let mut tolerations = object["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = |one: &Value| {
            let effect = one["effect"].as_str().unwrap_or_default();
            let about = one["key"].as_str().unwrap_or_default();
            (about.is_empty() || about == key) && (effect.is_empty() || effect == "NoExecute")
        };
        if !tolerations.iter().any(tolerated) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    set(object, &["spec", "tolerations"], Value::Array(tolerations));
}

/// Takes back what an update of the object itself may not change, and counts the generation.
pub(crate) fn prepare_update(kind: &str, object: &mut Value, old: &Value) {
    if kind == "Namespace" {
        set(object, &["spec", "finalizers"], old["spec"]["finalizers"].clone());
        if object["spec"]["finalizers"].is_null()
            && let Some(spec) = object["spec"].as_object_mut()
        {
            spec.remove("finalizers");
        }
        label_with_name(object);
    }
    if kind == "Node" || kind == "Pod" || kind == "Namespace" || initial_status(kind).is_some() {
        copy(object, old, "status");
    }
    if kind == "DaemonSet" {
        let counted = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().unwrap_or_default();
        let mut count: u64 = counted.parse().unwrap_or(1);
        if object["spec"]["template"] != old["spec"]["template"] {
            count += 1;
        }
        set(object, &["metadata", "annotations", TEMPLATE_GENERATION], json!(count.to_string()));
    }
    if counts_generations(kind) {
        let same_annotations =
            kind != "Deployment" || object["metadata"]["annotations"] == old["metadata"]["annotations"];
        if object["spec"] != old["spec"] || !same_annotations {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            set(object, &["metadata", "generation"], json!(generation));
        }
    }
}

/// Takes back what an update of the status may not change.
pub(crate) fn prepare_status_update(kind: &str, object: &mut Value, old: &Value) {
    copy(object, old, "spec");
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => copy_metadata(object, old, "labels"),
        "Pod" => {
            copy_metadata(object, old, "ownerReferences");
            let class = &old["status"]["qosClass"];
            if object["status"]["qosClass"].is_null() && !class.is_null() {
                set(object, &["status", "qosClass"], class.clone());
            }
        }
        _ => {}
    }
}

/// Whether the kind has a generation.
fn counts_generations(kind: &str) -> bool {
    matches!(
        kind,
        "Pod"
            | "Deployment"
            | "ReplicaSet"
            | "DaemonSet"
            | "StatefulSet"
            | "PodDisruptionBudget"
            | "CustomResourceDefinition"
    )
}

/// The status of a new object, for kinds whose author may not set it.
fn initial_status(kind: &str) -> Option<Value> {
    Some(match kind {
        "Deployment" => json!({}),
        "Service" => json!({"loadBalancer": {}}),
        "ReplicaSet" => json!({"replicas": 0}),
        "DaemonSet" => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
        }),
        "StatefulSet" => json!({"replicas": 0, "availableReplicas": 0}),
        "PodDisruptionBudget" => json!({
            "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
        }),
        _ => return None,
    })
}

fn copy(object: &mut Value, old: &Value, field: &str) {
    let Value::Object(fields) = object else { return };
    match old.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

fn copy_metadata(object: &mut Value, old: &Value, field: &str) {
    if let (Some(metadata), Some(old)) = (object.get_mut("metadata"), old.get("metadata")) {
        copy(metadata, old, field);
    }
}

/// The quality-of-service class of a pod: all limits, some requests, or nothing promised.
fn quality(spec: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers: Vec<&Value> = lists.iter().filter_map(|list| spec[*list].as_array()).flatten().collect();
    let amounts = |container: &Value, side: &str| {
        let all = container["resources"][side].as_object().cloned().unwrap_or_default();
        all.into_iter().filter(|(name, _)| name == "cpu" || name == "memory").collect::<Vec<_>>()
    };
    if containers.iter().all(|one| amounts(one, "limits").is_empty() && amounts(one, "requests").is_empty()) {
        return "BestEffort";
    }
    let guaranteed = |one: &&Value| {
        let limits = amounts(one, "limits");
        limits.len() == 2 && limits == amounts(one, "requests")
    };
    if containers.iter().all(guaranteed) { "Guaranteed" } else { "Burstable" }
}
