//! Ten networks that ask Whereabouts for addresses: bridge and macvlan, sliced and not, of one family and of both. Each is an
//! Ethernet of its own that spans the nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result};
use ipnet::IpNet;
use serde_json::{Value, json};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::hosts::Segment;

/// Where pods are, and most of the definitions.
pub const APPS: &str = "apps";
/// Where the last definition is: not where its pods are.
pub const NETS: &str = "nets";

/// A network.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its number, from 1: interfaces are named for it.
    pub number: usize,
    /// `name` of its definition.
    pub name: String,
    /// The definition's namespace.
    pub namespace: &'static str,
    /// `network_name`, or nothing.
    pub named: &'static str,
    /// The CNI configuration.
    pub config: Value,
    pub sliced: bool,
    pub ranges: Vec<Range>,
}

/// A range of a network.
#[derive(Clone, Debug)]
pub struct Range {
    pub cidr: IpNet,
    /// What a caller gets who is alone; not said of slices.
    pub lowest: Option<IpAddr>,
    /// What nobody gets.
    pub excluded: Vec<IpNet>,
}

/// One range with `exclude`; `lowest` is empty for slices.
pub fn range(cidr: &str, lowest: &str, excluded: &[&str]) -> Range {
    let net = |text: &str| text.parse().unwrap();
    Range {
        cidr: net(cidr),
        lowest: lowest.parse().ok(),
        excluded: excluded.iter().map(|text| net(text)).collect(),
    }
}

/// What makes the interfaces of a network, from its number.
type Main = fn(usize) -> Value;

pub fn bridge(number: usize) -> Value {
    json!({"type": "bridge", "bridge": format!("br{number}")})
}

pub fn macvlan(number: usize) -> Value {
    json!({"type": "macvlan", "master": format!("lan{number}"), "mode": "bridge"})
}

/// All ten.
pub fn all() -> Vec<Network> {
    let both = json!([{"range": "10.88.0.0/24"}, {"range": "fd88::/64"}]);
    let more = json!([{"range": "fd90::/64", "exclude": ["fd90::/126"]}]);
    let networks: [(Main, &str, Value, Vec<Range>); 10] = [
        (bridge, "0.3.1", json!({"range": "10.81.0.0/24"}), vec![range("10.81.0.0/24", "10.81.0.1", &[])]),
        (
            macvlan,
            "0.3.1",
            json!({"range": "10.82.0.0/24", "exclude": ["10.82.0.0/29"]}),
            vec![range("10.82.0.0/24", "10.82.0.8", &["10.82.0.0/29"])],
        ),
        (
            bridge,
            "1.0.0",
            json!({"range": "10.83.0.0/24", "node_slice_size": "/26"}),
            vec![range("10.83.0.0/24", "", &[])],
        ),
        (
            macvlan,
            "0.4.0",
            json!({"range": "10.84.0.0/24", "node_slice_size": "26", "exclude": ["10.84.0.0/30", "10.84.0.64/30"]}),
            vec![range("10.84.0.0/24", "", &["10.84.0.0/30", "10.84.0.64/30"])],
        ),
        (bridge, "1.0.0", json!({"range": "fd85::/64"}), vec![range("fd85::/64", "fd85::1", &[])]),
        (
            macvlan,
            "1.0.0",
            json!({"range": "fd86::/64", "exclude": ["fd86::/120"]}),
            vec![range("fd86::/64", "fd86::100", &["fd86::/120"])],
        ),
        (
            bridge,
            "1.1.0",
            json!({"range": "fd87::/64", "node_slice_size": "/72"}),
            vec![range("fd87::/64", "", &[])],
        ),
        (
            macvlan,
            "1.1.0",
            json!({"ipRanges": both}),
            vec![range("10.88.0.0/24", "10.88.0.1", &[]), range("fd88::/64", "fd88::1", &[])],
        ),
        (
            macvlan,
            "1.0.0",
            json!({"range": "10.89.0.0/24", "node_slice_size": "/26", "ipRanges": [{"range": "fd89::/64"}]}),
            vec![range("10.89.0.0/24", "", &[]), range("fd89::/64", "", &[])],
        ),
        (
            bridge,
            "1.0.0",
            json!({
                "network_name": "ten", "range": "10.90.0.0/24", "range_start": "10.90.0.10",
                "range_end": "10.90.0.99", "ipRanges": more,
            }),
            vec![range("10.90.0.0/24", "10.90.0.10", &[]), range("fd90::/64", "fd90::4", &["fd90::/126"])],
        ),
    ];
    let numbered = networks.into_iter().zip(1..);
    numbered
        .map(|((main, version, ipam, ranges), number)| network(number, main, version, ipam, ranges))
        .collect()
}

fn network(number: usize, main: Main, version: &str, mut ipam: Value, ranges: Vec<Range>) -> Network {
    ipam["type"] = json!("whereabouts");
    let sliced = !ipam["node_slice_size"].is_null();
    let named = !ipam["network_name"].is_null();
    let name = format!("n{number}");
    let mut config = main(number);
    config["ipam"] = ipam;
    // The one with a name is also the one that is a list, and that is somewhere else.
    if named {
        config = json!({"plugins": [config]});
    }
    config["cniVersion"] = json!(version);
    // Where there is none, the caller puts the definition's in.
    if number % 2 == 1 || named {
        config["name"] = json!(name);
    }
    let (namespace, said) = if named { (NETS, "ten") } else { (APPS, "") };
    Network { number, name, namespace, named: said, config, sliced, ranges }
}

impl Network {
    /// Its definition.
    pub fn definition(&self) -> Value {
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"config": self.config.to_string()},
        })
    }

    /// Its name as pods in [`APPS`] write it.
    pub fn selected(&self) -> String {
        if self.namespace == APPS { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// Whether its interfaces are made by bridge.
    fn is_bridge(&self) -> bool {
        let plugin = self.config.pointer("/plugins/0").unwrap_or(&self.config);
        plugin["type"] == "bridge"
    }

    /// The names of its `NodeSlicePool`s, each with the range that it cuts.
    pub fn slice_pools(&self) -> BTreeMap<String, IpNet> {
        let ranges = self.ranges.iter().filter(|_| self.sliced).enumerate();
        let name = |index, cidr: IpNet| match index {
            0 => self.name.clone(),
            _ => format!("{}-{}", self.name, cidr.to_string().replace([':', '/'], "-")),
        };
        ranges.map(|(index, range)| (name(index, range.cidr), range.cidr)).collect()
    }

    /// The range that an address is of.
    pub fn range_of(&self, address: IpAddr) -> Result<&Range> {
        let found = self.ranges.iter().find(|range| range.cidr.contains(&address));
        found.with_context(|| format!("{address} is of no range of {}", self.name))
    }
}

/// The Ethernets of the networks. Dropping them takes them from the nodes.
pub struct Wires(pub Vec<Segment>);

impl Wires {
    /// Connects every node to each: as `lan1` for the first, a port of `br1` where it is a bridge's.
    pub fn new(cluster: &Cluster, networks: &[Network]) -> Result<Self> {
        let mut segments = Vec::new();
        for network in networks {
            let (number, segment) = (network.number, Segment::new(&network.name)?);
            for (node, host) in cluster.nodes().enumerate() {
                segment.connect(host.host(), &format!("lan{number}"), &[])?;
                if network.is_bridge() {
                    // With a hardware address of its own, or it would be that of a pod's port, and CHECK finds another one later.
                    host.host().ip(&format!(
                        "link add br{number} address 02:00:00:00:{number:02x}:{node:02x} \
                         type bridge mcast_snooping 0 forward_delay 0\n\
                         link set br{number} up\nlink set lan{number} master br{number}\n"
                    ))?;
                }
            }
            segments.push(segment);
        }
        Ok(Self(segments))
    }
}
