//! Why a list of subnets is no pool.

use crate::address::Family;
use crate::cidr::Cidr;

/// Why a list of subnets is no pool. Positions count from zero, as in `spec.subnets[0]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The list is empty.
    #[error("the pool has no subnet: accepted is a list of at least one")]
    NoSubnets,
    /// An entry names no network.
    #[error("subnet {position} has no network: accepted is an IPv4 network, an IPv6 network or both")]
    EmptySubnet {
        /// Its place in the list.
        position: usize,
    },
    /// A network is of the other family than its field.
    #[error("subnet {position} has {cidr} as its {family} network: accepted is an {family} network")]
    Family {
        /// Its place in the list.
        position: usize,
        /// The family that was expected.
        family: Family,
        /// The network.
        cidr: Cidr,
    },
    /// A network is smaller than a block.
    #[error(
        "subnet {position}, {cidr}, is smaller than a block of 2^{block_bits} addresses: accepted is a network with at \
         least {block_bits} host bits, and it has {}",
        .cidr.host_bits()
    )]
    TooSmall {
        /// Its place in the list.
        position: usize,
        /// The network.
        cidr: Cidr,
        /// The power of two of addresses in a block.
        block_bits: u8,
    },
    /// The two networks of an entry have different sizes.
    #[error(
        "subnet {position} pairs {ipv4} with {ipv6}, which have {} and {} host bits: accepted is an IPv6 prefix of {}",
        .ipv4.host_bits(), .ipv6.host_bits(), 128 - .ipv4.host_bits()
    )]
    Sizes {
        /// Its place in the list.
        position: usize,
        /// The IPv4 network.
        ipv4: Cidr,
        /// The IPv6 network.
        ipv6: Cidr,
    },
    /// Two entries share addresses.
    #[error(
        "subnet {position}, {cidr}, overlaps subnet {other_position}, {other}: accepted are disjoint subnets"
    )]
    Overlap {
        /// The place of the later one in the list.
        position: usize,
        /// The later one.
        cidr: Cidr,
        /// The place of the earlier one.
        other_position: usize,
        /// The earlier one.
        other: Cidr,
    },
    /// The blocks can no longer be numbered in 128 bits.
    #[error(
        "subnet {position} brings the pool to more than 2^128 blocks: accepted are larger blocks or fewer subnets"
    )]
    TooManyBlocks {
        /// Its place in the list.
        position: usize,
    },
}
