//! A host whose runtime executes an IPAM plugin. Nobody makes interfaces: these plugins only decide addresses.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::host::machine::Machine;
use crate::host::runtime::{Calls, Container, Order, Timings};

/// The network namespace that stands for every pod's.
const PLACE: &str = "pod";

/// Ours, or a peer.
pub(super) struct Caller {
    pub(super) name: &'static str,
    pub(super) machine: Machine,
    plugin: PathBuf,
    /// Counts sandboxes, so that each has an id and a pod of its own.
    sandboxes: u64,
    /// How many calls there were, and how many of them failed.
    pub(super) calls: u64,
    pub(super) failed: u64,
    /// What the last one said that failed.
    pub(super) last_failure: Option<String>,
}

impl Caller {
    pub(super) fn new(name: &'static str, mut machine: Machine, plugin: &Path) -> Result<Self> {
        machine.order(&Order::Make(vec![PLACE.to_owned()]))?;
        let plugin = plugin.to_owned();
        Ok(Self { name, machine, plugin, sandboxes: 0, calls: 0, failed: 0, last_failure: None })
    }

    /// ADD for so many pods that never were before.
    pub(super) fn add(
        &mut self,
        config: &Value,
        pods: usize,
        at_once: usize,
    ) -> Result<(Vec<Container>, Timings)> {
        let first = self.sandboxes;
        self.sandboxes += pods as u64;
        let pods: Vec<Container> = (first..self.sandboxes).map(sandbox).collect();
        let timings = self.call("ADD", config, &pods, at_once)?;
        // All of them are held at the same time.
        let mut seen = BTreeSet::new();
        if let Some(twice) = timings.addresses.iter().find(|address| !seen.insert(*address)) {
            bail!("{}: {twice} was given to two pods", self.name);
        }
        Ok((pods, timings))
    }

    /// DEL for these.
    pub(super) fn del(&mut self, config: &Value, pods: &[Container], at_once: usize) -> Result<Timings> {
        self.call("DEL", config, pods, at_once)
    }

    /// Calls of a verb. What is measured is not what it is said to be if all of them fail: that is an error.
    pub(super) fn call(
        &mut self,
        verb: &str,
        config: &Value,
        pods: &[Container],
        at_once: usize,
    ) -> Result<Timings> {
        let calls = Calls {
            verb: verb.to_owned(),
            plugin: self.plugin.clone(),
            path: PathBuf::from("/nonexistent"),
            config: config.to_string(),
            interface: "net1".to_owned(),
            at_once,
            containers: pods.to_vec(),
        };
        let timings = self.machine.order(&Order::Call(calls))?;
        self.calls += timings.each.len() as u64;
        self.failed += timings.failures.len() as u64;
        if let Some(failure) = timings.failures.last() {
            self.last_failure = Some(failure.to_string());
            if timings.failures.len() == timings.each.len() {
                bail!("{}: every call failed, such as {failure}", self.name);
            }
        }
        Ok(timings)
    }
}

/// A pod's sandbox, with an id as long as a runtime's.
pub(super) fn sandbox(number: u64) -> Container {
    Container {
        id: format!("{number:064x}"),
        netns: PLACE.to_owned(),
        pod: format!("pod-{number}"),
        namespace: "default".to_owned(),
    }
}
