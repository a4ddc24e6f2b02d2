//! Translates alias pools into the node's terms.

use tenure_api::cloud::{AliasPool, AliasPoolSpec, Attach, condition};
use tenure_api::coil::{AddressPoolSpec, EnginePool, SubnetSet};
use tenure_ipam::{Address, Cidr, Exclusion};

use crate::node::PoolFacts;

/// How many free addresses a node keeps ready if its pool does not say: as many pods as usually start together.
const WARM: u32 = 8;
/// A block has two to this power addresses if its pool does not say.
const BLOCK_BITS: i32 = 5;

/// A pool, as far as this node uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownPool {
    /// For the node.
    pub(super) facts: PoolFacts,
    /// Its ranges.
    pub(super) ranges: Vec<Cidr>,
    /// Whether its addresses are attached one by one, so that they can move.
    pub(super) moves: bool,
}

impl KnownPool {
    /// What is known of a pool, or why it cannot be used.
    pub(super) fn of(pool: &AliasPool) -> Result<Self, String> {
        let AliasPoolSpec { cidr, ranges, attach, block_size_bits, exclude, cooling, warm, .. } = &pool.spec;
        let moves = *attach == Attach::Address;
        let cidrs = std::iter::once(cidr).chain(ranges.iter().map(|range| &range.cidr));
        // Alias pools say all this as other pools do.
        let same = AddressPoolSpec {
            block_size_bits: if moves { 0 } else { block_size_bits.unwrap_or(BLOCK_BITS) },
            subnets: cidrs.map(|cidr| SubnetSet { ipv4: Some(cidr.clone()), ipv6: None }).collect(),
            exclude: exclude.clone(),
            cooling: cooling.clone(),
        };
        let engine = EnginePool::try_from(&same).map_err(|error| error.to_string())?;
        let subnets: Vec<_> = engine.pool().subnets().collect();
        let ranges: Vec<Cidr> = subnets.iter().filter_map(|subnet| subnet.ipv4).collect();
        let edges = ranges.iter().flat_map(|range| [range.first(), range.last()]).map(exclusion);
        let status = pool.status.as_ref();
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let facts = PoolFacts {
            subnets,
            block_bits: engine.pool().block_bits(),
            cooling: engine.rest(),
            exclusions: engine.exclusions().iter().copied().chain(edges).collect(),
            deleting: pool.metadata.deletion_timestamp.is_some(),
            exhausted: conditions
                .iter()
                .any(|known| known.type_ == condition::EXHAUSTED && known.status == "True"),
            sliced: false,
            warm: Some(warm.map_or(WARM, |warm| u32::try_from(warm).unwrap_or_default())),
            unexported: true,
        };
        Ok(Self { facts, ranges, moves })
    }

    /// The range of an address.
    pub(super) fn range_of(&self, address: Address) -> Option<Cidr> {
        self.ranges.iter().copied().find(|range| range.contains(address))
    }
}

fn exclusion(address: Address) -> Exclusion {
    Exclusion::from(Cidr::host(address))
}
