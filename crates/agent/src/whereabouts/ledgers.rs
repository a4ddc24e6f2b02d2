//! Ranges of Whereabouts' dialect without slices: shared `IPPool`s that any node writes.
//!
//! The objects are the truth, `tenure_whereabouts::ledger` decides, and this module performs it:
//!
//! | module | owns |
//! |---|---|
//! | `worker` | one task a `network_name`: gathers all requests that wait, plans, writes, plans the rest again |
//! | `read` | what is read: everything at the first use and before a refusal, single objects when they may have changed |
//! | `carry` | what is written, in the order that a plan asks for, and what came of it |
//! | `calls` | a call to the API server, with its patience |
//! | `attachments` | which of this node's containers have something, over a restart of the agent: for DEL and GC |
//!
//! What it promises:
//!
//! - There is no watch of pools and, once a network is known, no list: the cached state is exact after a
//!   write of ours without a write of others in between, as the object's generation shows. Objects that may
//!   have changed are read before they decide which address is the lowest. That an address is free is never
//!   assumed: the write itself tests it.
//! - While a batch is in progress the next one gathers, so that a hundred callers at once cost a handful of
//!   writes.
//! - An ADD gets all of its addresses or none; if it fails, what it made is released.
//! - Every caller is answered within seconds, even without the API server.

mod attachments;
mod calls;
mod carry;
mod read;
mod worker;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::{Api, Client};
use tenure_api::whereabouts::IPPool;
use tenure_cni::{Code, Failure};
use tenure_handles::{Clock, Timestamp};
use tenure_ipam::Address;
use tenure_watch::{CallError, Connection};
use tenure_whereabouts::Config;
use tenure_whereabouts::ledger::{Act, Answer, LedgerRefusal, PoolId, Request, Want, Who};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use attachments::{Attachment, recorded};

use attachments::Attachments;
use worker::{Job, Purpose, Worker};

/// The options of ledgers.
#[derive(Clone, Debug)]
pub struct LedgersOptions {
    /// The name of this node.
    pub node: String,
    /// The namespace of the objects.
    pub namespace: String,
    /// Whether every address gets a reservation, because Whereabouts writes to the same objects.
    pub reserving_always: bool,
    /// How long an address freed by this node is the last choice.
    pub cooling: Duration,
    /// How long a request waits while the API server fails.
    pub patience: Duration,
    /// How long a request is tried in total: other nodes may win again and again.
    pub longest: Duration,
    /// Where this node records which containers have something.
    pub directory: PathBuf,
}

impl LedgersOptions {
    /// The defaults for the node of this name and this directory.
    pub fn new(node: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            node: node.into(),
            namespace: "kube-system".to_owned(),
            reserving_always: false,
            cooling: Duration::from_secs(30),
            patience: Duration::from_secs(5),
            // Shorter than the plugin waits, longer than two writes on a slow server take.
            longest: Duration::from_secs(45),
            directory: directory.into(),
        }
    }
}

/// The health of the API server as ledgers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgersHealth {
    /// When it last answered properly.
    pub last_answer: Option<Timestamp>,
    /// Since when it fails, and its error; `None` if it works.
    pub trouble: Option<(Timestamp, String)>,
}

/// The shared ledgers of all networks. Cheap to clone.
#[derive(Clone)]
pub struct Ledgers {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Ledgers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledgers").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// Shared by all networks.
struct Shared {
    connection: Connection,
    options: LedgersOptions,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    /// The runtime of the workers, whoever asks first: reading many records takes longer than a caller that
    /// only queries may wait.
    runtime: Handle,
    health: Mutex<LedgersHealth>,
    attachments: Attachments,
    /// The channel to each network's worker.
    workers: Mutex<HashMap<String, mpsc::UnboundedSender<Job>>>,
}

impl Ledgers {
    /// Ledgers in the namespace of these options. Nothing is read before the first request. Needs a tokio
    /// runtime around it.
    pub fn new(client: Client, options: LedgersOptions, clock: impl Clock, stop: CancellationToken) -> Self {
        let attachments = Attachments::open(options.directory.clone());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let name = format!("ledgers of {}", options.node);
        let shared = Shared {
            connection: Connection::named(client, Arc::clone(&clock), &name),
            options,
            clock,
            stop,
            runtime: Handle::current(),
            health: Mutex::default(),
            attachments,
            workers: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Holds an address from each of the configuration's ranges for a pod's interface, or none. Returns the
    /// existing ones if it has them.
    pub async fn hold(
        &self,
        who: &Who,
        config: &Config,
        preferred: &[Option<Address>],
    ) -> Result<Vec<Address>, Failure> {
        if config.ranges.is_empty() {
            return Ok(Vec::new());
        }
        let attachments = &self.shared.attachments;
        let _under_way = attachments.begin(&config.name, &who.id, &who.ifname);
        let before = attachments.get(&config.name, &who.id, &who.ifname);
        // Before anything is written, so that a GC knows of it whatever happens to the agent.
        attachments.note(&Attachment {
            name: config.name.clone(),
            network: config.network.clone(),
            container: who.id.clone(),
            interface: who.ifname.clone(),
            podref: who.podref.clone(),
            since: self.shared.clock.now(),
        })?;
        let request = Request::hold(who.clone(), Want::of(config, preferred));
        match self.ask(&config.network, request, Purpose::Change).await? {
            Answer::Held(addresses) => Ok(addresses),
            Answer::Refused(refusal) => {
                // Addresses that it had before this request stay.
                if before.is_none() {
                    attachments.forget(&config.name, &who.id, &who.ifname);
                }
                Err(refused(&refusal, config))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Releases what a container's interface has in a network. `name` is that of the CNI configuration.
    /// Nothing to release is a success.
    pub async fn release(
        &self,
        name: &str,
        network: &str,
        who: &Who,
        pools: Vec<PoolId>,
    ) -> Result<Vec<Address>, Failure> {
        let request = Request { who: who.clone(), act: Act::Release { pools } };
        let known = self.shared.attachments.get(name, &who.id, &who.ifname).is_some();
        let purpose = if known { Purpose::Certain } else { Purpose::Change };
        match self.ask(network, request, purpose).await? {
            Answer::Released(addresses) => {
                self.shared.attachments.forget(name, &who.id, &who.ifname);
                Ok(addresses)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The addresses of the container's interface in the network, according to the objects now.
    pub async fn held(&self, who: &Who, config: &Config) -> Result<Vec<Address>, Failure> {
        let request = Request::hold(who.clone(), Want::of(config, &[]));
        match self.ask(&config.network, request, Purpose::Look).await? {
            Answer::Held(held) => Ok(held),
            other => Err(unexpected(&other)),
        }
    }

    /// Checks that the interface has an address from each range, including these, according to the objects
    /// now.
    pub async fn check(&self, who: &Who, config: &Config, expected: &[Address]) -> Result<(), Failure> {
        if config.ranges.is_empty() {
            return Ok(());
        }
        let held = self.held(who, config).await?;
        let ours = |address: &&Address| config.ranges.iter().any(|range| range.cidr().contains(**address));
        let missing: Vec<String> =
            expected.iter().filter(ours).filter(|it| !held.contains(it)).map(ToString::to_string).collect();
        if missing.is_empty() && held.len() >= config.ranges.len() {
            return Ok(());
        }
        let has: Vec<String> = held.iter().map(ToString::to_string).collect();
        let message = format!(
            "{} interface {} of container {} has records of {} addresses ({}) and should have {}{}",
            who.podref,
            who.ifname,
            who.id,
            has.len(),
            has.join(", "),
            config.ranges.len(),
            if missing.is_empty() { String::new() } else { format!(", among them {}", missing.join(", ")) },
        );
        Err(Failure::new(Code::Internal, message)
            .detail("somebody else released or took its addresses: attach the pod anew"))
    }

    /// The attachments of this node's containers by this CNI configuration, without those with an ADD in
    /// progress: the caller's list of live containers is older than those.
    pub fn attachments(&self, name: &str) -> Vec<Attachment> {
        self.shared.attachments.of(name)
    }

    /// The attachment of a container's interface by this CNI configuration.
    pub fn attachment(&self, name: &str, container: &str, interface: &str) -> Option<Attachment> {
        self.shared.attachments.get(name, container, interface)
    }

    /// Why shared ranges cannot be changed at present, if so. After an error, the API server is asked again.
    pub async fn trouble(&self) -> Option<String> {
        self.health().trouble?;
        let pools: Api<IPPool> =
            Api::namespaced(self.shared.connection.client(), &self.shared.options.namespace);
        // Whether it exists does not matter: to say so is an answer.
        let act = || "asking for an IPPool".to_owned();
        let _ = self.shared.call(act, pools.get_metadata_opt("0.0.0.0-0")).await;
        self.health().trouble.map(|(_, problem)| problem)
    }

    /// The last known health of the API server.
    pub fn health(&self) -> LedgersHealth {
        self.shared.health().clone()
    }

    async fn ask(&self, network: &str, request: Request, purpose: Purpose) -> Result<Answer, Failure> {
        let (answer, answered) = oneshot::channel();
        let job = Job {
            request,
            purpose,
            arrived: self.shared.clock.elapsed(),
            tried: false,
            answer: Some(answer),
        };
        self.send(network, job);
        answered.await.unwrap_or_else(|_| Err(Failure::new(Code::TryAgainLater, "tenured is ending")))
    }

    fn send(&self, network: &str, job: Job) {
        let mut workers = lock(&self.shared.workers);
        let known = workers.get(network).filter(|worker| !worker.is_closed());
        let worker = if let Some(worker) = known {
            worker
        } else {
            let (sender, inbox) = mpsc::unbounded_channel();
            let worker = Worker::new(Arc::clone(&self.shared), network, inbox);
            let stop = self.shared.stop.clone();
            self.shared.runtime.spawn(async move { stop.run_until_cancelled(Box::pin(worker.run())).await });
            workers.insert(network.to_owned(), sender);
            &workers[network]
        };
        // The worker ends only with the agent; then the caller gets no answer, and an error says so.
        let _ = worker.send(job);
    }
}

impl Shared {
    fn health(&self) -> MutexGuard<'_, LedgersHealth> {
        lock(&self.health)
    }

    fn answered(&self) {
        let mut health = self.health();
        health.last_answer = Some(self.clock.now());
        health.trouble = None;
    }

    fn troubled(&self, error: &CallError) {
        let (now, mut health) = (self.clock.now(), self.health());
        let since = health.trouble.take().map_or(now, |(since, _)| since);
        health.trouble = Some((since, error.to_string()));
    }
}

fn refused(refusal: &LedgerRefusal, config: &Config) -> Failure {
    let failure = Failure::new(
        match refusal {
            LedgerRefusal::Exhausted { .. } => Code::TryAgainLater,
            LedgerRefusal::Sliced { .. } | LedgerRefusal::Overlaps { .. } | LedgerRefusal::Name(_) => {
                Code::InvalidConfig
            }
        },
        refusal.to_string(),
    );
    match refusal {
        LedgerRefusal::Exhausted { .. } => failure
            .detail(format!("accepted is a larger range in network {:?}, or fewer pods on it", config.name)),
        _ => failure,
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::new(Code::Internal, format!("a ledger answered {answer:?}, which nobody asked for"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
