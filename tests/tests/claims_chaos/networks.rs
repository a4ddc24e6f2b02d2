//! The networks that claims and pods are on: a routed one, a range of an Ethernet segment, and one that is cut into slices.

use std::net::IpAddr;

use serde_json::{Value, json};

/// Where pods and claims are.
pub const NAMESPACE: &str = "default";

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    /// The cluster's default network: blocks of a pool.
    Routed,
    /// One range for all nodes.
    Shared,
    /// Each node has slices of the range.
    Sliced,
}

impl Network {
    pub const ALL: [Self; 3] = [Self::Routed, Self::Shared, Self::Sliced];

    pub fn name(self) -> &'static str {
        match self {
            Self::Routed => "k8s",
            Self::Shared => "shared",
            Self::Sliced => "sliced",
        }
    }

    /// The name of its interfaces in pods.
    pub fn interface(self) -> &'static str {
        if self == Self::Routed { "eth0" } else { "net1" }
    }

    fn third(self) -> u8 {
        match self {
            Self::Routed => 64,
            Self::Shared => 97,
            Self::Sliced => 98,
        }
    }

    /// Its configuration.
    pub fn config(self) -> Value {
        let mut config = json!({"cniVersion": "1.1.0", "name": self.name(), "allowPersistentIPs": true});
        if self == Self::Routed {
            config["type"] = json!("tenure");
            return config;
        }
        let third = self.third();
        let ranges = json!([
            {"range": format!("10.{third}.0.0/24"), "exclude": [format!("10.{third}.0.240/28")]},
            {"range": format!("fd{third}::/120"), "exclude": [format!("fd{third}::f0/124")]},
        ]);
        config["cniVersion"] = json!("1.0.0");
        config["type"] = json!("macvlan");
        config["master"] = json!("uplink");
        config["mode"] = json!("bridge");
        config["ipam"] = json!({"type": "whereabouts", "ipRanges": ranges});
        if self == Self::Sliced {
            config["ipam"]["node_slice_size"] = json!("/28");
        }
        config
    }

    /// The addresses of a host on it, by the host's number; none where hosts route.
    pub fn of_host(self, number: usize) -> Vec<String> {
        let third = self.third();
        match self {
            Self::Routed => Vec::new(),
            _ => vec![format!("10.{third}.0.{}/24", 241 + number), format!("fd{third}::f{}/120", 1 + number)],
        }
    }

    /// One of the few addresses that claims wish for; none is the first of its slice, which is nobody's.
    pub fn wish(self, number: usize) -> IpAddr {
        let third = self.third();
        let address = match self {
            Self::Routed => format!("10.{third}.2.{number}"),
            _ => format!("10.{third}.0.{}", 177 + number),
        };
        address.parse().unwrap()
    }

    /// A wished address as it is in a status, alone.
    pub fn imported(self, wish: IpAddr) -> String {
        format!("{wish}/{}", if self == Self::Routed { 32 } else { 24 })
    }

    /// What a pod says to be on it, with a claim or without.
    pub fn annotations(self, claim: Option<&str>) -> Value {
        if self == Self::Routed {
            return claim.map_or(json!({}), |claim| json!({"tenure/claim": claim}));
        }
        let mut selection =
            json!({"name": self.name(), "namespace": NAMESPACE, "interface": self.interface()});
        if let Some(claim) = claim {
            selection["ipam-claim-reference"] = json!(claim);
        }
        json!({"k8s.v1.cni.cncf.io/networks": json!([selection]).to_string()})
    }

    /// What is written on a pod once it has its addresses.
    pub fn status(self, addresses: &[IpAddr]) -> Value {
        let status = json!([{
            "name": self.name(), "interface": self.interface(), "ips": addresses, "default": self == Self::Routed,
        }]);
        json!({"k8s.v1.cni.cncf.io/network-status": status.to_string()})
    }
}
