//! How far an agent is.

use tokio::sync::watch;

/// How far an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It reads journal, kernel and API server; nothing is assigned.
    Reading,
    /// All is known; the DELs that came while no agent ran are done.
    Replaying,
    /// The plugin is answered.
    Serving,
    /// It was told to stop: nobody is let in any more, and calls that are under way are finished.
    Stopping,
    /// It has ended.
    Ended,
}

/// Sees how far an agent is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Progress(watch::Receiver<Stage>);

impl Progress {
    /// How far it is.
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Whether the plugin is answered.
    pub fn is_serving(&self) -> bool {
        self.stage() == Stage::Serving
    }

    /// Waits until it is that far, or further.
    pub async fn reach(&mut self, stage: Stage) -> Stage {
        match self.0.wait_for(|now| *now >= stage).await {
            Ok(now) => *now,
            // Whoever says how far it is has gone with it.
            Err(_) => Stage::Ended,
        }
    }

    /// Waits until the plugin is answered; false if it never will be.
    pub async fn serving(&mut self) -> bool {
        self.reach(Stage::Serving).await == Stage::Serving
    }
}

/// Says how far the agent is; it only ever goes forward. Cheap to clone.
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
