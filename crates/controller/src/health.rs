//! The health of the controller.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_handles::{Clock, Timestamp};

/// The loop runs at least this often; otherwise it hangs.
const HANGS: Duration = Duration::from_mins(1);
/// The lease is read or written every few seconds. An API server that has been silent for this long is out of reach.
const OUT_OF_REACH: Duration = Duration::from_secs(30);

/// What is known of the controller's state.
pub struct Health {
    clock: Arc<dyn Clock>,
    api: Arc<tenure_watch::Health>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    beat: Timestamp,
    synced: bool,
    role: String,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    pub(crate) fn new(clock: Arc<dyn Clock>, api: Arc<tenure_watch::Health>) -> Self {
        let beat = clock.now();
        Self { clock, api, state: Mutex::new(State { beat, role: "standby".to_owned(), ..State::default() }) }
    }

    /// Whether the process works, with an explanation. If not, a restart may help.
    pub fn live(&self) -> (bool, String) {
        let silent = self.clock.now().since(self.state().beat);
        let live = silent < HANGS;
        let text = if live { "ok".to_owned() } else { format!("the loop has not gone round for {silent:?}") };
        (live, text + "\n")
    }

    /// Whether it can work, as leader or standing by, with an explanation.
    pub fn ready(&self) -> (bool, String) {
        let now = self.clock.now();
        let (state, api) = (self.state(), self.api.look());
        let reached = api.last_answer.is_some_and(|answered| now.since(answered) < OUT_OF_REACH);
        let watched = api.watches.values().all(|watch| watch.failing.is_none());
        let mut text = format!("role: {}\n", state.role);
        let since = match api.last_answer {
            None => "never answered".to_owned(),
            Some(answered) => format!("answered {:?} ago", now.since(answered)),
        };
        _ = writeln!(text, "API server: {since}");
        _ = writeln!(text, "objects: {}", if state.synced { "complete" } else { "not complete yet" });
        for (kind, watch) in &api.watches {
            let fine = if watch.lacks_kind { "not defined in this cluster" } else { "works" };
            _ = writeln!(text, "watch of {kind}: {}", watch.failing.as_deref().unwrap_or(fine));
        }
        (reached && watched && state.synced, text)
    }

    pub(crate) fn beat(&self, synced: bool) {
        let now = self.clock.now();
        let mut state = self.state();
        state.beat = now;
        state.synced = synced;
    }

    pub(crate) fn answered(&self) {
        self.api.answered();
    }

    pub(crate) fn role(&self, role: String) {
        self.state().role = role;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tenure_handles::ManualClock;

    use super::*;

    #[test]
    fn it_is_ready_only_while_it_knows_everything_and_reaches_the_api_server() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
        let api = Arc::new(tenure_watch::Health::new(clock.clone()));
        let health = Health::new(clock.clone(), Arc::clone(&api));
        assert!(!health.ready().0 && health.live().0, "{:?}", health.ready());
        api.heard("Node");
        health.beat(true);
        assert!(health.ready().0, "{:?}", health.ready());
        api.failed("Node", "connection refused".to_owned(), Duration::from_secs(10));
        assert_eq!(
            (health.ready().0, health.ready().1.contains("watch of Node: connection refused")),
            (false, true)
        );
        api.lacks_kind("NetworkAttachmentDefinition");
        assert!(health.ready().1.contains("NetworkAttachmentDefinition: not defined in this cluster"));
        clock.advance(Duration::from_secs(15));
        assert!(health.ready().0, "a watch that fails no more works, though nothing may have happened since");
        clock.advance(Duration::from_secs(16));
        assert!(!health.ready().0, "an API server that does not answer is not there");
        health.answered();
        assert!(health.ready().0 && health.live().0);
        clock.advance(Duration::from_mins(1));
        assert!(!health.live().0, "{:?}", health.live());
    }
}
