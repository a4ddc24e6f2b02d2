//! The built-in kinds: plain objects, without the controllers that would bring them to life.
//!
//! Owns what a cluster's API server knows of each: names, scope, subresources, which fields exist, what is filled in
//! ([`defaults`]), who may change what ([`lifecycle`]), what is refused ([`rules`]).

mod defaults;
mod events;
mod lifecycle;
mod mistyped;
mod rules;
#[cfg(test)]
mod tests;

use k8s_openapi::api::{apps, coordination, core, events as events_api, policy};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json;

pub(crate) use events::{from_stored as event_from_stored, to_stored as event_to_stored};
pub(crate) use lifecycle::{prepare_create, prepare_status_update, prepare_update};
pub(crate) use rules::validate;

/// What the server knows of a built-in kind.
#[derive(Debug)]
pub(crate) struct Builtin {
    /// API group; empty for the core group.
    pub(crate) group: &'static str,
    /// API version.
    pub(crate) version: &'static str,
    /// Resource name.
    pub(crate) plural: &'static str,
    /// Resource name in singular.
    pub(crate) singular: &'static str,
    /// Kind.
    pub(crate) kind: &'static str,
    /// Whether its objects are in namespaces.
    pub(crate) namespaced: bool,
    /// Short names for people.
    pub(crate) short_names: &'static [&'static str],
    /// Categories, such as `all`.
    pub(crate) categories: &'static [&'static str],
    /// What is special about it.
    pub(crate) traits: Traits,
    coerce: fn(Value) -> Result<Value, serde_json::Error>,
}

/// Properties that differ between kinds.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a kind, read by name")]
pub(crate) struct Traits {
    /// Has a `status` subresource.
    pub(crate) status: bool,
    /// Has a `scale` subresource.
    pub(crate) scale: bool,
    /// A replacement of what does not exist creates it.
    pub(crate) create_on_update: bool,
    /// A replacement must name the resource version that it replaces.
    pub(crate) conditional_update: bool,
    /// A deletion answers with the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
    /// The collection cannot be deleted as a whole.
    pub(crate) no_delete_collection: bool,
    /// Owners and finalizers of the garbage collector have no meaning here.
    pub(crate) uncollected: bool,
}

const PLAIN: Traits = Traits {
    status: false,
    scale: false,
    create_on_update: false,
    conditional_update: false,
    returns_deleted: false,
    no_delete_collection: false,
    uncollected: false,
};

/// Every built-in kind.
pub(crate) static BUILTINS: [Builtin; 16] = [
    Builtin {
        group: "",
        version: "v1",
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        namespaced: false,
        short_names: &["ns"],
        categories: &[],
        traits: Traits { status: true, returns_deleted: true, no_delete_collection: true, ..PLAIN },
        coerce: typed::<core::v1::Namespace>,
    },
    Builtin {
        group: "",
        version: "v1",
        plural: "nodes",
        singular: "node",
        kind: "Node",
        namespaced: false,
        short_names: &["no"],
        categories: &[],
        traits: Traits { status: true, ..PLAIN },
        coerce: typed::<core::v1::Node>,
    },
    Builtin {
        group: "",
        version: "v1",
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        namespaced: true,
        short_names: &["po"],
        categories: &["all"],
        traits: Traits { status: true, returns_deleted: true, ..PLAIN },
        coerce: typed::<core::v1::Pod>,
    },
    Builtin {
        group: "",
        version: "v1",
        plural: "services",
        singular: "service",
        kind: "Service",
        namespaced: true,
        short_names: &["svc"],
        categories: &["all"],
        traits: Traits { status: true, returns_deleted: true, create_on_update: true, ..PLAIN },
        coerce: typed::<core::v1::Service>,
    },
    Builtin {
        group: "",
        version: "v1",
        plural: "configmaps",
        singular: "configmap",
        kind: "ConfigMap",
        namespaced: true,
        short_names: &["cm"],
        categories: &[],
        traits: PLAIN,
        coerce: typed::<core::v1::ConfigMap>,
    },
    Builtin {
        group: "",
        version: "v1",
        plural: "secrets",
        singular: "secret",
        kind: "Secret",
        namespaced: true,
        short_names: &[],
        categories: &[],
        traits: PLAIN,
        coerce: typed::<core::v1::Secret>,
    },
    Builtin {
        group: "",
        version: "v1",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        namespaced: true,
        short_names: &["sa"],
        categories: &[],
        traits: Traits { returns_deleted: true, ..PLAIN },
        coerce: typed::<core::v1::ServiceAccount>,
    },
    Builtin {
        group: "",
        version: "v1",
        plural: "events",
        singular: "event",
        kind: "Event",
        namespaced: true,
        short_names: &["ev"],
        categories: &[],
        traits: Traits { create_on_update: true, uncollected: true, ..PLAIN },
        coerce: typed::<core::v1::Event>,
    },
    Builtin {
        group: "events.k8s.io",
        version: "v1",
        plural: "events",
        singular: "event",
        kind: "Event",
        namespaced: true,
        short_names: &["ev"],
        categories: &[],
        traits: Traits { create_on_update: true, uncollected: true, ..PLAIN },
        coerce: typed::<events_api::v1::Event>,
    },
    Builtin {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        namespaced: true,
        short_names: &[],
        categories: &[],
        traits: Traits { create_on_update: true, conditional_update: true, ..PLAIN },
        coerce: typed::<coordination::v1::Lease>,
    },
    Builtin {
        group: "apps",
        version: "v1",
        plural: "deployments",
        singular: "deployment",
        kind: "Deployment",
        namespaced: true,
        short_names: &["deploy"],
        categories: &["all"],
        traits: Traits { status: true, scale: true, ..PLAIN },
        coerce: typed::<apps::v1::Deployment>,
    },
    Builtin {
        group: "apps",
        version: "v1",
        plural: "replicasets",
        singular: "replicaset",
        kind: "ReplicaSet",
        namespaced: true,
        short_names: &["rs"],
        categories: &["all"],
        traits: Traits { status: true, scale: true, ..PLAIN },
        coerce: typed::<apps::v1::ReplicaSet>,
    },
    Builtin {
        group: "apps",
        version: "v1",
        plural: "daemonsets",
        singular: "daemonset",
        kind: "DaemonSet",
        namespaced: true,
        short_names: &["ds"],
        categories: &["all"],
        traits: Traits { status: true, ..PLAIN },
        coerce: typed::<apps::v1::DaemonSet>,
    },
    Builtin {
        group: "apps",
        version: "v1",
        plural: "statefulsets",
        singular: "statefulset",
        kind: "StatefulSet",
        namespaced: true,
        short_names: &["sts"],
        categories: &["all"],
        traits: Traits { status: true, scale: true, ..PLAIN },
        coerce: typed::<apps::v1::StatefulSet>,
    },
    Builtin {
        group: "policy",
        version: "v1",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        kind: "PodDisruptionBudget",
        namespaced: true,
        short_names: &["pdb"],
        categories: &[],
        traits: Traits { status: true, conditional_update: true, ..PLAIN },
        coerce: typed::<policy::v1::PodDisruptionBudget>,
    },
    Builtin {
        group: "apiextensions.k8s.io",
        version: "v1",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        kind: "CustomResourceDefinition",
        namespaced: false,
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        traits: Traits { status: true, conditional_update: true, ..PLAIN },
        coerce: typed::<apiextensions::v1::CustomResourceDefinition>,
    },
];

impl Builtin {
    /// Brings an object into the kind's shape: fields that the kind does not have go, what is missing is filled in.
    /// A field of a wrong type is an error.
    pub(crate) fn coerce(&self, value: Value) -> Result<Value, String> {
        let value = as_go_reads(self.kind, value);
        for pointer in micro_times(self.kind) {
            if let Some(time) = value.pointer(pointer).and_then(Value::as_str) {
                check_micro_time(time)?;
            }
        }
        let mut shaped = (self.coerce)(value.clone()).map_err(|error| {
            let check = |value| (self.coerce)(value).err().map(|error| error.to_string());
            mistyped::explain(self.kind, &value, &error.to_string(), check)
        })?;
        let no_versions =
            shaped.pointer("/spec/versions").is_some_and(|list| *list == Value::Array(Vec::new()));
        drop_empty_lists(&mut shaped);
        if no_versions {
            // A definition without versions is to be refused as such.
            defaults::default(&mut shaped, &["spec", "versions"], Value::Array(Vec::new()));
        }
        json::settle_numbers(&mut shaped);
        defaults::apply(self.group, self.kind, &mut shaped);
        Ok(shaped)
    }
}

/// Times that are written to the microsecond.
fn micro_times(kind: &str) -> &'static [&'static str] {
    match kind {
        "Lease" => &["/spec/acquireTime", "/spec/renewTime"],
        "Event" => &["/eventTime", "/series/lastObservedTime"],
        _ => &[],
    }
}

/// Such a time has exactly six digits after the point.
fn check_micro_time(time: &str) -> Result<(), String> {
    let layout = "2006-01-02T15:04:05.000000Z07:00";
    let seconds = "2006-01-02T15:04:05".len();
    let fraction = time.get(seconds..).unwrap_or_default();
    let digits = fraction.strip_prefix('.').map(|rest| rest.chars().take_while(char::is_ascii_digit).count());
    if time.parse::<jiff::Timestamp>().is_ok() && digits == Some(6) {
        return Ok(());
    }
    let time = crate::status::quote(time);
    let rest = crate::status::quote(fraction);
    Err(format!("parsing time {time} as \"{layout}\": cannot parse {rest} as \".000000\""))
}

fn typed<T: DeserializeOwned + Serialize>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

/// Go reads what is missing as empty, where the typed structs insist on a field.
fn as_go_reads(kind: &str, mut value: Value) -> Value {
    let required: &[&str] = match kind {
        "Pod" | "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" | "PodDisruptionBudget" => {
            &["/spec"]
        }
        "Event" => &["/involvedObject"],
        _ => &[],
    };
    for pointer in required {
        let name = pointer.trim_start_matches('/');
        if let Some(fields) = value.as_object_mut() {
            let field = fields.entry(name).or_insert(Value::Null);
            if field.is_null() {
                *field = Value::Object(serde_json::Map::new());
            }
        }
    }
    value
}

/// Lists are left out when they are empty, as Go's `omitempty` does.
fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !matches!(field, Value::Array(items) if items.is_empty()));
            fields.values_mut().for_each(drop_empty_lists);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
        _ => {}
    }
}
