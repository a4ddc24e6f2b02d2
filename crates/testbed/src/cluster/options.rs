//! What a cluster is to be like.

/// What a cluster is to be like. The default is what most tests want.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// How many nodes.
    pub nodes: usize,
    /// What gives pods their addresses and interfaces.
    pub cni: CniChoice,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { nodes: 3, cni: CniChoice::PtpHostLocal }
    }
}

/// What gives pods their addresses and interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CniChoice {
    /// The reference plugins ptp and host-local, with a /24 for each node and routes between them.
    PtpHostLocal,
    /// Nothing: nodes become ready when the test has put a configuration into their `/etc/cni/net.d`. The reference
    /// plugins are in their `/opt/cni/bin`.
    None,
}
