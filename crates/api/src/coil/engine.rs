//! Coil's kinds as the engine takes them, and the engine's answers as objects.
//!
//! What the API server accepted converts. What was stored before our rules were installed may not, and then the
//! error names the field and the value; such a pool serves nobody until it is replaced.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt};
use tenure_ipam::{
    Address, Cidr, Exclusion, IntervalSet, Notation, ParseError, Pool, PoolError, Range, Space, SpaceError,
    Subnet,
};

use super::{
    AddressBlock, AddressBlockSpec, AddressPool, AddressPoolSpec, BlockRequest, BlockRequestSpec, FINALIZER,
    PoolUsage, SubnetSet, label, names,
};
use crate::names::NameError;

/// A pool as the engine takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct EnginePool {
    /// Blocks have at most 2^64 addresses.
    pool: Pool,
    exclusions: Vec<Exclusion>,
    rest: Option<Duration>,
}

/// Why an object is not what the engine takes, or the engine's answer no object.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConversionError {
    /// A field does not parse.
    #[error("{field}: {source}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// The duration does not parse.
    #[error(
        "spec.cooling: cannot read a duration from \"{value}\"; accepted is 0s to 24h such as 30s or 1m30s"
    )]
    Cooling {
        /// Its value.
        value: String,
    },
    /// The block size is none.
    #[error("spec.blockSizeBits: {value} is no block size; accepted is 0 to 64")]
    BlockSize {
        /// Its value.
        value: i32,
    },
    /// The subnets make no pool.
    #[error("spec.subnets: {0}")]
    Pool(#[from] PoolError),
    /// The families of a block do not fit together.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// A block without a network.
    #[error("the block has neither ipv4 nor ipv6; accepted is one of them or both")]
    NoNetwork,
    /// The pool has no block of that number, or none that an object can have.
    #[error("pool \"{pool}\" has no block {index} that can be carved; accepted is 0 to {last}")]
    NoBlock {
        /// The pool.
        pool: String,
        /// The number.
        index: u128,
        /// The last one.
        last: u128,
    },
    /// The object was never stored, so nothing can refer to it.
    #[error(
        "{kind} \"{name}\" has no UID to refer to; accepted is an object that was read from the API server"
    )]
    NotStored {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object cannot be named.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl TryFrom<&AddressPoolSpec> for EnginePool {
    type Error = ConversionError;

    fn try_from(spec: &AddressPoolSpec) -> Result<Self, ConversionError> {
        let block_bits = u8::try_from(spec.block_size_bits)
            .ok()
            .filter(|bits| *bits <= 64)
            .ok_or(ConversionError::BlockSize { value: spec.block_size_bits })?;
        let subnets = spec.subnets.iter().enumerate();
        let subnets = subnets.map(|(position, subnet)| subnet.parse(&format!("spec.subnets[{position}].")));
        let pool = Pool::new(subnets.collect::<Result<Vec<_>, _>>()?, block_bits)?;
        let exclusions = spec.exclude.iter().enumerate();
        let exclusions = exclusions.map(|(position, text)| {
            exclusion(text).map_err(|source| ConversionError::Field {
                field: format!("spec.exclude[{position}]"),
                source,
            })
        });
        Ok(Self {
            pool,
            exclusions: exclusions.collect::<Result<_, _>>()?,
            rest: rest(spec.cooling.as_deref())?,
        })
    }
}

impl EnginePool {
    /// Its subnets, cut into blocks.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What is never handed out of it.
    pub fn exclusions(&self) -> &[Exclusion] {
        &self.exclusions
    }

    /// How long a freed address rests, if the pool says so.
    pub fn rest(&self) -> Option<Duration> {
        self.rest
    }

    /// The blocks that have no address to hand out, because all of them are excluded: carving one would be a waste.
    pub fn excluded_blocks(&self) -> IntervalSet {
        let bits = u32::from(self.pool.block_bits());
        let within = (1_u128 << bits) - 1;
        let mut blocks = IntervalSet::new();
        for (first_index, _, subnet) in self.parts() {
            for interval in self.excluded_offsets(&subnet).iter() {
                let first = (interval.start() >> bits) + u128::from(interval.start() & within != 0);
                let behind_last = interval.end() & within != within;
                let last = (interval.end() >> bits).checked_sub(behind_last.into());
                if let Some(last) = last.filter(|last| *last >= first) {
                    blocks.insert(first_index + first, first_index + last);
                }
            }
        }
        blocks
    }

    /// How many addresses, or pairs, can be handed out of all blocks together.
    pub fn address_capacity(&self) -> u128 {
        let excluded = self.pool.subnets().map(|subnet| self.excluded_offsets(&subnet).len());
        self.pool.address_count().saturating_sub(excluded.fold(0, u128::saturating_add))
    }

    /// The space of a block: its addresses without the excluded ones.
    pub fn space(&self, block: &Subnet) -> Result<Space, ConversionError> {
        let range = |cidr: Cidr| Range::every(cidr).without(self.exclusions.iter().copied());
        match (block.ipv4.map(range), block.ipv6.map(range)) {
            (Some(ipv4), Some(ipv6)) => Ok(Space::pair(ipv4, ipv6)?),
            (Some(range), None) | (None, Some(range)) => Ok(range.into()),
            (None, None) => Err(ConversionError::NoNetwork),
        }
    }

    /// The counts for the pool's status, blocks and then addresses: `carved` are the numbers of the blocks that nodes
    /// own, `withheld` those that an older pool has a claim to.
    pub fn usage(&self, carved: &IntervalSet, withheld: &IntervalSet) -> (PoolUsage, PoolUsage) {
        let mut kept_back = self.excluded_blocks();
        kept_back.extend(withheld.iter());
        for interval in carved.iter() {
            kept_back.remove(*interval.start(), *interval.end());
        }
        let blocks = self.pool.block_count();
        let free = blocks.saturating_sub(carved.len()).saturating_sub(kept_back.len());
        let in_carved = self.usable_in(carved);
        let in_kept_back = self.usable_in(&kept_back);
        let capacity = self.address_capacity();
        (
            PoolUsage::new(blocks, carved.len(), free),
            PoolUsage::new(
                capacity,
                in_carved,
                capacity.saturating_sub(in_carved).saturating_sub(in_kept_back),
            ),
        )
    }

    /// How many addresses can be handed out of these blocks together.
    fn usable_in(&self, blocks: &IntervalSet) -> u128 {
        let bits = u32::from(self.pool.block_bits());
        let within = (1_u128 << bits) - 1;
        let mut usable = blocks.len().saturating_mul(1 << bits);
        for (first_index, last_index, subnet) in self.parts() {
            let excluded = self.excluded_offsets(&subnet);
            for part in blocks.within(first_index, last_index) {
                let first = (part.start() - first_index) << bits;
                let last = ((part.end() - first_index) << bits) | within;
                for gap in excluded.within(first, last) {
                    usable = usable.saturating_sub((gap.end() - gap.start()).saturating_add(1));
                }
            }
        }
        usable
    }

    /// The entries of the list, each with the numbers of its first and last block.
    fn parts(&self) -> impl Iterator<Item = (u128, u128, Subnet)> {
        let bits = u32::from(self.pool.block_bits());
        let mut next = 0_u128;
        self.pool.subnets().map(move |subnet| {
            let last_offset = subnet.ipv4.or(subnet.ipv6).map_or(0, |cidr| cidr.last_offset());
            let (first, last) = (next, next.saturating_add(last_offset >> bits));
            next = last.saturating_add(1);
            (first, last, subnet)
        })
    }

    /// What is excluded of a subnet, as offsets. In a pair an address takes its partner with it.
    fn excluded_offsets(&self, subnet: &Subnet) -> IntervalSet {
        let mut offsets = IntervalSet::new();
        for cidr in [subnet.ipv4, subnet.ipv6].into_iter().flatten() {
            let base = cidr.first().bits();
            for excluded in Range::every(cidr).without(self.exclusions.iter().copied()).exclusions() {
                offsets.insert(excluded.first().bits() - base, excluded.last().bits() - base);
            }
        }
        offsets
    }
}

impl SubnetSet {
    /// The entry as the engine takes it. The families are not compared here; a [`Pool`] does.
    pub fn to_subnet(&self) -> Result<Subnet, ConversionError> {
        self.parse("")
    }

    fn parse(&self, prefix: &str) -> Result<Subnet, ConversionError> {
        Ok(Subnet {
            ipv4: cidr(&format!("{prefix}ipv4"), self.ipv4.as_deref())?,
            ipv6: cidr(&format!("{prefix}ipv6"), self.ipv6.as_deref())?,
        })
    }
}

impl From<Subnet> for SubnetSet {
    fn from(subnet: Subnet) -> Self {
        Self {
            ipv4: subnet.ipv4.map(|cidr| cidr.to_string()),
            ipv6: subnet.ipv6.map(|cidr| cidr.to_string()),
        }
    }
}

impl AddressBlockSpec {
    /// The networks of the block.
    pub fn to_subnet(&self) -> Result<Subnet, ConversionError> {
        Ok(Subnet { ipv4: cidr("ipv4", self.ipv4.as_deref())?, ipv6: cidr("ipv6", self.ipv6.as_deref())? })
    }
}

impl AddressBlock {
    /// The object of block `index` of a pool for a node: named, labelled, owned by the pool and kept by the finalizer.
    /// `request` is the UID of the request that it answers.
    pub fn carve(
        pool: &AddressPool,
        index: u128,
        node: &str,
        request: Option<&str>,
    ) -> Result<Self, ConversionError> {
        let name = pool.name_any();
        let owner = pool.controller_owner_ref(&());
        let Some(mut owner) = owner else {
            return Err(ConversionError::NotStored { kind: "AddressPool", name });
        };
        owner.block_owner_deletion = Some(true);
        let engine = EnginePool::try_from(&pool.spec)?;
        let block = engine.pool.block(index).and_then(|subnet| Some((subnet, i64::try_from(index).ok()?)));
        let Some((subnet, number)) = block else {
            return Err(ConversionError::NoBlock { pool: name, index, last: engine.pool.last_index() });
        };
        let SubnetSet { ipv4, ipv6 } = subnet.into();
        let mut block =
            Self::new(&names::block_name(&name, index), AddressBlockSpec { index: number, ipv4, ipv6 });
        let labels = block.labels_mut();
        labels.insert(label::POOL.to_owned(), name);
        labels.insert(label::NODE.to_owned(), node.to_owned());
        if let Some(uid) = request {
            labels.insert(label::REQUEST.to_owned(), uid.to_owned());
        }
        block.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        block.metadata.owner_references = Some(vec![owner]);
        Ok(block)
    }
}

impl BlockRequest {
    /// The object with which a node asks for a block: owned by the node, so that it goes with it.
    pub fn of(node: &Node, pool: &str) -> Result<Self, ConversionError> {
        let node_name = node.name_any();
        let Some(owner) = node.owner_ref(&()) else {
            return Err(ConversionError::NotStored { kind: "Node", name: node_name });
        };
        let name = names::request_name(pool, &node_name)?;
        let mut request = Self::new(&name, BlockRequestSpec { node_name, pool_name: pool.to_owned() });
        request.metadata.owner_references = Some(vec![owner]);
        Ok(request)
    }
}

fn cidr(field: &str, text: Option<&str>) -> Result<Option<Cidr>, ConversionError> {
    let parse = |text: &str| Notation::Strict.cidr(text);
    text.map(parse).transpose().map_err(|source| ConversionError::Field { field: field.to_owned(), source })
}

/// An entry of `exclude`. The ends of a range may be written either way around, because a rule cannot compare them.
fn exclusion(text: &str) -> Result<Exclusion, ParseError> {
    let Some((one, other)) = text.split_once('-') else {
        return Notation::Strict.cidr_or_address(text).map(Into::into);
    };
    let (one, other): (Address, Address) = (one.parse()?, other.parse()?);
    Exclusion::between(one.min(other), one.max(other)).map_err(|error| ParseError {
        what: "a range of addresses",
        value: text.to_owned(),
        reason: error.to_string(),
        accepted: "two addresses of one family, such as 10.2.0.10-10.2.0.19",
    })
}

fn rest(text: Option<&str>) -> Result<Option<Duration>, ConversionError> {
    const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
    let Some(text) = text else { return Ok(None) };
    let bad = || ConversionError::Cooling { value: text.to_owned() };
    let parsed: kube::core::Duration = text.parse().map_err(|_| bad())?;
    if text.is_empty() || parsed.is_negative() || Duration::from(parsed) > LONGEST {
        return Err(bad());
    }
    Ok(Some(parsed.into()))
}

#[cfg(test)]
mod tests;
