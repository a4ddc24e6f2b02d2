//! Links, reduced to the attributes that Tenure reads, and requests that read, change and delete them.

use netlink_packet_core::{DecodeError, parse_i32, parse_string, parse_u32, parse_u64};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage};

use crate::Mac;
use crate::socket::{Answer, Error, Message, Request, Socket};

// The attributes that are read; see rtnetlink(7).
const HEADER: usize = 16;
/// The lowest byte of the flags, on a machine of either byte order.
const FLAGS: usize = if cfg!(target_endian = "little") { 8 } else { 11 };
const IFF_UP: u8 = 1;
/// Another byte of the flags, with `IFF_LOWER_UP`.
const HIGHER_FLAGS: usize = if cfg!(target_endian = "little") { 10 } else { 9 };
const IFF_LOWER_UP: u8 = 1;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
/// Length and kind of an attribute.
const ATTRIBUTE_HEAD: usize = 4;
/// Without the flag bits of an attribute type.
const KIND: u16 = 0x3fff;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_STATS64: u16 = 23;
const IFLA_GROUP: u16 = 27;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_TARGET_NETNSID: u16 = 46;

/// In `IFLA_LINKINFO`: the name of the driver.
const IFLA_INFO_KIND: u16 = 1;

/// The loopback interface, in every namespace.
pub const LOOPBACK: u32 = 1;

/// One link of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The alias, which names the owner.
    pub alias: Option<String>,
    /// Its interface group.
    pub group: u32,
    /// Whether it is set up; traffic also needs the other end to be up.
    pub up: bool,
    /// Whether the other end of the wire is there.
    pub carrier: bool,
    /// Its MTU.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// The number of a veth's other end, in that one's namespace.
    pub peer: Option<u32>,
    /// The number of the other end's namespace as seen from this one, if it is another.
    pub peer_namespace: Option<i32>,
    /// What it is.
    pub kind: LinkKind,
    /// Its traffic counters.
    pub counters: Counters,
}

/// What a link is, by the name of its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// A device without such a name, as network cards are.
    #[default]
    Device,
    /// One end of a pair.
    Veth,
    /// A bridge.
    Bridge,
    /// A bond.
    Bond,
    /// A VLAN.
    Vlan,
    /// Anything else.
    Other,
}

impl LinkKind {
    fn parse(info: &[u8]) -> Result<Self, DecodeError> {
        let mut attributes = Attributes(info);
        while let Some((kind, value)) = attributes.next()? {
            if kind == IFLA_INFO_KIND {
                return Ok(match value.strip_suffix(&[0]).unwrap_or(value) {
                    b"veth" => Self::Veth,
                    b"bridge" => Self::Bridge,
                    b"bond" => Self::Bond,
                    b"vlan" => Self::Vlan,
                    _ => Self::Other,
                });
            }
        }
        Ok(Self::Device)
    }
}

/// Traffic counters as the link itself counts: the host end receives what the pod sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets and bytes received.
    pub received: Traffic,
    /// Packets and bytes sent.
    pub sent: Traffic,
    /// Packets that were received and dropped.
    pub receive_drops: u64,
    /// Packets dropped before they were sent.
    pub send_drops: u64,
}

/// Packets and bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Link {
    /// Decodes the kernel's description.
    pub fn parse(description: &[u8]) -> Result<Self, DecodeError> {
        let short = || DecodeError::invalid_buffer("link", description.len(), HEADER);
        let (header, attributes) = description.split_at_checked(HEADER).ok_or_else(short)?;
        let mut link = Self {
            index: parse_u32(&header[4..8])?,
            up: header[FLAGS] & IFF_UP != 0,
            carrier: header[HIGHER_FLAGS] & IFF_LOWER_UP != 0,
            ..Self::default()
        };
        let mut attributes = Attributes(attributes);
        while let Some((kind, value)) = attributes.next()? {
            match kind {
                IFLA_ADDRESS => link.mac = Mac::from_bytes(value),
                IFLA_IFNAME => link.name = parse_string(value)?,
                IFLA_MTU => link.mtu = parse_u32(value)?,
                IFLA_LINK => link.peer = Some(parse_u32(value)?),
                IFLA_LINK_NETNSID => link.peer_namespace = Some(parse_i32(value)?),
                IFLA_LINKINFO => link.kind = LinkKind::parse(value)?,
                IFLA_IFALIAS => link.alias = Some(parse_string(value)?),
                IFLA_STATS64 => link.counters = Counters::parse(value)?,
                IFLA_GROUP => link.group = parse_u32(value)?,
                _ => {}
            }
        }
        Ok(link)
    }

    /// The number of a veth's other end. Kernels may omit it if it equals this end's.
    pub fn peer_index(&self) -> u32 {
        self.peer.unwrap_or(self.index)
    }

    /// The link of this name in the socket's namespace.
    pub fn by_name(socket: &mut Socket, name: &str) -> Result<Option<Self>, Error> {
        Ok(socket.get(&look_up(name))?.and_then(Self::of_answer))
    }

    /// The link of this number in the socket's namespace.
    pub fn by_index(socket: &mut Socket, index: u32) -> Result<Option<Self>, Error> {
        let message = Message::new(RTM_GETLINK, header(index, 0, 0));
        let request = Request::get(message.with_number(IFLA_EXT_MASK, SKIP_STATS));
        Ok(socket.get(&request)?.and_then(Self::of_answer))
    }

    /// All links of the socket's namespace.
    pub fn all(socket: &mut Socket) -> Result<Vec<Self>, Error> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let found = socket.dump(&RouteNetlinkMessage::GetLink(message))?;
        Ok(found.into_iter().filter_map(Self::of_answer).collect())
    }

    /// All veth links of the socket's namespace.
    ///
    /// The kernel can filter a dump of links by kind, but not by group.
    pub fn all_veths(socket: &mut Socket) -> Result<Vec<Self>, Error> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]));
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let found = socket.dump(&RouteNetlinkMessage::GetLink(message))?;
        Ok(found.into_iter().filter_map(Self::of_answer).collect())
    }

    /// Decodes an answer; `None` if it is about something else.
    pub fn of_answer(answer: Answer) -> Option<Self> {
        match answer {
            Answer::Link(link) => Some(link),
            Answer::Other(_) => None,
        }
    }
}

/// The attributes of a description. There are about fifty, most of them unused here, and every ADD waits for this.
struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The next one's kind and value.
    fn next(&mut self) -> Result<Option<(u16, &'a [u8])>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let short = || DecodeError::invalid_buffer("attribute of a link", self.0.len(), ATTRIBUTE_HEAD);
        let [l0, l1, k0, k1, ..] = *self.0 else { return Err(short()) };
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = self.0.get(ATTRIBUTE_HEAD..length).ok_or_else(short)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Ok(Some((u16::from_ne_bytes([k0, k1]) & KIND, value)))
    }
}

impl Counters {
    fn parse(statistics: &[u8]) -> Result<Self, DecodeError> {
        let short = || DecodeError::invalid_buffer("link statistics", statistics.len(), 64);
        let word =
            |position: usize| parse_u64(statistics.get(8 * position..8 * position + 8).ok_or_else(short)?);
        Ok(Self {
            received: Traffic { packets: word(0)?, bytes: word(2)? },
            sent: Traffic { packets: word(1)?, bytes: word(3)? },
            receive_drops: word(6)?,
            send_drops: word(7)?,
        })
    }
}

/// Requests the link of this name.
pub fn look_up(name: &str) -> Request {
    let message = Message::new(RTM_GETLINK, header(0, 0, 0)).with_text(IFLA_IFNAME, name);
    Request::get(message.with_number(IFLA_EXT_MASK, SKIP_STATS))
}

/// Requests the link of this number in another namespace, given by its number here.
pub fn look_into(namespace: i32, index: u32) -> Request {
    let message = Message::new(RTM_GETLINK, header(index, 0, 0));
    let message = message.with(IFLA_TARGET_NETNSID, &namespace.to_ne_bytes());
    Request::get(message.with_number(IFLA_EXT_MASK, SKIP_STATS))
}

/// Sets a link up.
pub fn up(index: u32) -> Request {
    Request::change(Message::new(RTM_SETLINK, header(index, IFF_UP.into(), IFF_UP.into())))
}

/// Sets a link up or down and changes its MTU, as far as is asked for.
pub(crate) fn change(index: u32, up: Option<bool>, mtu: Option<u32>) -> Request {
    let (flags, mask) = up.map_or((0, 0), |up| (u32::from(up), u32::from(IFF_UP)));
    let message = Message::new(RTM_SETLINK, header(index, flags, mask));
    Request::change(match mtu {
        Some(mtu) => message.with_number(IFLA_MTU, mtu),
        None => message,
    })
}

/// Turns neighbour resolution (ARP and ND) of a link on or off.
pub fn neighbours(index: u32, known: bool) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = if known { LinkFlags::empty() } else { LinkFlags::Noarp };
    message.header.change_mask = LinkFlags::Noarp;
    Request::change(RouteNetlinkMessage::SetLink(message))
}

/// Deletes a link and waits until it is gone. This takes the kernel 15 ms or more, so it is only for links that cannot wait for
/// the reaper.
pub fn delete(index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    Request::remove(RouteNetlinkMessage::DelLink(message))
}

/// The fixed part of every message about a link: its number, and which flags to change.
pub(crate) fn header(index: u32, flags: u32, change: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (_, words) = header.split_at_mut(4);
    for (place, word) in words.chunks_exact_mut(4).zip([index, flags, change]) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    header
}

/// Omits IPv6 statistics, which are most of a link's description. The traffic counters stay.
const SKIP_STATS: u32 = 8;

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_route::link::Stats64;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_matters_is_read_and_the_rest_is_passed_over() {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.header.flags = LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Broadcast;
        let mut stats = Stats64::default();
        (stats.rx_packets, stats.tx_packets, stats.rx_bytes, stats.tx_bytes) = (1, 2, 3, 4);
        (stats.rx_dropped, stats.tx_dropped) = (5, 6);
        message.attributes = vec![
            LinkAttribute::IfName("tnr7b30cd678838".into()),
            LinkAttribute::TxQueueLen(1000),
            LinkAttribute::Mtu(1450),
            LinkAttribute::Group(11_600),
            LinkAttribute::Address(vec![0x0a, 1, 2, 3, 4, 5]),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]),
            LinkAttribute::IfAlias("tenure/c0ffee/eth0/k8s//".into()),
            LinkAttribute::Link(2),
            LinkAttribute::LinkNetNsId(3),
            LinkAttribute::Stats64(stats),
        ];
        let mut description = vec![0; message.buffer_len()];
        message.emit(&mut description);
        let expected = Link {
            index: 7,
            name: "tnr7b30cd678838".into(),
            alias: Some("tenure/c0ffee/eth0/k8s//".into()),
            group: 11_600,
            up: true,
            carrier: true,
            mtu: 1450,
            mac: Some(Mac([0x0a, 1, 2, 3, 4, 5])),
            peer: Some(2),
            peer_namespace: Some(3),
            kind: LinkKind::Veth,
            counters: Counters {
                received: Traffic { packets: 1, bytes: 3 },
                sent: Traffic { packets: 2, bytes: 4 },
                receive_drops: 5,
                send_drops: 6,
            },
        };
        assert_eq!(Link::parse(&description).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn no_description_makes_it_panic(description in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Link::parse(&description);
        }
    }
}
