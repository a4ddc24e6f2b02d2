//! The options of an agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::alias::AliasOptions;
use crate::egress::EgressOptions;
use crate::node_addresses::NodeAddressesOptions;
use crate::part::Part;
use crate::wire::StandIn;
use crate::{evidence, node};

/// The options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The node's settings, including its name.
    pub node: node::Settings,
    /// The kernel resources to use.
    pub kernel: tenure_linux::Settings,
    /// Who answers for the kernel, in measurements of everything else; otherwise the kernel itself.
    pub stand_in: Option<StandIn>,
    /// The paths of its files.
    pub paths: Paths,
    /// A directory that survives a reboot, for the mark of the boot that the agent last ran on. Without it, a
    /// missing journal always counts as lost while containers run.
    pub state: Option<PathBuf>,
    /// How much of the node's history is kept in that directory, if any.
    pub history: Option<tenure_history::Limits>,
    /// Where to find out who uses which addresses when the journal cannot tell.
    pub evidence: evidence::Sources,
    /// The path of the host's network namespace; otherwise the caller's.
    pub namespace: Option<PathBuf>,
    /// The MTU of pods' interfaces if the network's configuration has none; otherwise the uplink's.
    pub mtu: Option<u32>,
    /// Whether the agent writes routes to other nodes' blocks, for nodes on one Ethernet.
    pub route_blocks: bool,
    /// Whether there is no Kubernetes: then an ADD need not name a pod, and namespaces need not exist.
    pub outside_kubernetes: bool,
    /// The cluster's own network, if its pods may keep addresses by claims, whatever configuration a caller
    /// passes.
    pub persistent_network: Option<String>,
    /// The namespace of Whereabouts' objects.
    pub whereabouts_namespace: String,
    /// Whether every address of a shared range gets a reservation: needed while Whereabouts writes to the
    /// same objects.
    pub whereabouts_reserves_always: bool,
    /// The name of the cluster's own network in the nodes' configuration.
    pub default_network: String,
    /// How alias addresses of the machine are given to pods, if they are.
    pub alias: Option<AliasOptions>,
    /// How egress is done, if it is.
    pub egress: Option<EgressOptions>,
    /// How the node's own addresses are managed, if they are.
    pub node_addresses: Option<NodeAddressesOptions>,
    /// Further parts. Their dialects are asked before the agent's own.
    pub parts: Vec<Arc<dyn Part>>,
    /// How long calls in progress may take when the agent is told to stop.
    pub stop_patience: Duration,
    /// How often the agent looks for tombstones while it runs: a DEL whose answer was lost leaves one, too.
    pub tombstone_interval: Duration,
}

impl AgentOptions {
    /// The defaults for the node of this name.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node::Settings::new(node),
            kernel: tenure_linux::Settings::default(),
            stand_in: None,
            paths: Paths::default(),
            state: None,
            history: Some(tenure_history::Limits::default()),
            evidence: evidence::Sources::default(),
            namespace: None,
            mtu: None,
            route_blocks: false,
            outside_kubernetes: false,
            persistent_network: None,
            whereabouts_namespace: "kube-system".to_owned(),
            whereabouts_reserves_always: false,
            default_network: "tenure".to_owned(),
            alias: None,
            egress: Some(EgressOptions::default()),
            node_addresses: Some(NodeAddressesOptions::default()),
            parts: Vec::new(),
            stop_patience: Duration::from_secs(5),
            tombstone_interval: Duration::from_secs(10),
        }
    }
}

/// The paths of an agent's files: all in one directory that is empty after a reboot.
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

    /// The socket where people and programs read the node's state.
    pub fn state_socket(&self) -> PathBuf {
        self.run.join("state.sock")
    }

    /// The directory that records which containers have something in shared ledgers.
    pub fn ledgers(&self) -> PathBuf {
        self.run.join("ledgers")
    }

    /// The directory that records attachments of other plugins, for egress.
    pub fn egress(&self) -> PathBuf {
        self.run.join("egress")
    }

    /// The directory of tombstones.
    pub fn tombstones(&self) -> PathBuf {
        self.run.join("tombstones")
    }
}
