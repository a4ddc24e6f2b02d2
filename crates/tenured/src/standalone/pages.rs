//! What one host tells over HTTP: what its agent tells, and its controller and pool files with it.

use std::sync::Arc;

use tenure_agent::inspect::Inspector;
use tenure_controller::{Health, Metrics};
use tenure_daemon::Pages;
use tokio::sync::watch;

use super::{Mistake, Standalone};

/// How a scrape ends.
const END: &str = "# EOF\n";

/// What is told beside the agent's own.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    mistakes: watch::Receiver<Vec<Mistake>>,
}

impl Beside {
    pub(super) fn of(standalone: &Standalone) -> Self {
        Self {
            health: standalone.controller_health(),
            metrics: standalone.controller_metrics(),
            mistakes: standalone.mistakes(),
        }
    }

    /// The agent's pages, with more on them.
    pub(super) fn pages(self, inspector: &Inspector, pages: Pages) -> Pages {
        let [live, ready, metrics] = [(); 3].map(|()| (self.clone(), inspector.clone()));
        pages
            .verdict("/healthz", move || {
                let (beside, inspector) = live.clone();
                async move { both(&inspector.live().await, &beside.health.live()) }
            })
            .verdict("/readyz", move || {
                let (beside, inspector) = ready.clone();
                async move {
                    let (good, mut text) = both(&inspector.ready().await, &beside.health.ready());
                    // They say what is wrong, and change nothing that works.
                    text.extend(beside.mistakes.borrow().iter().map(|mistake| format!("{mistake}\n")));
                    (good, text)
                }
            })
            .metrics(move || {
                let (beside, inspector) = metrics.clone();
                async move {
                    let agents = inspector.metrics().await?;
                    let ours = agents.strip_suffix(END).unwrap_or(&agents);
                    Ok(format!("{ours}{}", beside.metrics.text()?))
                }
            })
    }
}

fn both(agent: &(bool, String), controller: &(bool, String)) -> (bool, String) {
    (agent.0 && controller.0, format!("{}controller:\n{}", agent.1, controller.1))
}
