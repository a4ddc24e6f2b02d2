//! `AddressBlock`: an aligned part of a pool that one node owns, or that is floating: the controller owns it, for claims.
//! Its fields are at the top level of the object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{annotation, label, rules};
use crate::claims;

/// The fields of a block. In the object they stand beside `metadata`, not under `spec`.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coil.cybozu.com",
    version = "v2",
    kind = "AddressBlock",
    plural = "addressblocks",
    no_spec,
    derive = "PartialEq",
    doc = "A block of addresses carved out of an AddressPool for one node, which alone hands them out. \
           Named `<pool>-<index>`; the labels `coil.cybozu.com/pool` and `coil.cybozu.com/node` say whose it is, \
           and its controlling owner is the AddressPool.",
    validation = rules::has_a_family(),
    validation = rules::block_families_are_immutable(),
    validation = rules::families_are_equally_large(),
    validation = rules::block_name_ends_in_its_index(),
    printcolumn(name = "Node", type_ = "string", json_path = ".metadata.labels['coil\\.cybozu\\.com/node']"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".metadata.labels['coil\\.cybozu\\.com/pool']"),
    printcolumn(name = "IPv4", type_ = "string", json_path = ".ipv4"),
    printcolumn(name = "IPv6", type_ = "string", json_path = ".ipv6")
)]
pub struct AddressBlockSpec {
    /// The number of this block in its pool, counted from 0 through the pool's subnets. Cannot be changed.
    #[schemars(range(min = 0))]
    #[x_kube(validation = rules::block_index_is_immutable())]
    pub index: i64,

    /// The IPv4 addresses of the block, such as `10.2.2.0/27`. All of them are usable. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 49))]
    #[x_kube(validation = rules::ipv4_cidr(), validation = rules::block_subnet_is_immutable())]
    pub ipv4: Option<String>,

    /// The IPv6 addresses of the block, such as `fd01:203:405:607::200/123`. All of them are usable. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 49))]
    #[x_kube(validation = rules::ipv6_cidr(), validation = rules::block_subnet_is_immutable())]
    pub ipv6: Option<String>,

    /// On a floating block (label `tenure/floating`), which no node owns: the claims that have its addresses, up to 65536.
    /// The key is the decimal offset of the address from the block's first. (Tenure; Coil has no such field.)
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 65536))]
    #[x_kube(validation = rules::claimed_offsets_are_decimal())]
    pub claims: BTreeMap<String, ClaimRecord>,
}

/// The claim that an address belongs to. It outlives the IPAMClaim, until the address has cooled.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// The namespace of the IPAMClaim.
    #[schemars(length(max = 253))]
    pub namespace: String,

    /// The name of the IPAMClaim.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The UID of the IPAMClaim: one of the same name that was made later is another.
    #[schemars(length(max = 128))]
    pub uid: String,

    /// Since when the address cools, because the claim is gone and no pod uses the address any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed: Option<MicroTime>,

    /// The pods that were given the address. It is not freed while one of them is alive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 64))]
    pub pods: Vec<claims::PodRecord>,
}

impl AddressBlock {
    /// The pool that the block was carved from, by its label.
    pub fn pool(&self) -> Option<&str> {
        self.label(label::POOL)
    }

    /// The node that owns the block, by its label.
    pub fn node(&self) -> Option<&str> {
        self.label(label::NODE)
    }

    /// The UID of the request that the block answers, by its label.
    pub fn request_uid(&self) -> Option<&str> {
        self.label(label::REQUEST)
    }

    /// Whether nobody hands out its addresses: they belong to pods of a system that was here before.
    pub fn is_reserved(&self) -> bool {
        self.labels().contains_key(label::RESERVED)
    }

    /// Whether the block is nobody's and only occupies its name, so that its pool does not carve what an older pool has.
    pub fn is_withheld(&self) -> bool {
        self.label(label::WITHHELD) == Some("true")
    }

    /// The UIDs of the pools for which it is withheld.
    pub fn withheld_for(&self) -> impl Iterator<Item = &str> {
        let pools = self.annotations().get(annotation::WITHHELD_FOR);
        pools.into_iter().flat_map(|pools| pools.split(',')).filter(|uid| !uid.is_empty())
    }

    /// Whether no node owns the block: its addresses are for claims, and the controller's to give.
    pub fn is_floating(&self) -> bool {
        self.label(claims::label::FLOATING) == Some("true")
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels().get(name).map(String::as_str)
    }
}
