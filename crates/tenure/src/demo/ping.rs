//! The demo's own echo requests (RFC 792, RFC 4443), so that no `ping` is needed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, setsockopt,
    socket,
};
use nix::sys::time::TimeVal;
use tenure_handles::{Clock, SystemClock};
use tenure_linux::netns::NetNs;

/// How often to check for the limit.
const LOOK: TimeVal = TimeVal::new(0, 20_000);

/// Echo requests from one namespace to one address.
pub(crate) struct Pings {
    socket: OwnedFd,
    target: IpAddr,
    sequence: u16,
}

impl Pings {
    pub(crate) fn from(namespace: &NetNs, target: IpAddr) -> Result<Self> {
        let (family, protocol) = match target {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let open = || {
            let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
            setsockopt(&socket, ReceiveTimeout, &LOOK)?;
            Ok::<_, Errno>(socket)
        };
        let socket = namespace.run(open)?.context("cannot open a socket for echo requests")?;
        Ok(Self { socket, target, sequence: 0 })
    }

    /// Sends one and waits for its answer, up to a limit; `None` without an answer.
    pub(crate) fn once(&mut self, limit: Duration) -> io::Result<Option<Duration>> {
        self.sequence = self.sequence.wrapping_add(1);
        let socket = self.socket.as_raw_fd();
        let address = SockaddrStorage::from(SocketAddr::new(self.target, 0));
        // A socket's number is unique in this process.
        let message =
            Message { target: self.target, identifier: identifier(socket), sequence: self.sequence };
        let sent = SystemClock.elapsed();
        let since = || SystemClock.elapsed().saturating_sub(sent);
        match sendto(socket, &message.request(), &address, MsgFlags::empty()) {
            Ok(_) => {}
            // Counts as not answered.
            Err(Errno::EHOSTUNREACH | Errno::ENETUNREACH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let mut buffer = [0; 1500];
        while since() < limit {
            match recv(socket, &mut buffer, MsgFlags::empty()) {
                Ok(length) if message.is_answered_by(&buffer[..length]) => return Ok(Some(since())),
                Ok(_) | Err(Errno::EHOSTUNREACH | Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }
}

fn identifier(socket: i32) -> u16 {
    u16::try_from(socket).unwrap_or(u16::MAX)
}

struct Message {
    target: IpAddr,
    identifier: u16,
    sequence: u16,
}

impl Message {
    fn request(&self) -> [u8; 8] {
        let kind = if self.target.is_ipv4() { 8 } else { 128 };
        let mut message = self.bytes(kind);
        if self.target.is_ipv4() {
            // For ICMPv6 the kernel computes it, because the sum covers addresses that only it knows.
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    fn bytes(&self, kind: u8) -> [u8; 8] {
        let (id, number) = (self.identifier.to_be_bytes(), self.sequence.to_be_bytes());
        [kind, 0, 0, 0, id[0], id[1], number[0], number[1]]
    }

    fn is_answered_by(&self, packet: &[u8]) -> bool {
        let (kind, message) = match self.target {
            // An IPv4 raw socket also returns the header.
            IpAddr::V4(_) => {
                let header = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
                (0, packet.get(header..).unwrap_or_default())
            }
            IpAddr::V6(_) => (129, packet),
        };
        let expected = self.bytes(kind);
        message.len() >= 8 && message[..2] == expected[..2] && message[4..8] == expected[4..]
    }
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_by_its_own_reply_and_no_other() {
        let message = Message { target: "192.0.2.1".parse().unwrap(), identifier: 7, sequence: 300 };
        let request = message.request();
        assert_eq!(checksum(&request), 0, "the sum over a message with its checksum is nothing");
        let mut reply = vec![0x45; 1];
        reply.resize(20, 0);
        reply.extend(message.bytes(0));
        assert!(message.is_answered_by(&reply));
        assert!(!Message { sequence: 301, ..message }.is_answered_by(&reply));
        let other = Message { target: "2001:db8::1".parse().unwrap(), identifier: 7, sequence: 300 };
        assert!(other.is_answered_by(&other.bytes(129)));
        assert!(!other.is_answered_by(&other.request()) && !other.is_answered_by(&[]));
    }
}
