//! Translates a plan into netlink messages: pure, so tests can compare every byte.

use std::net::IpAddr;
use std::os::fd::RawFd;

use ipnet::{IpNet, Ipv6Net};
use netlink_packet_route::address::AddressScope;

use super::PodPlan;
use crate::neighbour::{self, Belief};
use crate::route::Route;
use crate::routes::to_pod;
use crate::socket::{Message, Request};
use crate::{Settings, address, link};

// See rtnetlink(7).
const RTM_NEWLINK: u16 = 16;
const RTM_SETLINK: u16 = 19;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
// Within IFLA_LINKINFO.
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
// Within IFLA_AF_SPEC.
const AF_INET6: u16 = 10;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_MODE_NONE: u8 = 1;

const MAIN_TABLE: u32 = 254;
/// The protocol number of manually added routes. Routes inside a pod have it.
const PROTOCOL_BOOT: u8 = 3;

/// Creates both ends in one message, the pod's end directly in its namespace, and requests the result.
///
/// Both ends start down: the kernel refuses to set up an end before the other one exists.
pub(super) fn create(plan: &PodPlan, settings: &Settings, namespace: RawFd) -> Request {
    let queues = |message: Message| {
        message
            .with_number(IFLA_NUM_TX_QUEUES, settings.queues)
            .with_number(IFLA_NUM_RX_QUEUES, settings.queues)
            .with_number(IFLA_TXQLEN, settings.queue_length)
    };
    let inside = |message: Message| {
        let message = message
            .with_text(IFLA_IFNAME, &plan.identity.interface)
            .with(IFLA_NET_NS_FD, &namespace.to_ne_bytes())
            .with_number(IFLA_MTU, plan.mtu)
            .with(IFLA_ADDRESS, &plan.pod_mac().0);
        queues(message)
    };
    let outside = Message::new(RTM_NEWLINK, link::header(0, 0, 0))
        .with_text(IFLA_IFNAME, &plan.host_name(settings))
        .with_number(IFLA_GROUP, settings.pod_group)
        .with_number(IFLA_MTU, plan.mtu)
        .with(IFLA_ADDRESS, &settings.host_mac.0);
    let veth = |message: Message| {
        message.with_text(IFLA_INFO_KIND, "veth").with_nested(IFLA_INFO_DATA, &[], |message| {
            message.with_nested(VETH_INFO_PEER, &link::header(0, 0, 0), inside)
        })
    };
    Request::create(queues(outside).with_nested(IFLA_LINKINFO, &[], veth)).echoed()
}

/// The changes in the pod's namespace, once its end has the number `index`.
pub(super) fn inside(plan: &PodPlan, settings: &Settings, index: u32) -> Vec<Request> {
    let mut requests = vec![link::up(link::LOOPBACK), link::up(index)];
    for address in &plan.addresses {
        requests.push(address::add(index, IpNet::from(*address), AddressScope::Universe));
        if let IpAddr::V6(address) = address {
            requests.push(address::accept_now(index, *address));
        }
    }
    for gateway in gateways(plan, settings) {
        requests.push(neighbour::put(index, gateway, settings.host_mac, Belief::Always));
        if gateway.is_ipv4() {
            // Without it the gateway would be unreachable from a /32.
            requests
                .push(Route::on_link(IpNet::from(gateway), index, MAIN_TABLE, PROTOCOL_BOOT).put_to_router());
        }
        for destination in plan.usable_routes().filter(|route| route.addr().is_ipv4() == gateway.is_ipv4()) {
            let route = Route::through(destination, gateway, MAIN_TABLE, PROTOCOL_BOOT);
            requests.push(Route { link: Some(index), ..route }.put());
        }
    }
    requests
}

/// The changes on the host, once its end has the number `index`.
pub(super) fn outside(plan: &PodPlan, settings: &Settings, index: u32) -> Vec<Request> {
    let mut requests = vec![mark(plan, index), link::up(index)];
    if plan.has_v4() {
        // With link scope, so that the kernel does not use it as an address of the node.
        let gateway = IpNet::from(IpAddr::V4(settings.gateway_v4));
        requests.push(address::add(index, gateway, AddressScope::Link));
    }
    if plan.has_v6() {
        // With its prefix, so that the pod's own link-local address is reached through this link.
        if let Ok(gateway) = Ipv6Net::new(settings.gateway_v6, 64) {
            requests.push(address::add(index, gateway.into(), AddressScope::Link));
        }
    }
    for address in &plan.addresses {
        // Not permanent: a virtual machine inside the pod may have its own Ethernet address.
        requests.push(neighbour::put(index, *address, plan.pod_mac(), Belief::AtFirst));
        if plan.reached {
            requests.push(to_pod(settings, *address, index, plan.source_for(*address)).put());
        }
    }
    requests
}

/// Takes the host end out of service and leaves it to the reaper.
pub(super) fn to_trash(settings: &Settings, index: u32) -> Request {
    let message = Message::new(RTM_SETLINK, link::header(index, 0, IFF_UP));
    Request::change(message.with_number(IFLA_GROUP, settings.trash_group))
}

/// Sets the alias of the host end. With IPv6 it also keeps the kernel from assigning an address of its own, which would have to
/// pass duplicate address detection first. (Neither is possible when the link is created.)
fn mark(plan: &PodPlan, index: u32) -> Request {
    let mut message =
        Message::new(RTM_SETLINK, link::header(index, 0, 0)).with_text(IFLA_IFALIAS, &plan.identity.alias());
    if plan.has_v6() {
        message = message.with_nested(IFLA_AF_SPEC, &[], |message| {
            message.with_nested(AF_INET6, &[], |message| {
                message.with(IFLA_INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE])
            })
        });
    }
    Request::change(message)
}

fn gateways(plan: &PodPlan, settings: &Settings) -> impl Iterator<Item = IpAddr> {
    let v4 = plan.has_v4().then_some(IpAddr::V4(settings.gateway_v4));
    let v6 = plan.has_v6().then_some(IpAddr::V6(settings.gateway_v6));
    v4.into_iter().chain(v6)
}
