//! The parts of `CNI_ARGS` that Whereabouts reads.

use std::collections::BTreeMap;

use tenure_ipam::{Address, Notation};

use super::{Refusal, StaticAddress};

/// The runtime's information about the pod, and requested addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// `K8S_POD_NAMESPACE`.
    pub pod_namespace: String,
    /// `K8S_POD_NAME`.
    pub pod_name: String,
    /// `K8S_POD_INFRA_CONTAINER_ID`.
    pub infra_container: String,
    /// `K8S_POD_UID`, if the runtime passes it.
    pub pod_uid: String,
    /// `IP`: addresses to pass on, with their prefix lengths.
    pub addresses: Vec<StaticAddress>,
    /// `GATEWAY`: each is the gateway of the addresses in whose network it lies.
    pub gateways: Vec<Address>,
}

const PAIRS: &str = "KEY=VALUE pairs separated by ';', of IP, GATEWAY, K8S_POD_NAME, K8S_POD_NAMESPACE, \
                     K8S_POD_INFRA_CONTAINER_ID and K8S_POD_UID; others with IgnoreUnknown=1";

impl Arguments {
    /// Parses the text of the variable.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut pairs = BTreeMap::new();
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some((key, value)) if !key.is_empty() => pairs.insert(key.to_owned(), value.to_owned()),
                _ => return Err(Refusal::new("CNI_ARGS", pair, "it is no pair", PAIRS)),
            };
        }
        Self::from_pairs(&pairs)
    }

    /// Reads the split variable.
    pub fn from_pairs(pairs: &BTreeMap<String, String>) -> Result<Self, Refusal> {
        let ignores = match pairs.get("IgnoreUnknown").map(|flag| flag.to_ascii_lowercase()).as_deref() {
            Some("1" | "true") => true,
            None | Some("" | "0" | "false") => false,
            Some(other) => {
                return Err(Refusal::new(
                    "CNI_ARGS IgnoreUnknown",
                    other,
                    "it is no boolean",
                    "1, true, 0 or false",
                ));
            }
        };
        let mut arguments = Self::default();
        for (key, value) in pairs {
            match key.as_str() {
                "IgnoreUnknown" => {}
                "K8S_POD_NAMESPACE" => arguments.pod_namespace.clone_from(value),
                "K8S_POD_NAME" => arguments.pod_name.clone_from(value),
                "K8S_POD_INFRA_CONTAINER_ID" => arguments.infra_container.clone_from(value),
                "K8S_POD_UID" => arguments.pod_uid.clone_from(value),
                "IP" => {
                    let address = |text| StaticAddress::parse("CNI_ARGS IP", text, "");
                    arguments.addresses = list(value).map(address).collect::<Result<_, _>>()?;
                }
                "GATEWAY" => {
                    let gateway = |text: &str| {
                        Notation::LeadingZeros
                            .address(text)
                            .map_err(|error| Refusal::parse("CNI_ARGS GATEWAY", text, &error))
                    };
                    arguments.gateways = list(value).map(gateway).collect::<Result<_, _>>()?;
                }
                _ if ignores => {}
                _ => return Err(Refusal::new("CNI_ARGS", key, "no such key is known", PAIRS)),
            }
        }
        Ok(arguments)
    }
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|text| !text.is_empty())
}
