//! A captured packet, with the headers that tests need.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A packet as it passed an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When the kernel saw it, since the Unix epoch.
    pub at: Duration,
    /// The index of the interface that it passed.
    pub interface: usize,
    /// Whether the host sent it.
    pub direction: Direction,
    /// The frame's destination.
    pub destination: MacAddress,
    /// The frame's source.
    pub source: MacAddress,
    /// Its contents.
    pub payload: Payload,
    /// The whole frame.
    pub bytes: Vec<u8>,
}

/// Which way a packet went, seen from the host that captured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this host, to a group or to all.
    Received,
    /// To another host's address; captured because the interface is a switch's or promiscuous.
    Overheard,
    /// From this host.
    Sent,
}

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Address resolution (RFC 826) for IPv4.
    Arp(Arp),
    /// IPv4 or IPv6.
    Ip(Ip),
    /// Anything else or cut off, with its `EtherType`.
    Other(u16),
}

/// An ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's MAC address.
    pub sender_mac: MacAddress,
    /// The sender's IPv4 address.
    pub sender: Ipv4Addr,
    /// The requested IPv4 address.
    pub target: Ipv4Addr,
}

/// The operation of an ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Who has the target?
    Request,
    /// The sender has it.
    Reply,
    /// Another operation, by its number.
    Other(u16),
}

/// The parts of an IP header, and of the header after it, that tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// The source.
    pub source: IpAddr,
    /// The destination.
    pub destination: IpAddr,
    /// Time to live, or hop limit.
    pub hops: u8,
    /// The protocol behind the IP header, by its number. IPv6 extension headers are not skipped.
    pub protocol: u8,
    /// Source and destination port, for TCP and UDP that is not a later fragment.
    pub ports: Option<(u16, u16)>,
    /// Type and code, for ICMP and `ICMPv6`.
    pub icmp: Option<(u8, u8)>,
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;

impl Packet {
    /// Parses a frame; `None` if it is too short.
    pub(super) fn parse(
        at: Duration,
        interface: usize,
        direction: Direction,
        bytes: Vec<u8>,
    ) -> Option<Self> {
        let destination = MacAddress(array(&bytes, 0)?);
        let source = MacAddress(array(&bytes, 6)?);
        let ethertype = word(&bytes, 12)?;
        let rest = bytes.get(14..)?;
        let known = match ethertype {
            ETHERTYPE_ARP => Arp::parse(rest).map(Payload::Arp),
            ETHERTYPE_IPV4 => Ip::parse_v4(rest).map(Payload::Ip),
            ETHERTYPE_IPV6 => Ip::parse_v6(rest).map(Payload::Ip),
            _ => None,
        };
        let payload = known.unwrap_or(Payload::Other(ethertype));
        Some(Self { at, interface, direction, destination, source, payload, bytes })
    }

    /// The ARP message in it, if there is one.
    pub fn arp(&self) -> Option<&Arp> {
        if let Payload::Arp(arp) = &self.payload { Some(arp) } else { None }
    }

    /// The IP headers in it, if there are any.
    pub fn ip(&self) -> Option<&Ip> {
        if let Payload::Ip(ip) = &self.payload { Some(ip) } else { None }
    }

    /// The address that a neighbour solicitation (RFC 4861) asks for, if this is one.
    pub fn solicited(&self) -> Option<Ipv6Addr> {
        self.neighbour_target(135)
    }

    /// The address that a neighbour advertisement (RFC 4861) announces, if this is one.
    pub fn advertised(&self) -> Option<Ipv6Addr> {
        self.neighbour_target(136)
    }

    fn neighbour_target(&self, kind: u8) -> Option<Ipv6Addr> {
        let ip = self.ip().filter(|ip| ip.protocol == 58 && ip.icmp == Some((kind, 0)))?;
        // After the headers of Ethernet, IPv6 and ICMPv6.
        let target = ip.source.is_ipv6().then(|| array::<16>(&self.bytes, 14 + 40 + 8)).flatten();
        target.map(Ipv6Addr::from)
    }
}

impl Arp {
    fn parse(bytes: &[u8]) -> Option<Self> {
        // Ethernet, IPv4, six and four bytes.
        if bytes.get(..6)? != [0, 1, 8, 0, 6, 4] {
            return None;
        }
        let operation = match word(bytes, 6)? {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            other => ArpOperation::Other(other),
        };
        Some(Self {
            operation,
            sender_mac: MacAddress(array(bytes, 8)?),
            sender: Ipv4Addr::from(array::<4>(bytes, 14)?),
            target: Ipv4Addr::from(array::<4>(bytes, 24)?),
        })
    }
}

impl Ip {
    fn parse_v4(bytes: &[u8]) -> Option<Self> {
        let header = usize::from(bytes.first()? & 0x0f) * 4;
        let later_fragment = word(bytes, 6)? & 0x1fff != 0;
        let behind = if later_fragment { &[] } else { bytes.get(header..)? };
        let source = IpAddr::from(array::<4>(bytes, 12)?);
        let destination = IpAddr::from(array::<4>(bytes, 16)?);
        Some(Self::with_transport(source, destination, *bytes.get(8)?, *bytes.get(9)?, behind))
    }

    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        let source = IpAddr::from(array::<16>(bytes, 8)?);
        let destination = IpAddr::from(array::<16>(bytes, 24)?);
        let (protocol, hops) = (*bytes.get(6)?, *bytes.get(7)?);
        Some(Self::with_transport(source, destination, hops, protocol, bytes.get(40..)?))
    }

    fn with_transport(source: IpAddr, destination: IpAddr, hops: u8, protocol: u8, behind: &[u8]) -> Self {
        let ports = matches!(protocol, 6 | 17).then(|| Some((word(behind, 0)?, word(behind, 2)?))).flatten();
        let icmp = matches!(protocol, 1 | 58).then(|| Some((*behind.first()?, *behind.get(1)?))).flatten();
        Self { source, destination, hops, protocol, ports, icmp }
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Packet {
    /// One line, for the message of a failed test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, direction, source, destination, .. } = self;
        write!(f, "#{interface} {direction:?} {source} > {destination} ")?;
        match &self.payload {
            Payload::Arp(arp) => match arp.operation {
                ArpOperation::Request => write!(f, "ARP who has {}, tell {}", arp.target, arp.sender),
                ArpOperation::Reply => write!(f, "ARP {} is at {}", arp.sender, arp.sender_mac),
                ArpOperation::Other(number) => write!(f, "ARP operation {number}"),
            },
            Payload::Ip(ip) => {
                write!(f, "{} > {} protocol {} hops {}", ip.source, ip.destination, ip.protocol, ip.hops)?;
                if let Some((from, to)) = ip.ports {
                    write!(f, " port {from} > {to}")?;
                }
                if let Some((kind, code)) = ip.icmp {
                    write!(f, " ICMP {kind}/{code}")?;
                }
                Ok(())
            }
            Payload::Other(ethertype) => write!(f, "EtherType {ethertype:#06x}"),
        }
    }
}

/// The IPv6 neighbour discovery types that tests need.
impl Ip {
    /// Whether this is a neighbour solicitation (RFC 4861), IPv6's counterpart of an ARP request.
    pub fn is_neighbour_solicitation(&self) -> bool {
        self.protocol == 58 && self.icmp == Some((135, 0))
    }

    /// The multicast group on which the holder of an IPv6 address listens for solicitations.
    pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
        let [.., a, b, c] = address.octets();
        let (high, low) = (0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
    }
}

#[cfg(test)]
mod tests;
