//! Neighbour entries, known in advance so that the first packet need not ask.

use std::net::IpAddr;

use nix::errno::Errno;

use crate::Mac;
use crate::address::family;
use crate::socket::{Message, Request};

// See rtnetlink(7).
const RTM_NEWNEIGH: u16 = 28;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_STALE: u16 = 0x04;
const NUD_PERMANENT: u16 = 0x80;
const NTF_EXT_LEARNED: u8 = 0x10;

/// How long a neighbour entry is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    /// As long as the link lives.
    Always,
    /// For the first packets; then the neighbour is asked, in the usual way. It does not count against the kernel's
    /// limit of neighbours, which all namespaces share and a thousand pods would reach.
    AtFirst,
}

/// Says that `address` is at `mac`.
pub(crate) fn put(index: u32, address: IpAddr, mac: Mac, belief: Belief) -> Request {
    let (state, flags) = match belief {
        Belief::Always => (NUD_PERMANENT, 0),
        Belief::AtFirst => (NUD_STALE, NTF_EXT_LEARNED),
    };
    let [i0, i1, i2, i3] = index.to_ne_bytes();
    let [s0, s1] = state.to_ne_bytes();
    let message =
        Message::new(RTM_NEWNEIGH, [family(address).into(), 0, 0, 0, i0, i1, i2, i3, s0, s1, flags, 0]);
    let message = match address {
        IpAddr::V4(address) => message.with(NDA_DST, &address.octets()),
        IpAddr::V6(address) => message.with(NDA_DST, &address.octets()),
    };
    let message = message.with(NDA_LLADDR, &mac.0);
    // Without it, it is asked for in time; no reason to fail.
    Request::put(message).tolerating(&[Errno::ENOBUFS])
}
