//! Announces on an Ethernet segment that an address is here now. A moved address needs this where no router is involved.
//!
//! IPv4: an ARP announcement (RFC 5227, section 2.3), sent as request and as reply, because some hosts accept only one of them.
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
        /// The cause.
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
        /// The step that failed.
        act: &'static str,
        /// On which link.
        link: String,
        /// The cause.
        errno: Errno,
    },
}

impl Error {
    /// Whether a retry may succeed: the link does not exist yet, or is not up.
    pub fn is_early(&self) -> bool {
        matches!(self, Self::NoLink { .. } | Self::Kernel { errno: Errno::ENETDOWN | Errno::ENXIO, .. })
    }
}

/// Announces once on `link` of `namespace` that each of `addresses` is at `mac`.
pub fn announce(namespace: &NetNs, link: &str, mac: Mac, addresses: &[IpAddr]) -> Result<(), Error> {
    namespace
        .run(|| send_all(link, addresses.iter().flat_map(|address| frames(*address, mac))))
        .map_err(|source| Error::Namespace { link: link.to_owned(), source })?
}

fn send_all(link: &str, frames: impl Iterator<Item = Vec<u8>>) -> Result<(), Error> {
    let fail = |act| move |errno| Error::Kernel { act, link: link.to_owned(), errno };
    let place = place_of(link).map_err(fail("list links"))?;
    let place = place.ok_or_else(|| Error::NoLink { link: link.to_owned() })?;
    // Protocol 0: this socket only sends.
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
        .map_err(fail("open a socket"))?;
    bind(socket.as_raw_fd(), &place).map_err(fail("bind a socket"))?;
    for frame in frames {
        send(socket.as_raw_fd(), &frame, MsgFlags::empty()).map_err(fail("send"))?;
    }
    Ok(())
}

/// The packet socket address of a link.
pub(crate) fn place_of(link: &str) -> Result<Option<LinkAddr>, Errno> {
    Ok(getifaddrs()?
        .filter(|entry| entry.interface_name == link)
        .find_map(|entry| entry.address?.as_link_addr().copied()))
}

/// The frames to send for one address.
fn frames(address: IpAddr, mac: Mac) -> Vec<Vec<u8>> {
    const REQUEST: u8 = 1;
    const REPLY: u8 = 2;
    match address {
        IpAddr::V4(address) => {
            let (here, everyone) = ((mac, address), Mac([0xff; 6]));
            vec![arp(REQUEST, here, (Mac([0; 6]), address)), arp(REPLY, here, (everyone, address))]
        }
        IpAddr::V6(address) => vec![advertisement(address, mac)],
    }
}

/// An ARP message to everybody.
pub(crate) fn arp(operation: u8, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut frame = Vec::with_capacity(42);
    frame.extend([0xff; 6]);
    frame.extend(sender.0.0);
    frame.extend([0x08, 0x06]);
    // Ethernet and IPv4, with the lengths of their addresses.
    frame.extend([0, 1, 0x08, 0, 6, 4, 0, operation]);
    for (mac, address) in [sender, target] {
        frame.extend(mac.0);
        frame.extend(address.octets());
    }
    frame
}

fn advertisement(address: Ipv6Addr, mac: Mac) -> Vec<u8> {
    const ICMPV6: u8 = 58;
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut message = Vec::with_capacity(32);
    // Type 136, code 0, checksum; of the flags only override: not a router, not solicited.
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
    // Version 6; a payload of 32 bytes; hop limit 255 proves that no router forwarded it.
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
        // Addresses, length, protocol, and the message with its checksum must add up to zero.
        let summed = [&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &frame[54..]].concat();
        assert_eq!(checksum(&summed), 0);
    }
}
