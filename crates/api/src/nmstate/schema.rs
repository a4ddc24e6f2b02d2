//! Schemas of what is nmstate's own, and the versions of the two kinds that we share with it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::{Schema, SchemaGenerator, json_schema};

/// A state of a network, all fields of which are kept.
pub(super) fn state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Labels of nodes.
pub(super) fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// Named expressions.
pub(super) fn captures(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 1024},
    })
}

/// A count, or a percentage of the nodes.
pub(super) fn number_or_percentage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 16})
}

/// Policies are stored as v1; v1beta1 is served as well, with the same fields.
pub(crate) fn finish_policy(definition: &mut CustomResourceDefinition) {
    serve_also(definition, "v1beta1");
}

/// Enactments are stored as v1beta1, which is all that kubernetes-nmstate knows, so that it can take over; v1 is served as well, as
/// the seed has it.
pub(crate) fn finish_enactment(definition: &mut CustomResourceDefinition) {
    serve_also(definition, "v1");
}

fn serve_also(definition: &mut CustomResourceDefinition, name: &str) {
    let versions = &mut definition.spec.versions;
    if let Some(first) = versions.first().cloned() {
        let mut more = first;
        name.clone_into(&mut more.name);
        more.storage = false;
        versions.push(more);
    }
}
