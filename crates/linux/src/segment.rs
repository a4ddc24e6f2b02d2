//! An Ethernet segment between hosts that are network namespaces: a bridge, and a veth pair to each host.
//!
//! Nodes do not need it. The demo and tests run several nodes on one machine with it, and only this crate talks to the kernel.

use std::os::fd::AsRawFd;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressScope;
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};

use crate::link::{self, Link};
use crate::netns::{self, NetNs};
use crate::socket::{self, Request, Socket};
use crate::{address, sysctl};

const BRIDGE: &str = "bridge";

/// A bridge in its own namespace; it exists as long as this value or a connected host.
#[derive(Debug)]
pub struct Segment {
    switch: NetNs,
    socket: Socket,
    bridge: u32,
    ports: u32,
}

/// Why a segment could not be created, or a host not connected.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// A namespace cannot be made or entered.
    #[error("make an Ethernet segment")]
    Namespace(#[from] netns::Error),
    /// A kernel parameter cannot be set.
    #[error("make an Ethernet segment")]
    Parameter(#[from] sysctl::Error),
    /// The kernel refused a request.
    #[error("{act}")]
    Kernel {
        /// The step that failed.
        act: &'static str,
        /// The cause.
        source: socket::Error,
    },
    /// A link is missing right after the kernel created it.
    #[error("{0} is gone, although it was created a moment ago")]
    Lost(String),
}

impl Segment {
    /// A segment without hosts.
    pub fn make() -> Result<Self, SegmentError> {
        let switch = NetNs::make()?;
        // The bridge has no addresses and only forwards.
        switch.run(|| set("ipv6/conf/default/disable_ipv6", "1"))??;
        let mut socket = switch.socket()?;
        let kernel = |source| SegmentError::Kernel { act: "make a bridge", source };
        socket.apply(&[bridge()]).map_err(kernel)?;
        let bridge = index_of(&mut socket, BRIDGE)?;
        socket.apply(&[link::up(link::LOOPBACK), link::up(bridge)]).map_err(kernel)?;
        Ok(Self { switch, socket, bridge, ports: 0 })
    }

    /// The bridge's namespace.
    pub fn switch(&self) -> &NetNs {
        &self.switch
    }

    /// Connects a host by a new interface with these addresses, usable at once.
    pub fn connect(
        &mut self,
        host: &NetNs,
        interface: &str,
        addresses: &[IpNet],
    ) -> Result<(), SegmentError> {
        // Includes its link-local address: without one, a host cannot resolve neighbours.
        host.run(|| set("ipv6/conf/default/accept_dad", "0"))??;
        let port = format!("port{}", self.ports);
        self.ports += 1;
        let kernel = |source| SegmentError::Kernel { act: "connect a host to a bridge", source };
        self.socket.apply(&[cable(&port, self.bridge, host, interface)]).map_err(kernel)?;
        // The bridge's end first, so that the host's end has a carrier when it comes up.
        let index = index_of(&mut self.socket, &port)?;
        self.socket.apply(&[link::up(index)]).map_err(kernel)?;
        let mut inside = host.socket()?;
        let index = index_of(&mut inside, interface)?;
        let mut requests = vec![link::up(link::LOOPBACK), link::up(index)];
        requests.extend(addresses.iter().map(|net| address::add(index, *net, AddressScope::Universe)));
        inside.apply(&requests).map_err(kernel)
    }
}

/// Sets a parameter if the kernel has it; one without IPv6 does not.
fn set(name: &str, value: &str) -> Result<(), sysctl::Error> {
    match sysctl::set(name, value) {
        Err(error) if !error.is_missing() => Err(error),
        _ => Ok(()),
    }
}

fn index_of(socket: &mut Socket, name: &str) -> Result<u32, SegmentError> {
    let found = Link::by_name(socket, name);
    let found = found.map_err(|source| SegmentError::Kernel { act: "look for a link", source })?;
    found.map(|link| link.index).ok_or_else(|| SegmentError::Lost(name.to_owned()))
}

/// A bridge that forwards everything immediately.
fn bridge() -> Request {
    let data = vec![InfoBridge::ForwardDelay(0), InfoBridge::MulticastSnooping(false)];
    let info = vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(InfoData::Bridge(data))];
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(BRIDGE.to_owned()), LinkAttribute::LinkInfo(info)];
    Request::create(RouteNetlinkMessage::NewLink(message))
}

/// A veth pair: one end is a port of the bridge, the other is in the host.
fn cable(port: &str, bridge: u32, host: &NetNs, interface: &str) -> Request {
    let mut inside = LinkMessage::default();
    inside.attributes =
        vec![LinkAttribute::IfName(interface.to_owned()), LinkAttribute::NetNsFd(host.as_raw_fd())];
    let veth = InfoData::Veth(InfoVeth::Peer(inside));
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(port.to_owned()),
        LinkAttribute::Controller(bridge),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(veth)]),
    ];
    Request::create(RouteNetlinkMessage::NewLink(message))
}
