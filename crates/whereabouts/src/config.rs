//! The effective configuration of a network: CNI configuration, flat file and `CNI_ARGS` combined.
//!
//! The network's own configuration wins, the flat file fills in what it leaves out, and the rest has
//! Whereabouts' defaults. Anything wrong is refused here, at once, with the key, the value and what would be
//! accepted. Accepted settings without effect are listed in [`Config::notices`], so that nothing is ignored
//! silently.
//!
//! The flat file is optional. The caller reads it: [`places::flat_files`] says from where.

use serde_json::{Map, Value};
use tenure_cni::{CniResult, Dns, Route, Version};
use tenure_ipam::{Address, Family};

mod arguments;
mod attachment;
mod keys;
mod load;
pub mod places;
mod range;
mod refusal;
mod statics;

pub use arguments::Arguments;
pub use attachment::networks_of;
pub use range::{MOST_SLICES, RangeConfig};
pub use refusal::{ConfigError, Notice, Refusal};
pub use statics::StaticAddress;

/// The pod annotation with the address that a pod prefers.
pub const PREFERRED_IP: &str = "whereabouts.cni.cncf.io/preferred-ip";

/// The effective configuration of one network.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The version of the results.
    pub version: Version,
    /// The CNI configuration's `name`.
    pub name: String,
    /// `network_name`: addresses are unique within it. Empty for the network without a name.
    pub network: String,
    /// One address is held from each, in this order: `range` first, then those of `ipRanges`.
    pub ranges: Vec<RangeConfig>,
    /// Addresses that are passed on without a record.
    pub statics: Vec<StaticAddress>,
    /// The gateway of every held address of its family.
    pub gateway: Option<Address>,
    /// Passed on unchanged.
    pub routes: Vec<Route>,
    /// Passed on unchanged.
    pub dns: Dns,
    /// `node_slice_size` as written; empty without slices.
    pub slice_size: String,
    /// Whether an address is held once in all ranges of the network, and not only once in each.
    pub overlapping: bool,
    /// `kubernetes.kubeconfig`; empty without a flat file, when the agent's own access is used.
    pub kubeconfig: String,
    /// `configuration_path`.
    pub configuration_path: String,
    /// `log_file`.
    pub log_file: String,
    /// `log_level`, in lower case; empty if unset.
    pub log_level: String,
    /// The settings of a lease that we do not take: duration, renewal deadline, retry period, in
    /// milliseconds.
    pub lease_ms: [u64; 3],
    /// The caller.
    pub arguments: Arguments,
    /// Accepted settings that have no effect, or less than it seems.
    pub notices: Vec<Notice>,
}

impl Config {
    /// The effective configuration. `network` is the standard input; `flat` is the flat file, if there is
    /// one.
    pub fn load(network: &Value, flat: Option<&Value>, arguments: &Arguments) -> Result<Self, ConfigError> {
        let network = attachment::network_of(network)?;
        load::load(&network, flat, arguments)
    }

    /// The pod as in records: `namespace/name`.
    pub fn podref(&self) -> String {
        format!("{}/{}", self.arguments.pod_namespace, self.arguments.pod_name)
    }

    /// The pod as in records, if the runtime named it: an ADD needs it.
    pub fn pod(&self) -> Result<String, Refusal> {
        if self.arguments.pod_name.is_empty() {
            return Err(Refusal::new(
                "CNI_ARGS K8S_POD_NAME",
                "",
                "no pod name: an address is held for a pod",
                "K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod",
            ));
        }
        Ok(self.podref())
    }

    /// Whether each node has slices of the ranges.
    pub fn is_sliced(&self) -> bool {
        self.ranges.iter().any(|range| range.slices.is_some())
    }

    /// The result of an ADD that got these addresses, one from each range in their order.
    pub fn result(&self, held: &[Address]) -> CniResult {
        let dynamic = self.ranges.iter().zip(held).map(|(range, address)| tenure_cni::Address {
            // The prefix of the whole range, even for a slice: that is what can be reached without a router.
            address: format!("{address}/{}", range.cidr().prefix()),
            gateway: self.gateway.filter(|gateway| gateway.family() == address.family()).map(Address::to_ip),
            interface: None,
        });
        let mut ips: Vec<tenure_cni::Address> =
            dynamic.chain(self.statics.iter().copied().map(StaticAddress::to_result)).collect();
        if self.version < Version::V0_3_0 {
            // Room for one per family: the first, as in Whereabouts.
            let mut seen = Vec::new();
            ips.retain(|ip| {
                let ipv6 = ip.address.contains(':');
                let first = !seen.contains(&ipv6);
                seen.push(ipv6);
                first
            });
        }
        CniResult { interfaces: Vec::new(), ips, routes: self.routes.clone(), dns: self.dns.clone() }
    }

    /// The addresses of the annotation [`PREFERRED_IP`], one for each range that contains one of them. They
    /// are a preference: if one is taken, the lowest free address is assigned; one outside all ranges is
    /// meant for another network of the pod.
    pub fn preferred(&self, annotation: &str) -> Result<Vec<Option<Address>>, Refusal> {
        let mut wishes = vec![None; self.ranges.len()];
        for text in annotation.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let address = tenure_ipam::Notation::Strict
                .address(text)
                .map_err(|error| Refusal::parse(&format!("annotation {PREFERRED_IP}"), annotation, &error))?;
            let mut ranges = self.ranges.iter().zip(&mut wishes);
            let place = ranges.find(|(range, wish)| wish.is_none() && range.range.contains(address));
            if let Some((_, wish)) = place {
                *wish = Some(address);
            }
        }
        Ok(wishes)
    }

    /// Whether any range has this family.
    pub(crate) fn has_family(&self, family: Family) -> bool {
        self.ranges.iter().any(|range| range.range.family() == family)
    }
}

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

#[cfg(test)]
mod tests;
