//! The stages of an agent.

use tokio::sync::watch;

/// A stage of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It reads journal, kernel and API server; nothing is assigned.
    Reading,
    /// All is known; it performs the DELs that came while no agent ran.
    Replaying,
    /// It answers the plugin.
    Serving,
    /// It was told to stop: it accepts no new calls, and finishes those in progress.
    Stopping,
    /// It has ended.
    Ended,
}

/// Shows the stage of an agent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Progress(watch::Receiver<Stage>);

impl Progress {
    /// The current stage.
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Whether it answers the plugin.
    pub fn is_serving(&self) -> bool {
        self.stage() == Stage::Serving
    }

    /// Waits until it reaches this stage or a later one.
    pub async fn reach(&mut self, stage: Stage) -> Stage {
        match self.0.wait_for(|now| *now >= stage).await {
            Ok(now) => *now,
            // The agent is gone, and its sender with it.
            Err(_) => Stage::Ended,
        }
    }

    /// Waits until it answers the plugin; false if it never will.
    pub async fn serving(&mut self) -> bool {
        self.reach(Stage::Serving).await == Stage::Serving
    }
}

/// Sets the agent's stage, which only goes forward. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Stages(watch::Sender<Stage>);

impl Stages {
    pub(super) fn begin() -> Self {
        Self(watch::Sender::new(Stage::Reading))
    }

    pub(super) fn progress(&self) -> Progress {
        Progress(self.0.subscribe())
    }

    pub(super) fn replayed(&self) {
        self.enter(Stage::Replaying);
    }

    pub(super) fn enter(&self, stage: Stage) {
        self.0.send_if_modified(|now| {
            let further = stage > *now;
            *now = (*now).max(stage);
            further
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_told_also_of_the_end() {
        let stages = Stages::begin();
        let mut progress = stages.progress();
        stages.replayed();
        assert_eq!(progress.reach(Stage::Replaying).await, Stage::Replaying);
        stages.enter(Stage::Serving);
        stages.replayed();
        assert!(progress.serving().await, "it went back");
        stages.enter(Stage::Stopping);
        assert!(!progress.serving().await);
        drop(stages);
        assert_eq!(progress.reach(Stage::Ended).await, Stage::Ended);
    }
}
