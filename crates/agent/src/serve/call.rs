//! A call as a dialect sees it: its input, and access to this node's holds.

use std::collections::BTreeSet;
use std::sync::Mutex;

use tenure_cni::{Code, Failure, NetworkConfig, rpc};
use tenure_ipam::{Address, Addresses, Subnet};
use tracing::warn;

use crate::drive::Handle;
use crate::key::HoldKey;
use crate::node::{Attach, CallError, Done, Event, Link};
use crate::objects::lock;

/// A pod as the runtime names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, if the runtime knows it.
    pub uid: String,
}

/// A call for a dialect.
#[derive(Debug)]
pub struct Call<'c> {
    /// The handle to the node.
    pub node: &'c Handle,
    /// The network's configuration.
    pub network: &'c NetworkConfig,
    /// The call as it came.
    pub message: &'c rpc::Call,
    /// What this call newly holds.
    given: Mutex<Vec<Given>>,
}

/// A part of the call's key, and whether it has an interface of ours.
#[derive(Clone, Copy, Debug)]
struct Given {
    part: u32,
    interface: bool,
}

/// What the node holds for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The addresses.
    pub addresses: Addresses,
    /// The networks of their block, if they are from a block.
    pub subnet: Option<Subnet>,
    /// The interface, if the node created one.
    pub link: Option<Link>,
}

impl<'c> Call<'c> {
    /// A call.
    pub fn new(node: &'c Handle, network: &'c NetworkConfig, message: &'c rpc::Call) -> Self {
        Self { node, network, message, given: Mutex::default() }
    }

    /// The key that the call is about.
    pub fn key(&self) -> Result<HoldKey, Failure> {
        if self.network.name.is_empty() {
            let failure = Failure::new(Code::InvalidConfig, "the network configuration has no name");
            return Err(failure.detail("accepted is a name that is the same for ADD, CHECK and DEL"));
        }
        let (container, interface) = (&self.message.container_id, &self.message.ifname);
        HoldKey::new(self.network.name.clone(), container.clone(), interface.clone())
            .map_err(|error| Failure::new(Code::InvalidEnvironment, error.to_string()))
    }

    /// The pod that `CNI_ARGS` names. Only one of namespace and name is an error.
    pub fn pod_name(&self) -> Result<Option<PodName>, Failure> {
        let arg = |name: &str| self.message.args.get(name).filter(|value| !value.is_empty()).cloned();
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

    /// The addresses in the result of the ADD.
    pub fn expected(&self) -> Vec<Address> {
        let previous = self.network.previous.iter().flat_map(|result| &result.ips);
        let text = previous.map(|ip| ip.address.split('/').next().unwrap_or_default());
        text.filter_map(|address| address.parse().ok()).collect()
    }

    /// The live containers and their interfaces, for a GC.
    pub fn alive(&self) -> Result<BTreeSet<(String, String)>, Failure> {
        // A missing list does not mean that nothing is alive.
        let Some(attachments) = &self.network.attachments else {
            let failure = Failure::new(Code::InvalidConfig, "cni.dev/valid-attachments is missing");
            return Err(failure.detail("accepted is a list, also an empty one"));
        };
        Ok(attachments.iter().map(|it| (it.container_id.clone(), it.ifname.clone())).collect())
    }

    /// Holds addresses under the call's key, or a part of it. If the ADD fails afterwards, new holds are
    /// released.
    pub async fn hold(&self, attach: Attach) -> Result<Held, Failure> {
        Ok(self.try_hold(attach).await??)
    }

    /// The same, for dialects with their own words for the node's errors.
    pub(crate) async fn try_hold(&self, attach: Attach) -> Result<Result<Held, CallError>, Failure> {
        let given = Given { part: attach.key.part_number(), interface: attach.wiring.is_some() };
        match self.node.call(move |ticket| Event::Add { ticket, attach }).await {
            Ok(Done::Added { addresses, subnet, link, new }) => {
                if new {
                    lock(&self.given).push(given);
                }
                Ok(Ok(Held { addresses, subnet, link }))
            }
            Err(error) => Ok(Err(error)),
            Ok(_) => Err(Failure::new(Code::Internal, "the node answered something else than was asked")),
        }
    }

    /// Checks that the node holds these addresses for an ADD like this one, and inspects the interface if it
    /// is ours.
    pub async fn inspect(&self, attach: Attach, expected: Vec<Address>) -> Result<(), Failure> {
        self.node.call(move |ticket| Event::Check { ticket, attach, expected }).await?;
        Ok(())
    }

    /// Ends all holds under the call's key, in however many parts, and returns how many there were.
    pub async fn release(&self) -> Result<usize, Failure> {
        let key = self.key()?;
        match self.node.call(move |ticket| Event::Detach { ticket, key }).await? {
            Done::Swept(count) => Ok(count),
            _ => Err(Failure::new(Code::Internal, "the node answered something else than was asked")),
        }
    }

    /// Ends all holds of the network except those of live containers.
    pub async fn collect(&self) -> Result<(), Failure> {
        let (network, alive) = (self.network.name.clone(), self.alive()?);
        self.node.call(move |ticket| Event::Gc { ticket, network, alive }).await?;
        Ok(())
    }

    /// Releases the new holds of a failed ADD. Earlier holds stay.
    pub(super) async fn take_back(&self) {
        let given = std::mem::take(&mut *lock(&self.given));
        for Given { part, interface } in given {
            let Ok(key) = self.key() else { return };
            let key = key.part(part);
            let taken_back = self.node.call(move |ticket| Event::Del { ticket, key, interface }).await;
            if let Err(error) = taken_back {
                let problem = Failure::from(error);
                warn!(%problem, "cannot release a hold of a failed ADD");
            }
        }
    }
}
