//! From the node's answer to a CNI result.

use std::net::IpAddr;

use serde_json::{Map, Value};
use tenure_cni::{Address, CniResult, Code, Failure, Interface, Route};
use tenure_ipam::{Addresses, Subnet};

use super::request::Request;
use crate::node::Link;

/// The addresses that pods use as gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gateways {
    pub(super) v4: IpAddr,
    pub(super) v6: IpAddr,
}

/// The result of an ADD.
pub(super) fn result(
    request: &Request,
    addresses: Addresses,
    subnet: Option<Subnet>,
    link: Option<Link>,
    gateways: Gateways,
) -> Result<CniResult, Failure> {
    match link {
        Some(link) => Ok(of_interface(request, addresses, link, gateways)),
        None => of_addresses(request, addresses, subnet, gateways),
    }
}

/// We made the interface: single addresses, and everything goes by way of the host's end.
fn of_interface(request: &Request, addresses: Addresses, link: Link, gateways: Gateways) -> CniResult {
    let inside = Interface {
        name: request.call.ifname.clone(),
        mac: link.pod_mac,
        mtu: Some(link.mtu),
        sandbox: request.call.netns.clone(),
    };
    let outside =
        Interface { name: link.host_name, mac: link.host_mac, mtu: Some(link.mtu), sandbox: String::new() };
    let mut result = CniResult { interfaces: vec![inside, outside], ..CniResult::default() };
    for address in addresses.iter() {
        let ip = address.to_ip();
        let (gateway, all) = if ip.is_ipv4() { (gateways.v4, "0.0.0.0/0") } else { (gateways.v6, "::/0") };
        let bits = address.family().bits();
        result.ips.push(Address {
            address: format!("{ip}/{bits}"),
            gateway: Some(gateway),
            interface: Some(0),
        });
        result.routes.push(Route { dst: all.to_owned(), gw: Some(gateway), more: Map::new() });
    }
    result
}

/// Another plugin makes the interface: addresses with the length of their block, which is what it will take for the
/// network on the link; gateways and routes as our part of its configuration says.
fn of_addresses(
    request: &Request,
    addresses: Addresses,
    subnet: Option<Subnet>,
    gateways: Gateways,
) -> Result<CniResult, Failure> {
    let mut result = CniResult { routes: list(request, "routes")?, ..CniResult::default() };
    let configured: Vec<IpAddr> = match request.field("gateway") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(_)) => vec![one(request, "gateway")?],
        Some(_) => list(request, "gateway")?,
    };
    // The ptp plugin puts the gateway's address on its own end of the link, so that any will do; and it wants one.
    let usual = request.config.plugin == "ptp";
    for address in addresses.iter() {
        let ip = address.to_ip();
        let network = subnet.and_then(|subnet| if ip.is_ipv4() { subnet.ipv4 } else { subnet.ipv6 });
        let prefix = network.map_or(address.family().bits(), |network| network.prefix());
        let gateway = configured.iter().copied().find(|gateway| gateway.is_ipv4() == ip.is_ipv4());
        let own = usual.then_some(if ip.is_ipv4() { gateways.v4 } else { gateways.v6 });
        let gateway = gateway.or(own);
        result.ips.push(Address { address: format!("{ip}/{prefix}"), gateway, interface: None });
    }
    Ok(result)
}

fn list<T: serde::de::DeserializeOwned>(request: &Request, field: &str) -> Result<Vec<T>, Failure> {
    match request.field(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => one(request, field),
    }
}

fn one<T: serde::de::DeserializeOwned>(request: &Request, field: &str) -> Result<T, Failure> {
    let value = request.field(field).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|error| {
        Failure::new(Code::InvalidConfig, format!("field ipam.{field} cannot be read: {error}"))
            .detail("accepted is what the host-local plugin takes")
    })
}
