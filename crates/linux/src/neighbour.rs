//! Permanent and learned neighbour entries, so that the first packet needs no resolution.

use std::net::IpAddr;

use nix::errno::Errno;

use crate::Mac;
use crate::address::family;
use crate::socket::{Message, Request};

// See rtnetlink(7).
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_STALE: u16 = 0x04;
const NUD_PERMANENT: u16 = 0x80;
const NTF_EXT_LEARNED: u8 = 0x10;

/// How long a neighbour entry is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    /// As long as the link lives.
    Always,
    /// For the first packets; then the kernel resolves the neighbour as usual. Such an entry does not count against the
    /// kernel's limit of neighbours, which all namespaces share and a thousand pods would reach.
    AtFirst,
}

/// Adds the entry that `address` is at `mac`.
pub(crate) fn put(index: u32, address: IpAddr, mac: Mac, belief: Belief) -> Request {
    let (state, flags) = match belief {
        Belief::Always => (NUD_PERMANENT, 0),
        Belief::AtFirst => (NUD_STALE, NTF_EXT_LEARNED),
    };
    let message = message(RTM_NEWNEIGH, index, address, (state, flags));
    let message = message.with(NDA_LLADDR, &mac.0);
    // Without the entry the kernel resolves the neighbour, so a failure is not fatal.
    Request::put(message).tolerating(&[Errno::ENOBUFS])
}

/// Forgets where `address` is; it may be forgotten already.
pub(crate) fn remove(index: u32, address: IpAddr) -> Request {
    Request::remove(message(RTM_DELNEIGH, index, address, (0, 0)))
}

fn message(kind: u16, index: u32, address: IpAddr, (state, flags): (u16, u8)) -> Message {
    let [i0, i1, i2, i3] = index.to_ne_bytes();
    let [s0, s1] = state.to_ne_bytes();
    let message = Message::new(kind, [family(address).into(), 0, 0, 0, i0, i1, i2, i3, s0, s1, flags, 0]);
    match address {
        IpAddr::V4(address) => message.with(NDA_DST, &address.octets()),
        IpAddr::V6(address) => message.with(NDA_DST, &address.octets()),
    }
}
