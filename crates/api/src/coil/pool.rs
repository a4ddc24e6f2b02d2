//! `AddressPool`: a set of subnets, cut into blocks of one size.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// What the pool consists of, and how it is cut into blocks.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coil.cybozu.com",
    version = "v2",
    kind = "AddressPool",
    plural = "addresspools",
    status = "AddressPoolStatus",
    derive = "PartialEq",
    doc = "A set of subnets whose addresses are handed out, cut into blocks that nodes own. \
           The pool named `default` serves every namespace that names no other.",
    validation = rules::pool_name_fits_a_label(),
    printcolumn(name = "BlockSize Bits", type_ = "integer", json_path = ".spec.blockSizeBits"),
    printcolumn(name = "Allocated", type_ = "string", json_path = ".status.blocks.allocated", description = "Blocks that nodes own"),
    printcolumn(name = "Free", type_ = "string", json_path = ".status.blocks.free", description = "Blocks that can still be carved"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "Whether blocks can be carved")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::ipv4_subnets_hold_a_block(),
    validation = rules::ipv6_subnets_hold_a_block()
)]
pub struct AddressPoolSpec {
    /// A block has 2^blockSizeBits addresses: 5 makes blocks of 32 (IPv4 /27, IPv6 /123).
    /// From 0 (one address) to 64 (an IPv6 /64). Cannot be changed.
    #[serde(default = "default_block_size_bits")]
    #[schemars(range(min = 0, max = 64))]
    #[x_kube(validation = rules::block_size_is_immutable())]
    pub block_size_bits: i32,

    /// The subnets of the pool, from 1 to 128. Blocks are numbered through the list, so it can only be
    /// appended to: an entry is never changed, removed or moved. No two entries may overlap.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = rules::subnets_are_append_only(),
        validation = rules::ipv4_subnets_are_distinct(),
        validation = rules::ipv6_subnets_are_distinct()
    )]
    pub subnets: Vec<SubnetSet>,

    /// Addresses that are never handed out, up to 1024 entries, each an address (`10.2.0.1`), a CIDR
    /// (`10.2.0.0/29`) or a range with both ends, in any order (`10.2.0.10-10.2.0.19`). In a dual-stack pool an address
    /// of one family takes its partner of the other family with it. Entries outside the subnets have no effect.
    /// What is held when its address becomes excluded stays held. (Tenure; Coil has no such field.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 91)))]
    #[x_kube(validation = rules::exclusions_are_addresses())]
    pub exclude: Vec<String>,

    /// How long a freed address rests before it is handed out again, such as `30s`, `1m30s` or `500ms`,
    /// from `0s` to `24h`. Cooling gives way rather than let a pod wait when nothing else is free.
    /// The node's own setting applies when absent. (Tenure; Coil has no such field.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::cooling_is_a_duration())]
    pub cooling: Option<String>,
}

fn default_block_size_bits() -> i32 {
    5
}

/// One subnet of a pool: IPv4, IPv6, or both with equally many addresses. In a pair the n-th IPv4 address
/// and the n-th IPv6 address belong together.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = rules::has_a_family(), validation = rules::families_are_equally_large())]
pub struct SubnetSet {
    /// An IPv4 subnet such as `10.2.0.0/16`. Host bits are allowed and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 49))]
    #[x_kube(validation = rules::ipv4_cidr())]
    pub ipv4: Option<String>,

    /// An IPv6 subnet such as `fd01:203:405:607::/112`. Host bits are allowed and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 49))]
    #[x_kube(validation = rules::ipv6_cidr())]
    pub ipv6: Option<String>,
}

/// What was observed of the pool. (Tenure; Coil's pools have no status.)
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Blocks: how many there are, how many nodes own, how many can still be carved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<PoolUsage>,

    /// Addresses, an IPv4 and IPv6 pair counted once: how many there are without the excluded ones, how many
    /// lie in blocks that nodes own, how many in blocks that can still be carved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<PoolUsage>,

    /// `Ready` (blocks can be carved), `Exhausted` (none is free) and `Overlapping` (an older pool has some
    /// of the addresses, and only that one hands them out).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

impl AddressPoolStatus {
    /// Puts a condition in. Its transition time stays what it was while its status does, so that a repeated write of
    /// the same finding changes nothing.
    pub fn set_condition(&mut self, condition: Condition) {
        set_condition(&mut self.conditions, condition);
    }
}

/// Puts a condition among others, with the transition time of the one before while the status stays.
pub(crate) fn set_condition(conditions: &mut Vec<Condition>, mut condition: Condition) {
    match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) => {
            if known.status == condition.status {
                condition.last_transition_time = known.last_transition_time.clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

/// Counts, as decimal strings: an IPv6 pool has more than fit into 64 bits.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUsage {
    /// How many there are.
    pub capacity: String,
    /// How many are taken.
    pub allocated: String,
    /// How many can be taken.
    pub free: String,
}

impl PoolUsage {
    /// Counts as they are written. What is neither allocated nor free is kept back: excluded, or in an older pool.
    pub fn new(capacity: u128, allocated: u128, free: u128) -> Self {
        Self { capacity: capacity.to_string(), allocated: allocated.to_string(), free: free.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn a_condition_keeps_its_transition_time_while_its_status_stays() {
        let condition = |status: &str, message: &str, second: i64| Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: "BlocksFree".to_owned(),
            message: message.to_owned(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
        };
        let mut status = AddressPoolStatus::default();
        status.set_condition(condition("True", "2 free", 1));
        status.set_condition(condition("True", "1 free", 2));
        assert_eq!(status.conditions, [condition("True", "1 free", 1)]);
        status.set_condition(condition("False", "none free", 3));
        assert_eq!(status.conditions, [condition("False", "none free", 3)]);
    }
}
