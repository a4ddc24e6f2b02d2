//! Connections that the kernel tracks, as a gateway reports them: how many leave by its addresses, which ports they take, and
//! which are in use.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::netns::{self, NetNs};
use crate::socket::{self, Message, Request};
use crate::sysctl;

// See include/uapi/linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h.
const SUBSYSTEM: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
const IPS_ASSURED: u32 = 1 << 2;
/// From `TCP_CONNTRACK_TIME_WAIT` on nothing more is sent, except in a simultaneous open.
const TIME_WAIT: u8 = 7;
const SIMULTANEOUS_OPEN: u8 = 9;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Length of the header of a netfilter message.
const HEADER: usize = 4;
/// Without the flag bits of an attribute type.
const KIND: u16 = 0x3fff;

/// Why connections could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace cannot be entered.
    #[error("look at connections")]
    Namespace(#[from] netns::Error),
    /// The kernel refused.
    #[error("look at connections (module nf_conntrack_netlink)")]
    Kernel(#[from] socket::Error),
}

/// Connections of others that leave by an address of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// How many there are.
    pub all: u64,
    /// How many are in use: TCP connections that are not closed, UDP flows with packets in both directions for a while.
    pub open: u64,
    /// How many different ports they take, by gateway address and protocol (`tcp`, `udp`).
    pub ports: BTreeMap<(IpAddr, &'static str), u32>,
}

/// How many connections of any kind a namespace has, and its limit.
pub fn count_and_limit(namespace: &NetNs) -> Option<(u64, u64)> {
    let read = |name: &str| sysctl::read(&format!("netfilter/{name}")).ok()?.parse().ok();
    namespace.run(|| Some((read("nf_conntrack_count")?, read("nf_conntrack_max")?))).ok()?
}

/// Counts connections of others than `own` that leave by `own` addresses. Stores none of them, so memory does not grow with
/// their number.
pub fn survey(namespace: &NetNs, own: &[IpAddr]) -> Result<Connections, Error> {
    let mut socket = namespace.raw_socket(NETLINK_NETFILTER)?;
    let message = Message::new(SUBSYSTEM << 8 | IPCTNL_MSG_CT_GET, [0; HEADER]).named("list connections");
    let mut found = Connections::default();
    let mut taken: BTreeMap<(IpAddr, &'static str), Ports> = BTreeMap::new();
    socket.each(&Request::list(message), |answer| {
        let Some(connection) = Connection::read(&answer.body) else { return };
        let (Some(from), Some(by)) = (connection.original.source, connection.reply.destination) else {
            return;
        };
        if own.contains(&from) || !own.contains(&by) {
            return;
        }
        found.all += 1;
        found.open += u64::from(connection.is_open());
        let protocol = match connection.reply.protocol {
            TCP => "tcp",
            UDP => "udp",
            _ => return,
        };
        taken.entry((by, protocol)).or_default().take(connection.reply.port);
    })?;
    found.ports = taken.into_iter().map(|(place, ports)| (place, ports.count())).collect();
    Ok(found)
}

/// The ports that are taken, one bit each.
struct Ports(Vec<u64>);

impl Default for Ports {
    fn default() -> Self {
        Self(vec![0; 1024])
    }
}

impl Ports {
    fn take(&mut self, port: u16) {
        if let Some(word) = self.0.get_mut(usize::from(port >> 6)) {
            *word |= 1 << (port & 63);
        }
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Connection {
    original: Tuple,
    reply: Tuple,
    status: u32,
    tcp_state: u8,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tuple {
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    protocol: u8,
    /// The destination address.
    port: u16,
}

impl Connection {
    fn read(body: &[u8]) -> Option<Self> {
        let mut connection = Self::default();
        for (kind, value) in attributes(body.get(HEADER..)?) {
            match kind {
                CTA_TUPLE_ORIG => connection.original = Tuple::read(value),
                CTA_TUPLE_REPLY => connection.reply = Tuple::read(value),
                CTA_STATUS => connection.status = value.try_into().map_or(0, u32::from_be_bytes),
                CTA_PROTOINFO => {
                    let tcp = attributes(value).find(|(kind, _)| *kind == CTA_PROTOINFO_TCP);
                    let state = tcp.and_then(|(_, value)| {
                        attributes(value).find(|(kind, _)| *kind == CTA_PROTOINFO_TCP_STATE)
                    });
                    connection.tcp_state = state.and_then(|(_, value)| value.first().copied()).unwrap_or(0);
                }
                _ => {}
            }
        }
        Some(connection)
    }

    fn is_open(&self) -> bool {
        match self.original.protocol {
            TCP => (1..TIME_WAIT).contains(&self.tcp_state) || self.tcp_state == SIMULTANEOUS_OPEN,
            UDP => self.status & IPS_ASSURED != 0,
            _ => false,
        }
    }
}

impl Tuple {
    fn read(body: &[u8]) -> Self {
        let mut tuple = Self::default();
        for (kind, value) in attributes(body) {
            for (inner, value) in attributes(value) {
                match (kind, inner) {
                    (CTA_TUPLE_IP, CTA_IP_V4_SRC | CTA_IP_V6_SRC) => tuple.source = address(value),
                    (CTA_TUPLE_IP, CTA_IP_V4_DST | CTA_IP_V6_DST) => tuple.destination = address(value),
                    (CTA_TUPLE_PROTO, CTA_PROTO_NUM) => tuple.protocol = value.first().copied().unwrap_or(0),
                    (CTA_TUPLE_PROTO, CTA_PROTO_DST_PORT) => {
                        tuple.port = value.try_into().map_or(0, u16::from_be_bytes);
                    }
                    _ => {}
                }
            }
        }
        tuple
    }
}

fn attributes(body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let head = rest.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & KIND;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn tuple(kind: u16, from: [u8; 4], to: [u8; 4], protocol: u8, port: u16) -> Vec<u8> {
        let ip = [attribute(CTA_IP_V4_SRC, &from), attribute(CTA_IP_V4_DST, &to)].concat();
        let proto =
            [attribute(CTA_PROTO_NUM, &[protocol]), attribute(CTA_PROTO_DST_PORT, &port.to_be_bytes())];
        let inner =
            [attribute(CTA_TUPLE_IP | 0x8000, &ip), attribute(CTA_TUPLE_PROTO | 0x8000, &proto.concat())];
        attribute(kind | 0x8000, &inner.concat())
    }

    fn connection(protocol: u8, status: u32, state: u8) -> Connection {
        let tcp = attribute(CTA_PROTOINFO_TCP, &attribute(CTA_PROTOINFO_TCP_STATE, &[state]));
        let body = [
            vec![2, 0, 0, 0],
            tuple(CTA_TUPLE_ORIG, [10, 2, 0, 7], [198, 51, 100, 1], protocol, 443),
            tuple(CTA_TUPLE_REPLY, [198, 51, 100, 1], [10, 3, 0, 9], protocol, 40_000),
            attribute(CTA_STATUS, &status.to_be_bytes()),
            attribute(CTA_PROTOINFO, &tcp),
        ];
        Connection::read(&body.concat()).unwrap()
    }

    #[test]
    fn a_connection_says_who_goes_where_by_which_address_and_port() {
        let read = connection(TCP, 0, 3);
        assert_eq!(read.original.source, Some([10, 2, 0, 7].into()));
        assert_eq!(read.reply.destination, Some([10, 3, 0, 9].into()));
        assert_eq!((read.reply.protocol, read.reply.port, read.original.port), (TCP, 40_000, 443));
    }

    #[test]
    fn connections_that_are_closed_or_never_were_more_than_a_question_are_not_open() {
        let open: Vec<u8> = (0..=9).filter(|state| connection(TCP, 0, *state).is_open()).collect();
        assert_eq!(open, [1, 2, 3, 4, 5, 6, 9]);
        assert!(connection(UDP, IPS_ASSURED, 0).is_open());
        assert!(!connection(UDP, 2, 0).is_open() && !connection(1, IPS_ASSURED, 0).is_open());
    }

    #[test]
    fn ports_are_counted_once() {
        let mut ports = Ports::default();
        for port in [0, 1, 63, 64, 65_535, 65_535, 1] {
            ports.take(port);
        }
        assert_eq!(ports.count(), 5);
    }

    #[test]
    fn what_is_cut_short_is_read_as_far_as_it_goes() {
        let whole = [vec![2, 0, 0, 0], tuple(CTA_TUPLE_ORIG, [1; 4], [2; 4], UDP, 5)].concat();
        for length in 0..whole.len() {
            let _ = Connection::read(&whole[..length]);
        }
        assert_eq!(attributes(&[0, 0, 0, 0, 0]).count(), 0);
    }
}
