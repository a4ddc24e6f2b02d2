//! Waiting for what must come.
//!
//! There is one limit, and it says nothing about speed: a condition that comes late on a busy machine is still met, and
//! only a test that would fail anyway waits so long. How fast something is, benchmarks measure.

use std::time::Duration;

use anyhow::{Result, bail};
use tenure_handles::{Clock as _, SystemClock};

use crate::clock::RuntimeClock;

/// How long to wait for what must come.
pub const PATIENCE: Duration = Duration::from_mins(5);
/// After this a kubelet gives up a call to its runtime, and the runtime its call to a plugin.
pub const RUNTIME_TIMEOUT: Duration = Duration::from_mins(2);
/// How often to look.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks until there is something.
///
/// # Panics
/// If there is nothing within [`PATIENCE`].
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = SystemClock.elapsed();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(SystemClock.elapsed().saturating_sub(start) < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(INTERVAL);
    }
}

/// Asks until there is an answer. Errors on the way are reported only if there is none within [`PATIENCE`].
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let start = RuntimeClock.elapsed();
    loop {
        let last = match ask().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "not so yet".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if RuntimeClock.elapsed().saturating_sub(start) > PATIENCE {
            bail!("waited {PATIENCE:?} for {what}: {last}");
        }
        tokio::time::sleep(INTERVAL * 5).await;
    }
}
