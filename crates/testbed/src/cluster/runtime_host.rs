//! A host with containerd and without Kubernetes.

use tokio::task::spawn_blocking;

use super::{ClusterError, CniChoice, Node, make_nodes, prepare};
use crate::binaries::{Binaries, Program};
use crate::run_directory::RunDirectory;

use super::network::Network;

/// The programs on it.
const PROGRAMS: [Program; 6] = [
    Program::Containerd,
    Program::ContainerdShim,
    Program::Ctr,
    Program::Runc,
    Program::Busybox,
    Program::Ip,
];

/// A host with containerd, the usual images, and the reference plugins; for CRI clients other than a kubelet.
/// Dropping it ends it; after a panic its logs stay.
#[derive(Debug)]
pub struct RuntimeHost {
    /// In this order: nothing may write into the directory when it is removed.
    node: Node,
    _network: Network,
    _directory: RunDirectory,
}

impl RuntimeHost {
    /// Starts one and waits until containerd answers. Needs root.
    pub async fn start() -> Result<Self, ClusterError> {
        spawn_blocking(Self::start_blocking).await?
    }

    fn start_blocking() -> Result<Self, ClusterError> {
        let binaries = Binaries::locate(PROGRAMS.into_iter().chain(Program::CNI))?;
        let (directory, network) = prepare()?;
        let made = make_nodes(network, &binaries, 1, CniChoice::None, directory.path(), &directory.logs());
        let (network, mut nodes) = made.inspect_err(|_| directory.keep_logs())?;
        let node = nodes.pop().ok_or_else(|| ClusterError::Nodes { nodes: 0, most: 1 })?;
        Ok(Self { node, _network: network, _directory: directory })
    }

    /// The host, as a node that has not joined a cluster.
    pub fn node(&self) -> &Node {
        &self.node
    }
}
