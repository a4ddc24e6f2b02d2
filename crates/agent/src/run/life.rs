//! A running agent: its thread, from the start of the node's loop to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tenure_handles::Clock;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::RunError;
use super::executor::NodeExecutor;
use super::options::AgentOptions;
use super::stage::{Stage, Stages};
use super::tombstones::Tombstones;
use crate::drive::Driver;
use crate::history::NodeHistory;
use crate::serve::{self, PostponedDels, Service};

/// Runs calls on one thread from reading to answering. With several threads, each would have to be woken up
/// for a call, which takes the kernel as long as the decision itself.
///
/// The thread ends with the runtime that it was started on, at whatever point: without the watches that run
/// there, it would answer for an agent that no longer exists.
pub(super) fn on_own_thread<T: Send + 'static>(
    life: impl Future<Output = T> + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel();
    let (mut around, gone) = oneshot::channel::<()>();
    tokio::spawn(async move { around.closed().await });
    std::thread::Builder::new().name("calls".into()).spawn(move || {
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = life => Some(outcome),
                _ = gone => None,
            }
        });
        // Work still in progress here ends with the runtime, before anybody learns of the end.
        drop(runtime);
        if let Some(outcome) = outcome {
            // The receiver is gone only when the process is ending.
            let _ = end.send(outcome);
        }
    })?;
    Ok(ended)
}

/// From the start of the node's loop to its end.
pub(super) struct Life<C> {
    pub(super) options: AgentOptions,
    pub(super) service: Service<C>,
    pub(super) postponed: PostponedDels,
    pub(super) history: Option<Arc<NodeHistory>>,
    pub(super) stages: Stages,
    /// Cancelling this stops the agent.
    pub(super) stop: CancellationToken,
    /// Cancelled once it has stopped; then loops and watches end.
    pub(super) life: CancellationToken,
}

impl<C: Clock + Clone> Life<C> {
    /// Lives. The plugin is answered only after `ready`.
    pub(super) async fn live(
        self,
        driver: Driver<C, NodeExecutor>,
        ready: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let mut driving = tokio::spawn(driver.run(self.life.clone().cancelled_owned()));
        let ended = tokio::select! {
            ended = self.serve(ready) => ended,
            ended = &mut driving => Err(ended.err().map_or(RunError::Driver, RunError::Task)),
        };
        self.life.cancel();
        if !driving.is_finished() {
            driving.await?;
        }
        if let Some(history) = &self.history {
            history.stop();
        }
        self.stages.enter(Stage::Ended);
        info!("ended; everything stays in place for the next start");
        ended
    }

    /// Waits until all is known, and serves until told to stop.
    async fn serve(&self, ready: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut progress = self.stages.progress();
        tokio::select! {
            _ = progress.reach(Stage::Replaying) => {}
            () = self.stop.cancelled() => return Ok(()),
        }
        tokio::select! {
            () = ready => {}
            () = self.stop.cancelled() => return Ok(()),
        }
        let tombstones = Tombstones::new(self.postponed.clone(), self.service.clone());
        tombstones.replay().await;
        let socket = self.options.paths.socket();
        let listening = serve::listen(&socket)?;
        // The socket exists and serves nobody yet: postponed DELs come first.
        tombstones.replay().await;
        self.stages.enter(Stage::Serving);
        info!(socket = %socket.display(), "answering the plugin");
        let mut serving =
            std::pin::pin!(listening.serve(self.service.clone(), self.stop.clone().cancelled_owned()));
        tokio::select! {
            ended = &mut serving => return ended.map_err(RunError::Serve),
            () = replay_periodically(&tombstones, self.options.tombstone_interval) => {}
            () = self.stop.cancelled() => {}
        }
        self.stages.enter(Stage::Stopping);
        if let Ok(ended) = tokio::time::timeout(self.options.stop_patience, serving).await {
            return ended.map_err(RunError::Serve);
        }
        warn!(waited = ?self.options.stop_patience, "calls are still in progress; they are told to try again");
        Ok(())
    }
}

/// Replays tombstones periodically, forever.
async fn replay_periodically<C: Clock + Clone>(tombstones: &Tombstones<C>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        tombstones.replay().await;
    }
}
