//! The built-in kinds: plain objects, without their controllers.
//!
//! This module has what the server knows of each kind: names, scope, subresources, fields. Beyond that it
//! fills in, keeps and refuses only what our programs read and write: the rest of an object stays as its
//! author wrote it.

mod lifecycle;
#[cfg(test)]
mod tests;

use k8s_openapi::api::{apps, coordination, core, policy};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json;

pub(crate) use lifecycle::{prepare_create, prepare_status_update, prepare_update, validate};

/// What the server knows of a built-in kind.
#[derive(Debug)]
pub(crate) struct Builtin {
    /// API group; empty for the core group.
    pub(crate) group: &'static str,
    /// Resource name.
    pub(crate) plural: &'static str,
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
    /// Counts changes of the desired state.
    pub(crate) generation: bool,
    /// An update of a missing object creates it.
    pub(crate) create_on_update: bool,
    /// An update must name the resource version that it replaces.
    pub(crate) conditional_update: bool,
    /// A deletion answers with the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
    /// The collection cannot be deleted as a whole.
    pub(crate) no_delete_collection: bool,
    /// Owners and finalizers of the garbage collector have no effect.
    pub(crate) uncollected: bool,
}

const PLAIN: Traits = Traits {
    status: false,
    scale: false,
    generation: false,
    create_on_update: false,
    conditional_update: false,
    returns_deleted: false,
    no_delete_collection: false,
    uncollected: false,
};
const STATUS: Traits = Traits { status: true, ..PLAIN };
const WORKLOAD: Traits = Traits { generation: true, ..STATUS };
const SCALED: Traits = Traits { scale: true, ..WORKLOAD };

/// The API version of all built-in kinds.
pub(crate) const VERSION: &str = "v1";

/// Every built-in kind.
pub(crate) static BUILTINS: [Builtin; 15] = [
    Builtin {
        namespaced: false,
        traits: Traits { returns_deleted: true, no_delete_collection: true, ..STATUS },
        ..kind("", "namespaces", "Namespace", &["ns"], typed::<core::v1::Namespace>)
    },
    Builtin {
        namespaced: false,
        traits: STATUS,
        ..kind("", "nodes", "Node", &["no"], typed::<core::v1::Node>)
    },
    Builtin {
        categories: &["all"],
        traits: Traits { returns_deleted: true, ..WORKLOAD },
        ..kind("", "pods", "Pod", &["po"], typed::<core::v1::Pod>)
    },
    Builtin {
        categories: &["all"],
        traits: Traits { returns_deleted: true, create_on_update: true, ..STATUS },
        ..kind("", "services", "Service", &["svc"], typed::<core::v1::Service>)
    },
    kind("", "configmaps", "ConfigMap", &["cm"], typed::<core::v1::ConfigMap>),
    kind("", "secrets", "Secret", &[], typed::<core::v1::Secret>),
    Builtin {
        traits: Traits { returns_deleted: true, ..PLAIN },
        ..kind("", "serviceaccounts", "ServiceAccount", &["sa"], typed::<core::v1::ServiceAccount>)
    },
    Builtin {
        traits: Traits { create_on_update: true, uncollected: true, ..PLAIN },
        ..kind("", "events", "Event", &["ev"], typed::<core::v1::Event>)
    },
    Builtin {
        traits: Traits { create_on_update: true, conditional_update: true, ..PLAIN },
        ..kind("coordination.k8s.io", "leases", "Lease", &[], typed::<coordination::v1::Lease>)
    },
    Builtin {
        categories: &["all"],
        traits: SCALED,
        ..kind("apps", "deployments", "Deployment", &["deploy"], typed::<apps::v1::Deployment>)
    },
    Builtin {
        categories: &["all"],
        traits: SCALED,
        ..kind("apps", "replicasets", "ReplicaSet", &["rs"], typed::<apps::v1::ReplicaSet>)
    },
    Builtin {
        categories: &["all"],
        traits: WORKLOAD,
        ..kind("apps", "daemonsets", "DaemonSet", &["ds"], typed::<apps::v1::DaemonSet>)
    },
    Builtin {
        categories: &["all"],
        traits: SCALED,
        ..kind("apps", "statefulsets", "StatefulSet", &["sts"], typed::<apps::v1::StatefulSet>)
    },
    Builtin {
        traits: Traits { conditional_update: true, ..WORKLOAD },
        ..kind(
            "policy",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            &["pdb"],
            typed::<policy::v1::PodDisruptionBudget>,
        )
    },
    Builtin {
        namespaced: false,
        categories: &["api-extensions"],
        traits: Traits { conditional_update: true, ..WORKLOAD },
        ..kind(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            &["crd", "crds"],
            typed::<apiextensions::v1::CustomResourceDefinition>,
        )
    },
];

const fn kind(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    coerce: fn(Value) -> Result<Value, serde_json::Error>,
) -> Builtin {
    Builtin { group, plural, kind, namespaced: true, short_names, categories: &[], traits: PLAIN, coerce }
}

impl Builtin {
    /// Converts an object to the form of the kind: removes unknown fields, and fills in what we read. A field
    /// of a wrong type is an error.
    pub(crate) fn coerce(&self, value: Value) -> Result<Value, String> {
        let mut shaped = (self.coerce)(value).map_err(|error| error.to_string())?;
        drop_empty_lists(&mut shaped);
        json::settle_numbers(&mut shaped);
        lifecycle::fill_in(self.kind, &mut shaped);
        Ok(shaped)
    }
}

fn typed<T: DeserializeOwned + Serialize>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

/// Empty lists are left out, as with Go's `omitempty`.
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
