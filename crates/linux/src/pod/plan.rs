//! The plan of a pod's interface: a plain value, complete before anything is changed.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::identity::is_link_name;
use super::name;
use super::{Identity, InvalidIdentity};
use crate::{Mac, Settings};

/// The plan of a pod's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    /// The owner; also has the interface's name inside the pod.
    pub identity: Identity,
    /// Its addresses: usually one, or one of each family.
    pub addresses: Vec<IpAddr>,
    /// The destinations that the pod reaches through this interface. Families without an address are left out.
    pub routes: Vec<IpNet>,
    /// The MTU.
    pub mtu: u32,
    /// The Ethernet address of the pod's end; by default derived from the identity.
    pub mac: Option<Mac>,
    /// The name of the host end; by default derived from the identity.
    pub host_name: Option<String>,
    /// The source addresses of the node towards the pod, at most one of each family. Without them the kernel chooses, and may
    /// choose the gateway's address, which is the same on every node.
    pub sources: Vec<IpAddr>,
    /// Whether the host has routes to its addresses. Without them the interface is complete, but no packet arrives.
    pub reached: bool,
}

/// Why a plan is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlan {
    /// The identity is invalid.
    #[error(transparent)]
    Identity(#[from] InvalidIdentity),
    /// Another field is invalid.
    #[error("{field}: {value} cannot be used; accepted: {accepted}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be accepted.
        accepted: &'static str,
    },
}

impl PodPlan {
    /// A plan for an interface that carries all of the pod's traffic.
    pub fn new(identity: Identity, addresses: Vec<IpAddr>, mtu: u32) -> Self {
        let routes = vec![Ipv4Net::default().into(), Ipv6Net::default().into()];
        let (mac, host_name, sources) = (None, None, Vec::new());
        Self { identity, addresses, routes, mtu, mac, host_name, sources, reached: true }
    }

    /// Checks that the plan is valid.
    pub fn validate(&self, settings: &Settings) -> Result<(), InvalidPlan> {
        let check = |ok: bool, field, value: &dyn ToString, accepted| {
            if ok { Ok(()) } else { Err(InvalidPlan::Field { field, value: value.to_string(), accepted }) }
        };
        self.identity.validate()?;
        check(!self.addresses.is_empty(), "addresses", &"none", "at least one address")?;
        for (position, address) in self.addresses.iter().enumerate() {
            check(is_host(*address), "addresses", address, "addresses that one host can have")?;
            let twice = self.addresses[..position].contains(address);
            check(!twice, "addresses", address, "each address once")?;
            let gateway = [IpAddr::V4(settings.gateway_v4), settings.gateway_v6.into()].contains(address);
            check(!gateway, "addresses", address, "another address than the pods' gateway")?;
        }
        for source in &self.sources {
            check(is_host(*source), "sources", source, "addresses of the node")?;
        }
        // Below 1280 the kernel disables IPv6 on the interface; 68 is the minimum for IPv4.
        let (least, accepted) =
            if self.has_v6() { (1280, "1280 to 65535 with IPv6") } else { (68, "68 to 65535") };
        check((least..=65_535).contains(&self.mtu), "mtu", &self.mtu, accepted)?;
        if let Some(mac) = self.mac {
            check(mac.is_unicast(), "mac", &mac, "a unicast address")?;
        }
        if let Some(name) = &self.host_name {
            check(is_link_name(name), "hostName", name, "1 to 15 visible characters other than '/' and ':'")?;
        }
        Ok(())
    }

    /// The name of the host end.
    pub fn host_name(&self, settings: &Settings) -> String {
        let Identity { container, interface, .. } = &self.identity;
        self.host_name.clone().unwrap_or_else(|| name::host_name(settings, container, interface))
    }

    /// The Ethernet address of the pod's end.
    pub fn pod_mac(&self) -> Mac {
        self.mac.unwrap_or_else(|| name::pod_mac(&self.identity))
    }

    /// Whether it has an IPv4 address.
    pub fn has_v4(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv4)
    }

    /// Whether it has an IPv6 address.
    pub fn has_v6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }

    /// The routes inside the pod, of the families that it has addresses of.
    pub(super) fn usable_routes(&self) -> impl Iterator<Item = IpNet> {
        let (v4, v6) = (self.has_v4(), self.has_v6());
        self.routes.iter().map(IpNet::trunc).filter(move |route| if route.addr().is_ipv4() { v4 } else { v6 })
    }

    /// The node's source address towards `address`.
    pub(super) fn source_for(&self, address: IpAddr) -> Option<IpAddr> {
        self.sources.iter().copied().find(|source| source.is_ipv4() == address.is_ipv4())
    }
}

fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> PodPlan {
        let identity = Identity {
            container: "c0ffee".into(),
            interface: "eth0".into(),
            network: "k8s".into(),
            namespace: String::new(),
            pod: String::new(),
        };
        PodPlan::new(identity, vec!["10.2.0.1".parse().unwrap()], 1450)
    }

    #[test]
    fn a_plan_that_cannot_be_carried_out_says_which_field_and_value() {
        let bad = |change: fn(&mut PodPlan)| {
            let mut plan = plan();
            change(&mut plan);
            plan.validate(&Settings::default()).unwrap_err().to_string()
        };
        plan().validate(&Settings::default()).unwrap();
        assert!(bad(|p| p.addresses.clear()).starts_with("addresses: none"));
        assert!(bad(|p| p.addresses = vec!["224.0.0.1".parse().unwrap()]).contains("224.0.0.1"));
        assert!(bad(|p| p.addresses.push(p.addresses[0])).contains("each address once"));
        assert!(bad(|p| p.addresses = vec!["fe80::1".parse().unwrap()]).contains("gateway"));
        assert!(bad(|p| p.mtu = 67).starts_with("mtu: 67"));
        assert!(
            bad(|p| {
                p.addresses.push("fd00::1".parse().unwrap());
                p.mtu = 1279;
            })
            .contains("1280")
        );
        assert!(bad(|p| p.mac = Some(Mac([1; 6]))).starts_with("mac: 01:01"));
        assert!(bad(|p| p.host_name = Some("a/b".into())).starts_with("hostName: a/b"));
        assert!(bad(|p| p.sources = vec!["::".parse().unwrap()]).starts_with("sources: ::"));
        assert!(bad(|p| p.identity.network = String::new()).starts_with("network: \"\""));
    }

    #[test]
    fn routes_of_a_family_without_an_address_are_left_out() {
        assert_eq!(plan().usable_routes().map(|route| route.to_string()).collect::<Vec<_>>(), ["0.0.0.0/0"]);
    }
}
