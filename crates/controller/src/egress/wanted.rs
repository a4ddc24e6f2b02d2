//! The desired children of an Egress except its Deployment: the fields that are ours, and whole objects to create.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::egress::{AFFINITY_SECONDS, EgressBudget, PORT, account_name, gateway_labels};
use tenure_api::coil::{Egress, EgressClients, GROUP};

use super::known::Fields;
use super::template::account_of;
use super::write::ChildKind;

/// A desired child.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) kind: ChildKind,
    pub(super) name: String,
    pub(super) fields: Fields,
    /// Further, immutable fields of a new one.
    pub(super) fixed: Fields,
}

/// The desired children of an Egress; a budget only if requested.
pub(super) fn children_of(egress: &Egress) -> Vec<Wanted> {
    let name = egress.name_any();
    let own = |kind, fields: Vec<(&'static str, Value)>| Wanted {
        kind,
        name: name.clone(),
        fields: fields.into_iter().collect(),
        fixed: Fields::new(),
    };
    let mut children = Vec::from(account(egress));
    children.push(own(ChildKind::Service, service(egress)));
    if let Some(budget) = &egress.spec.pod_disruption_budget {
        children.push(own(ChildKind::Budget, self::budget(egress, budget)));
    }
    children
}

/// The gateways' account, and its right to read the clients.
fn account(egress: &Egress) -> [Wanted; 3] {
    let name = account_name(&egress.name_any());
    let rules = json!([{
        "apiGroups": [GROUP],
        "resources": [EgressClients::plural(&())],
        "verbs": ["list", "watch"],
    }]);
    let subjects = json!([{
        "kind": "ServiceAccount", "name": account_of(egress), "namespace": egress.namespace().unwrap_or_default(),
    }]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let child = |kind, fields: &[(&'static str, Value)], fixed: &[(&'static str, Value)]| Wanted {
        kind,
        name: name.clone(),
        fields: fields.iter().cloned().collect(),
        fixed: fixed.iter().cloned().collect(),
    };
    [
        child(ChildKind::Account, &[], &[]),
        child(ChildKind::Role, &[("/rules", rules)], &[]),
        child(ChildKind::Binding, &[("/subjects", subjects)], &[("/roleRef", role)]),
    ]
}

/// One address for all gateways, of both families where available.
fn service(egress: &Egress) -> Vec<(&'static str, Value)> {
    let spec = &egress.spec;
    let sticky = spec.session_affinity == "ClientIP";
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(AFFINITY_SECONDS);
    let config = if sticky { json!({"clientIP": {"timeoutSeconds": seconds}}) } else { Value::Null };
    vec![
        ("/spec/type", json!("ClusterIP")),
        ("/spec/selector", json!(gateway_labels(&egress.name_any()))),
        ("/spec/ports", json!([{"name": "fou", "port": PORT, "protocol": "UDP", "targetPort": PORT}])),
        ("/spec/ipFamilyPolicy", json!("PreferDualStack")),
        ("/spec/sessionAffinity", json!(spec.session_affinity)),
        ("/spec/sessionAffinityConfig", config),
    ]
}

fn budget(egress: &Egress, budget: &EgressBudget) -> Vec<(&'static str, Value)> {
    let amount = |value: &Option<IntOrString>| value.as_ref().map_or(Value::Null, |value| json!(value));
    vec![
        ("/spec/minAvailable", amount(&budget.min_available)),
        ("/spec/maxUnavailable", amount(&budget.max_unavailable)),
        ("/spec/selector", json!({"matchLabels": gateway_labels(&egress.name_any())})),
    ]
}

/// Sets a value at a JSON pointer of objects.
pub(super) fn put(object: &mut Value, pointer: &str, value: Value) {
    let place = pointer.split('/').skip(1).fold(object, |object, name| &mut object[name]);
    *place = value;
}
