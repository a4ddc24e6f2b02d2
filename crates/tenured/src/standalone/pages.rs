//! The HTTP pages of one host: those of its agent, extended by its controller and pool files.

use std::sync::Arc;

use tenure_agent::inspect::Inspector;
use tenure_controller::{Health, Metrics};
use tenure_daemon::Pages;
use tokio::sync::watch;

use super::{Mistake, Standalone};

/// The end of a metrics page.
const END: &str = "# EOF\n";

/// What is added to the agent's pages.
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

    /// The agent's pages, extended.
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
                    // They show what is wrong, and do not change the status.
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
