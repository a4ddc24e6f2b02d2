//! The addresses of a cluster, and the segment that its nodes are on.
//!
//! A cluster has a /16 of its own, so that any number of them can run on one machine at once, and a /48 of IPv6, whose third
//! group is N:
//!
//! | addresses | of IPv6 | whose |
//! |---|---|---|
//! | `10.N.0.1` | | the machine, where the control plane runs |
//! | `10.N.0.11`, `10.N.0.12`, … | `fd00:a:N::b`, `fd00:a:N::c`, … | the nodes |
//! | `10.N.1.0/24`, `10.N.2.0/24`, … | | the pods of each node, when ptp and host-local are used |
//! | `10.N.128.0/18` | `fd00:a:N:8000::/112` | Services, of IPv4 unless they ask for more |
//! | `10.N.192.0/18` | `fd00:a:N:c000::/50` | left to the test |
//!
//! The machine itself needs no IPv6.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::ClusterError;
use crate::hosts::{Host, HostError, NetworkNamespace, Port, Segment};

/// The second bytes of clusters' networks.
const NETWORKS: std::ops::RangeInclusive<u8> = 192..=254;
/// The last bytes of the nodes' addresses begin after this.
const BEFORE_NODES: u8 = 10;

/// The segment that the nodes and the control plane are on.
#[derive(Debug)]
pub(super) struct Network {
    number: u8,
    segment: Segment,
}

impl Network {
    /// How many nodes there are addresses for.
    pub(super) const MOST_NODES: u8 = 120;

    /// Creates the segment and connects the machine to it, with addresses that nobody else here has.
    ///
    /// The machine's interface reserves the addresses: its name is unique. It is the other end of a cable
    /// into the segment's namespace, and so it disappears with this process.
    pub(super) fn create() -> Result<Self, ClusterError> {
        let segment = Segment::new("segment")?;
        let machine = NetworkNamespace::current()?;
        let routes = machine.ip_json(&["-4", "route", "show", "table", "all"])?;
        for number in NETWORKS.filter(|number| !is_routed(&routes, *number)) {
            let network = Addresses { number };
            match segment.connect(&machine, &network.interface(), &[&format!("{}/24", network.machine())]) {
                Ok(_) => return Ok(Self { number, segment }),
                Err(HostError::Ip { message, .. }) if message.contains("File exists") => {}
                Err(error) => return Err(error.into()),
            }
        }
        let named = |number| Addresses { number }.everything();
        Err(ClusterError::NoAddresses { first: named(*NETWORKS.start()), last: named(*NETWORKS.end()) })
    }

    pub(super) fn addresses(&self) -> Addresses {
        Addresses { number: self.number }
    }

    /// Connects a node, by its number from 0.
    pub(super) fn connect(&self, node: &Host, index: u8) -> Result<Port, ClusterError> {
        let addresses = self.addresses();
        let own = [format!("{}/24", addresses.node(index)), format!("{}/64", addresses.node_ipv6(index))];
        let port = self.segment.connect(node, "eth0", &own.each_ref().map(String::as_str))?;
        node.forward()?;
        node.route("default", addresses.machine().into())?;
        // Nobody is there; but who asks for a Service's address must have a way before kube-proxy gives it another one.
        node.ip("route add ::/0 dev eth0\n")?;
        Ok(port)
    }

    /// Adds routes to the pods of the first `nodes` nodes on the node `from`, or on the machine.
    pub(super) fn route_to_pods(&self, from: Option<(&Host, u8)>, nodes: u8) -> Result<(), ClusterError> {
        let addresses = self.addresses();
        let others = (0..nodes).filter(|other| from.is_none_or(|(_, index)| index != *other));
        let batch: Vec<String> = others
            .map(|other| format!("route add {} via {}\n", addresses.pods(other), addresses.node(other)))
            .collect();
        match from {
            Some((node, _)) => node.ip(&batch.concat())?,
            None => NetworkNamespace::current()?.ip(&batch.concat())?,
        }
        Ok(())
    }
}

/// The addresses of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    number: u8,
}

impl Addresses {
    pub(super) fn machine(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, 0, 1)
    }

    pub(super) fn node(self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, 0, BEFORE_NODES + 1 + index)
    }

    pub(super) fn node_ipv6(self, index: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0xa, self.number.into(), 0, 0, 0, 0, u16::from(BEFORE_NODES + 1 + index))
    }

    /// The beginning of a network of IPv6, by its number.
    pub(super) fn ipv6(self, network: u16) -> String {
        format!("fd00:a:{:x}:{network:x}::", self.number)
    }

    pub(super) fn pods(self, index: u8) -> String {
        format!("10.{}.{}.0/24", self.number, 1 + index)
    }

    pub(super) fn all_pods(self) -> String {
        format!("10.{}.0.0/17,{}/49", self.number, self.ipv6(0))
    }

    pub(super) fn services(self) -> String {
        format!("10.{}.128.0/18,{}/112", self.number, self.ipv6(0x8000))
    }

    pub(super) fn spare(self) -> String {
        format!("10.{}.192.0/18", self.number)
    }

    fn everything(self) -> String {
        format!("10.{}.0.0/16", self.number)
    }

    fn interface(self) -> String {
        format!("tenure{}", self.number)
    }
}

/// Whether the machine has a route into the network of this number.
fn is_routed(routes: &serde_json::Value, number: u8) -> bool {
    let destinations = routes.as_array().into_iter().flatten().filter_map(|route| route["dst"].as_str());
    destinations.filter_map(parse_network).any(|(address, length)| {
        let common = u32::from(length.min(16));
        // A route to everything, or to all of 10.0.0.0/8, does not occupy a part of it.
        let mask = if length <= 8 { return false } else { u32::MAX << (32 - common) };
        address.to_bits() & mask == Ipv4Addr::new(10, number, 0, 0).to_bits() & mask
    })
}

fn parse_network(text: &str) -> Option<(Ipv4Addr, u8)> {
    match text.split_once('/') {
        Some((address, length)) => Some((address.parse().ok()?, length.parse().ok()?)),
        None => Some((text.parse().ok()?, 32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_network_that_the_machine_uses_is_passed_over() {
        let routes = json!([
            {"dst": "default"}, {"dst": "10.0.0.0/8"}, {"dst": "10.192.7.0/24"}, {"dst": "10.200.0.0/14"},
            {"dst": "10.196.1.2"}, {"dst": "192.0.2.0/24"}
        ]);
        let taken: Vec<u8> = NETWORKS.filter(|number| is_routed(&routes, *number)).collect();
        assert_eq!(taken, [192, 196, 200, 201, 202, 203]);
    }

    #[test]
    fn no_address_has_two_owners() {
        let addresses = Addresses { number: 200 };
        let last = Network::MOST_NODES - 1;
        assert_eq!(addresses.node(0).to_string(), "10.200.0.11");
        assert_eq!(addresses.node(last).to_string(), "10.200.0.130");
        assert_eq!(addresses.node_ipv6(0).to_string(), "fd00:a:c8::b");
        assert_eq!(addresses.services(), "10.200.128.0/18,fd00:a:c8:8000::/112");
        assert_eq!(addresses.pods(0), "10.200.1.0/24");
        assert_eq!(addresses.pods(last), "10.200.120.0/24", "within {}", addresses.all_pods());
    }
}
