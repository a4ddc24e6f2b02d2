//! The ten networks of every pod: sliced and unsliced, both families, alone and together, with windows and exclusions, and
//! two whose ranges overlap.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use tenure_tests::whereabouts::network;

/// How many there are.
pub const NETWORKS: usize = 10;

/// One of a pod's networks.
#[derive(Debug)]
pub struct Network {
    pub name: &'static str,
    /// Its `network_name`: among which an address is held once.
    pub domain: &'static str,
    pub sliced: bool,
    pub config: Value,
    /// Of each range, what may be handed out: network, lowest and highest address.
    pub ranges: Vec<Window>,
}

/// The part of a range that may be handed out.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub net: IpNet,
    pub first: IpAddr,
    pub last: IpAddr,
}

impl Window {
    fn of(net: &str) -> Self {
        let net: IpNet = net.parse().unwrap();
        Self { net, first: net.network(), last: net.broadcast() }
    }

    fn between(self, first: &str, last: &str) -> Self {
        Self { first: first.parse().unwrap(), last: last.parse().unwrap(), ..self }
    }

    /// Whether a pod may have this address. The edges of the whole range are for nobody.
    pub fn hands_out(&self, address: IpAddr) -> bool {
        let edge = address == self.net.network() || address == self.net.broadcast();
        self.net.contains(&address) && !edge && (self.first..=self.last).contains(&address)
    }
}

impl Network {
    fn new(name: &'static str, windows: &[Window], ipam: Value) -> Self {
        let named = ["lapped", "windowed", "six", "both", "cut"];
        let domain = named.into_iter().find(|name| ipam["network_name"] == *name).unwrap_or_default();
        let sliced = !ipam["node_slice_size"].is_null();
        Self { name, domain, sliced, config: network(name, ipam), ranges: windows.to_vec() }
    }

    /// The interface that pods have on it.
    pub fn ifname(number: usize) -> String {
        format!("net{}", number + 1)
    }

    /// The names of its `NodeSlicePool`s, the first range's first.
    pub fn slice_pools(&self) -> Vec<String> {
        let first = if self.domain.is_empty() { self.name } else { self.domain };
        let further = self.ranges.iter().skip(1);
        let name = |window: &Window| format!("{first}-{}", window.net.to_string().replace([':', '/'], "-"));
        std::iter::once(first.to_owned()).chain(further.map(name)).collect()
    }
}

/// All of them.
pub fn networks() -> Vec<Network> {
    let of = Window::of;
    let all = vec![
        Network::new("flat4", &[of("10.1.0.0/24")], json!({"range": "10.1.0.0/24"})),
        Network::new("flat6", &[of("fd01::/112")], json!({"range": "fd01::/112"})),
        Network::new(
            "dual",
            &[of("10.2.0.0/24"), of("fd02::/120")],
            json!({"ipRanges": [{"range": "10.2.0.0/24"}, {"range": "fd02::/120"}]}),
        ),
        // The second is a part of the first: an address is held once in both.
        Network::new("wide", &[of("10.3.0.0/23")], json!({"range": "10.3.0.0/23", "network_name": "lapped"})),
        Network::new(
            "narrow",
            &[of("10.3.0.0/24")],
            json!({"range": "10.3.0.0/24", "network_name": "lapped"}),
        ),
        // Few addresses, in the records of two objects: now and then there is none.
        Network::new(
            "window",
            &[of("10.4.0.0/22").between("10.4.0.200", "10.4.1.50")],
            json!({
                "range": "10.4.0.0/22", "range_start": "10.4.0.200", "range_end": "10.4.1.50",
                "network_name": "windowed",
            }),
        ),
        Network::new(
            "sliced4",
            &[of("10.5.0.0/20")],
            json!({"range": "10.5.0.0/20", "node_slice_size": "/26"}),
        ),
        Network::new(
            "sliced6",
            &[of("fd06::/114")],
            json!({"range": "fd06::/114", "node_slice_size": "/120", "network_name": "six"}),
        ),
        Network::new(
            "slicedual",
            &[of("10.7.0.0/21"), of("fd07::/115")],
            json!({
                "range": "10.7.0.0/21", "ipRanges": [{"range": "fd07::/115"}], "node_slice_size": "/27",
                "network_name": "both",
            }),
        ),
        // Slices of sixteen, of which the last range's part is excluded.
        Network::new(
            "cutout",
            &[of("10.8.0.0/22").between("10.8.0.0", "10.8.3.191")],
            json!({
                "range": "10.8.0.0/22", "exclude": ["10.8.3.192/26"], "node_slice_size": "/28",
                "network_name": "cut",
            }),
        ),
    ];
    assert_eq!(all.len(), NETWORKS);
    all
}
