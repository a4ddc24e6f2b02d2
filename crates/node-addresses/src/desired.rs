//! The desired state as the kernel mode understands it: a part of nmstate's schema. Every other key is refused with its path,
//! never passed over.
//!
//! | key | accepted |
//! |---|---|
//! | `interfaces[].name` | the name of an interface that exists, or will |
//! | `interfaces[].type` | `ethernet`, `veth`, `linux-bridge`, `bond`, `vlan`; nothing is made |
//! | `interfaces[].state` | `up`, also if it is missing |
//! | `interfaces[].mtu` | 68 to 65535; left alone if it is missing |
//! | `interfaces[].ipv4`, `ipv6` | `enabled: true` with `address[].ip` and `prefix-length`; `dhcp: false`, `autoconf: false` |
//! | `routes.config[]` | `destination`, `next-hop-interface`, `next-hop-address`, `metric`, `table-id` |
//!
//! Numbers and truth values may be texts, as in nmstate: replacing (`:=`) makes texts.

mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Refusal;
use read::{Fields, root};

/// What a policy wants of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredState {
    /// The interfaces, each named once.
    pub interfaces: Vec<Interface>,
    /// The routes, each through one of these interfaces.
    pub routes: Vec<Route>,
}

/// What an interface is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What it must be, if the policy says.
    pub kind: Option<InterfaceKind>,
    /// The largest packet; left alone if it is not given.
    pub mtu: Option<u32>,
    /// Its addresses from the policy, in the policy's order. Those of others stay.
    pub addresses: Vec<IpNet>,
}

/// What an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceKind {
    /// A network card; a veth counts as one.
    Ethernet,
    /// One end of a pair.
    Veth,
    /// A bridge.
    LinuxBridge,
    /// A bond.
    Bond,
    /// A VLAN.
    Vlan,
}

impl InterfaceKind {
    const ALL: [Self; 5] = [Self::Ethernet, Self::Veth, Self::LinuxBridge, Self::Bond, Self::Vlan];

    /// As policies name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Veth => "veth",
            Self::LinuxBridge => "linux-bridge",
            Self::Bond => "bond",
            Self::Vlan => "vlan",
        }
    }

    /// By its name in policies.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether an interface of this kind does for what the policy wants.
    pub fn serves(self, wanted: Self) -> bool {
        self == wanted || (self == Self::Veth && wanted == Self::Ethernet)
    }
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// Where packets go.
    pub destination: IpNet,
    /// The interface that leads there.
    pub interface: String,
    /// The router that leads there; none for what is on the interface's own network.
    pub gateway: Option<IpAddr>,
    /// Of several routes to one destination the smallest counts; the kernel's default if it is not given.
    pub metric: Option<u32>,
    /// The table; the main one if it is not given.
    pub table: Option<u32>,
}

impl DesiredState {
    /// Reads a desired state whose references are filled in.
    pub fn parse(state: &Value) -> Result<Self, Refusal> {
        let mut top = root("desiredState", state)?;
        let mut interfaces = Vec::new();
        for mut item in top.take_list("interfaces")?.unwrap_or_default() {
            interfaces.push(Interface::read(&mut item)?);
            item.end()?;
        }
        let mut names = BTreeSet::new();
        for (number, interface) in interfaces.iter().enumerate() {
            if !names.insert(interface.name.as_str()) {
                return Err(Refusal::new(
                    format!("desiredState.interfaces[{number}].name"),
                    format!("{:?} is there twice", interface.name),
                    "is each interface once",
                ));
            }
        }
        let mut routes = Vec::new();
        if let Some(mut of) = top.take_object("routes")? {
            for mut item in of.take_list("config")?.unwrap_or_default() {
                let route = Route::read(&mut item, &names)?;
                item.end()?;
                routes.push(route);
            }
            of.end()?;
        }
        top.end()?;
        if interfaces.is_empty() {
            return Err(Refusal::new(
                "desiredState.interfaces",
                "there are none",
                "is at least one interface",
            ));
        }
        Ok(Self { interfaces, routes })
    }

    /// All addresses, with their interfaces.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, IpNet)> {
        self.interfaces.iter().flat_map(|it| it.addresses.iter().map(|address| (it.name.as_str(), *address)))
    }
}

impl Interface {
    fn read(of: &mut Fields<'_>) -> Result<Self, Refusal> {
        let name = of.take_text("name")?.ok_or_else(|| of.missing("name", "is the name of an interface"))?;
        if !is_interface_name(&name) {
            return Err(of.refuse(
                "name",
                &name,
                "is the name of an interface other than lo, of at most 15 characters without spaces and slashes",
            ));
        }
        of.expect("identifier", "name")?;
        let kind = match of.take_text("type")? {
            None => None,
            Some(text) => {
                let accepted = "is ethernet, veth, linux-bridge, bond or vlan, of an interface that exists";
                Some(InterfaceKind::of_name(&text).ok_or_else(|| of.refuse("type", &text, accepted))?)
            }
        };
        of.expect("state", "up")?;
        let mtu = of.take_number("mtu", 68..=65_535)?;
        let mut addresses = Vec::new();
        for (key, is_v4) in [("ipv4", true), ("ipv6", false)] {
            if let Some(mut family) = of.take_object(key)? {
                addresses.extend(read_family(&mut family, is_v4)?);
                family.end()?;
            }
        }
        Ok(Self { name, kind, mtu, addresses })
    }
}

fn read_family(of: &mut Fields<'_>, is_v4: bool) -> Result<Vec<IpNet>, Refusal> {
    if of.take_truth("enabled")? == Some(false) {
        return Err(of.refuse(
            "enabled",
            &"false",
            "is true: without NetworkManager neither a family nor addresses of others are switched off",
        ));
    }
    let switched = if is_v4 { &["dhcp"][..] } else { &["dhcp", "autoconf"] };
    for key in switched {
        if of.take_truth(key)? == Some(true) {
            return Err(of.refuse(key, &"true", "is false: addresses are static"));
        }
    }
    let longest = if is_v4 { 32 } else { 128 };
    let mut addresses: Vec<IpNet> = Vec::new();
    for mut item in of.take_list("address")?.unwrap_or_default() {
        let text = item.take_text("ip")?.ok_or_else(|| item.missing("ip", "is an address"))?;
        let ip: Option<IpAddr> = text.parse().ok();
        let usable = |ip: &IpAddr| {
            ip.is_ipv4() == is_v4 && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()
        };
        let accepted = if is_v4 { "is an IPv4 address of a host" } else { "is an IPv6 address of a host" };
        let Some(ip) = ip.filter(usable) else { return Err(item.refuse("ip", &text, accepted)) };
        let prefix = item.take_number("prefix-length", 1..=longest)?;
        let prefix =
            prefix.ok_or_else(|| item.missing("prefix-length", "is the length of the network's prefix"))?;
        let address = u8::try_from(prefix).ok().and_then(|prefix| IpNet::new(ip, prefix).ok());
        let Some(address) = address else { return Err(item.refuse("prefix-length", &prefix, accepted)) };
        if addresses.iter().any(|other| other.addr() == ip) {
            return Err(item.refuse("ip", &text, "is each address once"));
        }
        addresses.push(address);
        item.end()?;
    }
    Ok(addresses)
}

impl Route {
    fn read(of: &mut Fields<'_>, interfaces: &BTreeSet<&str>) -> Result<Self, Refusal> {
        let network = "is a network such as 198.51.100.0/24, 0.0.0.0/0 or 2001:db8::/64";
        let text = of.take_text("destination")?.ok_or_else(|| of.missing("destination", network))?;
        let destination: Option<IpNet> = text.parse().ok().filter(|it: &IpNet| it.trunc() == *it);
        let Some(destination) = destination else { return Err(of.refuse("destination", &text, network)) };
        let listed = "is an interface that the policy lists under interfaces";
        let interface =
            of.take_text("next-hop-interface")?.ok_or_else(|| of.missing("next-hop-interface", listed))?;
        if !interfaces.contains(interface.as_str()) {
            return Err(of.refuse("next-hop-interface", &interface, listed));
        }
        let gateway = match of.take_text("next-hop-address")?.filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => {
                let address: Option<IpAddr> = text.parse().ok();
                let usable = |it: &IpAddr| {
                    it.is_ipv4() == destination.addr().is_ipv4() && !it.is_unspecified() && !it.is_multicast()
                };
                let Some(address) = address.filter(usable) else {
                    let accepted = "is an address of the destination's family";
                    return Err(of.refuse("next-hop-address", &text, accepted));
                };
                Some(address)
            }
        };
        let metric = of.take_number("metric", 0..=i32::MAX.unsigned_abs())?.filter(|it| *it != 0);
        let table = of.take_number("table-id", 0..=u32::MAX)?.filter(|it| *it != 0);
        Ok(Self { destination, interface, gateway, metric, table })
    }
}

/// Whether the kernel takes such a name.
fn is_interface_name(name: &str) -> bool {
    let allowed = |c: char| !c.is_whitespace() && !c.is_control() && c != '/' && c != ':';
    !name.is_empty() && name.len() <= 15 && !matches!(name, "." | ".." | "lo") && name.chars().all(allowed)
}
