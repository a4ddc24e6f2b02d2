//! Calls to the API server that are worth insisting on, for a while.

use std::time::Duration;

use tokio::time::timeout;

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

impl Shared {
    /// Makes a call, again and again while it fails for a reason that may pass, until [`Options::patience`](super::Options::patience) is over.
    pub(crate) async fn insist<T, F>(&self, call: impl Fn() -> F) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        insist(&self.gauge, self.options.patience, call).await
    }
}

/// Makes a call, again and again while it fails for a reason that may pass, until the patience is over.
pub(crate) async fn insist<T, F>(
    gauge: &Gauge,
    patience: Duration,
    call: impl Fn() -> F,
) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut last = format!("no answer within {} s", patience.as_secs_f32());
    let tries = async {
        let mut waits = Waits::default();
        loop {
            match call().await {
                Ok(answer) => {
                    gauge.answered();
                    return Ok(answer);
                }
                Err(kube::Error::Api(status)) if is_final(status.code) => {
                    gauge.answered();
                    return Err(Trouble::Refused(status.code, status.message.clone()));
                }
                Err(error) => last = error.to_string(),
            }
            waits.pass().await;
        }
    };
    match timeout(patience, tries).await {
        Ok(done) => done,
        Err(_) => Err(Trouble::Away(last)),
    }
}

/// Whether the same call would meet the same answer.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 429
}
