//! The result of an ADD, and its format in each version of the specification.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::{Code, Failure};
use crate::version::Version;

/// The result of an ADD, in the newest format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniResult {
    /// Interfaces, in the order that `ips` refers to. An IPAM plugin has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Address>,
    /// Routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

/// A created interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Its MTU (since 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The namespace it is in; empty on the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Other fields: socketPath, pciID.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// An assigned address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// In CIDR form.
    pub address: String,
    /// Its gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The index of its interface in `interfaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination, in CIDR form.
    pub dst: String,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Other fields (since 1.1.0): mtu, advmss, priority, table, scope.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Name servers and search domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    /// Whether all fields are empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Address {
    fn is_ipv6(&self) -> bool {
        self.address.contains(':')
    }
}

impl CniResult {
    /// The result in the format of `version`. Only 0.1.0 and 0.2.0, which have room for one address per
    /// family, can fail.
    pub fn to_json(&self, version: Version) -> Result<Value, Failure> {
        let mut json =
            if version <= Version::V0_2_0 { self.to_one_a_family()? } else { self.to_lists(version) };
        json["cniVersion"] = json!(version.as_str());
        Ok(json)
    }

    fn to_lists(&self, version: Version) -> Value {
        let mut result = self.clone();
        if version < Version::V1_1_0 {
            result.interfaces.iter_mut().for_each(|interface| interface.mtu = None);
            result.routes.iter_mut().for_each(|route| route.more.clear());
        }
        let mut json = json!(result);
        if version < Version::V1_0_0
            && let Some(ips) = json.get_mut("ips").and_then(Value::as_array_mut)
        {
            for (ip, address) in ips.iter_mut().zip(&self.ips) {
                ip["version"] = json!(if address.is_ipv6() { "6" } else { "4" });
            }
        }
        json
    }

    /// The format of 0.1.0 and 0.2.0: `ip4` and `ip6`, each with its routes.
    fn to_one_a_family(&self) -> Result<Value, Failure> {
        let mut json = json!({ "dns": self.dns });
        for (key, ipv6) in [("ip4", false), ("ip6", true)] {
            let mut of_family = self.ips.iter().filter(|address| address.is_ipv6() == ipv6);
            let Some(address) = of_family.next() else { continue };
            if let Some(second) = of_family.next() {
                let message = format!("the result has a second address of its family, {}", second.address);
                return Err(Failure::new(Code::IncompatibleVersion, message)
                    .detail("cniVersion 0.3.0 or newer has room for more than one"));
            }
            let routes: Vec<Route> = self
                .routes
                .iter()
                .filter(|route| route.dst.contains(':') == ipv6)
                .map(|route| Route { more: Map::new(), ..route.clone() })
                .collect();
            json[key] = json!({ "ip": address.address });
            if let Some(gateway) = address.gateway {
                json[key]["gateway"] = json!(gateway);
            }
            if !routes.is_empty() {
                json[key]["routes"] = json!(routes);
            }
        }
        Ok(json)
    }

    /// Reads a result of an earlier plugin, from 0.3.0 on, where the lists have the newest format except for
    /// the family.
    pub fn from_json(json: &Value) -> Result<Self, Failure> {
        Self::deserialize(json).map_err(|error| {
            Failure::new(Code::Decoding, format!("prevResult is no CNI result: {error}"))
                .detail("accepted is a result of cniVersion 0.3.0 or newer")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> CniResult {
        let address = |address: &str, gateway: &str| Address {
            address: address.into(),
            gateway: gateway.parse().ok(),
            interface: Some(0),
        };
        let route = |dst: &str| Route {
            dst: dst.into(),
            gw: None,
            more: json!({"mtu": 1400}).as_object().unwrap().clone(),
        };
        CniResult {
            interfaces: vec![Interface {
                name: "eth0".into(),
                mac: "0a:58:0a:40:00:01".into(),
                mtu: Some(1500),
                sandbox: "/run/netns/x".into(),
                more: Map::new(),
            }],
            ips: vec![address("10.64.0.1/32", "169.254.1.1"), address("fd64::1/128", "fe80::1")],
            routes: vec![route("0.0.0.0/0"), route("::/0")],
            dns: Dns::default(),
        }
    }

    #[test]
    fn versions_before_1_0_0_say_the_family_of_an_address() {
        for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
            let json = result().to_json(version).unwrap();
            assert_eq!((&json["ips"][0]["version"], &json["ips"][1]["version"]), (&json!("4"), &json!("6")));
            assert_eq!(json["cniVersion"], version.as_str());
        }
        assert!(result().to_json(Version::V1_0_0).unwrap()["ips"][0].get("version").is_none());
    }

    #[test]
    fn what_came_with_1_1_0_is_left_out_before_it() {
        let (old, new) =
            (result().to_json(Version::V1_0_0).unwrap(), result().to_json(Version::V1_1_0).unwrap());
        assert_eq!((old["interfaces"][0].get("mtu"), old["routes"][0].get("mtu")), (None, None));
        assert_eq!((&new["interfaces"][0]["mtu"], &new["routes"][0]["mtu"]), (&json!(1500), &json!(1400)));
    }

    #[test]
    fn the_first_versions_have_one_address_a_family() {
        let json = result().to_json(Version::V0_2_0).unwrap();
        assert_eq!(
            json["ip4"],
            json!({"ip": "10.64.0.1/32", "gateway": "169.254.1.1", "routes": [{"dst": "0.0.0.0/0"}]})
        );
        assert_eq!(json["ip6"]["ip"], "fd64::1/128");
        let mut two = result();
        two.ips.push(two.ips[0].clone());
        assert_eq!(two.to_json(Version::V0_2_0).unwrap_err().code, 1);
    }

    #[test]
    fn a_result_of_every_list_version_reads_back() {
        for version in Version::ALL.into_iter().filter(|version| *version >= Version::V0_3_0) {
            let read = CniResult::from_json(&result().to_json(version).unwrap()).unwrap();
            assert_eq!(read.ips, result().ips, "{version:?}");
        }
    }
}
