//! A node: its agent as shipped, except for the kernel, and the plugin's own code in place of its program.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tenure_agent::node::{Link, Look};
use tenure_agent::run::{AgentOptions, Paths, Progress};
use tenure_agent::wire::StandIn;
use tenure_agent::{Action, Agent, Event};
use tenure_cni::plugin::{self, Places};
use tenure_handles::{SystemClock, SystemEntropy};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::counted::{Counted, Moments};
use super::kind::{self, NAMESPACE};
use super::order::Called;
use super::worker::Way;
use crate::host::say;

/// How long a call is repeated.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long after a failed call the next one follows: a kubelet waits longer.
const AGAIN: Duration = Duration::from_secs(1);
/// Whether a call has failed in this process.
static FAILED: AtomicBool = AtomicBool::new(false);
/// A namespace for the plugin to name. Nobody enters it.
const NETNS: &str = "/proc/self/ns/net";

/// A node.
pub(super) struct Node {
    pub(super) number: usize,
    pub(super) counted: Arc<Counted>,
    directory: PathBuf,
    life: Mutex<Option<Life>>,
}

struct Life {
    agent: Agent,
    stop: CancellationToken,
}

/// What came of a call that was repeated until it succeeded.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) called: Option<Called>,
    pub(super) failed: u64,
    pub(super) last_failure: Option<String>,
}

impl Node {
    /// A node that was never on before, with its files in a directory of its own below this one.
    pub(super) fn new(number: usize, all: &Path) -> Result<Self> {
        let directory = all.join(number.to_string());
        let state = directory.join("state");
        std::fs::create_dir_all(&state).with_context(|| format!("cannot create {}", state.display()))?;
        // A machine that was just switched on: an agent ran on an earlier boot of it.
        std::fs::write(state.join("boot"), "an earlier one")?;
        Ok(Self { number, counted: Arc::default(), directory, life: Mutex::default() })
    }

    fn paths(&self) -> Paths {
        Paths::in_directory(self.directory.join("run"))
    }

    /// Starts its agent if there is none; it may take a while until it answers.
    pub(super) async fn start(&self, way: &Way, moments: &Arc<Moments>) -> Result<Progress> {
        let mut life = self.life.lock().await;
        if let Some(life) = &*life {
            return Ok(life.agent.progress());
        }
        let name = kind::node(self.number);
        let client = way.client().await?;
        let mut options = AgentOptions::new(&name);
        options.paths = self.paths();
        options.state = Some(self.directory.join("state"));
        options.stand_in = Some(StandIn::new(answer));
        let (client, stop) = (self.counted.counting(client, moments), CancellationToken::new());
        let entropy = SystemEntropy::new().context("cannot read the source of randomness")?;
        let agent = Agent::start(client, options, SystemClock, entropy, stop.clone()).await;
        let agent = agent.with_context(|| format!("the agent of {name} cannot start"))?;
        let progress = agent.progress();
        *life = Some(Life { agent, stop });
        Ok(progress)
    }

    /// Stops its agent as a signal does, if there is one.
    pub(super) async fn stop(&self) -> Result<()> {
        let Some(Life { agent, stop }) = self.life.lock().await.take() else { return Ok(()) };
        stop.cancel();
        agent.wait().await.with_context(|| format!("the agent of {}", kind::node(self.number)))
    }

    /// ADD, repeated until it succeeds.
    pub(super) fn add(&self, plugin: &str, pod: &Sandbox, network: (usize, &Value)) -> Outcome {
        let (mut outcome, began) = (Outcome::default(), Instant::now());
        loop {
            match self.call("ADD", plugin, pod, network) {
                Ok(()) => {
                    let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    outcome.called = Some(Called { at: super::counted::now(), took });
                    return outcome;
                }
                Err(said) => {
                    if !FAILED.swap(true, Ordering::Relaxed) {
                        say(&format!("the first call that failed said: {}", said.trim()));
                    }
                    outcome.failed += 1;
                    outcome.last_failure = Some(said);
                    if began.elapsed() > PATIENCE {
                        return outcome;
                    }
                    std::thread::sleep(AGAIN);
                }
            }
        }
    }

    /// Calls the plugin; the error is what it said.
    pub(super) fn call(
        &self,
        verb: &str,
        plugin: &str,
        pod: &Sandbox,
        (number, config): (usize, &Value),
    ) -> Result<(), String> {
        let variables: HashMap<&str, String> = HashMap::from([
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", pod.container.clone()),
            ("CNI_IFNAME", kind::interface(number)),
            ("CNI_NETNS", NETNS.to_owned()),
            ("CNI_PATH", "/nonexistent".to_owned()),
            ("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={}", pod.name)),
        ]);
        let (socket, tombstones) = (self.paths().socket(), self.paths().tombstones());
        let places = Places { socket: &socket, tombstones: &tombstones };
        let outcome =
            plugin::run(plugin, |name| variables.get(name).cloned(), config.to_string().into_bytes(), places);
        if outcome.code == 0 { Ok(()) } else { Err(outcome.stderr) }
    }
}

/// A pod's sandbox, as a runtime names it.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    pub(super) name: String,
    pub(super) container: String,
}

impl Sandbox {
    /// The sandbox of a node's pod.
    pub(super) fn of(node: usize, number: usize) -> Self {
        let name = kind::pod(node, number);
        Self { container: format!("{name}-sandbox"), name }
    }
}

/// Answers as a kernel in which everything succeeds.
fn answer(job: &Action) -> Option<Event> {
    match job {
        Action::Wire(job) => {
            let link = Link {
                host_name: "tnr0".to_owned(),
                host_mac: "0a:00:00:00:00:01".to_owned(),
                pod_mac: "0a:00:00:00:00:02".to_owned(),
                mtu: 1_500,
            };
            Some(Event::Wired { job: job.job, link })
        }
        Action::Unwire { job, .. } => Some(Event::Unwired { job: *job }),
        Action::Inspect(job) => Some(Event::Inspected { job: job.job, differences: Vec::new() }),
        Action::Look { job, .. } => Some(Event::Looked { job: *job, look: Look::default() }),
        _ => None,
    }
}
