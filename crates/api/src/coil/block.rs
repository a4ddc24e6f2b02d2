//! `AddressBlock`: an aligned part of a pool that one node owns. Its fields are at the top level of the object.

use kube::{CustomResource, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};

use super::{label, rules};

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

    fn label(&self, name: &str) -> Option<&str> {
        self.labels().get(name).map(String::as_str)
    }
}
