//! Networks with `"ipam": {"type": "whereabouts"}`, whichever plugin creates their interfaces.
//!
//! Ranges with slices are held on this node, without a call to the API server; ranges without slices are held
//! in shared [`Ledgers`]. An ADD gets an address from each of its ranges or none. Claims are held on this
//! node as well, for all ranges: they are already on record. The network's configuration is parsed for every
//! call, and settings without effect are logged once.

mod claimed;
mod flat_file;
pub mod ledgers;
mod refusal;
mod sliced;
pub mod slices;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use serde_json::{Map, Value};
use tenure_cni::{CniResult, Code, Failure, NetworkConfig};
use tenure_ipam::Address;
use tenure_whereabouts::Config;
use tenure_whereabouts::config::{Arguments, PREFERRED_IP, RangeConfig};
use tenure_whereabouts::ledger::{PoolId, Who};
use tracing::info;

use crate::claims::Claims;
use crate::node::Node;
use crate::pods::{Facet, Pods};
use crate::serve::{Answered, Call, Deleted, Dialect, PodName};
use flat_file::FlatFiles;
use ledgers::Ledgers;
pub(crate) use refusal::{slice_full, slice_withheld};
use slices::Slices;

/// The dialect's name, as `ipam.type` has it.
const TYPE: &str = "whereabouts";
/// How many notices are remembered, so that they are not logged again.
const MOST_REMARKS: usize = 1_000;

/// The annotation of a pod that names the address it would like; empty if it has none.
#[derive(Debug, PartialEq)]
struct PreferredAddress(String);

impl Facet for PreferredAddress {
    fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        let preferred = pod.annotations().get(PREFERRED_IP).filter(|wish| !wish.trim().is_empty());
        Self(preferred.cloned().unwrap_or_default())
    }
}

impl PreferredAddress {
    async fn of_pod(pods: &Pods<Self>, pod: &PodName) -> String {
        pods.find_if_known(pod).await.map(|known| known.facet.0.clone()).unwrap_or_default()
    }
}

/// Serves Whereabouts' networks.
#[derive(Debug)]
pub struct Whereabouts {
    ledgers: Ledgers,
    slices: Slices,
    /// Which addresses pods prefer.
    pods: Pods<PreferredAddress>,
    claims: Option<Claims>,
    flat_files: FlatFiles,
    said: Mutex<HashSet<String>>,
    /// Holders need not be pods.
    outside_kubernetes: bool,
}

impl Whereabouts {
    /// A dialect over these sources. Flat files may also be in `directory`, which is the agent's own.
    pub fn new(
        ledgers: Ledgers,
        slices: Slices,
        pods: Pods,
        directory: &Path,
        outside_kubernetes: bool,
    ) -> Self {
        Self {
            ledgers,
            slices,
            pods: pods.keep(),
            claims: None,
            flat_files: FlatFiles::below(Some(directory)),
            said: Mutex::default(),
            outside_kubernetes,
        }
    }

    /// Pods may also refer to claims.
    #[must_use]
    pub fn with_claims(self, claims: Option<Claims>) -> Self {
        Self { claims, ..self }
    }

    async fn hold(&self, call: &Call<'_>) -> Result<CniResult, Failure> {
        let config = self.load(call)?;
        let who = self.who(call, &config)?;
        let key = call.key()?;
        self.say(&config);
        if let Some(claims) = &self.claims
            && let Some(held) = Box::pin(self.hold_of_claim(claims, &key, call, &config)).await?
        {
            return Ok(config.result(&held));
        }
        let wish = self.wish(&config).await;
        let preferred = config.preferred(&wish)?;
        let held = if !config.is_sliced() {
            self.ledgers.hold(&who, &config, &preferred).await?
        } else if let Some(held) = self.held_uncut(call, &who, &config).await? {
            held
        } else {
            self.hold_of_slices(&key, call, &config, &preferred).await?
        };
        Ok(config.result(&held))
    }

    /// The pod's annotation with the address that it prefers; empty if it has none.
    async fn wish(&self, config: &Config) -> String {
        let pod = pod_name(config);
        // There are no pods outside Kubernetes.
        if self.outside_kubernetes || pod.name.is_empty() {
            return String::new();
        }
        PreferredAddress::of_pod(&self.pods, &pod).await
    }

    /// The addresses of a container that was attached before the ranges were divided into slices, if it has
    /// one of each range.
    async fn held_uncut(
        &self,
        call: &Call<'_>,
        who: &Who,
        config: &Config,
    ) -> Result<Option<Vec<Address>>, Failure> {
        if self.ledgers.attachment(&call.network.name, &who.id, &who.ifname).is_none() {
            return Ok(None);
        }
        let mut held = self.ledgers.held(who, config).await?;
        held.sort_unstable();
        let of_range = |range: &RangeConfig| {
            let place = held.iter().position(|address| range.cidr().contains(*address))?;
            Some(held.remove(place))
        };
        Ok(config.ranges.iter().map(of_range).collect())
    }

    async fn release(&self, call: &Call<'_>) -> Result<Deleted, Failure> {
        call.key()?;
        let (network, pools): (String, Vec<PoolId>) = match self.load(call) {
            Ok(config) => {
                let pools = config.ranges.iter().map(|it| PoolId::shared(&config.network, it.cidr()));
                (config.network.clone(), pools.collect())
            }
            // An address that was assigned by a valid configuration must be released even if the
            // configuration became invalid.
            Err(failure) => (network_name(call).ok_or(failure)?, Vec::new()),
        };
        let held_here = call.release().await? > 0;
        let name = &call.network.name;
        let known = self.ledgers.attachment(name, &call.message.container_id, &call.message.ifname);
        // What this node held, from a slice or a claim, is in no shared ledger.
        if known.is_none() && held_here {
            return Ok(Deleted::Done);
        }
        if pools.is_empty() && known.is_none() && self.load(call).is_ok() {
            // It has only addresses that are passed on.
            return Ok(Deleted::Done);
        }
        // It may have been attached when its network had another name.
        let network = known.map_or(network, |known| known.network);
        match self.ledgers.release(name, &network, &holder(call), pools).await {
            Ok(_) => Ok(Deleted::Done),
            Err(failure) if failure.code == Code::TryAgainLater.number() => Ok(Deleted::Later(failure)),
            Err(failure) => Err(failure),
        }
    }

    async fn inspect(&self, call: &Call<'_>) -> Result<(), Failure> {
        let config = self.load(call)?;
        let who = self.who(call, &config)?;
        let expected = call.expected();
        let name = &call.network.name;
        if self.check_claim(&call.key()?, call, &config, &expected).await? {
            return Ok(());
        }
        let shared =
            self.ledgers.attachment(name, &call.message.container_id, &call.message.ifname).is_some();
        if config.is_sliced() {
            let checked = self.check_slices(&call.key()?, call, &config, &expected).await;
            // A container that was attached before the ranges were divided has nothing in a slice.
            if checked.is_ok() || !shared {
                return checked;
            }
        }
        self.ledgers.check(&who, &config, &expected).await
    }

    async fn collect(&self, call: &Call<'_>) -> Result<(), Failure> {
        let alive = call.alive()?;
        let name = call.network.name.clone();
        let known = self.ledgers.attachments(&name).into_iter();
        let dead: Vec<_> =
            known.filter(|it| !alive.contains(&(it.container.clone(), it.interface.clone()))).collect();
        call.collect().await?;
        let mut failures = Vec::new();
        let releases = dead.iter().map(|it| {
            let who = Who {
                id: it.container.clone(),
                podref: it.podref.clone(),
                uid: String::new(),
                ifname: it.interface.clone(),
            };
            let (name, network) = (&name, &it.network);
            async move { self.ledgers.release(name, network, &who, Vec::new()).await }
        });
        for released in futures::future::join_all(releases).await {
            failures.extend(released.err());
        }
        match failures.into_iter().next() {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    async fn serves(&self, call: &Call<'_>) -> Result<(), Failure> {
        let unavailable = |failure: Failure| Failure { code: Code::NotAvailable.number(), ..failure };
        if !call.node.look(Node::is_ready).await? {
            let message = "tenured reads its journal, the kernel and the API server";
            return Err(Failure::new(Code::NotAvailable, message).detail("it will serve when all is read"));
        }
        let config = self.load(call)?;
        if config.is_sliced() {
            return self.slices_of(&config).await.map(drop).map_err(unavailable);
        }
        if config.ranges.is_empty() {
            return Ok(());
        }
        let Some(problem) = self.ledgers.trouble().await else { return Ok(()) };
        let message = format!("ranges of network {:?} cannot be changed now: {problem}", config.name);
        Err(Failure::new(Code::NotAvailable, message)
            .detail("shared ranges need the API server; those with node_slice_size do not"))
    }

    /// The effective configuration.
    fn load(&self, call: &Call<'_>) -> Result<Config, Failure> {
        let pairs: BTreeMap<String, String> = call.message.args.clone().into_iter().collect();
        let arguments = Arguments::from_pairs(&pairs)?;
        let flat = self.flat_files.read(ipam(call))?;
        Ok(Config::load(&call.network.json, flat.as_deref(), &arguments)?)
    }

    /// The holder of the addresses. Without pods, the container takes the pod's place.
    fn who(&self, call: &Call<'_>, config: &Config) -> Result<Who, Failure> {
        let podref = match config.pod() {
            Ok(podref) => podref,
            Err(_) if self.outside_kubernetes => format!("container/{}", call.message.container_id),
            Err(refusal) => return Err(refusal.into()),
        };
        Ok(Who { podref, ..holder(call) })
    }

    /// Logs once which settings of a configuration have no effect.
    fn say(&self, config: &Config) {
        if config.notices.is_empty() {
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        for notice in &config.notices {
            let remark = format!("{}\0{}\0{}", config.name, notice.key, notice.note);
            if said.len() < MOST_REMARKS && said.insert(remark) {
                info!(network = config.name, key = notice.key, note = notice.note, "configuration");
            }
        }
    }
}

/// The pod that the runtime names.
fn pod_name(config: &Config) -> PodName {
    let arguments = &config.arguments;
    PodName {
        namespace: arguments.pod_namespace.clone(),
        name: arguments.pod_name.clone(),
        uid: arguments.pod_uid.clone(),
    }
}

/// The container's interface. An ADD must also know the pod.
fn holder(call: &Call<'_>) -> Who {
    let part = |key: &str| call.message.args.get(key).cloned().unwrap_or_default();
    let podref = format!("{}/{}", part("K8S_POD_NAMESPACE"), part("K8S_POD_NAME"));
    Who {
        id: call.message.container_id.clone(),
        podref,
        uid: part("K8S_POD_UID"),
        ifname: call.message.ifname.clone(),
    }
}

fn ipam<'c>(call: &'c Call<'_>) -> &'c Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    call.network.json.get("ipam").and_then(Value::as_object).unwrap_or(&NONE)
}

/// `network_name`, even if the rest of the configuration is invalid.
fn network_name(call: &Call<'_>) -> Option<String> {
    match ipam(call).get("network_name") {
        None | Some(Value::Null) => Some(String::new()),
        Some(name) => name.as_str().map(str::to_owned),
    }
}

impl Dialect for Whereabouts {
    fn accepts(&self) -> &'static str {
        "\"whereabouts\" as ipam.type"
    }

    fn is_for(&self, network: &NetworkConfig) -> bool {
        network.ipam.as_deref() == Some(TYPE)
    }

    fn add<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, CniResult> {
        Box::pin(self.hold(call))
    }

    fn del<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, Deleted> {
        Box::pin(self.release(call))
    }

    fn check<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(self.inspect(call))
    }

    fn gc<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(self.collect(call))
    }

    fn status<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(self.serves(call))
    }
}

#[cfg(test)]
mod tests;
