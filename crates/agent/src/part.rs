//! The seam: what a part of the agent is beside the node.
//!
//! A [`Part`] is started once, with what the agent lends it ([`Core`]), and returns by what the agent reaches it ([`Started`]): dialects that
//! answer the plugin, a source of blocks, and what people see of it. Parts that come with the agent are wired in `run/parts.rs`, and
//! return the same. The rest of the agent knows nothing of any part.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use prometheus_client::registry::Registry;
use tenure_handles::Clock;
use tokio_util::sync::CancellationToken;

use crate::drive::Handle;
use crate::objects::{ApiHealth, Objects};
use crate::pods::Pods;
use crate::serve::Dialect;
use crate::sources::BlockSource;

/// A part of the agent.
pub trait Part: Debug + Send + Sync + 'static {
    /// Starts its watches and tasks, which end with [`Core::stop`]. Must not block. An error ends the start of the agent.
    fn start(&self, core: &Core) -> io::Result<Started>;
}

/// What the agent lends its parts.
#[derive(Clone)]
pub struct Core {
    /// The API server. Calls are counted.
    pub client: Client,
    /// The handle to the node.
    pub node: Handle,
    /// The node's name.
    pub name: String,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// This node's pods.
    pub pods: Pods,
    /// The API server's side of pools and blocks, which also publishes events.
    pub objects: Objects,
    /// The path of the host's network namespace; otherwise the agent's.
    pub namespace: Option<PathBuf>,
    /// A directory that is empty after a reboot.
    pub run: PathBuf,
    /// A directory that survives a reboot.
    pub state: Option<PathBuf>,
    /// Ends when the agent has answered its last call.
    pub stop: CancellationToken,
}

impl Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A part that was started. What it does not have stays empty.
#[derive(Default)]
pub struct Started {
    /// Answers the plugin.
    pub dialects: Vec<Arc<dyn Dialect>>,
    /// Has blocks of some pools.
    pub source: Option<Arc<dyn BlockSource>>,
    /// What people see of it.
    pub inspect: Option<Arc<dyn Inspect>>,
    /// Ends when it can serve. The plugin is answered only then, so it must end also without the API server.
    pub ready: Option<BoxFuture<'static, ()>>,
}

impl Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Started").field("dialects", &self.dialects).finish_non_exhaustive()
    }
}

/// What people see of a part.
pub trait Inspect: Send + Sync + 'static {
    /// How its watches are, if it has any.
    fn health(&self) -> Option<ApiHealth> {
        None
    }

    /// Registers its metrics.
    fn register(&self, _: &mut Registry) {}

    /// Sets its metrics: they are about to be read.
    fn count(&self) {}

    /// Adds what it shows to the view of the node.
    fn show(&self, _: &mut tenure_view::Node) {}
}
