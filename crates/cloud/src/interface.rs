//! Names of interfaces, and what is attached to them.

use std::collections::BTreeSet;
use std::fmt;

use tenure_ipam::Cidr;

/// A network interface of a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId {
    /// The zone of the machine.
    pub zone: String,
    /// The machine.
    pub instance: String,
    /// The interface, such as `nic0`.
    pub name: String,
}

impl InterfaceId {
    /// The first interface of a machine.
    pub fn first(zone: &str, instance: &str) -> Self {
        Self { zone: zone.to_owned(), instance: instance.to_owned(), name: "nic0".to_owned() }
    }

    /// The region of the zone: its name without the last part.
    pub fn region(&self) -> &str {
        self.zone.rsplit_once('-').map_or(&self.zone, |(region, _)| region)
    }
}

impl fmt::Display for InterfaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}/{}", self.name, self.zone, self.instance)
    }
}

/// Addresses that arrive at an interface beside its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AliasRange {
    /// The addresses.
    pub cidr: Cidr,
    /// The range of the subnet that they are of; empty for the primary one.
    pub range: String,
}

/// What of an interface's list is ours to remove: ranges that a pool attaches. Others may have ranges of the same subnet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Managed {
    /// The addresses of the pool.
    pub cidr: Cidr,
    /// The range of the subnet that they are of; empty for the primary one.
    pub range: String,
    /// The prefixes of what the pool attaches, or has attached. A range of another size is not ours: a cluster's own network attaches whole
    /// networks of its machines.
    pub prefixes: BTreeSet<u8>,
}

impl Managed {
    /// Single addresses of a network.
    pub fn addresses(cidr: Cidr, range: &str) -> Self {
        Self { cidr, range: range.to_owned(), prefixes: BTreeSet::from([cidr.family().bits()]) }
    }

    /// Whether a range that is attached is one of the pool's.
    pub fn has(&self, alias: &AliasRange) -> bool {
        self.cidr.covers(&alias.cidr)
            && self.range == alias.range
            && self.prefixes.contains(&alias.cidr.prefix())
    }
}

impl fmt::Display for AliasRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cidr.fmt(f)
    }
}
