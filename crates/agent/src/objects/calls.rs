//! Calls to the API server that are worth insisting on, for a while.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Shared;
use super::health::Gauge;
use super::waits::Waits;

/// Why a call came to nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The API server said no, and would say so again.
    Refused(u16, String),
    /// The API server could not be asked, or did not answer.
    Away(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(code, message) => write!(f, "the API server refuses ({code}): {message}"),
            Self::Away(message) => write!(f, "the API server cannot be asked: {message}"),
        }
    }
}

/// A server that is slow is let finish: an answer may take this many times as long as failures are put up with. A write that is
/// given up early may have been made all the same, and a server that always needs longer would never be asked with success.
const ANSWER_TAKES: u32 = 6;

impl Shared {
    /// Makes a call, again and again while it fails for a reason that may pass, until [`ObjectsOptions::patience`](super::ObjectsOptions::patience) is over.
    pub(crate) async fn insist<T, F>(&self, call: impl Fn() -> F) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        insist(&self.gauge, self.options.patience, call).await
    }
}

/// Makes a call, again and again while it fails for a reason that may pass, until the patience is over. A call that is under way
/// then has [`ANSWER_TAKES`] times as long.
pub(crate) async fn insist<T, F>(
    gauge: &Gauge,
    patience: Duration,
    call: impl Fn() -> F,
) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let over = sleep(patience);
    tokio::pin!(over);
    let mut waits = Waits::default();
    loop {
        let last = match timeout(patience * ANSWER_TAKES, call()).await {
            Ok(Ok(answer)) => {
                gauge.answered();
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) if is_final(status.code) => {
                gauge.answered();
                return Err(Trouble::Refused(status.code, status.message.clone()));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", (patience * ANSWER_TAKES).as_secs_f32()),
        };
        tokio::select! {
            biased;
            () = &mut over => return Err(Trouble::Away(last)),
            () = waits.pass() => {}
        }
    }
}

/// Whether the same call would meet the same answer.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 429
}
