//! A real cluster on one machine: a control plane, a scheduler, and nodes made of namespaces.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tenure_testbed::cluster::{CniChoice, Cluster, NodePart, ClusterOptions, images};
//! let cluster = Cluster::start(ClusterOptions { nodes: 3, cni: CniChoice::PtpHostLocal }).await?;
//! cluster.kubectl(&["run", "one", "--image", images::BUSYBOX, "--", "sleep", "1000"]).await?;
//! cluster.node(0).kill(NodePart::Kubelet).await?;
//! # Ok(()) }
//! ```
//!
//! # What a node is
//!
//! A [host](crate::hosts) with containerd, kubelet and kube-proxy: network, mount, PID, UTS and IPC namespaces, and a
//! control group in every hierarchy. It is on one Ethernet segment with the others and with this machine, where the
//! control plane runs. It shares the machine's files except those that a node has of its own: `/run`, `/opt/cni`,
//! `/etc/cni`, `/etc/kubernetes`, `/etc/tenure`, `/var/log`, `/var/lib/cni`, `/var/lib/containerd`, `/var/lib/kubelet`,
//! `/var/lib/tenure`. (Where the machine has no such directory, an empty one is made and stays: something has to be there
//! to mount on.) So manifests
//! with the usual paths work, and nodes do not see each other.
//!
//! # Who cleans up
//!
//! Processes, pods, mounts, interfaces and routes are the kernel's to remove, as [`crate::hosts`] explains, also after a
//! SIGKILL of the test. Control groups and files are removed when the cluster is dropped, or else by the next start.

mod cgroups;
mod error;
pub mod images;
mod network;
mod node;
mod options;
mod runtime_host;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, ListParams};
use tenure_handles::{Clock as _, SystemClock};
use tokio::task::spawn_blocking;

use crate::binaries::{Binaries, Program};
use crate::control_plane::{self, ControlPlane};
use crate::run_directory::RunDirectory;

use network::Network;
use node::{Credentials, Plan};

pub use error::ClusterError;
pub use node::{Node, NodePart};
pub use options::{ClusterOptions, CniChoice};
pub use runtime_host::RuntimeHost;
pub use tenure_image::Image;

/// How long nodes may take to become ready: long enough for two cores that build something else at the same
/// time.
const READY_LIMIT: Duration = crate::wait::PATIENCE;
const INTERVAL: Duration = Duration::from_millis(100);

/// A running cluster. Dropping it ends it and removes its data; after a panic its logs stay.
#[derive(Debug)]
pub struct Cluster {
    /// In this order: the nodes' programs would log errors about a missing control plane, and nothing may
    /// write into the directory when it is removed.
    nodes: Vec<Arc<Node>>,
    control_plane: ControlPlane,
    network: Network,
    directory: RunDirectory,
}

impl Cluster {
    /// Starts one and waits until its nodes are ready; without CNI, until they are registered.
    ///
    /// The programs are found, built or installed as [`Binaries::locate`] says. Needs root.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        let count =
            u8::try_from(options.nodes).ok().filter(|count| (1..=Network::MOST_NODES).contains(count));
        let most = usize::from(Network::MOST_NODES);
        let count = count.ok_or(ClusterError::Nodes { nodes: options.nodes, most })?;
        let binaries = spawn_blocking(|| Binaries::locate(Program::all())).await??;
        let (directory, network) = spawn_blocking(prepare).await??;
        let addresses = network.addresses();
        let control_plane = control_plane::ControlPlaneOptions::default()
            .with_scheduler()
            .service_range(addresses.services())
            .advertised_at(addresses.machine().into())
            // How often it checks nodes, to allow pods on those that became ready; the default is five
            // seconds.
            .argument(control_plane::Part::ControllerManager, "--node-monitor-period=1s");
        let (path, logs) = (directory.path().to_owned(), directory.logs());
        // Neither needs the other until kubelets join.
        let (nodes, control_plane) = tokio::join!(
            spawn_blocking(move || make_nodes(network, &binaries, count, options.cni, &path, &logs)),
            ControlPlane::start(control_plane),
        );
        let started = match (nodes?, control_plane) {
            (Ok((network, nodes)), Ok(control_plane)) => Ok((network, nodes, control_plane)),
            (Err(error), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
        };
        let (network, nodes, control_plane) = started.inspect_err(|_| directory.keep_logs())?;
        let nodes = nodes.into_iter().map(Arc::new).collect();
        let cluster = Self { nodes, control_plane, network, directory };
        match cluster.join(options.cni).await {
            Ok(()) => Ok(cluster),
            Err(error) => {
                cluster.keep_logs();
                Err(error)
            }
        }
    }

    /// Starts the kubelets and waits for their nodes.
    async fn join(&self, cni: CniChoice) -> Result<(), ClusterError> {
        let plane = &self.control_plane;
        let url = plane.url();
        let kube_proxy = plane.kubeconfig_for(&url, "system:kube-proxy", &[])?;
        let (authority, pods) = (plane.authority(), self.network.addresses().all_pods());
        for node in &self.nodes {
            let user = format!("system:node:{}", node.name());
            let kubelet = plane.kubeconfig_for(&url, &user, &["system:nodes"])?;
            let credentials =
                Credentials { authority: &authority, kubelet: &kubelet, kube_proxy: &kube_proxy };
            node.join(credentials, &pods)?;
        }
        match cni {
            CniChoice::PtpHostLocal => self.await_nodes(READY_LIMIT, "ready", is_ready).await,
            CniChoice::None => self.await_nodes(READY_LIMIT, "registered", |_| true).await,
        }
    }

    /// Waits until all nodes are ready.
    pub async fn ready(&self, limit: Duration) -> Result<(), ClusterError> {
        self.await_nodes(limit, "ready", is_ready).await
    }

    async fn await_nodes(
        &self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&core::Node) -> bool,
    ) -> Result<(), ClusterError> {
        let nodes: Api<core::Node> = Api::all(self.client()?);
        let start = SystemClock.now();
        loop {
            for (node, part) in self.nodes.iter().flat_map(|node| NodePart::ALL.map(|part| (node, part))) {
                node.check(part)?;
            }
            let listed =
                nodes.list(&ListParams::default()).await.map_err(control_plane::ControlPlaneError::from)?;
            let so: Vec<String> =
                listed.items.into_iter().filter(&is_so).filter_map(|node| node.metadata.name).collect();
            if self.nodes.iter().all(|node| so.iter().any(|name| name == node.name())) {
                return Ok(());
            }
            if SystemClock.now().since(start) >= limit {
                let what = format!("not every node is {what}");
                return Err(ClusterError::NotReady {
                    what,
                    limit,
                    last: format!("only {so:?} of {}", self.nodes.len()),
                });
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// The control plane: clients, users, and faults of its parts.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// A client that may do everything.
    pub fn client(&self) -> Result<kube::Client, ClusterError> {
        Ok(self.control_plane.client()?)
    }

    /// Runs kubectl as the administrator; returns its output, or an error with its message.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        Ok(self.control_plane.kubectl(arguments).await?)
    }

    /// Applies manifests, as YAML or JSON.
    pub async fn apply(&self, manifests: &str) -> Result<String, ClusterError> {
        Ok(self.control_plane.kubectl_with_input(&["apply", "-f", "-"], manifests).await?)
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().map(Arc::as_ref)
    }

    /// The node of this number, from 0; its name counts from 1.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// The address of this machine on the nodes' segment, where the API server listens.
    pub fn machine(&self) -> Ipv4Addr {
        self.network.addresses().machine()
    }

    /// The beginning of an unused network of IPv6, for the test's own pools: a /64 for each number below 0x8000 but 0.
    pub fn ipv6(&self, network: u16) -> String {
        self.network.addresses().ipv6(network)
    }

    /// Unused addresses of this cluster, as a CIDR: for the test's own pools.
    pub fn spare_addresses(&self) -> String {
        self.network.addresses().spare()
    }

    /// Imports an image on all nodes.
    pub async fn import(&self, image: &Image) -> Result<(), ClusterError> {
        let path = self.directory.path().join("image.tar");
        image.save(&path)?;
        self.import_saved(&path).await
    }

    /// Imports an image from a file on all nodes.
    pub async fn import_saved(&self, path: &Path) -> Result<(), ClusterError> {
        let import = |node: &Arc<Node>| {
            let (node, path) = (Arc::clone(node), path.to_owned());
            spawn_blocking(move || node.import(&path))
        };
        for imported in try_join_all(self.nodes.iter().map(import)).await? {
            imported?;
        }
        Ok(())
    }

    /// The directory of the nodes' data and [logs](Self::logs).
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The directory of the nodes' logs. The control plane's are in [`ControlPlane::logs`].
    pub fn logs(&self) -> PathBuf {
        self.directory.logs()
    }

    /// Keeps the logs even without a panic.
    pub fn keep_logs(&self) {
        self.directory.keep_logs();
        self.control_plane.keep_logs();
    }
}

/// A directory and a network for a cluster; removes what killed ones left behind.
fn prepare() -> Result<(RunDirectory, Network), ClusterError> {
    let directory = RunDirectory::create("cluster").map_err(|source| ClusterError::File {
        act: "making",
        path: "a directory for the cluster's data".into(),
        source,
    })?;
    cgroups::sweep()?;
    Ok((directory, Network::create()?))
}

/// Nodes with a running containerd that has the images which every pod needs.
fn make_nodes(
    network: Network,
    binaries: &Binaries,
    count: u8,
    cni: CniChoice,
    directory: &Path,
    logs: &Path,
) -> Result<(Network, Vec<Node>), ClusterError> {
    let create = |index| Node::create(&Plan { index, network: &network, binaries, cni, directory, logs });
    let nodes = (0..count).map(create).collect::<Result<Vec<Node>, _>>()?;
    if cni == CniChoice::PtpHostLocal {
        network.route_to_pods(None, count)?;
        for (index, node) in (0..count).zip(&nodes) {
            network.route_to_pods(Some((node.host(), index)), count)?;
        }
    }
    for node in &nodes {
        node.start_containerd()?;
    }
    let busybox = binaries.path(Program::Busybox)?;
    for image in [images::pause(busybox)?, images::busybox(busybox)?] {
        let path = directory.join("image.tar");
        image.save(&path)?;
        import_everywhere(&nodes, &path)?;
    }
    Ok((network, nodes))
}

fn import_everywhere(nodes: &[Node], path: &Path) -> Result<(), ClusterError> {
    thread::scope(|scope| {
        let imports: Vec<_> = nodes.iter().map(|node| scope.spawn(|| node.import(path))).collect();
        imports.into_iter().try_for_each(|import| match import.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Whether a node is ready and the scheduler may use it: the taint is removed a moment after the condition is
/// set.
fn is_ready(node: &core::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    ready && !taints.into_iter().flatten().any(|taint| taint.key == "node.kubernetes.io/not-ready")
}
