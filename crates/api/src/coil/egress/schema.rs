//! Schemas of what is Kubernetes' own in an Egress: only what an Egress has to check of it, so that the definition stays small and
//! fields that are newer than this program are kept.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::rules;

/// A count, or a percentage of the replicas.
pub(super) fn number_or_percentage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 16})
}

/// `DeploymentStrategy`.
pub(super) fn strategy(_: &mut SchemaGenerator) -> Schema {
    let rule = json!([rules::is_a_number_or_a_percentage()]);
    let amount = |description: &str| {
        json!({
            "x-kubernetes-int-or-string": true, "maxLength": 16, "description": description,
            "x-kubernetes-validations": rule,
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "type": {
                "type": "string", "enum": ["Recreate", "RollingUpdate"], "default": "RollingUpdate",
                "description": "Recreate: all go before the first new one comes. RollingUpdate: one after the other.",
            },
            "rollingUpdate": {
                "type": "object",
                "description": "How many at a time.",
                "properties": {
                    "maxUnavailable": amount("So many may be away: a number, or a percentage such as 25%."),
                    "maxSurge": amount("So many may be there beyond the replicas: a number, or a percentage such as 25%."),
                },
                "x-kubernetes-validations": [rules::rolling_update_moves()],
            },
        },
        "x-kubernetes-validations": [rules::recreation_is_not_rolling()],
    })
}

/// `SessionAffinityConfig`.
pub(super) fn session_affinity_config(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "clientIP": {
                "type": "object",
                "description": "Of the affinity to a client's address.",
                "properties": {
                    "timeoutSeconds": {
                        "type": "integer", "format": "int32", "minimum": 1, "maximum": 86400,
                        "description": "So many seconds after the last packet, from 1 to 86400; 10800 if not given.",
                    },
                },
            },
        },
    })
}

/// Labels of a pod.
pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// `PodSpec`, all fields of which are kept. Without a container it has the one that Tenure runs.
pub(super) fn pod_spec(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "default": {},
        "properties": {
            "hostNetwork": {
                "type": "boolean", "enum": [false],
                "description": "A gateway has a network of its own: on the node's it would translate the node's packets.",
            },
            "containers": {
                "type": "array",
                "maxItems": 64,
                "description": "The containers, each with a name of its own. The one named `egress` is the gateway.",
                "default": [{"name": super::CONTAINER}],
                "items": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "required": ["name"],
                    "properties": {
                        "name": {
                            "type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                            "description": "The name of the container.",
                        },
                    },
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
    })
}
