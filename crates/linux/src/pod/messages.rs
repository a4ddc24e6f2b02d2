//! From a plan to the messages that carry it out: pure, so that every byte can be compared.

use std::net::IpAddr;
use std::os::fd::RawFd;

use ipnet::{IpNet, Ipv6Net};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressScope;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};

use super::PodPlan;
use crate::neighbour::{self, Belief};
use crate::route::Route;
use crate::routes::to_pod;
use crate::socket::Request;
use crate::{Settings, address, link};

const MAIN_TABLE: u32 = 254;
/// The kernel's number for routes that were made by hand, as those inside a pod look to the pod.
const PROTOCOL_BOOT: u8 = 3;

/// Makes both ends in one message, the pod's end straight in its namespace, and asks for what was made.
///
/// Both ends are born down: an end that is set up before it has its other end is refused by the kernel.
pub(super) fn create(plan: &PodPlan, settings: &Settings, namespace: RawFd) -> Request {
    let sending = LinkAttribute::NumTxQueues(settings.queues);
    let receiving = LinkAttribute::NumRxQueues(settings.queues);
    let length = LinkAttribute::TxQueueLen(settings.queue_length);
    let mut inside = LinkMessage::default();
    inside.attributes = vec![
        LinkAttribute::IfName(plan.identity.interface.clone()),
        LinkAttribute::NetNsFd(namespace),
        LinkAttribute::Mtu(plan.mtu),
        LinkAttribute::Address(plan.pod_mac().0.to_vec()),
        sending.clone(),
        receiving.clone(),
        length.clone(),
    ];
    let pair = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(inside)))];
    let mut outside = LinkMessage::default();
    outside.attributes = vec![
        LinkAttribute::IfName(plan.host_name(settings)),
        LinkAttribute::Group(settings.pod_group),
        LinkAttribute::Mtu(plan.mtu),
        LinkAttribute::Address(settings.host_mac.0.to_vec()),
        sending,
        receiving,
        length,
        LinkAttribute::LinkInfo(pair),
    ];
    Request::create(RouteNetlinkMessage::NewLink(outside)).echoed()
}

/// What happens in the pod's namespace, once its end has the number `index`.
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
            // Without it the gateway would be out of reach for a /32.
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

/// What happens on the host, once its end has the number `index`.
pub(super) fn outside(plan: &PodPlan, settings: &Settings, index: u32) -> Vec<Request> {
    let mut requests = vec![mark(plan, index), link::up(index)];
    if plan.has_v4() {
        // Of link scope, so that it is not taken for an address of the node.
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
        // Not for ever: a virtual machine inside the pod may come with an Ethernet address of its own.
        requests.push(neighbour::put(index, *address, plan.pod_mac(), Belief::AtFirst));
        if plan.reached {
            requests.push(to_pod(settings, *address, index, plan.source_for(*address)).put());
        }
    }
    requests
}

/// Takes the host end out of service and leaves it to the reaper.
pub(super) fn to_trash(settings: &Settings, index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = vec![LinkAttribute::Group(settings.trash_group)];
    Request::change(RouteNetlinkMessage::SetLink(message))
}

/// Writes on the host end whose it is. With IPv6 it also keeps the kernel from giving it an address of its own, which
/// would have to be checked for duplicates first. (Neither is possible when the link is made.)
fn mark(plan: &PodPlan, index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = vec![LinkAttribute::IfAlias(plan.identity.alias())];
    if plan.has_v6() {
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
            AfSpecInet6::AddrGenMode(In6AddrGenMode::None),
        ])]));
    }
    Request::change(RouteNetlinkMessage::SetLink(message))
}

fn gateways(plan: &PodPlan, settings: &Settings) -> impl Iterator<Item = IpAddr> {
    let v4 = plan.has_v4().then_some(IpAddr::V4(settings.gateway_v4));
    let v6 = plan.has_v6().then_some(IpAddr::V6(settings.gateway_v6));
    v4.into_iter().chain(v6)
}
