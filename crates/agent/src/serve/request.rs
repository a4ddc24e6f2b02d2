//! From what the runtime said to what the node is asked.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use tenure_cni::{Code, Failure, NetworkConfig, rpc};
use tenure_ipam::Address;

use crate::key::{HoldKey, Pod};
use crate::node::{Attach, Wiring, Wish};

/// The names that the plugin is called by, as main plugin and for addresses alone.
const OURS: [&str; 2] = ["tenure", "coil"];

/// A pod, as its runtime names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, where the runtime knows it.
    pub uid: String,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The pod, where the runtime serves Kubernetes.
    pub pod: Option<PodName>,
    /// The pool that the network's configuration names. It is the administrator's word, not the pod's.
    pub pool: Option<String>,
}

/// Knows which pool a pod's addresses come from.
pub trait Resolve: Send + Sync + 'static {
    /// The pool, and the pod as it is to be remembered; or why there is none.
    fn resolve(&self, asked: Asked) -> impl Future<Output = Result<(String, Pod), Failure>> + Send;
}

/// A call, read.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) config: NetworkConfig,
    /// Whether it is for addresses alone, and somebody else makes the interface.
    pub(super) addresses_only: bool,
    pub(super) call: rpc::Call,
}

impl Request {
    /// Reads a call; refuses one that is not for us.
    pub(super) fn read(config: NetworkConfig, call: rpc::Call) -> Result<Self, Failure> {
        let ours = |name: &str| OURS.contains(&name);
        let addresses_only = !ours(&config.plugin);
        if addresses_only && !config.ipam.as_deref().is_some_and(ours) {
            let ipam = config.ipam.as_deref().unwrap_or_default();
            let message = format!("type is {:?} and ipam.type is {ipam:?}", config.plugin);
            return Err(invalid(message).detail(
                "accepted is \"tenure\" or \"coil\" as one of them, or \"whereabouts\" as ipam.type",
            ));
        }
        Ok(Self { config, addresses_only, call })
    }

    /// The key of the hold that the call is about.
    pub(super) fn key(&self) -> Result<HoldKey, Failure> {
        key(&self.config, &self.call)
    }

    /// What pool and pod depend on.
    pub(super) fn asked(&self) -> Result<Asked, Failure> {
        let pool = match self.field("pool") {
            None | Some(Value::Null) => None,
            Some(Value::String(pool)) => Some(pool.clone()),
            Some(other) => return Err(invalid(format!("pool is {other}")).detail("accepted is a string")),
        };
        Ok(Asked { pod: pod_name(&self.call.args)?, pool })
    }

    /// All that the node needs for an ADD or a CHECK.
    pub(super) fn attach(&self, pool: String, pod: Pod) -> Result<Attach, Failure> {
        let wiring = if self.addresses_only { None } else { Some(self.wiring()?) };
        Ok(Attach {
            key: self.key()?,
            pool,
            pod,
            netns: self.call.netns.clone(),
            wiring,
            wish: Wish::default(),
            guest: None,
        })
    }

    /// An ADD that comes after another main plugin has nothing to do here.
    pub(super) fn refuse_chain(&self) -> Result<(), Failure> {
        if self.addresses_only || self.config.previous.is_none() {
            return Ok(());
        }
        let message =
            format!("prevResult is set: another plugin of network {:?} made an interface", self.config.name);
        Err(invalid(message).detail(
            "accepted is \"tenure\" as the first plugin of the list, or as \"ipam\": {\"type\": \"tenure\"} of another",
        ))
    }

    /// The addresses that the result of the ADD had.
    pub(super) fn expected(&self) -> Vec<Address> {
        expected(&self.config)
    }

    /// Who is alive, for a GC.
    pub(super) fn alive(&self) -> Result<BTreeSet<(String, String)>, Failure> {
        alive(&self.config)
    }

    /// A field of our own part of the configuration.
    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        let part = if self.addresses_only { self.config.json.get("ipam")? } else { &self.config.json };
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
        Ok(Wiring { netns: self.call.netns.clone(), mtu, mac: self.mac()? })
    }

    /// The Ethernet address that the runtime asks for, in one of the three ways that there are.
    fn mac(&self) -> Result<Option<String>, Failure> {
        const PLACES: [&[&str]; 2] = [&["runtimeConfig"], &["args", "cni"]];
        for place in PLACES {
            let part = place.iter().try_fold(&self.config.json, |part, name| part.get(name));
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
        Ok(self.call.args.get("MAC").filter(|mac| !mac.is_empty()).cloned())
    }
}

/// The pod that `CNI_ARGS` names. Half a name is a mistake.
fn pod_name(args: &HashMap<String, String>) -> Result<Option<PodName>, Failure> {
    let arg = |name: &str| args.get(name).filter(|value| !value.is_empty()).cloned();
    match (arg("K8S_POD_NAMESPACE"), arg("K8S_POD_NAME")) {
        (None, None) => Ok(None),
        (Some(namespace), Some(name)) => {
            Ok(Some(PodName { namespace, name, uid: arg("K8S_POD_UID").unwrap_or_default() }))
        }
        (namespace, _) => {
            let missing = if namespace.is_none() { "K8S_POD_NAMESPACE" } else { "K8S_POD_NAME" };
            let message = format!("CNI_ARGS has no {missing}");
            let accepted = "accepted are both K8S_POD_NAMESPACE and K8S_POD_NAME, or neither";
            Err(Failure::new(Code::InvalidEnvironment, message).detail(accepted))
        }
    }
}

/// The key of the hold that a call is about.
pub(super) fn key(config: &NetworkConfig, call: &rpc::Call) -> Result<HoldKey, Failure> {
    if config.name.is_empty() {
        let failure = invalid("the network configuration has no name");
        return Err(failure.detail("accepted is a name that is the same for ADD, CHECK and DEL"));
    }
    HoldKey::new(config.name.clone(), call.container_id.clone(), call.ifname.clone())
        .map_err(|error| Failure::new(Code::InvalidEnvironment, error.to_string()))
}

/// The addresses that the result of the ADD had.
pub(super) fn expected(config: &NetworkConfig) -> Vec<Address> {
    let previous = config.previous.iter().flat_map(|result| &result.ips);
    let text = previous.map(|ip| ip.address.split('/').next().unwrap_or_default());
    text.filter_map(|address| address.parse().ok()).collect()
}

/// Who is alive, for a GC.
pub(super) fn alive(config: &NetworkConfig) -> Result<BTreeSet<(String, String)>, Failure> {
    // Not to know who is alive does not mean that nobody is.
    let Some(attachments) = &config.attachments else {
        return Err(
            invalid("cni.dev/valid-attachments is missing").detail("accepted is a list, also an empty one")
        );
    };
    Ok(attachments.iter().map(|it| (it.container_id.clone(), it.ifname.clone())).collect())
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(more: &str, args: &[(&str, &str)]) -> Result<Option<String>, Failure> {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"k8s","type":"tenure"{more}}}"#);
        let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let call = rpc::Call { args, ..rpc::Call::default() };
        Request::read(NetworkConfig::parse(text.as_bytes()).unwrap(), call).unwrap().mac()
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
