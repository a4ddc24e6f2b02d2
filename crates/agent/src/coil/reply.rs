//! From the node's answer to a CNI result.

use std::net::IpAddr;

use serde_json::{Map, Value};
use tenure_cni::{Address, CniResult, Code, Failure, Interface, Route};
use tenure_ipam::{Addresses, Subnet};

use super::network::Network;
use super::request::Request;
use crate::node::Link;

/// The addresses that pods use as gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gateways {
    pub(super) v4: IpAddr,
    pub(super) v6: IpAddr,
}

/// The result of an ADD with an interface of ours: single addresses, and all routes go through the host's
/// end.
pub(super) fn of_interface(
    request: &Request<'_>,
    addresses: Addresses,
    link: Link,
    gateways: Gateways,
) -> CniResult {
    let inside = Interface {
        name: request.call.message.ifname.clone(),
        mac: link.pod_mac,
        mtu: Some(link.mtu),
        sandbox: request.call.message.netns.clone(),
        more: Map::new(),
    };
    let outside = Interface {
        name: link.host_name,
        mac: link.host_mac,
        mtu: Some(link.mtu),
        sandbox: String::new(),
        more: Map::new(),
    };
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

/// The result of an ADD for another plugin, which creates the interface; routes come from our part of its
/// configuration.
pub(super) fn of_addresses(
    request: &Request<'_>,
    network: &Network,
    addresses: Addresses,
    block: Option<Subnet>,
) -> Result<CniResult, Failure> {
    let mut result = CniResult { routes: list(request, "routes")?, ..CniResult::default() };
    for address in addresses.iter() {
        result.ips.push(Address {
            address: format!("{address}/{}", network.prefix(address, block)),
            gateway: network.gateway(address),
            interface: None,
        });
    }
    Ok(result)
}

pub(super) fn list<T: serde::de::DeserializeOwned>(
    request: &Request<'_>,
    field: &str,
) -> Result<Vec<T>, Failure> {
    match request.field(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => one(request, field),
    }
}

pub(super) fn one<T: serde::de::DeserializeOwned>(request: &Request<'_>, field: &str) -> Result<T, Failure> {
    let value = request.field(field).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|error| {
        Failure::new(Code::InvalidConfig, format!("field ipam.{field} cannot be read: {error}"))
            .detail("accepted is what the host-local plugin takes")
    })
}
