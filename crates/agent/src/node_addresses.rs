//! The node's own addresses: what policies (`NodeNetworkConfigurationPolicy`) give its interfaces, from pools.
//!
//! ```text
//!   this node's enactments ──▶ machine (decides, no I/O) ──▶ worker ──▶ kernel, or NetworkManager by a helper program
//!              ▲                    ▲                          │
//!              │ status             └── state file ◀───────────┤ before every change
//!              └───────────────────────────────────────────────┘ what a dump shows
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `facts` | what matters of an enactment |
//! | `machine` | **all decisions**: what is done next, and what the status says |
//! | `record` | what may be on interfaces, and the file that keeps it across a reboot |
//! | `worker` | does one task at a time |
//! | `kernel` | the interfaces, by netlink |
//! | `segments` | whether somebody else has an address, before an interface gets it |
//! | `manager` | the interfaces that NetworkManager manages |
//! | `current` | the node's state in nmstate's form, for captures |
//! | `report` | the status of an enactment |
//! | `inspect` | what people see |
//!
//! What it promises: after a reboot the addresses are there before the API server is within reach; an address is reported as
//! given back after a dump that does not show it; a change that cuts the node off is taken back.

mod current;
mod facts;
mod inspect;
mod kernel;
mod machine;
mod manager;
mod record;
mod report;
mod segments;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipnet::IpNet;
use kube::runtime::watcher;
use kube::{Api, Client};
use tenure_api::nmstate::{NodeNetworkConfigurationEnactment, label, node_label};
use tenure_api::read::Read;
use tenure_handles::Clock;
use tenure_watch::{ApiHealth, Cache, Connection, Epoch, Heard, Identity, Seen};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::objects::lock;
use crate::objects::watch::{Watching, watch};
use facts::Facts;
use kernel::Kernel;
use machine::Machine;
use manager::Manager;
use record::Store;
use worker::Worker;

/// What policies want of this node's own interfaces.
const OWN_ENACTMENTS: &str = "NodeNetworkConfigurationEnactments of this node";

/// Which addresses policies have put on the node's own interfaces, by the file that a stopped agent left.
pub(crate) fn recorded(state: &Path) -> BTreeSet<String> {
    let records = Store::new(Some(state)).load();
    let all = records.iter().flat_map(|record| record.addresses().map(|it| (it, &record.policy)));
    all.map(|((interface, address), policy)| format!("{address} on {interface} by policy {policy}")).collect()
}

/// How a node's own addresses are managed.
#[derive(Clone, Debug)]
pub struct NodeAddressesOptions {
    /// How long the API server may be out of reach after a change, before it is taken back.
    pub probe: Duration,
    /// How often interfaces are verified.
    pub verify: Duration,
    /// The helper program for NetworkManager.
    pub helper: PathBuf,
    /// The socket of the system's D-Bus. Where there is none, the helper is not asked.
    pub bus: PathBuf,
}

impl Default for NodeAddressesOptions {
    fn default() -> Self {
        let beside = std::env::current_exe().map(|own| own.with_file_name("tenure-nmstate"));
        Self {
            probe: Duration::from_secs(30),
            verify: Duration::from_secs(10),
            helper: beside.unwrap_or_else(|_| PathBuf::from("tenure-nmstate")),
            bus: PathBuf::from("/run/dbus/system_bus_socket"),
        }
    }
}

/// What people see of one policy on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyState {
    /// The policy.
    pub policy: String,
    /// What it has given the interfaces.
    pub addresses: Vec<(String, IpNet)>,
    /// What is wrong.
    pub problem: Option<String>,
}

/// The node's own addresses. Cheap to clone.
#[derive(Clone)]
pub struct NodeAddresses {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for NodeAddresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeAddresses").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

struct Shared {
    connection: Connection,
    node: String,
    enactments: Mutex<Enactments>,
    overview: Mutex<Vec<PolicyState>>,
    changed: Notify,
}

#[derive(Default)]
struct Enactments {
    cache: Cache<Seen<Facts>>,
    /// Whether absence means something.
    listed: bool,
}

impl Watching for Shared {
    const MAY_BE_MISSING: Option<Duration> = Some(Duration::from_secs(10));

    fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl NodeAddresses {
    /// Puts back what the file in `state` says, then follows this node's enactments, until `stop`. Needs a tokio runtime around
    /// it.
    pub fn start(
        client: Client,
        node: &str,
        options: NodeAddressesOptions,
        (namespace, state): (Option<PathBuf>, Option<PathBuf>),
        clock: impl Clock,
        stop: CancellationToken,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let connection = Connection::named(client, Arc::clone(&clock), &format!("node addresses of {node}"));
        connection.health().expect(OWN_ENACTMENTS);
        let shared = Arc::new(Shared {
            connection,
            node: node.to_owned(),
            enactments: Mutex::default(),
            overview: Mutex::default(),
            changed: Notify::new(),
        });
        let watching = Arc::clone(&shared).watch();
        tokio::spawn(stop.clone().run_until_cancelled_owned(watching));
        let working = Arc::clone(&shared).work(options, namespace, state, clock);
        tokio::spawn(stop.run_until_cancelled_owned(working));
        Self { shared }
    }

    /// What people see of it.
    pub fn state(&self) -> Vec<PolicyState> {
        lock(&self.shared.overview).clone()
    }

    /// How its watch is.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look()
    }
}

impl Shared {
    async fn watch(self: Arc<Self>) {
        let objects: Api<Read<NodeNetworkConfigurationEnactment>> = Api::all(self.connection.client());
        let own = watcher::Config::default().labels(&format!("{}={}", label::NODE, node_label(&self.node)));
        let node = self.node.clone();
        let keep = move |object: &NodeNetworkConfigurationEnactment| Facts::of(object, &node);
        let hear = |shared: &Arc<Self>, heard: Heard<Facts>| {
            let mut enactments = lock(&shared.enactments);
            enactments.listed |= matches!(heard, Heard::Finish);
            drop(enactments.cache.hear(heard));
            shared.changed.notify_one();
        };
        watch(Arc::clone(&self), OWN_ENACTMENTS, objects, own, keep, hear).await;
    }

    async fn work(
        self: Arc<Self>,
        options: NodeAddressesOptions,
        namespace: Option<PathBuf>,
        state: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) {
        let store = Store::new(state.as_deref());
        let records = store.load();
        if !records.is_empty() {
            info!(policies = records.len(), "the node's own addresses are put back from the state file");
        }
        let mut machine = Machine::new(records.clone(), options.verify);
        let epoch = {
            let shared = Arc::clone(&self);
            move || lock(&shared.enactments).cache.epoch()
        };
        let written = {
            let shared = Arc::clone(&self);
            move |call: Epoch, object: &NodeNetworkConfigurationEnactment| {
                let facts = Facts::of(object, &shared.node);
                let heard = Heard::Answered(call, Identity::named(&object.metadata), facts);
                drop(lock(&shared.enactments).cache.hear(heard));
            }
        };
        let mut worker = Worker {
            connection: self.connection.clone(),
            clock: Arc::clone(&clock),
            kernel: Kernel::new(namespace),
            manager: Some(Manager { program: options.helper, bus: options.bus }),
            store,
            records: records.into_iter().map(|it| (it.uid.clone(), it)).collect::<BTreeMap<_, _>>(),
            probe: options.probe,
            policies: BTreeMap::new(),
            logged: BTreeMap::new(),
            epoch: Box::new(epoch),
            written: Box::new(written),
        };
        loop {
            if let Some((all, unread)) = self.enactments() {
                machine.seen(all, &unread);
            }
            *lock(&self.overview) = machine.overview();
            let now = clock.now();
            if let Some(task) = machine.next(now) {
                let done = Box::pin(worker.perform(task)).await;
                machine.done(done, clock.now());
                continue;
            }
            let wait = machine.wake().map_or(Duration::from_hours(1), |at| at.since(now));
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(wait.max(Duration::from_millis(10))) => {}
            }
        }
    }

    /// This node's enactments and the names of those that cannot be read; nothing before they were listed.
    fn enactments(&self) -> Option<(Vec<Facts>, BTreeSet<String>)> {
        let enactments = lock(&self.enactments);
        let unread = || enactments.cache.unreadable().map(ToOwned::to_owned).collect();
        let all = || enactments.cache.all_facts().map(|(_, facts)| facts.clone()).collect();
        enactments.listed.then(|| (all(), unread()))
    }
}
