//! One suite for two servers: every behaviour of the Kubernetes API that Tenure relies on is a scenario. Each scenario runs
//! against the embedded server and the real kube-apiserver, and both transcripts must be equal.
//!
//! - A [`Scenario`] sends plain HTTP through a [`Recorder`], so that status codes, messages and bodies are visible. In
//!   [`Transcript`]s, values that the server chose (UIDs, versions, times, generated names) are placeholders that keep identity
//!   and order.
//! - [`recordings`] holds the real server's transcripts, to compare the embedded server without a real one.
//! - [`differences`] lists intended differences with their reason; anything else is a [`Mismatch`].

mod compare;
pub mod differences;
mod document;
mod normalise;
mod objects;
mod pool_walk;
mod recorder;
pub mod recordings;
mod scenarios;
mod transcript;
mod walk;
mod watching;

use futures::StreamExt;
use futures::future::BoxFuture;
use kube::Client;

pub use compare::{Mismatch, StepMismatch, compare, report};
pub use pool_walk::pool_walk;
pub use recorder::{Answer, Call, Recorder};
pub use transcript::{Events, Exchange, Note, Step, Transcript};
pub use walk::walk;
pub use watching::Watch;

/// The result of a scenario: nothing, or why it stopped.
pub type Outcome = Result<(), SuiteError>;

/// One behaviour, as a sequence of requests.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its area of the API: the name of its recording file.
    pub area: &'static str,
    /// The behaviour, as a sentence in snake case; unique in the suite.
    pub name: &'static str,
    /// The requests.
    pub run: for<'a> fn(&'a mut Recorder) -> BoxFuture<'a, Outcome>,
}

/// Why a scenario stopped, whichever server it used.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The request got no answer.
    #[error("sending {request} got no answer")]
    Send {
        /// Method and path.
        request: String,
        /// The client's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The request could not be built.
    #[error("building {request} failed")]
    Build {
        /// Method and path.
        request: String,
        /// What is wrong with it.
        #[source]
        source: http::Error,
    },
    /// An expected change did not happen within the suite's limit.
    #[error("waited {waited:?} for {what}; last seen: {last}")]
    Patience {
        /// What was waited for.
        what: String,
        /// How long.
        waited: std::time::Duration,
        /// The last answer.
        last: String,
    },
    /// The answer lacks a field that the scenario needs.
    #[error("the answer to {request} ({status}) has no {field}: {body}")]
    Lacks {
        /// Method and path.
        request: String,
        /// Its HTTP status.
        status: u16,
        /// The missing field.
        field: &'static str,
        /// The whole answer.
        body: String,
    },
    /// A preparation step, which is not part of the transcript, was refused.
    #[error("preparing: {request} was answered with {status}: {body}")]
    Prepare {
        /// Method and path.
        request: String,
        /// Its HTTP status.
        status: u16,
        /// The whole answer.
        body: String,
    },
    /// A file of the suite cannot be read or written.
    #[error("{act} {path} failed")]
    File {
        /// The operation.
        act: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// How many scenarios use one server at the same time: each has its own names, so they do not interfere.
const AT_ONCE: usize = 8;

/// Every scenario of the suite, in the order of its areas.
pub fn scenarios() -> Vec<Scenario> {
    scenarios::all()
}

/// Scenarios that need a server that remembers at most [`SHORT_MEMORY`] events. The real one forgets everything before its
/// start, which is equivalent.
pub fn forgetful_scenarios() -> Vec<Scenario> {
    scenarios::forgetful()
}

/// See [`forgetful_scenarios`].
pub const SHORT_MEMORY: usize = 8;

/// Runs `scenarios` against the server behind `client`; returns transcripts in the same order. The transcript of a scenario
/// that stopped contains the reason, so the comparison finds it.
pub async fn run(client: &Client, scenarios: &[Scenario]) -> Vec<Transcript> {
    let mut transcripts: Vec<(usize, Transcript)> =
        futures::stream::iter(scenarios.iter().copied().enumerate())
            .map(|(index, scenario)| async move { (index, run_one(client.clone(), scenario).await) })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
    transcripts.sort_by_key(|(index, _)| *index);
    transcripts.into_iter().map(|(_, transcript)| transcript).collect()
}

async fn run_one(client: Client, scenario: Scenario) -> Transcript {
    let mut recorder = Recorder::new(client, scenario.name);
    let outcome = (scenario.run)(&mut recorder).await;
    let mut transcript = normalise::transcript(scenario, recorder.into_steps());
    transcript.stopped = outcome.err().map(|error| with_causes(&error));
    transcript
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_scenario_has_a_name_of_its_own_that_fits_a_namespace() {
        let mut seen = BTreeSet::new();
        for scenario in scenarios().into_iter().chain(forgetful_scenarios()) {
            assert!(seen.insert(scenario.name), "{} is there twice", scenario.name);
            assert!(scenario.name.len() <= 63, "{} is longer than 63 characters", scenario.name);
        }
        assert!(!seen.is_empty());
    }
}
