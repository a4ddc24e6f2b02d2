//! Networks that say `"ipam": {"type": "whereabouts"}`, whoever makes their interfaces.
//!
//! Ranges with slices are held on this node, without a call to the API server; ranges without are held in shared
//! [`Ledgers`]. An ADD has an address of each of its ranges or none. Who refers to a claim is held on this node as well,
//! whichever ranges: the claim is on record already. What a network's configuration says is read anew with every call, and what
//! it says without effect is said once.

mod claimed;
mod flat_file;
mod sliced;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use tenure_cni::{Code, Failure, NetworkConfig, Verb, rpc, tombstone};
use tenure_ipam::Address;
use tenure_whereabouts::Config;
use tenure_whereabouts::config::{Arguments, RangeConfig};
use tenure_whereabouts::ledger::{PoolId, Who};
use tracing::{info, warn};

use crate::claims::Claims;
use crate::drive::Handle;
use crate::key::HoldKey;
use crate::ledgers::Ledgers;
use crate::node::{Done, Event};
use crate::pods::Pods;
use crate::serve::PodName;
use crate::slices::Slices;
use flat_file::FlatFiles;

/// The dialect's name, as `ipam.type` has it.
pub(super) const TYPE: &str = "whereabouts";
/// So many remarks are remembered, so that they are not made again.
const MOST_REMARKS: usize = 1_000;

/// What serves Whereabouts' networks.
#[derive(Debug)]
pub struct Whereabouts {
    ledgers: Ledgers,
    slices: Slices,
    /// Which addresses pods would like.
    pods: Pods,
    /// Where a DEL that cannot be done now is left.
    tombstones: PathBuf,
    flat_files: FlatFiles,
    said: Mutex<HashSet<String>>,
    /// Holders need not be pods.
    outside_kubernetes: bool,
}

/// Whether a DEL that cannot be done now may be left for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// As a tombstone.
    Tombstone,
    /// It is one.
    Nothing,
}

/// A call, read.
struct Asked<'c> {
    network: &'c NetworkConfig,
    call: &'c rpc::Call,
    claims: Option<&'c Claims>,
}

impl Whereabouts {
    /// Serves by these; leaves tombstones in this directory.
    pub fn new(
        ledgers: Ledgers,
        slices: Slices,
        pods: Pods,
        tombstones: impl Into<PathBuf>,
        outside_kubernetes: bool,
    ) -> Self {
        let tombstones = tombstones.into();
        Self {
            ledgers,
            slices,
            pods,
            flat_files: FlatFiles::below(tombstones.parent()),
            tombstones,
            said: Mutex::default(),
            outside_kubernetes,
        }
    }

    /// Whether the call is for this dialect.
    pub(super) fn is_for(network: &NetworkConfig) -> bool {
        network.ipam.as_deref() == Some(TYPE)
    }

    /// The result as it goes to standard output; empty where the verb has none.
    pub(super) async fn answer(
        &self,
        (node, claims): (&Handle, Option<&Claims>),
        verb: Verb,
        network: &NetworkConfig,
        call: &rpc::Call,
        leave: Leave,
    ) -> Result<Vec<u8>, Failure> {
        let asked = Asked { network, call, claims };
        match verb {
            Verb::Add => return self.add(node, &asked).await,
            Verb::Del => self.del(node, &asked, leave).await?,
            Verb::Check => self.check(node, &asked).await?,
            Verb::Gc => self.gc(node, &asked).await?,
            Verb::Status => self.status(node, &asked).await?,
            Verb::Version => {}
        }
        Ok(Vec::new())
    }

    async fn add(&self, node: &Handle, asked: &Asked<'_>) -> Result<Vec<u8>, Failure> {
        let config = self.load(asked)?;
        let who = self.who(asked, &config)?;
        let key = asked.key()?;
        self.say(&config);
        if let Some(claims) = asked.claims
            && let Some(held) = Box::pin(self.hold_of_claim(node, claims, &key, asked, &config)).await?
        {
            return Ok(config.result(&held).to_json(config.version)?.to_string().into_bytes());
        }
        let wish = self.wish(&config).await;
        let preferred = config.preferred(&wish)?;
        let held = if !config.is_sliced() {
            self.ledgers.hold(&who, &config, &preferred).await?
        } else if let Some(held) = self.held_uncut(asked, &who, &config).await? {
            held
        } else {
            self.hold_of_slices(node, &key, asked, &config, &preferred).await?
        };
        let result = config.result(&held);
        Ok(result.to_json(config.version)?.to_string().into_bytes())
    }

    /// The annotation of the pod that names the address it would like; empty if it has none.
    async fn wish(&self, config: &Config) -> String {
        let pod = pod_name(config);
        // There are no pods to ask outside Kubernetes.
        if self.outside_kubernetes || pod.name.is_empty() {
            return String::new();
        }
        self.pods.wish_of(&pod).await
    }

    /// What a container has that was attached before the ranges were cut, if that is an address of each.
    async fn held_uncut(
        &self,
        asked: &Asked<'_>,
        who: &Who,
        config: &Config,
    ) -> Result<Option<Vec<Address>>, Failure> {
        if self.ledgers.attachment(&asked.network.name, &who.id, &who.ifname).is_none() {
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

    async fn del(&self, node: &Handle, asked: &Asked<'_>, leave: Leave) -> Result<(), Failure> {
        let key = asked.key()?;
        let (network, pools): (String, Vec<PoolId>) = match self.load(asked) {
            Ok(config) => {
                let pools = config.ranges.iter().map(|it| PoolId::shared(&config.network, it.cidr()));
                (config.network.clone(), pools.collect())
            }
            // What was given with a good configuration must be given back also when it has become a bad one.
            Err(failure) => (asked.network_name().ok_or(failure)?, Vec::new()),
        };
        let done = node.call(move |ticket| Event::Detach { ticket, key }).await?;
        let name = &asked.network.name;
        let known = self.ledgers.attachment(name, &asked.call.container_id, &asked.call.ifname);
        // What this node held, of a slice or of a claim, is in no shared ledger.
        if known.is_none() && !matches!(done, Done::Swept(0)) {
            return Ok(());
        }
        if pools.is_empty() && known.is_none() && self.load(asked).is_ok() {
            // It has nothing but addresses that are passed on.
            return Ok(());
        }
        // It may have been attached when its network's name was another one.
        let network = known.map_or(network, |known| known.network);
        match self.ledgers.release(name, &network, &asked.holder(), pools).await {
            Ok(_) => Ok(()),
            Err(failure) if leave == Leave::Tombstone && failure.code == Code::TryAgainLater.number() => {
                self.leave(asked, failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// A DEL that cannot be done now is done later, and that is sure before it is said to be done.
    fn leave(&self, asked: &Asked<'_>, failure: Failure) -> Result<(), Failure> {
        match tombstone::leave(&self.tombstones, &asked.network.name, asked.call) {
            Ok(path) => {
                warn!(%failure, tombstone = %path.display(), "a DEL is left for later");
                Ok(())
            }
            Err(error) => {
                let more =
                    format!("; and a tombstone cannot be left in {}: {error}", self.tombstones.display());
                Err(Failure { message: failure.message + &more, ..failure })
            }
        }
    }

    async fn check(&self, node: &Handle, asked: &Asked<'_>) -> Result<(), Failure> {
        let config = self.load(asked)?;
        let who = self.who(asked, &config)?;
        let expected = asked.expected();
        let name = &asked.network.name;
        if self.check_claim(node, &asked.key()?, asked, &config, &expected).await? {
            return Ok(());
        }
        let shared = self.ledgers.attachment(name, &asked.call.container_id, &asked.call.ifname).is_some();
        if config.is_sliced() {
            let checked = self.check_slices(node, &asked.key()?, asked, &config, &expected).await;
            // Who was attached before the ranges were cut has nothing of a slice.
            if checked.is_ok() || !shared {
                return checked;
            }
        }
        self.ledgers.check(&who, &config, &expected).await
    }

    async fn gc(&self, node: &Handle, asked: &Asked<'_>) -> Result<(), Failure> {
        let alive = super::request::alive(asked.network)?;
        let name = asked.network.name.clone();
        let known = self.ledgers.attachments(&name).into_iter();
        let dead: Vec<_> =
            known.filter(|it| !alive.contains(&(it.container.clone(), it.interface.clone()))).collect();
        let network = name.clone();
        node.call(move |ticket| Event::Gc { ticket, network, alive }).await?;
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

    async fn status(&self, node: &Handle, asked: &Asked<'_>) -> Result<(), Failure> {
        let unavailable = |failure: Failure| Failure { code: Code::NotAvailable.number(), ..failure };
        if !node.look(crate::node::Node::is_ready).await? {
            let message = "tenured reads its journal, the kernel and the API server";
            return Err(Failure::new(Code::NotAvailable, message).detail("it will serve when all is read"));
        }
        let config = self.load(asked)?;
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
    fn load(&self, asked: &Asked<'_>) -> Result<Config, Failure> {
        let pairs: BTreeMap<String, String> = asked.call.args.clone().into_iter().collect();
        let arguments = Arguments::from_pairs(&pairs)?;
        let flat = self.flat_files.read(asked.ipam())?;
        Ok(Config::load(&asked.network.json, flat.as_deref(), &arguments)?)
    }

    /// Whose the addresses are. Where there are no pods, a container stands for one.
    fn who(&self, asked: &Asked<'_>, config: &Config) -> Result<Who, Failure> {
        let podref = match config.pod() {
            Ok(podref) => podref,
            Err(_) if self.outside_kubernetes => format!("container/{}", asked.call.container_id),
            Err(refusal) => return Err(refusal.into()),
        };
        Ok(Who { podref, ..asked.holder() })
    }

    /// Says once what of a configuration has no effect.
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

impl Asked<'_> {
    fn key(&self) -> Result<HoldKey, Failure> {
        super::request::key(self.network, self.call)
    }

    /// The container's interface. Which pod it is for, an ADD has to know.
    fn holder(&self) -> Who {
        let part = |key: &str| self.call.args.get(key).cloned().unwrap_or_default();
        let podref = format!("{}/{}", part("K8S_POD_NAMESPACE"), part("K8S_POD_NAME"));
        Who {
            id: self.call.container_id.clone(),
            podref,
            uid: part("K8S_POD_UID"),
            ifname: self.call.ifname.clone(),
        }
    }

    fn ipam(&self) -> &Map<String, Value> {
        static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        self.network.json.get("ipam").and_then(Value::as_object).unwrap_or(&NONE)
    }

    /// `network_name`, whatever else the configuration says.
    fn network_name(&self) -> Option<String> {
        match self.ipam().get("network_name") {
            None | Some(Value::Null) => Some(String::new()),
            Some(name) => name.as_str().map(str::to_owned),
        }
    }

    /// The addresses that the result of the ADD had.
    fn expected(&self) -> Vec<Address> {
        super::request::expected(self.network)
    }
}
