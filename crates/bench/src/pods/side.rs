//! One of those who are measured: a host, and the plugin that its runtime executes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::host::machine::Machine;
use crate::host::runtime::{Calls, Container, Order, Timings};

/// How often a DEL that failed is repeated, as a runtime does, and how long it waits before each.
const REPEATS: usize = 10;
const BEFORE_REPEAT: Duration = Duration::from_secs(1);

/// Ours, or a peer.
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) machine: Machine,
    plugin: PathBuf,
    /// Where the plugin finds others.
    path: PathBuf,
    config: String,
    /// How many pods have an interface.
    attached: usize,
    /// Counts sandboxes, so that each has an id of its own.
    sandboxes: u64,
    /// How many calls there were, and how many of them failed.
    pub(super) calls: u64,
    pub(super) failed: u64,
    /// How many interfaces stayed after their DELs.
    pub(super) left: usize,
    /// What the last one said that failed.
    pub(super) last_failure: Option<String>,
}

/// Pods that have an interface, or had one.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods(Vec<Container>);

/// One at a time, or all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    OneByOne,
    AtOnce,
}

impl Side {
    pub(super) fn new(
        name: &'static str,
        machine: Machine,
        plugin: PathBuf,
        path: PathBuf,
        config: &serde_json::Value,
    ) -> Self {
        let config = config.to_string();
        Self {
            name,
            machine,
            plugin,
            path,
            config,
            attached: 0,
            sandboxes: 0,
            calls: 0,
            failed: 0,
            left: 0,
            last_failure: None,
        }
    }

    /// Makes the namespaces of the pods `kind0`, `kind1`, … from the given one on.
    pub(super) fn make(&mut self, kind: &str, numbers: std::ops::Range<usize>) -> Result<()> {
        let names = numbers.map(|number| format!("{kind}{number}")).collect();
        self.machine.order(&Order::Make(names))?;
        Ok(())
    }

    /// ADD for pods of these namespaces and of a namespace of Kubernetes, each a sandbox that never was before.
    pub(super) fn add(
        &mut self,
        kind: &str,
        numbers: std::ops::Range<usize>,
        namespace: &str,
        pace: Pace,
    ) -> Result<(Pods, Timings)> {
        let pods = numbers.map(|number| {
            self.sandboxes += 1;
            Container {
                id: format!("sandbox-{}", self.sandboxes),
                netns: format!("{kind}{number}"),
                pod: format!("{kind}{number}"),
                namespace: namespace.to_owned(),
            }
        });
        let pods = Pods(pods.collect());
        let timings = self.measured("ADD", &pods, pace)?;
        self.attached += pods.0.len();
        Ok((pods, timings))
    }

    /// DEL for these pods, and then until nothing is left of them; how long that took in addition. A DEL that fails is
    /// repeated, as a runtime does, and counts as failed each time; what stays of a pod whose DEL never succeeds counts, too.
    pub(super) fn del(&mut self, pods: &Pods, pace: Pace) -> Result<(Timings, Duration)> {
        let timings = self.measured("DEL", pods, pace)?;
        let answered = Instant::now();
        self.attached -= pods.0.len();
        let mut failures = timings.failures.clone();
        for _ in 0..REPEATS {
            if failures.is_empty() {
                break;
            }
            std::thread::sleep(BEFORE_REPEAT);
            let left = pods.0.iter().filter(|pod| failures.iter().any(|failure| failure.id == pod.id));
            failures = self.call("DEL", &Pods(left.cloned().collect()), Pace::OneByOne)?.failures;
        }
        let left = self.machine.settle(self.attached)?;
        self.left += left;
        Ok((timings, answered.elapsed()))
    }

    /// Calls that are measured. If all of them fail, what is measured is not what it is said to be: that is an error.
    fn measured(&mut self, verb: &str, pods: &Pods, pace: Pace) -> Result<Timings> {
        let timings = self.call(verb, pods, pace)?;
        if let Some(failure) = timings.failures.last() {
            ensure!(
                timings.failures.len() < timings.each.len(),
                "{}: every call failed, such as {failure}",
                self.name
            );
        }
        Ok(timings)
    }

    fn call(&mut self, verb: &str, pods: &Pods, pace: Pace) -> Result<Timings> {
        let calls = Calls {
            verb: verb.to_owned(),
            plugin: self.plugin.clone(),
            path: self.path.clone(),
            config: self.config.clone(),
            interface: "eth0".to_owned(),
            at_once: if pace == Pace::AtOnce { pods.0.len() } else { 1 },
            containers: pods.0.clone(),
        };
        let timings = self.machine.order(&Order::Call(calls))?;
        self.calls += timings.each.len() as u64;
        self.failed += timings.failures.len() as u64;
        if let Some(failure) = timings.failures.last() {
            self.last_failure = Some(failure.to_string());
        }
        Ok(timings)
    }
}
