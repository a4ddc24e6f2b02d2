//! From the runtime's call to the request to the node.

use serde_json::Value;
use tenure_cni::{Code, Failure, NetworkConfig};

use crate::key::Pod;
use crate::node::{Attach, Wiring, Wish};
use crate::serve::{Call, PodName};

/// The plugin's names, as main plugin and for addresses alone.
const OURS: [&str; 2] = ["tenure", "coil"];

/// The inputs that determine the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The pod, if the runtime serves Kubernetes.
    pub pod: Option<PodName>,
    /// The pool that the network's configuration names. The administrator decides this, not the pod.
    pub pool: Option<String>,
}

/// Finds the pool of a pod's addresses.
pub trait Resolve: std::fmt::Debug + Send + Sync + 'static {
    /// The pool, and the pod as it is recorded; or why there is none.
    fn resolve(&self, asked: Asked) -> impl Future<Output = Result<(String, Pod), Failure>> + Send;
}

/// A parsed call.
#[derive(Debug)]
pub(super) struct Request<'c> {
    pub(super) call: &'c Call<'c>,
    /// Whether it is for addresses alone, and another plugin creates the interface.
    pub(super) addresses_only: bool,
}

/// Whether a configuration belongs to this dialect.
pub(super) fn is_ours(network: &NetworkConfig) -> bool {
    is_main(network) || network.ipam.as_deref().is_some_and(|name| OURS.contains(&name))
}

fn is_main(network: &NetworkConfig) -> bool {
    OURS.contains(&network.plugin.as_str())
}

impl<'c> Request<'c> {
    /// Parses a call that belongs to this dialect.
    pub(super) fn read(call: &'c Call<'c>) -> Self {
        Self { call, addresses_only: !is_main(call.network) }
    }

    /// The inputs that determine pool and pod.
    pub(super) fn asked(&self) -> Result<Asked, Failure> {
        let pool = match self.field("pool") {
            None | Some(Value::Null) => None,
            Some(Value::String(pool)) => Some(pool.clone()),
            Some(other) => return Err(invalid(format!("pool is {other}")).detail("accepted is a string")),
        };
        Ok(Asked { pod: self.call.pod_name()?, pool })
    }

    /// Everything that the node needs for an ADD or a CHECK.
    pub(super) fn attach(&self, pool: String, pod: Pod) -> Result<Attach, Failure> {
        let wiring = if self.addresses_only { None } else { Some(self.wiring()?) };
        Ok(Attach {
            key: self.call.key()?,
            pool,
            pod,
            netns: self.call.message.netns.clone(),
            wiring,
            wish: Wish::default(),
            claim_use: None,
        })
    }

    /// Refuses an ADD after another main plugin.
    pub(super) fn refuse_chain(&self) -> Result<(), Failure> {
        if self.addresses_only || self.call.network.previous.is_none() {
            return Ok(());
        }
        let message = format!(
            "prevResult is set: another plugin of network {:?} made an interface",
            self.call.network.name
        );
        Err(invalid(message).detail(
            "accepted is \"tenure\" as the first plugin of the list, or as \"ipam\": {\"type\": \"tenure\"} of another",
        ))
    }

    /// A field of our own part of the configuration.
    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        let part =
            if self.addresses_only { self.call.network.json.get("ipam")? } else { &self.call.network.json };
        part.get(name)
    }

    fn wiring(&self) -> Result<Wiring, Failure> {
        let mtu = match self.field("mtu") {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_u64().and_then(|mtu| u32::try_from(mtu).ok()) {
                Some(0) => None,
                Some(mtu) => Some(mtu),
                None => return Err(invalid(format!("mtu is {value}")).detail("accepted is a number")),
            },
        };
        Ok(Wiring { netns: self.call.message.netns.clone(), mtu, mac: self.mac()? })
    }

    /// The MAC address that the runtime asks for, in one of the three possible ways.
    fn mac(&self) -> Result<Option<String>, Failure> {
        const PLACES: [&[&str]; 2] = [&["runtimeConfig"], &["args", "cni"]];
        for place in PLACES {
            let part = place.iter().try_fold(&self.call.network.json, |part, name| part.get(name));
            match part.and_then(|part| part.get("mac")) {
                None | Some(Value::Null) => {}
                Some(Value::String(mac)) if mac.is_empty() => {}
                Some(Value::String(mac)) => return Ok(Some(mac.clone())),
                Some(other) => {
                    let message = format!("{}.mac is {other}", place.join("."));
                    return Err(invalid(message)
                        .detail("accepted is a unicast Ethernet address such as \"0a:00:00:00:00:01\""));
                }
            }
        }
        Ok(self.call.message.args.get("MAC").filter(|mac| !mac.is_empty()).cloned())
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::NodeChannel;

    fn mac(more: &str, args: &[(&str, &str)]) -> Result<Option<String>, Failure> {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"k8s","type":"tenure"{more}}}"#);
        let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let call = tenure_cni::rpc::Call { args, ..tenure_cni::rpc::Call::default() };
        let (network, node) = (NetworkConfig::parse(text.as_bytes()).unwrap(), NodeChannel::new().handle());
        Request::read(&Call::new(&node, &network, &call)).mac()
    }

    #[test]
    fn an_ethernet_address_is_asked_for_in_three_ways_and_the_first_counts() {
        let (runtime, args) = (
            r#","runtimeConfig":{"mac":"02:00:00:00:00:01"}"#,
            r#","args":{"cni":{"mac":"02:00:00:00:00:02"}}"#,
        );
        let environment = [("MAC", "02:00:00:00:00:03")];
        let asked = |more: &str| mac(more, &environment).unwrap().unwrap();
        assert_eq!(asked(&format!("{runtime}{args}")), "02:00:00:00:00:01");
        assert_eq!(asked(args), "02:00:00:00:00:02");
        assert_eq!(asked(r#","runtimeConfig":{"mac":""},"args":{"cni":{"mac":null}}"#), "02:00:00:00:00:03");
        assert_eq!(mac(r#","runtimeConfig":[],"args":{}"#, &[]), Ok(None));
    }

    #[test]
    fn what_cannot_be_one_is_named_with_its_place() {
        let refused = mac(r#","args":{"cni":{"mac":7}}"#, &[]).unwrap_err();
        assert!(refused.to_string().contains("args.cni.mac is 7"), "{refused}");
        let refused = mac(r#","runtimeConfig":{"mac":{}}"#, &[]).unwrap_err();
        assert!(refused.to_string().contains("runtimeConfig.mac is {}"), "{refused}");
    }
}
