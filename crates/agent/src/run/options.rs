//! What an agent is to be like.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::serve::Dialect;
use crate::{node, witness};

/// What an agent is to be like.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// How the node behaves, and its name.
    pub node: node::Settings,
    /// What is used in the kernel.
    pub kernel: tenure_linux::Settings,
    /// Where its files are.
    pub paths: Paths,
    /// A directory that outlives a reboot, for the mark of the boot that the agent last ran on. Without one, a missing journal is
    /// always taken for one that was lost while containers run.
    pub state: Option<PathBuf>,
    /// Where to find out who uses which addresses when the journal does not say.
    pub witnesses: witness::Places,
    /// The path of the host's network namespace; else that of the caller.
    pub namespace: Option<PathBuf>,
    /// The largest packet of pods' interfaces, where the network's configuration does not say; else the uplink's.
    pub mtu: Option<u32>,
    /// Whether routes to other nodes' blocks are written, for nodes on one Ethernet.
    pub route_blocks: bool,
    /// There is no Kubernetes: an ADD need not name a pod, and namespaces need not exist.
    pub outside_kubernetes: bool,
    /// The cluster's own network, if its pods may keep addresses by claims, whatever configuration a caller passes.
    pub persistent_network: Option<String>,
    /// Where Whereabouts' kinds are.
    pub whereabouts_namespace: String,
    /// Whether every address of a shared range gets its reservation: as long as a Whereabouts writes to the same objects.
    pub whereabouts_reserves_always: bool,
    /// The name of the cluster's own network, as its configuration on the nodes has it.
    pub default_network: String,
    /// Further dialects, which are asked before those that the agent has itself.
    pub dialects: Vec<Arc<dyn Dialect>>,
    /// How long calls that are under way may take when the agent is told to stop.
    pub stop_patience: Duration,
    /// How often tombstones are looked for while the agent runs: a DEL whose answer was lost leaves one, too.
    pub tombstone_interval: Duration,
}

impl AgentOptions {
    /// The usual ones for the node of this name.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node::Settings::new(node),
            kernel: tenure_linux::Settings::default(),
            paths: Paths::default(),
            state: None,
            witnesses: witness::Places::default(),
            namespace: None,
            mtu: None,
            route_blocks: false,
            outside_kubernetes: false,
            persistent_network: None,
            whereabouts_namespace: "kube-system".to_owned(),
            whereabouts_reserves_always: false,
            default_network: "tenure".to_owned(),
            dialects: Vec::new(),
            stop_patience: Duration::from_secs(5),
            tombstone_interval: Duration::from_secs(10),
        }
    }
}

/// Where an agent's files are: all in one directory that is empty after a reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The directory.
    pub run: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self::in_directory("/run/tenure")
    }
}

impl Paths {
    /// All in this directory.
    pub fn in_directory(run: impl Into<PathBuf>) -> Self {
        Self { run: run.into() }
    }

    /// The directory of the journal.
    pub fn journal(&self) -> &Path {
        &self.run
    }

    /// The socket that the plugin calls.
    pub fn socket(&self) -> PathBuf {
        self.run.join("tenured.sock")
    }

    /// The socket at which people and programs ask how the node is.
    pub fn state_socket(&self) -> PathBuf {
        self.run.join("state.sock")
    }

    /// The directory in which it is remembered which containers have something in shared ledgers.
    pub fn ledgers(&self) -> PathBuf {
        self.run.join("ledgers")
    }

    /// The directory of tombstones.
    pub fn tombstones(&self) -> PathBuf {
        self.run.join("tombstones")
    }
}
