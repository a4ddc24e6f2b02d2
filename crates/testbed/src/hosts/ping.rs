//! Our own echo requests (RFC 792, RFC 4443), so that a test needs no `ping`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, setsockopt,
    socket,
};
use nix::sys::time::TimeVal;
use tenure_handles::{Clock, SystemClock};

/// How long to wait for one answer before the next request.
const INTERVAL: Duration = Duration::from_millis(100);

/// Sends echo requests from the calling thread's namespace until one is answered.
pub(super) fn echo(target: IpAddr, limit: Duration) -> io::Result<Duration> {
    static NEXT_IDENTIFIER: AtomicU16 = AtomicU16::new(1);
    let identifier = NEXT_IDENTIFIER.fetch_add(1, Ordering::Relaxed);
    let (family, protocol) = match target {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let wait = TimeVal::new(0, i64::from(INTERVAL.subsec_micros()));
    setsockopt(&socket, ReceiveTimeout, &wait)?;
    let address = SockaddrStorage::from(SocketAddr::new(target, 0));
    let start = SystemClock.now();
    let mut buffer = [0; 1500];
    for sequence in 0..u16::MAX {
        let sent = SystemClock.now();
        match sendto(socket.as_raw_fd(), &request(target, identifier, sequence), &address, MsgFlags::empty())
        {
            // No neighbour answered yet, or there is no route yet (`EINVAL`: a blackhole route is all there is):
            // worth another try.
            Ok(_) | Err(nix::Error::EHOSTUNREACH | nix::Error::ENETUNREACH | nix::Error::EINVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
        while SystemClock.now().since(sent) < INTERVAL {
            match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) if is_reply(target, &buffer[..length], identifier, sequence) => {
                    return Ok(SystemClock.now().since(start));
                }
                Ok(_) | Err(nix::Error::EHOSTUNREACH | nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        if SystemClock.now().since(start) >= limit {
            break;
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")))
}

fn request(target: IpAddr, identifier: u16, sequence: u16) -> [u8; 8] {
    let kind = if target.is_ipv4() { 8 } else { 128 };
    let (id, seq) = (identifier.to_be_bytes(), sequence.to_be_bytes());
    let mut message = [kind, 0, 0, 0, id[0], id[1], seq[0], seq[1]];
    if target.is_ipv4() {
        // For ICMPv6 the kernel computes it, because the sum covers addresses that only it knows.
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
    }
    message
}

/// Whether this answers one of our requests up to `sequence`: on a busy machine an answer may come after the
/// next request.
fn is_reply(target: IpAddr, packet: &[u8], identifier: u16, sequence: u16) -> bool {
    let (kind, message) = match target {
        // An IPv4 raw socket also returns the IP header.
        IpAddr::V4(_) => {
            let header = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
            (0, packet.get(header..).unwrap_or_default())
        }
        IpAddr::V6(_) => (129, packet),
    };
    let &[first, _, _, _, id0, id1, seq0, seq1, ..] = message else { return false };
    first == kind && [id0, id1] == identifier.to_be_bytes() && u16::from_be_bytes([seq0, seq1]) <= sequence
}

/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let sum: u32 = words.map(u32::from).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    // Two folds bring any sum of a packet's words below 2^16.
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_its_checksum_sums_to_zero() {
        let message = request("192.0.2.1".parse().unwrap(), 0xbeef, 7);
        assert_eq!(checksum(&message), 0);
    }

    #[test]
    fn only_a_reply_with_our_identifier_to_a_request_that_was_sent_is_ours() {
        let target = "2001:db8::1".parse().unwrap();
        let reply = [129, 0, 0, 0, 0, 5, 0, 6];
        assert!(is_reply(target, &reply, 5, 6));
        assert!(is_reply(target, &reply, 5, 7), "an answer that comes late");
        assert!(!is_reply(target, &reply, 5, 5));
        assert!(!is_reply(target, &reply, 6, 6));
        assert!(!is_reply(target, &[128, 0, 0, 0, 0, 5, 0, 6], 5, 6));
        assert!(!is_reply(target, &[], 5, 6));
    }
}
