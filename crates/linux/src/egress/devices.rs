//! Tunnel devices: a veth pair for a gateway's BPF datapath; for the kernel's datapath a tunnel for each peer. A
//! client's BPF datapath has none.
//!
//! Each has an alias that names its parameters, so its state is visible at a glance.

use std::net::IpAddr;

use super::family::{Family, octets};
use super::places::Places;
use super::{FOU_PORT, SourcePort, TTL};
use crate::Mac;
use crate::link::{self, Link};
use crate::socket::{Message, Request};

// See rtnetlink(7), include/uapi/linux/if_link.h and if_tunnel.h.
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_GROUP: u16 = 27;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const AF_INET6: u16 = 10;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_MODE_NONE: u8 = 1;
const IFLA_IPTUN_LINK: u16 = 1;
const IFLA_IPTUN_LOCAL: u16 = 2;
const IFLA_IPTUN_REMOTE: u16 = 3;
const IFLA_IPTUN_TTL: u16 = 4;
const IFLA_IPTUN_FLAGS: u16 = 8;
const IFLA_IPTUN_PROTO: u16 = 9;
const IFLA_IPTUN_PMTUDISC: u16 = 10;
const IFLA_IPTUN_ENCAP_TYPE: u16 = 15;
const IFLA_IPTUN_ENCAP_FLAGS: u16 = 16;
const IFLA_IPTUN_ENCAP_SPORT: u16 = 17;
const IFLA_IPTUN_ENCAP_DPORT: u16 = 18;
const IFLA_IPTUN_COLLECT_METADATA: u16 = 19;
const TUNNEL_ENCAP_FOU: u16 = 1;
/// Without the option that limits further tunnels: saves eight bytes in every packet.
const IP6_TNL_F_IGN_ENCAP_LIMIT: u32 = 1;

/// The prefix of our devices' aliases.
const ALIAS: &str = "tenure-egress";
/// The prefix of their names, as in Coil.
const PREFIXES: [&str; 2] = ["fou4", "fou6"];
/// Interface indexes of devices. We choose them, so that routes and programs can name a device in the batch that
/// creates it; a namespace numbers its other devices from 1.
const FIRST_INDEX: u32 = 55_550;
pub(super) const FIRST_TUNNEL: u32 = FIRST_INDEX + 100;
/// The group of devices in deletion, in the namespaces of pods.
const TRASH_GROUP: u32 = 11_602;
/// Below this MTU the kernel removes IPv6 from a device, and IPv4 is useless.
const LEAST_MTU: u32 = 1280;
const LEAST_MTU_V4: u32 = 68;

/// A desired tunnel device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// Its name.
    pub(super) name: String,
    /// Its interface index.
    pub(super) index: u32,
    alias: String,
    /// Creates it.
    make: Request,
    /// Changes an existing device, if there is more to change than [`Self::settle`] does. It omits the name: kernels
    /// before 6.2 refuse to name a link that is up, even with the same name.
    change: Option<Request>,
    /// Whether it must be up.
    up: bool,
    /// Sets what cannot be set at creation, and sets the device up.
    settle: Request,
}

impl Device {
    /// Its alias.
    #[cfg(test)]
    pub(super) fn alias(&self) -> &str {
        &self.alias
    }

    /// An existing device of another creator: at most it has to be set up.
    pub(super) fn raised(link: &Link) -> Self {
        let raise = Request::change(Message::new(RTM_SETLINK, link::header(link.index, IFF_UP, IFF_UP)));
        Self {
            name: link.name.clone(),
            index: link.index,
            alias: link.alias.clone().unwrap_or_default(),
            make: raise.clone(),
            change: None,
            up: true,
            settle: raise,
        }
    }

    /// The requests that turn the existing device of its index into it.
    pub(super) fn difference(&self, found: Option<&Link>) -> Vec<Request> {
        let is_kept = |link: &Link| link.group != TRASH_GROUP;
        let is_so = |link: &Link| (link.up || !self.up) && link.alias.as_ref() == Some(&self.alias);
        match found {
            Some(link) if is_kept(link) && is_so(link) => Vec::new(),
            Some(_) => self.change.iter().chain([&self.settle]).cloned().collect(),
            None => vec![self.make.clone(), self.settle.clone()],
        }
    }
}

/// Whether a device is ours: by its alias, or by its name if it has no alias yet, as after an interrupted attempt.
pub(super) fn is_ours(link: &Link) -> bool {
    match &link.alias {
        Some(alias) => alias.starts_with(ALIAS),
        None => PREFIXES.iter().any(|prefix| link.name.starts_with(prefix)) && link.index >= FIRST_INDEX,
    }
}

/// The MTU of a tunnel through a link with this MTU; `Err` has the smallest MTU that suffices.
pub(super) fn inner_mtu(family: Family, mtu: u32) -> Result<u32, u32> {
    let least = match family {
        Family::V4 => LEAST_MTU_V4,
        Family::V6 => LEAST_MTU,
    };
    mtu.checked_sub(family.overhead()).filter(|inner| *inner >= least).ok_or(least + family.overhead())
}

/// The existing ones of the two, in the order of the families; `None` if one is missing.
pub(super) fn found_pair(links: &[Link]) -> Option<[&Link; 2]> {
    let found = |family| links.iter().find(|link| link.name == name_of_pair(family) && is_ours(link));
    Some([found(Family::V4)?, found(Family::V6)?])
}

/// Whether a device is one of the two.
pub(super) fn is_of_pair(link: &Link) -> bool {
    PREFIXES.contains(&link.name.as_str())
}

/// The name of the device of a family.
pub(super) fn name_of_pair(family: Family) -> &'static str {
    let [v4, v6] = PREFIXES;
    if family == Family::V4 { v4 } else { v6 }
}

/// The devices of a gateway with the BPF datapath, `fou4` and `fou6`: the two ends of one pair. Both have the
/// Ethernet address of the tunnels' interface, because decapsulated packets still have it. They stay down until the
/// gateway serves.
pub(super) fn closed_pair(interface: &Link, links: &[Link]) -> [Device; 2] {
    let mac = interface.mac.unwrap_or(Mac([0x0a, 0x54, 0, 0, 0, 0]));
    let ends = Family::ALL.map(|family| {
        let name = name_of_pair(family);
        let index = index_of(name, links).unwrap_or(FIRST_INDEX + u32::from(family.protocol()));
        let inner = inner_mtu(family, interface.mtu).unwrap_or(LEAST_MTU);
        (name, index, inner)
    });
    let describe = |message: Message, (name, _, mtu): (&str, u32, u32)| {
        message
            .with_text(IFLA_IFNAME, name)
            .with_number(IFLA_MTU, mtu)
            .with(IFLA_ADDRESS, &mac.0)
            .with_number(IFLA_NUM_TX_QUEUES, 1)
            .with_number(IFLA_NUM_RX_QUEUES, 1)
    };
    let [first, second] = ends;
    let make = describe(Message::new(RTM_NEWLINK, link::header(first.1, 0, 0)), first).with_nested(
        IFLA_LINKINFO,
        &[],
        |info| {
            info.with_text(IFLA_INFO_KIND, "veth").with_nested(IFLA_INFO_DATA, &[], |data| {
                data.with_nested(VETH_INFO_PEER, &link::header(second.1, 0, 0), |peer| describe(peer, second))
            })
        },
    );
    ends.map(|(name, index, mtu)| {
        let alias = format!("{ALIAS} mtu={mtu} mac={mac}");
        let settle = settle(index, &alias, mtu, Some(mac), false);
        // One message creates both ends: creating the second reports that it exists.
        let make = Request::create(make.clone()).tolerating(&[nix::errno::Errno::EEXIST]);
        Device { name: name.to_owned(), index, alias, make, change: None, up: false, settle }
    })
}

/// A tunnel of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    /// This end.
    pub(super) local: IpAddr,
    /// The other end; without it, the tunnel accepts packets from anybody.
    pub(super) remote: Option<IpAddr>,
    /// The source port of its packets.
    pub(super) port: SourcePort,
}

impl Tunnel {
    /// Its two ends, as in the alias of its device. They are unique in a namespace.
    pub(super) fn ends(&self) -> String {
        match self.remote {
            Some(remote) => format!("{} {remote}", self.local),
            None => format!("{} any", self.local),
        }
    }

    /// A name for the device, after this many attempts.
    pub(super) fn name(&self, attempt: u32) -> String {
        let prefix = if self.local.is_ipv4() { "fou4" } else { "fou6" };
        let first = match self.remote {
            None => format!("{prefix}_any"),
            Some(IpAddr::V4(address)) => format!("{prefix}_{:08x}", address.to_bits()),
            Some(IpAddr::V6(address)) => {
                return format!("{prefix}_{:010x}", short_hash(&address.octets(), attempt));
            }
        };
        if attempt == 0 { first } else { format!("{prefix}_{:010x}", short_hash(first.as_bytes(), attempt)) }
    }

    /// The device, in a namespace with these places.
    pub(super) fn device(&self, interface: &Link, places: &mut Places) -> Device {
        let family = Family::of(self.local);
        let mtu = inner_mtu(family, interface.mtu).unwrap_or(LEAST_MTU);
        let (index, name) = places.find(self);
        let alias = format!("{ALIAS} {} {:?} dev={} mtu={mtu}", self.ends(), self.port, interface.index);
        let describe = |message: Message| {
            message.with_number(IFLA_MTU, mtu).with_nested(IFLA_LINKINFO, &[], |info| {
                let kind = if family == Family::V4 { "ipip" } else { "ip6tnl" };
                info.with_text(IFLA_INFO_KIND, kind)
                    .with_nested(IFLA_INFO_DATA, &[], |data| self.parameters(data, family, interface.index))
            })
        };
        let message = || Message::new(RTM_NEWLINK, link::header(index, 0, 0));
        let make = describe(message().with_text(IFLA_IFNAME, &name));
        // A tunnel without a peer has no parameters that could change.
        let change =
            self.remote.map(|_| Request::change(describe(message()).named(format!("change link {name}"))));
        let settle = settle(index, &alias, mtu, None, true);
        Device { name, index, alias, make: Request::create_or_change(make), change, up: true, settle }
    }

    fn parameters(&self, data: Message, family: Family, link: u32) -> Message {
        let data = data.with(IFLA_IPTUN_PROTO, &[family.protocol()]);
        let Some(remote) = self.remote else {
            return data.with(IFLA_IPTUN_COLLECT_METADATA, &[]);
        };
        let port = match self.port {
            SourcePort::Fixed => FOU_PORT,
            // The kernel chooses by the inner packet's flow.
            SourcePort::PerFlow => 0,
        };
        let data = data
            // Outer packets leave by the interface, whatever the rules say: a ClusterIP may be one of the
            // destinations.
            .with_number(IFLA_IPTUN_LINK, link)
            .with(IFLA_IPTUN_LOCAL, &octets(self.local))
            .with(IFLA_IPTUN_REMOTE, &octets(remote))
            .with(IFLA_IPTUN_TTL, &[TTL])
            .with(IFLA_IPTUN_ENCAP_TYPE, &TUNNEL_ENCAP_FOU.to_ne_bytes())
            .with(IFLA_IPTUN_ENCAP_FLAGS, &0_u16.to_ne_bytes())
            .with(IFLA_IPTUN_ENCAP_SPORT, &port.to_be_bytes())
            .with(IFLA_IPTUN_ENCAP_DPORT, &FOU_PORT.to_be_bytes());
        match family {
            Family::V4 => data.with(IFLA_IPTUN_PMTUDISC, &[1]),
            Family::V6 => data.with_number(IFLA_IPTUN_FLAGS, IP6_TNL_F_IGN_ENCAP_LIMIT),
        }
    }
}

/// The ends in the alias of a tunnel's device.
pub(super) fn ends_of(alias: &str) -> Option<&str> {
    let rest = alias.strip_prefix(ALIAS)?.strip_prefix(' ')?;
    let (local, more) = rest.split_once(' ')?;
    let (remote, _) = more.split_once(' ')?;
    local.parse::<IpAddr>().ok()?;
    rest.get(..local.len() + 1 + remote.len())
}

/// Forty bits of a hash (FNV-1a): a name has fifteen characters.
fn short_hash(bytes: &[u8], attempt: u32) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let attempt = attempt.to_be_bytes();
    let attempt = attempt.iter().skip_while(|byte| **byte == 0);
    bytes.iter().chain(attempt).fold(0xcbf2_9ce4_8422_2325, step) >> 24
}

/// Deletes devices with one message: the kernel waits once per deleting message, not per device.
pub(super) fn delete(indexes: impl IntoIterator<Item = u32>) -> Vec<Request> {
    let into_trash = |index: u32| {
        let message =
            Message::new(RTM_SETLINK, link::header(index, 0, 0)).with_number(IFLA_GROUP, TRASH_GROUP);
        Request::remove(message.named(format!("delete link {index}")))
    };
    let mut requests: Vec<Request> = indexes.into_iter().map(into_trash).collect();
    if !requests.is_empty() {
        let message = Message::new(RTM_DELLINK, link::header(0, 0, 0)).with_number(IFLA_GROUP, TRASH_GROUP);
        requests.push(Request::remove(message.named("delete the links of the trash group")));
    }
    requests
}

/// Sets a device down, so that nothing comes out of it.
pub(super) fn lower(index: u32) -> Request {
    Request::change(Message::new(RTM_SETLINK, link::header(index, 0, IFF_UP)))
}

fn index_of(name: &str, links: &[Link]) -> Option<u32> {
    links.iter().find(|link| link.name == name).map(|link| link.index)
}

/// Sets a device's alias, keeps the kernel from giving it addresses, and sets it up, or leaves that as it is.
fn settle(index: u32, alias: &str, mtu: u32, mac: Option<Mac>, up: bool) -> Request {
    let flags = if up { IFF_UP } else { 0 };
    let mut message = Message::new(RTM_SETLINK, link::header(index, flags, flags))
        .with_text(IFLA_IFALIAS, alias)
        // A device in deletion is kept.
        .with_number(IFLA_GROUP, 0)
        .with_number(IFLA_MTU, mtu);
    if let Some(mac) = mac {
        message = message.with(IFLA_ADDRESS, &mac.0);
    }
    if mtu < LEAST_MTU {
        // It has no IPv6 that could give it one.
        return Request::change(message);
    }
    let message = message.with_nested(IFLA_AF_SPEC, &[], |families| {
        families.with_nested(AF_INET6, &[], |v6| v6.with(IFLA_INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE]))
    });
    Request::change(message)
}
