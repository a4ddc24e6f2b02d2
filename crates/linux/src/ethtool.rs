//! Features of links, through the kernel's `ethtool` netlink family.

use netlink_packet_core::NlasIterator;

use crate::generic::{self, NESTED};
use crate::netns::{self, NetNs};
use crate::socket::{self, Request};

// See include/uapi/linux/ethtool_netlink.h.
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_OMIT_REPLY: u32 = 2;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

/// UDP segmentation offload.
const UDP: &str = "tx-udp-segmentation";

/// Why a link's features could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The kernel has no netlink interface for features.
    #[error("the kernel does not have the generic netlink family ethtool (CONFIG_ETHTOOL_NETLINK)")]
    NoFamily,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] socket::Error),
}

/// Turns UDP segmentation offload off, so that the kernel segments before the driver, or on. Does nothing if it is so already.
pub fn offload_udp_segmentation(namespace: &NetNs, link: u32, on: bool) -> Result<(), Error> {
    let mut socket = generic::open(namespace)?;
    let family = generic::family(&mut socket, "ethtool")?.ok_or(Error::NoFamily)?;
    let message = generic::message(family, ETHTOOL_MSG_FEATURES_SET, 1)
        .with_nested(ETHTOOL_A_FEATURES_HEADER | NESTED, &[], |header| {
            header
                .with_number(ETHTOOL_A_HEADER_DEV_INDEX, link)
                .with_number(ETHTOOL_A_HEADER_FLAGS, ETHTOOL_FLAG_OMIT_REPLY)
        })
        .with_nested(ETHTOOL_A_FEATURES_WANTED | NESTED, &[], |wanted| {
            wanted.with_nested(ETHTOOL_A_BITSET_BITS | NESTED, &[], |bits| {
                // A bit without a value is off.
                bits.with_nested(ETHTOOL_A_BITSET_BITS_BIT | NESTED, &[], |bit| {
                    let bit = bit.with_text(ETHTOOL_A_BITSET_BIT_NAME, UDP);
                    if on { bit.with(ETHTOOL_A_BITSET_BIT_VALUE, &[]) } else { bit }
                })
            })
        })
        .named(format!("switch {UDP} of link {link} {}", if on { "on" } else { "off" }));
    Ok(socket.apply(&[Request::change(message)])?)
}

/// Whether UDP segmentation offload of a link is on, and can be turned off.
pub fn offloads_udp_segmentation(namespace: &NetNs, link: u32) -> Result<bool, Error> {
    let mut socket = generic::open(namespace)?;
    let family = generic::family(&mut socket, "ethtool")?.ok_or(Error::NoFamily)?;
    let message = generic::message(family, ETHTOOL_MSG_FEATURES_GET, 1)
        .with_nested(ETHTOOL_A_FEATURES_HEADER | NESTED, &[], |header| {
            header.with_number(ETHTOOL_A_HEADER_DEV_INDEX, link)
        })
        .named(format!("look at the features of link {link}"));
    let answer = socket.get(&Request::get(message))?;
    let body = answer.as_ref().and_then(|answer| answer.body.get(generic::HEADER..)).unwrap_or_default();
    let has_udp = |set: u16| any(body, |kind, value| kind == set && is_on(value, UDP));
    Ok(has_udp(ETHTOOL_A_FEATURES_HW) && has_udp(ETHTOOL_A_FEATURES_WANTED))
}

/// Whether the bit of this name is on in a set. A set without a mask lists the bits that are on; another one lists all, and
/// those that are on have a value.
fn is_on(set: &[u8], name: &str) -> bool {
    let listed = any(set, |kind, _| kind == ETHTOOL_A_BITSET_NOMASK);
    let is_it = |bit: &[u8]| {
        let named = any(bit, |kind, value| {
            kind == ETHTOOL_A_BITSET_BIT_NAME && value.strip_suffix(&[0]).unwrap_or(value) == name.as_bytes()
        });
        named && (listed || any(bit, |kind, _| kind == ETHTOOL_A_BITSET_BIT_VALUE))
    };
    any(set, |kind, bits| {
        kind == ETHTOOL_A_BITSET_BITS
            && any(bits, |kind, bit| kind == ETHTOOL_A_BITSET_BITS_BIT && is_it(bit))
    })
}

/// Whether one of these attributes is such.
fn any(attributes: &[u8], is_such: impl Fn(u16, &[u8]) -> bool) -> bool {
    let mut all = NlasIterator::new(attributes).map_while(Result::ok);
    all.any(|attribute| is_such(attribute.kind() & !NESTED, attribute.value()))
}
