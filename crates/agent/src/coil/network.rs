//! A network that another plugin creates, and that gets only addresses from us.
//!
//! Its addresses have the prefix length of the pool's subnet, whatever block they are from: for bridge,
//! macvlan and ipvlan that is the network on the link, where pods of all blocks reach each other; ptp makes a
//! route of it.
//!
//! On such a network some addresses of the subnet are not for pods: its first, its last, and its gateway. A
//! pool for routed pods has no such addresses and assigns all, so it must exclude them. A pool that does not
//! is refused with what to exclude, before a pod gets the gateway's address and cuts off everyone else.

use std::net::IpAddr;

use serde_json::Value;
use tenure_cni::{Code, Failure};
use tenure_ipam::{Address, Cidr, Family, Subnet};

use super::reply::{Gateways, list, one};
use super::request::Request;
use crate::node::PoolFacts;

/// The configuration of the network, and the subnets it consists of.
#[derive(Debug)]
pub(super) struct Network {
    subnets: Vec<Subnet>,
    /// The gateways from our part of the configuration.
    configured: Vec<IpAddr>,
    plugin: InterfacePlugin,
}

/// The plugin that creates the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InterfacePlugin {
    /// Puts the gateway's address on the host's end of each link. It needs a gateway in the subnet: it
    /// creates the routes through the gateway before the route to it. (The addresses are for a pool that is
    /// gone.)
    Ptp(Gateways),
    /// Puts the gateway's address on the bridge.
    Gateway,
    /// Leaves gateways to others.
    Other,
}

impl Network {
    /// Reads the configuration, and checks that pods can have all addresses of the pool.
    pub(super) fn read(
        request: &Request<'_>,
        pool: &str,
        facts: Option<PoolFacts>,
        usual: Gateways,
    ) -> Result<Self, Failure> {
        let configured = match request.field("gateway") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(_)) => vec![one(request, "gateway")?],
            Some(_) => list(request, "gateway")?,
        };
        let says =
            |field: &str| request.call.network.json.get(field).and_then(Value::as_bool).unwrap_or_default();
        let plugin = match request.call.network.plugin.as_str() {
            "ptp" => InterfacePlugin::Ptp(usual),
            "bridge" if says("isGateway") || says("isDefaultGateway") => InterfacePlugin::Gateway,
            _ => InterfacePlugin::Other,
        };
        let facts = facts.unwrap_or_default();
        let network = Self { subnets: facts.subnets.clone(), configured, plugin };
        let wrong: Vec<Address> = network.not_for_pods().filter(|it| facts.assigns(*it)).collect();
        if wrong.is_empty() {
            return Ok(network);
        }
        let text =
            |separator: &str| wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator);
        let message = format!(
            "AddressPool {pool:?} could give a pod {}, which on network {:?} is the first or last address or the gateway",
            text(", "),
            request.call.network.name
        );
        let accepted = format!("accepted is a pool with exclude: [\"{}\"] in its spec", text("\", \""));
        Err(Failure::new(Code::InvalidConfig, message).detail(accepted))
    }

    /// The prefix length of an address; `block` is the block that it is from.
    pub(super) fn prefix(&self, address: Address, block: Option<Subnet>) -> u8 {
        let block = block.and_then(|block| of_family(&block, address.family()));
        let cidr = self.cidrs().find(|cidr| cidr.contains(address)).or(block);
        cidr.map_or(address.family().bits(), |cidr| cidr.prefix())
    }

    /// The gateway of an address, if there is one.
    pub(super) fn gateway(&self, address: Address) -> Option<IpAddr> {
        let cidr = self.cidrs().find(|cidr| cidr.contains(address));
        let same = |gateway: &&IpAddr| gateway.is_ipv4() == address.to_ip().is_ipv4();
        let near = |gateway: &&IpAddr| cidr.is_some_and(|cidr| cidr.contains(Address::from(**gateway)));
        let mut configured = self.configured.iter().filter(same);
        let best = configured.clone().find(near).or_else(|| configured.next());
        match (best, self.plugin) {
            (Some(gateway), _) => Some(*gateway),
            (None, InterfacePlugin::Ptp(usual)) => {
                let usual = if address.family() == Family::V4 { usual.v4 } else { usual.v6 };
                Some(cidr.and_then(second).map_or(usual, Address::to_ip))
            }
            (None, InterfacePlugin::Gateway) => cidr.and_then(second).map(Address::to_ip),
            (None, InterfacePlugin::Other) => None,
        }
    }

    /// The addresses of the subnets that no pod can have here.
    fn not_for_pods(&self) -> impl Iterator<Item = Address> {
        self.cidrs().flat_map(|cidr| {
            let mut addresses = Vec::new();
            let on_a_link = !matches!(self.plugin, InterfacePlugin::Ptp(_));
            // A network of one or two addresses has no first and last to leave out.
            if on_a_link && cidr.host_bits() > 1 {
                addresses.push(cidr.first());
            }
            addresses.extend(self.gateway(cidr.first()).map(Address::from).filter(|it| cidr.contains(*it)));
            if on_a_link && cidr.host_bits() > 1 && cidr.family() == Family::V4 {
                addresses.push(cidr.last());
            }
            addresses.dedup();
            addresses
        })
    }

    fn cidrs(&self) -> impl Iterator<Item = Cidr> {
        self.subnets.iter().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]).flatten()
    }
}

fn of_family(subnet: &Subnet, family: Family) -> Option<Cidr> {
    match family {
        Family::V4 => subnet.ipv4,
        Family::V6 => subnet.ipv6,
    }
}

/// The address that the bridge and host-local plugins use as the gateway.
fn second(cidr: Cidr) -> Option<Address> {
    cidr.nth(1).ok()
}
