//! Links as the kernel describes them, reduced to what Tenure looks at, and the requests that look, change and delete.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage, Stats64,
};

use crate::Mac;
use crate::socket::{Error, Request, Socket};

/// The loopback interface, in every namespace.
pub const LOOPBACK: u32 = 1;

/// One link of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The text that leads back to its owner.
    pub alias: Option<String>,
    /// Its interface group.
    pub group: u32,
    /// Whether it is set up; traffic also needs the other end.
    pub up: bool,
    /// The largest packet that it takes.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// The number of a veth's other end, in that one's namespace.
    pub peer: Option<u32>,
    /// What went through it.
    pub counters: Counters,
}

/// What went through a link, as the link itself counts: what a pod sends is received by its host end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets and bytes received.
    pub received: Traffic,
    /// Packets and bytes sent.
    pub sent: Traffic,
    /// Packets that were received and dropped.
    pub receive_drops: u64,
    /// Packets that were to be sent and dropped.
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
    /// Reads the kernel's description.
    pub fn read(message: &LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            up: message.header.flags.contains(LinkFlags::Up),
            ..Self::default()
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
                LinkAttribute::Group(group) => link.group = *group,
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Address(bytes) => link.mac = Mac::from_bytes(bytes),
                LinkAttribute::Link(peer) => link.peer = Some(*peer),
                LinkAttribute::Stats64(stats) => link.counters = Counters::read(stats),
                _ => {}
            }
        }
        link
    }

    /// The number of a veth's other end. Kernels may leave it out where it is the same as this end's.
    pub fn peer_index(&self) -> u32 {
        self.peer.unwrap_or(self.index)
    }

    /// The link of this name in the socket's namespace.
    pub fn by_name(socket: &mut Socket, name: &str) -> Result<Option<Self>, Error> {
        Ok(socket.get(&look_up(name))?.as_ref().and_then(Self::of_reply))
    }

    /// The link of this number in the socket's namespace.
    pub fn by_index(socket: &mut Socket, index: u32) -> Result<Option<Self>, Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(brief());
        Ok(socket
            .get(&Request::get(RouteNetlinkMessage::GetLink(message)))?
            .as_ref()
            .and_then(Self::of_reply))
    }

    /// All veth links of the socket's namespace.
    ///
    /// The kernel filters a dump of links by kind; by group it refuses to.
    pub fn all_veths(socket: &mut Socket) -> Result<Vec<Self>, Error> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]));
        message.attributes.push(brief());
        let found = socket.dump(&RouteNetlinkMessage::GetLink(message))?;
        Ok(found.iter().filter_map(Self::of_reply).collect())
    }

    /// Reads an answer; `None` if it is about something else.
    pub fn of_reply(message: &RouteNetlinkMessage) -> Option<Self> {
        match message {
            RouteNetlinkMessage::NewLink(message) => Some(Self::read(message)),
            _ => None,
        }
    }
}

impl Counters {
    fn read(stats: &Stats64) -> Self {
        Self {
            received: Traffic { packets: stats.rx_packets, bytes: stats.rx_bytes },
            sent: Traffic { packets: stats.tx_packets, bytes: stats.tx_bytes },
            receive_drops: stats.rx_dropped,
            send_drops: stats.tx_dropped,
        }
    }
}

/// Asks for the link of this name.
pub fn look_up(name: &str) -> Request {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(name.to_owned()), brief()];
    Request::get(RouteNetlinkMessage::GetLink(message))
}

/// Sets a link up.
pub fn up(index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    Request::change(RouteNetlinkMessage::SetLink(message))
}

/// Deletes a link and waits until it is gone, which takes the kernel 15 ms and more: only for what cannot wait for the
/// reaper.
pub fn delete(index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    Request::remove(RouteNetlinkMessage::DelLink(message))
}

/// Without the statistics of IPv6, which make up most of a link's description; its traffic counters are still there.
fn brief() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}
