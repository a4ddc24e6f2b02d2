//! `OverlappingRangeIPReservation`: one held address, cluster-wide, so that ranges that overlap do not hand it out twice.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Who holds the address that the object is named for.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "whereabouts.cni.cncf.io",
    version = "v1alpha1",
    kind = "OverlappingRangeIPReservation",
    plural = "overlappingrangeipreservations",
    namespaced,
    derive = "PartialEq",
    doc = "One held address, so that ranges that overlap do not hand it out twice. \
           Named `[network-]address` with `:` written as `-`."
)]
pub struct OverlappingRangeIPReservationSpec {
    /// The container that holds the address. Whereabouts never writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerid: Option<String>,

    /// The pod that holds the address, as `namespace/name`.
    pub podref: String,

    /// The interface in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
}
