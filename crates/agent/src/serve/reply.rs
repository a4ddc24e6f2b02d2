//! From the node's answer to a CNI result.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value};
use tenure_cni::{Address, CniResult, Code, Failure, Interface, Route, Version};
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

/// The result of an ADD for which we made the interface: single addresses, and everything goes by way of the host's end.
pub(super) fn of_interface(
    request: &Request,
    addresses: Addresses,
    link: Link,
    gateways: Gateways,
) -> CniResult {
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

/// The result of an ADD for another plugin, which makes the interface; routes as our part of its configuration says.
pub(super) fn of_addresses(
    request: &Request,
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

/// A result as it goes to standard output, in the shape of `version`.
///
/// Those that are in use are written straight away: every pod waits for it, and by way of a tree of values it takes ten
/// times as long.
pub(super) fn to_bytes(mut result: CniResult, version: Version) -> Result<Vec<u8>, Failure> {
    /// More than there is for both families.
    const USUAL: usize = 768;
    #[derive(Serialize)]
    struct Versioned<'a> {
        #[serde(rename = "cniVersion")]
        version: &'a str,
        #[serde(flatten)]
        result: &'a CniResult,
    }
    if version < Version::V1_0_0 {
        return Ok(result.to_json(version)?.to_string().into_bytes());
    }
    if version < Version::V1_1_0 {
        result.interfaces.iter_mut().for_each(|interface| interface.mtu = None);
        result.routes.iter_mut().for_each(|route| route.more.clear());
    }
    let mut bytes = Vec::with_capacity(USUAL);
    let versioned = Versioned { version: version.as_str(), result: &result };
    serde_json::to_writer(&mut bytes, &versioned)
        .map_err(|error| Failure::new(Code::Internal, format!("cannot write the result: {error}")))?;
    Ok(bytes)
}

pub(super) fn list<T: serde::de::DeserializeOwned>(
    request: &Request,
    field: &str,
) -> Result<Vec<T>, Failure> {
    match request.field(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => one(request, field),
    }
}

pub(super) fn one<T: serde::de::DeserializeOwned>(request: &Request, field: &str) -> Result<T, Failure> {
    let value = request.field(field).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|error| {
        Failure::new(Code::InvalidConfig, format!("field ipam.{field} cannot be read: {error}"))
            .detail("accepted is what the host-local plugin takes")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_has_the_shape_of_every_version() {
        let text = json!({
            "interfaces": [
                { "name": "eth0", "mac": "0a:00:00:00:00:01", "mtu": 1450, "sandbox": "/run/netns/\"p\"" },
                { "name": "tnr1", "mac": "0a:00:00:00:00:02", "mtu": 1450 },
            ],
            "ips": [
                { "address": "10.2.0.1/32", "gateway": "169.254.1.1", "interface": 0 },
                { "address": "fd01::1/128", "gateway": "fe80::1", "interface": 0 },
            ],
            "routes": [{ "dst": "0.0.0.0/0", "gw": "169.254.1.1", "mtu": 1400 }, { "dst": "::/0" }],
        });
        let whole: CniResult = serde_json::from_value(text).unwrap();
        let mut served = whole.clone();
        served.dns.search.push("shop.svc".to_owned());
        for result in [CniResult::default(), whole, served] {
            for version in Version::ALL {
                let bytes = to_bytes(result.clone(), version).unwrap();
                let read: Value = serde_json::from_slice(&bytes).unwrap();
                assert_eq!(read, result.to_json(version).unwrap(), "{}", version.as_str());
            }
        }
    }
}
