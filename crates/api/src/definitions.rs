//! The definitions of all kinds, finished: what is installed into a cluster or the embedded server.
//!
//! The derived definitions need four corrections. Optional fields are not `nullable`: the API server then drops a
//! null before any rule sees it, as it does for the definitions of Coil and Whereabouts. And `NodeSlicePool` has
//! a status but no status subresource, because Whereabouts writes both together. And `IPAMClaim`, which others install as
//! well, accepts and refuses what theirs does. And the two kinds of `nmstate` that others have, too, are served in two versions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{claims, cloud, coil, nmstate, whereabouts};

mod files;

pub use files::{FilesError, check, files, write};

/// The definitions of all kinds, in a fixed order.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        crd_of::<coil::AddressPool>(),
        crd_of::<coil::AddressBlock>(),
        crd_of::<coil::BlockRequest>(),
        crd_of::<coil::Egress>(),
        crd_of::<coil::EgressClients>(),
        crd_of::<whereabouts::IPPool>(),
        crd_of::<whereabouts::NodeSlicePool>(),
        crd_of::<whereabouts::OverlappingRangeIPReservation>(),
        claims::crd(),
        crd_of::<nmstate::NodeIPPool>(),
        crd_of::<nmstate::NodeNetworkConfigurationPolicy>(),
        crd_of::<nmstate::NodeNetworkConfigurationEnactment>(),
        crd_of::<cloud::AliasPool>(),
        crd_of::<cloud::IPLedger>(),
        crd_of::<cloud::NodeAliases>(),
    ]
}

/// The finished definition of one kind.
pub fn crd_of<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    let without_subresource = crd.spec.names.kind == "NodeSlicePool";
    let of_others = crd.spec.names.kind == "IPAMClaim";
    for version in &mut crd.spec.versions {
        if without_subresource {
            version.subresources = None;
        }
        if let Some(schema) = schema_of(version) {
            forbid_null(schema);
            if of_others {
                claims::finish(schema);
            }
        }
    }
    match crd.spec.names.kind.as_str() {
        "NodeNetworkConfigurationPolicy" => nmstate::finish_policy(&mut crd),
        "NodeNetworkConfigurationEnactment" => nmstate::finish_enactment(&mut crd),
        _ => {}
    }
    crd
}

fn schema_of(version: &mut CustomResourceDefinitionVersion) -> Option<&mut JSONSchemaProps> {
    version.schema.as_mut()?.open_api_v3_schema.as_mut()
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        forbid_null(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => forbid_null(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(forbid_null),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        forbid_null(values);
    }
}

#[cfg(test)]
mod tests;
