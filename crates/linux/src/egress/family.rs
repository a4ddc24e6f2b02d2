//! The differences between the tunnels of the two families: IPv4 in UDP over IPv4, and IPv6 in UDP over IPv6.

use std::net::IpAddr;

/// A family of addresses, and of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 packets in IPv4 packets.
    V4,
    /// IPv6 packets in IPv6 packets.
    V6,
}

/// Length of a UDP header.
pub(super) const UDP: usize = 8;

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The one of `addresses` that is of this family.
    pub fn among(self, addresses: &[IpAddr]) -> Option<IpAddr> {
        addresses.iter().copied().find(|address| Self::of(*address) == self)
    }

    /// What a tunnel adds to every packet.
    pub fn overhead(self) -> u32 {
        match self {
            Self::V4 => 28,
            Self::V6 => 48,
        }
    }

    /// Length of an IP header without options.
    pub(super) fn header(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// Where the source address is in an IP header.
    pub(super) fn source(self) -> i16 {
        match self {
            Self::V4 => 12,
            Self::V6 => 8,
        }
    }

    /// Where the destination address is in an IP header.
    pub(super) fn destination(self) -> i16 {
        match self {
            Self::V4 => 16,
            Self::V6 => 24,
        }
    }

    /// Bytes of an address.
    pub(super) fn address(self) -> u32 {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    /// The Ethernet type of its packets.
    pub(super) fn ether_type(self) -> u16 {
        match self {
            Self::V4 => 0x0800,
            Self::V6 => 0x86dd,
        }
    }

    /// The IP protocol number of encapsulated packets, for which the receiving port is opened.
    pub(super) fn protocol(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 41,
        }
    }

    /// Its number in messages to the kernel (`AF_INET`, `AF_INET6`).
    pub(super) fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }
}

/// The bytes of an address, in network order.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
