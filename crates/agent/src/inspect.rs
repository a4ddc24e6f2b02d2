//! What people and programs see of an agent: its health, its metrics, and the node as JSON.
//!
//! | path | says |
//! |---|---|
//! | `/healthz` | whether the node's loop answers; if not, a restart may help |
//! | `/readyz` | whether the agent answers the plugin; an unreachable API server is shown, but does not count |
//! | `/metrics` | numbers for Prometheus |
//! | `/v1/node` | everything, as [`tenure_view::Node`]: pods, addresses and traffic, with restricted access |
//! | `/v1/history` | who had which address when, as [`tenure_view::History`], with the same restricted access |
//!
//! Every page is made on request, from one read of the node's state or of its history's files, so nothing here grows with time.

mod api_calls;
mod calls;
mod health;
mod kernel;
mod metrics;
mod view;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tenure_cni::Failure;
use tenure_daemon::{Guard, Pages, Right};
use tenure_handles::{Clock, Timestamp};
use tenure_linux::Host;

pub use api_calls::ApiCalls;
pub use calls::Calls;
use kernel::InventoryReader;
use metrics::Metrics;
pub(crate) use metrics::float;
pub(crate) use view::holder;

use crate::drive::Handle;
use crate::history::HistoryHandle;
use crate::node::Node;
use crate::objects::ApiHealth;
use crate::part::Inspect;
use crate::run::Stage;

/// How long the node's loop may take to answer before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is shown of an agent.
pub struct Inspected {
    /// The handle to the node.
    pub node: Handle,
    /// The node's name.
    pub name: String,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The plugin's calls.
    pub calls: Calls,
    /// The calls to the API server.
    pub api_calls: ApiCalls,
    /// How the connection to the API server is.
    pub objects: Box<dyn Fn() -> ApiHealth + Send + Sync>,
    /// How far the agent is.
    pub stage: Box<dyn Fn() -> Stage + Send + Sync>,
    /// Its parts.
    pub parts: Vec<Arc<dyn Inspect>>,
    /// The node's history, if it is kept.
    pub history: Option<HistoryHandle>,
    /// The host, to observe the kernel. Without it nothing is shown of the kernel.
    pub kernel: Option<Host>,
}

impl std::fmt::Debug for Inspected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspected").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Shows the state of an agent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inspector {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    agent: Inspected,
    reader: Option<InventoryReader>,
    metrics: Metrics,
    started: Timestamp,
}

impl Inspector {
    /// An inspector of an agent.
    pub fn new(mut agent: Inspected) -> Self {
        let metrics = Metrics::new(&agent.calls, &agent.api_calls, &agent.parts);
        let reader = agent.kernel.take().map(InventoryReader::new);
        let started = agent.clock.now();
        Self { inner: Arc::new(Inner { agent, reader, metrics, started }) }
    }

    /// The HTTP pages.
    pub fn pages(&self) -> Pages {
        let [live, ready, metrics, view] = [(); 4].map(|()| self.clone());
        let pages = match self.inner.agent.history.clone() {
            Some(history) => Pages::default()
                .questions(tenure_view::HISTORY_PATH, move |values| history.clone().answer(values)),
            None => Pages::default(),
        };
        pages
            .verdict("/healthz", move || {
                let inspector = live.clone();
                async move { inspector.live().await }
            })
            .verdict("/readyz", move || {
                let inspector = ready.clone();
                async move { inspector.ready().await }
            })
            .metrics(move || {
                let inspector = metrics.clone();
                async move { inspector.metrics().await }
            })
            .json(tenure_view::PATH, move || {
                let inspector = view.clone();
                async move { inspector.view().await }
            })
    }

    /// The pages for anyone who can reach the node's port: the same, but the node itself only for callers
    /// that the API server knows and allows, and for nobody without such a server.
    pub fn pages_for_others(&self, pages: Pages, api: Option<Client>) -> Pages {
        let Some(client) = api else {
            return pages.without(tenure_view::PATH).without(tenure_view::HISTORY_PATH);
        };
        let Inspected { name, clock, .. } = &self.inner.agent;
        let right = Right {
            group: tenure_view::GROUP,
            resource: tenure_view::RESOURCE,
            subresource: tenure_view::SUBRESOURCE,
            name: name.clone(),
        };
        let guard = Guard::new(client, Arc::clone(clock), tenure_view::audience(name), right);
        pages.guarded(tenure_view::PATH, guard.clone()).guarded(tenure_view::HISTORY_PATH, guard)
    }

    /// The metrics, as text.
    pub async fn metrics(&self) -> Result<String, std::fmt::Error> {
        let seen = self.look(metrics::Seen::of).await.ok();
        let (health, stage) = (self.health(), (self.inner.agent.stage)());
        self.inner.metrics.text(seen.as_ref(), &self.inner.agent.parts, &health, stage == Stage::Serving)
    }

    /// How all watches are.
    fn health(&self) -> ApiHealth {
        let Inspected { objects, parts, .. } = &self.inner.agent;
        parts.iter().filter_map(|part| part.health()).fold(objects(), ApiHealth::and)
    }

    /// Reads the node's state, within the time that its loop may take.
    async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> R + Send + 'static,
    ) -> Result<R, String> {
        match tokio::time::timeout(PATIENCE, self.inner.agent.node.look(look)).await {
            Ok(Ok(seen)) => Ok(seen),
            Ok(Err(error)) => Err(Failure::from(error).message),
            Err(_) => Err(format!("the node's loop has not answered for {} s", PATIENCE.as_secs())),
        }
    }
}

#[cfg(test)]
mod tests;
