//! A dialect that is not the agent's own: one address, which the network's configuration names.
//!
//! ```json
//! {"cniVersion": "1.1.0", "name": "lab", "type": "bridge", "ipam": {"type": "tenure-fixed", "address": "192.0.2.7/32"}}
//! ```
//!
//! A pod may name another address in its annotation [`ANNOTATION`]. One container at a time has an address. The node's journal
//! knows who, so the dialect remembers nothing itself.
//!
//! [`FixedPart`] brings the dialect into an agent, with a source of blocks that has none, what it keeps of pods, and a metric.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tenure_agent::node::view::Who;
use tenure_agent::node::{Action, Attach, ClaimUse, Event, Node, Wish};
use tenure_agent::part::{Core, Inspect, Part, Started};
use tenure_agent::pods::{Facet, Pods};
use tenure_agent::serve::{Answered, Call, Deleted, Dialect};
use tenure_agent::sources::BlockSource;
use tenure_agent::{HoldKey, Pod};
use tenure_cni::{Address as ResultAddress, CniResult, Code, Failure, NetworkConfig};
use tenure_ipam::Address;
use tokio::sync::Notify;

/// The dialect's name, as `ipam.type` has it.
pub const TYPE: &str = "tenure-fixed";

/// The annotation of a pod that names its address.
pub const ANNOTATION: &str = "fixed.example.com/address";

/// What the node waits for at a start.
pub const SOURCE: &str = "its fixed blocks";

/// The part.
#[derive(Debug)]
pub struct FixedPart {
    /// Says that the blocks of its source are read.
    pub read: Arc<Notify>,
}

impl Part for FixedPart {
    fn start(&self, core: &Core) -> io::Result<Started> {
        let (node, read, stop) = (core.node.clone(), Arc::clone(&self.read), core.stop.clone());
        let reading = async move {
            read.notified().await;
            node.tell(Event::SourceRead { source: SOURCE });
        };
        tokio::spawn(async move { stop.run_until_cancelled(reading).await });
        let adds = Counter::default();
        Ok(Started {
            dialects: vec![Arc::new(Fixed { pods: core.pods.clone().keep(), adds: adds.clone() })],
            source: Some(Arc::new(NoBlocks)),
            inspect: Some(Arc::new(Adds(adds))),
            ..Started::default()
        })
    }
}

/// A source of blocks that has none: its pool is full from the start.
struct NoBlocks;

impl BlockSource for NoBlocks {
    fn has(&self, pool: &str) -> bool {
        pool == TYPE
    }

    fn carry_out(&self, _: Action) {}

    fn read_at_start(&self) -> Option<&'static str> {
        Some(SOURCE)
    }
}

/// What it keeps of a pod: the address that its annotation names.
#[derive(Debug, PartialEq)]
struct FixedAddress(Option<String>);

impl Facet for FixedAddress {
    fn of(pod: &PartialObjectMeta<PodObject>) -> Self {
        Self(pod.annotations().get(ANNOTATION).cloned())
    }
}

/// Shows how many ADDs were answered.
struct Adds(Counter);

impl Inspect for Adds {
    fn register(&self, registry: &mut Registry) {
        registry.register("fixed_adds", "Containers that got the address", self.0.clone());
    }
}

/// The dialect.
#[derive(Debug)]
pub struct Fixed {
    pods: Pods<FixedAddress>,
    adds: Counter,
}

impl Fixed {
    async fn hold(&self, call: &Call<'_>) -> Result<CniResult, Failure> {
        let (address, prefix) = self.named(call).await?;
        let key = call.key()?;
        if let Who::Held(other) = call.node.look(move |node| node.who(address)).await?
            && other.key != key
        {
            return Err(in_use(address, &other.key));
        }
        call.hold(attach(call, key, (address, prefix))).await?;
        self.adds.inc();
        let ip = ResultAddress { address: format!("{address}/{prefix}"), gateway: None, interface: None };
        Ok(CniResult { ips: vec![ip], ..CniResult::default() })
    }

    /// The address that the call's pod names, or the configuration.
    async fn named(&self, call: &Call<'_>) -> Result<(Address, u8), Failure> {
        let Some(pod) = call.pod_name()? else { return named(call.network) };
        let unknown = |why: String| Failure::new(Code::TryAgainLater, why);
        let known = self.pods.find(&pod).await.map_err(unknown)?.filter(|known| known.is(&pod));
        match known.as_ref().and_then(|known| known.facet.0.as_deref()) {
            Some(text) => parse(text).ok_or_else(|| refused(&format!("annotation {ANNOTATION}"), text)),
            None => named(call.network),
        }
    }
}

impl Dialect for Fixed {
    fn accepts(&self) -> &'static str {
        "\"tenure-fixed\" as ipam.type"
    }

    fn is_for(&self, network: &NetworkConfig) -> bool {
        network.ipam.as_deref() == Some(TYPE)
    }

    fn add<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, CniResult> {
        Box::pin(self.hold(call))
    }

    fn del<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, Deleted> {
        Box::pin(async move {
            call.release().await?;
            Ok(Deleted::Done)
        })
    }

    fn check<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(async move {
            let named = self.named(call).await?;
            let mut expected = call.expected();
            expected.push(named.0);
            call.inspect(attach(call, call.key()?, named), expected).await
        })
    }

    fn gc<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(call.collect())
    }

    fn status<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(async move {
            named(call.network)?;
            if call.node.look(Node::is_ready).await? {
                return Ok(());
            }
            Err(Failure::new(Code::NotAvailable, "tenured has not read its journal yet"))
        })
    }
}

/// The address that a configuration names.
fn named(network: &NetworkConfig) -> Result<(Address, u8), Failure> {
    let said = network.json.get("ipam").and_then(|ipam| ipam.get("address")).unwrap_or(&Value::Null);
    said.as_str().and_then(parse).ok_or_else(|| refused("ipam.address", said))
}

fn parse(text: &str) -> Option<(Address, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (Address, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    (prefix <= address.family().bits()).then_some((address, prefix))
}

fn refused(field: &str, said: impl Display) -> Failure {
    Failure::new(Code::InvalidConfig, format!("{field} is {said}"))
        .detail("accepted is an address with the length of its prefix, such as \"192.0.2.7/32\"")
}

/// What the node is asked for. Addresses that are named in advance are a claim's to the node; a claim that only this
/// container's interface has keeps all others out.
fn attach(call: &Call<'_>, key: HoldKey, named: (Address, u8)) -> Attach {
    let claim = format!("{TYPE} {key}");
    let claim_use = ClaimUse { claim_name: claim.clone(), claim, addresses: vec![named], reached: false };
    Attach {
        key,
        pool: TYPE.to_owned(),
        pod: Pod::default(),
        netns: call.message.netns.clone(),
        wiring: None,
        wish: Wish::default(),
        claim_use: Some(claim_use),
    }
}

fn in_use(address: Address, holder: &HoldKey) -> Failure {
    Failure::new(Code::TryAgainLater, format!("{address} is in use: {holder} has it"))
        .detail("one container at a time has a fixed address; delete the other one first")
}
