//! A client pod's egress: a plain value, complete before anything is changed, and what follows from it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::answers::{self, Interface};
use super::encapsulate::key;
use super::{Family, MAIN_TABLE, NARROW_TABLE, PROTOCOL, WIDE_TABLE};
use crate::policy::{Action, Rule};

/// The private networks: routed directly, unless an Egress names a destination inside them.
pub const DIRECT: [IpNet; 4] = [
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 168, 0, 0), 16)),
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 16, 0, 0), 12)),
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 0, 0, 0), 8)),
    IpNet::V6(Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)),
];

/// Link-local addresses never go through a tunnel, because they are valid only on the link.
const LINK_LOCAL: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)),
];

/// Priorities of rules, as in Coil.
const REPLY_PRIORITY: u32 = 1000;
/// For pods with several interfaces: rules for answers from the addresses of each, and for the others.
pub(super) const ANSWERS_PRIORITY: u32 = 1790;
pub(super) const LAST_ANSWERS_PRIORITY: u32 = 1791;
const LINK_LOCAL_PRIORITY: u32 = 1800;
const NARROW_PRIORITY: u32 = 1900;
const DIRECT_PRIORITY: u32 = 2000;
const WIDE_PRIORITY: u32 = 2100;

/// The mark of packets that answer incoming connections.
pub(super) const REPLY_MARK: u32 = 0x7465_6e75;

/// The maximum of gateways, destinations and direct networks of one pod: rules have a hundred priorities, and the
/// programs grow with the gateways.
const MOST_GATEWAYS: usize = 64;
const MOST_DIRECT: usize = 100;
const MOST_DESTINATIONS: usize = 4096;
const MOST_REPLY_RULES: usize = 790;

/// A pod's egress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPlan {
    /// The pod's interface that tunnels go through.
    pub interface: String,
    /// The pod's addresses on it, at most one of each family; tunnels begin there. Families without an address are
    /// ignored.
    pub addresses: Vec<IpAddr>,
    /// Its Egresses. Of two with the same destination the first counts.
    pub egresses: Vec<Egress>,
    /// Networks that are routed directly although a wide destination covers them; usually [`DIRECT`].
    pub direct: Vec<IpNet>,
}

/// One Egress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The addresses of its gateways' Service, at most one of each family.
    pub services: Vec<IpAddr>,
    /// Its destinations.
    pub destinations: Vec<IpNet>,
    /// The source port of the tunnels' packets.
    pub source_port: SourcePort,
    /// Whether it is only for connections that the pod opens: answers to incoming connections leave as they would
    /// without it.
    pub originating_only: bool,
}

/// The source port of outer packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SourcePort {
    /// The tunnels' port: all packets of a pod go to the same gateway, and the gateway's answers come from the
    /// Service.
    #[default]
    Fixed,
    /// A port that depends on the inner packet's flow, so that flows are spread over gateways. Answers come from the
    /// gateways' own addresses, which the pod does not know, so it accepts them from everywhere.
    PerFlow,
}

/// An invalid plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} cannot be used; accepted: {accepted}")]
pub struct InvalidPlan {
    /// Which field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is accepted.
    pub accepted: &'static str,
}

/// A route into a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TunnelRoute {
    pub(super) table: u32,
    pub(super) destination: IpNet,
    pub(super) gateway: IpAddr,
}

impl ClientPlan {
    /// A plan without an Egress.
    pub fn new(interface: impl Into<String>, addresses: Vec<IpAddr>) -> Self {
        Self { interface: interface.into(), addresses, egresses: Vec::new(), direct: DIRECT.to_vec() }
    }

    /// Checks the plan.
    pub fn validate(&self) -> Result<(), InvalidPlan> {
        let check = |ok: bool, field, value: &dyn ToString, accepted| {
            if ok { Ok(()) } else { Err(InvalidPlan { field, value: value.to_string(), accepted }) }
        };
        let one_of_each = |addresses: &[IpAddr], field, accepted| {
            for (position, address) in addresses.iter().enumerate() {
                let twice = addresses[..position].iter().any(|other| other.is_ipv4() == address.is_ipv4());
                check(!twice, field, address, "at most one address of each family")?;
                check(is_unicast(*address), field, address, accepted)?;
            }
            Ok(())
        };
        check(
            !self.addresses.is_empty(),
            "addresses",
            &"none",
            "an address of the pod, or one of each family",
        )?;
        one_of_each(&self.addresses, "addresses", "addresses that one host can have")?;
        for egress in &self.egresses {
            one_of_each(&egress.services, "services", "the ClusterIPs of a Service")?;
            for service in &egress.services {
                let own = self.addresses.contains(service);
                check(!own, "services", service, "another address than the pod's own")?;
            }
        }
        for family in Family::ALL {
            let gateways = self.gateways(family);
            let accepted = "at most 64 Egresses of one pod";
            check(gateways.len() <= MOST_GATEWAYS, "egresses", &gateways.len(), accepted)?;
            let keys: BTreeSet<[u8; 4]> = gateways.iter().map(|gateway| key(*gateway)).collect();
            let distinct = keys.len() == gateways.len();
            let gateway = gateways.last().map_or_else(String::new, ToString::to_string);
            check(
                distinct,
                "services",
                &gateway,
                "ClusterIPs that differ in a hash of 32 bits: create a Service anew",
            )?;
            let direct = of_family(&self.direct, family).count();
            check(direct <= MOST_DIRECT, "direct", &direct, "at most 100 networks")?;
            let routes = self.routes(family).len();
            check(
                routes <= MOST_DESTINATIONS,
                "destinations",
                &routes,
                "at most 4096 destinations of one pod",
            )?;
            let replies = self.reply_rules(family, &[]).len();
            let accepted =
                "at most 790 destinations of one pod if an Egress is for originated connections only";
            check(replies <= MOST_REPLY_RULES, "destinations", &replies, accepted)?;
        }
        Ok(())
    }

    /// Whether anything of this family goes through a tunnel.
    pub(super) fn uses(&self, family: Family) -> bool {
        !self.gateways(family).is_empty()
    }

    /// The gateways of one family, each once, in the order of the Egresses.
    pub(super) fn gateways(&self, family: Family) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for (_, gateway) in self.usable(family) {
            if !found.contains(&gateway) {
                found.push(gateway);
            }
        }
        found
    }

    /// The source port of tunnels to a gateway.
    pub(super) fn source_port(&self, gateway: IpAddr) -> SourcePort {
        let mut egresses = self.usable(Family::of(gateway));
        egresses
            .find(|(_, other)| *other == gateway)
            .map_or_else(SourcePort::default, |(it, _)| it.source_port)
    }

    /// The routes into tunnels of one family.
    pub(super) fn routes(&self, family: Family) -> BTreeSet<TunnelRoute> {
        let mut seen = BTreeSet::new();
        let mut routes = BTreeSet::new();
        for (egress, gateway) in self.usable(family) {
            for destination in of_family(&egress.destinations, family) {
                if seen.insert(destination) {
                    let table = if self.is_narrow(destination) { NARROW_TABLE } else { WIDE_TABLE };
                    routes.insert(TunnelRoute { table, destination, gateway });
                }
            }
        }
        routes
    }

    /// Whether packets to a gateway are themselves routed into a tunnel.
    pub(super) fn leads_to(&self, gateway: IpAddr) -> bool {
        let routes = self.routes(Family::of(gateway));
        let leads = |table| routes.iter().any(|it| it.table == table && it.destination.contains(&gateway));
        let is_direct = self.direct.iter().chain(&LINK_LOCAL).any(|direct| direct.contains(&gateway));
        leads(NARROW_TABLE) || !is_direct && leads(WIDE_TABLE)
    }

    /// The rules of one family, in a pod with these interfaces, if it has several.
    pub(super) fn rules(&self, family: Family, interfaces: &[Interface]) -> Vec<Rule> {
        if !self.uses(family) {
            return Vec::new();
        }
        let to = |priority, table, to| {
            let rule = Rule::to_table(address_family(family), priority, table, PROTOCOL);
            Rule { to, ..rule }
        };
        let mut rules = self.reply_rules(family, interfaces);
        if !rules.is_empty() {
            rules.extend(answers::rules(interfaces, family));
        }
        rules
            .extend(of_family(&LINK_LOCAL, family).map(|net| to(LINK_LOCAL_PRIORITY, MAIN_TABLE, Some(net))));
        rules.push(to(NARROW_PRIORITY, NARROW_TABLE, None));
        let direct = of_family(&self.direct, family).zip(DIRECT_PRIORITY..);
        rules.extend(direct.map(|(net, priority)| to(priority, MAIN_TABLE, Some(net))));
        rules.push(to(WIDE_PRIORITY, WIDE_TABLE, None));
        rules
    }

    /// Whether an Egress is for originated connections only.
    pub(super) fn has_originating_only(&self) -> bool {
        Family::ALL.iter().any(|family| !self.reply_rules(*family, &[]).is_empty())
    }

    /// The rules that keep answers out of the tunnels of Egresses for originated connections only: narrow
    /// destinations before wide ones; destinations of other Egresses among them lead to the usual rules.
    fn reply_rules(&self, family: Family, interfaces: &[Interface]) -> Vec<Rule> {
        let usable: Vec<(&Egress, IpAddr)> = self.usable(family).collect();
        if !usable.iter().any(|(egress, _)| egress.originating_only) {
            return Vec::new();
        }
        let mut seen = BTreeSet::new();
        let mut destinations: Vec<(IpNet, bool)> = Vec::new();
        for (egress, _) in usable {
            for destination in of_family(&egress.destinations, family) {
                if seen.insert(destination) {
                    destinations.push((destination, egress.originating_only));
                }
            }
        }
        destinations.sort_by_key(|(net, _)| (std::cmp::Reverse(net.prefix_len()), *net));
        let out = match interfaces {
            [] => Action::Table(MAIN_TABLE),
            _ => Action::Goto(ANSWERS_PRIORITY),
        };
        let rules = destinations.into_iter().zip(REPLY_PRIORITY..).map(|((net, only), priority)| {
            let action = if only { out } else { Action::Goto(LINK_LOCAL_PRIORITY) };
            let rule = Rule::to_table(address_family(family), priority, MAIN_TABLE, PROTOCOL);
            let to = (net.prefix_len() > 0).then_some(net);
            Rule { to, mark: Some(REPLY_MARK), action, ..rule }
        });
        rules.collect()
    }

    /// The Egresses that are usable in one family, with the gateway's address.
    fn usable(&self, family: Family) -> impl Iterator<Item = (&Egress, IpAddr)> {
        let has_address = family.among(&self.addresses).is_some();
        self.egresses.iter().filter(move |_| has_address).filter_map(move |egress| {
            let gateway = family.among(&egress.services)?;
            let destined = of_family(&egress.destinations, family).next().is_some();
            destined.then_some((egress, gateway))
        })
    }

    /// Whether a destination is inside of what is routed directly.
    fn is_narrow(&self, destination: IpNet) -> bool {
        self.direct.iter().any(|direct| direct.contains(&destination))
    }
}

fn of_family(nets: &[IpNet], family: Family) -> impl Iterator<Item = IpNet> {
    nets.iter().map(IpNet::trunc).filter(move |net| Family::of(net.addr()) == family)
}

pub(super) fn address_family(family: Family) -> netlink_packet_route::AddressFamily {
    family.number().into()
}

fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast)
}
