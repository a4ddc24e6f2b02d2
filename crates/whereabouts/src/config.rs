//! The effective configuration of a network: what the CNI configuration, the flat file and `CNI_ARGS` say together.
//!
//! The network's own configuration wins, the flat file fills what it leaves out, and what nobody says has Whereabouts'
//! default. Whatever is wrong is refused here, at once, with the key, the value and what would be accepted; what is
//! accepted without meaning anything to us is listed in [`Config::notices`], so that nothing is ignored in silence.
//!
//! The flat file is optional with us. Reading it is the caller's: [`places::flat_files`] says where.

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

/// The pod annotation that names the address a pod would like to have.
pub const PREFERRED_IP: &str = "whereabouts.cni.cncf.io/preferred-ip";

/// What is to be done for one network.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The version that results are asked for in.
    pub version: Version,
    /// The CNI configuration's `name`.
    pub name: String,
    /// `network_name`: addresses are unique within it. Empty for the one that has no name.
    pub network: String,
    /// One address is held of each, in this order: `range` first, then those of `ipRanges`.
    pub ranges: Vec<RangeConfig>,
    /// Addresses that are passed on and not kept track of.
    pub statics: Vec<StaticAddress>,
    /// The gateway of every held address of its family.
    pub gateway: Option<Address>,
    /// Passed on.
    pub routes: Vec<Route>,
    /// Passed on.
    pub dns: Dns,
    /// `node_slice_size` as it was written; empty without slices.
    pub slice_size: String,
    /// Whether an address is held once in all ranges of the network, and not only once in each.
    pub overlapping: bool,
    /// `kubernetes.kubeconfig`; empty without a flat file, when the agent's own access is used.
    pub kubeconfig: String,
    /// `configuration_path`.
    pub configuration_path: String,
    /// `log_file`.
    pub log_file: String,
    /// `log_level`, in lower case; empty when nobody says.
    pub log_level: String,
    /// What was asked of a lease that we do not take: duration, renewal deadline, retry period, in milliseconds.
    pub lease_ms: [u64; 3],
    /// Who asks.
    pub arguments: Arguments,
    /// What was accepted and means nothing, or less than it seems to.
    pub notices: Vec<Notice>,
}

impl Config {
    /// The effective configuration. `network` is what came on standard input; `flat` is the flat file, if there is one.
    pub fn load(network: &Value, flat: Option<&Value>, arguments: &Arguments) -> Result<Self, ConfigError> {
        let network = attachment::network_of(network)?;
        load::load(&network, flat, arguments)
    }

    /// The pod as records name it: `namespace/name`.
    pub fn podref(&self) -> String {
        format!("{}/{}", self.arguments.pod_namespace, self.arguments.pod_name)
    }

    /// The pod as records name it, if the runtime said which it is: an ADD needs that.
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

    /// What is answered to an ADD that was given these addresses, one of each range and in their order.
    pub fn result(&self, held: &[Address]) -> CniResult {
        let dynamic = self.ranges.iter().zip(held).map(|(range, address)| tenure_cni::Address {
            // Of the whole range, also in a slice: that is what is reached without a router.
            address: format!("{address}/{}", range.cidr().prefix()),
            gateway: self.gateway.filter(|gateway| gateway.family() == address.family()).map(Address::to_ip),
            interface: None,
        });
        let mut ips: Vec<tenure_cni::Address> =
            dynamic.chain(self.statics.iter().copied().map(StaticAddress::to_result)).collect();
        if self.version < Version::V0_3_0 {
            // Room for one a family: the first, as Whereabouts has it.
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

    /// The addresses of the annotation [`PREFERRED_IP`], one for each range that has one of them. It is a wish: what is
    /// taken gives way to the lowest free, and what is in no range is meant for another network of the pod.
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

    /// Whether any range is of this family.
    pub(crate) fn has_family(&self, family: Family) -> bool {
        self.ranges.iter().any(|range| range.range.family() == family)
    }
}

/// JSON objects as they are passed around here.
pub(crate) type Object = Map<String, Value>;

#[cfg(test)]
mod tests;
