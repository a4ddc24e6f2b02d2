//! The parts of `IPAMClaim`'s definition that the derived one lacks: it must accept and refuse the same
//! objects as the definitions of others.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::{Schema, SchemaGenerator, json_schema};

/// Reading is more lenient than the definition: the definition has no defaults, requires no spec, and
/// requires `ips` in a status.
pub(crate) fn finish(schema: &mut JSONSchemaProps) {
    schema.default = None;
    schema.title = None;
    if let Some(required) = &mut schema.required {
        required.retain(|name| name != "spec");
    }
    schema.required = schema.required.take().filter(|required| !required.is_empty());
    for (name, property) in schema.properties.iter_mut().flatten() {
        finish(property);
        if name == "status" && property.properties.as_ref().is_some_and(|all| all.contains_key("ips")) {
            property.required = Some(vec!["ips".to_owned()]);
        }
    }
}

/// Conditions with the limits of Kubernetes' own type.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "One aspect of the claim's state.",
            "properties": {
                "type": {
                    "type": "string",
                    "description": "The aspect, such as IPsAllocated.",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "True, False or Unknown.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "type": "string",
                    "description": "Why, in one word.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "Why, for people.",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Since when the status is what it is.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The metadata.generation that this describes.",
                },
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
    })
}
