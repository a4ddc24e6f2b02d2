//! The options of a cluster.

/// The options of a cluster. The defaults suit most tests.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// How many nodes.
    pub nodes: usize,
    /// What assigns addresses and interfaces to pods.
    pub cni: CniChoice,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { nodes: 3, cni: CniChoice::PtpHostLocal }
    }
}

/// What assigns addresses and interfaces to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CniChoice {
    /// The reference plugins ptp and host-local, with a /24 for each node and routes between them.
    PtpHostLocal,
    /// Nothing: nodes become ready when the test has written a configuration to their `/etc/cni/net.d`. The
    /// reference plugins are in their `/opt/cni/bin`.
    None,
}
