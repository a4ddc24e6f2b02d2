//! Telling everyone on an Ethernet segment that an address is here now: what a moved address needs where nobody routes.
//!
//! IPv4: an ARP announcement (RFC 5227, section 2.3) and the same as a reply, because some listen only to one of them.
//! IPv6: an unsolicited neighbour advertisement with the override flag (RFC 4861, section 7.2.6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, bind, send, socket};

use crate::Mac;
use crate::netns::{self, NetNs};

/// An announcement that was not sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace cannot be entered.
    #[error("announce addresses on {link}")]
    Namespace {
        /// On which link.
        link: String,
        /// Why.
        source: netns::Error,
    },
    /// There is no such link.
    #[error("announce addresses on {link}: there is no such link")]
    NoLink {
        /// Its name.
        link: String,
    },
    /// The kernel refused.
    #[error("{act} to announce addresses on {link}: {errno}")]
    Kernel {
        /// What was being done.
        act: &'static str,
        /// On which link.
        link: String,
        /// Why not.
        errno: Errno,
    },
}

impl Error {
    /// Whether it may work a little later: the link is not there yet, or not up.
    pub fn is_early(&self) -> bool {
        matches!(self, Self::NoLink { .. } | Self::Kernel { errno: Errno::ENETDOWN | Errno::ENXIO, .. })
    }
}

/// Says on `link` of `namespace` that each of `addresses` is at `mac`, once.
pub fn announce(namespace: &NetNs, link: &str, mac: Mac, addresses: &[IpAddr]) -> Result<(), Error> {
    namespace
        .run(|| send_all(link, addresses.iter().flat_map(|address| frames(*address, mac))))
        .map_err(|source| Error::Namespace { link: link.to_owned(), source })?
}

fn send_all(link: &str, frames: impl Iterator<Item = Vec<u8>>) -> Result<(), Error> {
    let fail = |act| move |errno| Error::Kernel { act, link: link.to_owned(), errno };
    let place = place_of(link).map_err(fail("list links"))?;
    let place = place.ok_or_else(|| Error::NoLink { link: link.to_owned() })?;
    // Of no protocol: it only sends.
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
        .map_err(fail("open a socket"))?;
    bind(socket.as_raw_fd(), &place).map_err(fail("bind a socket"))?;
    for frame in frames {
        send(socket.as_raw_fd(), &frame, MsgFlags::empty()).map_err(fail("send"))?;
    }
    Ok(())
}

/// The address by which a packet socket knows a link.
fn place_of(link: &str) -> Result<Option<LinkAddr>, Errno> {
    Ok(getifaddrs()?
        .filter(|entry| entry.interface_name == link)
        .find_map(|entry| entry.address?.as_link_addr().copied()))
}

/// What has to be sent for one address.
fn frames(address: IpAddr, mac: Mac) -> Vec<Vec<u8>> {
    const REQUEST: u8 = 1;
    const REPLY: u8 = 2;
    match address {
        IpAddr::V4(address) => vec![arp(REQUEST, address, mac), arp(REPLY, address, mac)],
        IpAddr::V6(address) => vec![advertisement(address, mac)],
    }
}

fn arp(operation: u8, address: Ipv4Addr, mac: Mac) -> Vec<u8> {
    let everyone = [0xff; 6];
    let mut frame = Vec::with_capacity(42);
    frame.extend(everyone);
    frame.extend(mac.0);
    frame.extend([0x08, 0x06]);
    // Ethernet and IPv4, with the lengths of their addresses.
    frame.extend([0, 1, 0x08, 0, 6, 4, 0, operation]);
    frame.extend(mac.0);
    frame.extend(address.octets());
    frame.extend(if operation == 1 { [0; 6] } else { everyone });
    frame.extend(address.octets());
    frame
}

fn advertisement(address: Ipv6Addr, mac: Mac) -> Vec<u8> {
    const ICMPV6: u8 = 58;
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut message = Vec::with_capacity(32);
    // Type 136, code 0, the sum, and of the flags only override: not a router, not asked for.
    message.extend([136, 0, 0, 0, 0x20, 0, 0, 0]);
    message.extend(address.octets());
    // Option 2 of eight bytes: the target's link-layer address.
    message.extend([2, 1]);
    message.extend(mac.0);
    let mut pseudo_header = Vec::with_capacity(72);
    pseudo_header.extend(address.octets());
    pseudo_header.extend(all_nodes.octets());
    pseudo_header.extend([0, 0, 0, 32, 0, 0, 0, ICMPV6]);
    pseudo_header.extend(&message);
    message[2..4].copy_from_slice(&checksum(&pseudo_header).to_be_bytes());

    let mut frame = Vec::with_capacity(86);
    frame.extend([0x33, 0x33, 0, 0, 0, 1]);
    frame.extend(mac.0);
    frame.extend([0x86, 0xdd]);
    // Version 6; 32 bytes follow; the hop limit proves that no router passed it on.
    frame.extend([0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
    frame.extend(address.octets());
    frame.extend(all_nodes.octets());
    frame.extend(message);
    frame
}

/// The internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x0a, 1, 2, 3, 4, 5]);

    #[test]
    fn an_arp_announcement_names_the_address_as_sender_and_target() {
        let frames = frames("192.0.2.9".parse().unwrap(), MAC);
        let announcement = [
            &[0xff; 6][..],
            &MAC.0,
            &[8, 6],                   // Ethernet
            &[0, 1, 8, 0, 6, 4, 0, 1], // request
            &MAC.0,
            &[192, 0, 2, 9],
            &[0; 6],
            &[192, 0, 2, 9],
        ];
        assert_eq!(frames[0], announcement.concat());
        assert_eq!((frames.len(), frames[1][21]), (2, 2), "and once more as a reply");
    }

    #[test]
    fn a_neighbour_advertisement_overrides_and_adds_up() {
        let [frame] = &frames("2001:db8::9".parse().unwrap(), MAC)[..] else { panic!("one frame") };
        assert_eq!(frame.len(), 86);
        assert_eq!(frame[..14], [0x33, 0x33, 0, 0, 0, 1, 0x0a, 1, 2, 3, 4, 5, 0x86, 0xdd]);
        assert_eq!(frame[21], 255, "hop limit");
        assert_eq!((frame[54], frame[58]), (136, 0x20));
        // Addresses, length and protocol, and the message with its sum: together they add up to nothing.
        let summed = [&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &frame[54..]].concat();
        assert_eq!(checksum(&summed), 0);
    }
}
