//! What a container runtime does, inside a host: makes namespaces, and executes plugins in them, one at a time or all at
//! once.
//!
//! It is a process of its own, this same program once more, because a runtime lives in its host's namespaces. It does what
//! it is told by lines of JSON on its standard input, answers by lines on its standard output, and ends when there are no
//! more.

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

/// Where the namespaces are, for everybody in the host.
pub(crate) const NAMESPACES: &str = "/run/netns";
/// Where the network's configuration is.
const CONFIGURATION: &str = "/run/network.json";

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Make network namespaces of these names.
    Make(Vec<String>),
    /// Execute the plugin.
    Call(Calls),
}

/// Calls of one verb of a plugin.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) verb: String,
    pub(crate) plugin: PathBuf,
    /// Where plugins find other plugins.
    pub(crate) path: PathBuf,
    /// The network's configuration.
    pub(crate) config: String,
    /// Of the interface.
    pub(crate) interface: String,
    /// How many are under way at any time.
    pub(crate) at_once: usize,
    pub(crate) containers: Vec<Container>,
}

/// A container to call the plugin for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) id: String,
    /// The name of its network namespace.
    pub(crate) netns: String,
    pub(crate) pod: String,
    /// The namespace of Kubernetes.
    pub(crate) namespace: String,
}

/// How long calls took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Timings {
    /// From the first start to the last end.
    pub(crate) wall: Duration,
    /// Of each call.
    pub(crate) each: Vec<Duration>,
    /// The calls that failed.
    pub(crate) failures: Vec<Failure>,
    /// The addresses of ADDs, in no order.
    pub(crate) addresses: Vec<String>,
}

/// A call that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The container's id.
    pub(crate) id: String,
    /// What the plugin printed.
    pub(crate) said: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.id, self.said)
    }
}

/// Does what is told on standard input until that ends.
pub(crate) fn serve() -> Result<()> {
    std::fs::create_dir_all(NAMESPACES)?;
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?).context("an order that nobody understands")? {
            Order::Make(names) => make_all(&names).map(|()| Timings::default()),
            Order::Call(calls) => call(&calls),
        };
        let answer = answer.map_err(|error| format!("{error:#}"));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        out.flush()?;
    }
    Ok(())
}

fn make_all(names: &[String]) -> Result<()> {
    for name in names {
        let path = Path::new(NAMESPACES).join(name);
        // A thread that left its namespace ends with that.
        let made = thread::scope(|scope| scope.spawn(|| make(&path)).join());
        match made {
            Ok(made) => made.with_context(|| format!("cannot make the network namespace {name}"))?,
            Err(_) => bail!("the thread that was to make the network namespace {name} panicked"),
        }
    }
    Ok(())
}

fn make(path: &Path) -> Result<()> {
    File::create(path)?;
    unshare(CloneFlags::CLONE_NEWNET)?;
    let own = Some("/proc/thread-self/ns/net");
    Ok(mount(own, path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

fn call(calls: &Calls) -> Result<Timings> {
    std::fs::write(CONFIGURATION, &calls.config)?;
    let outcomes = execute_all(calls);
    let first = outcomes.iter().map(|called| called.began).min();
    let last = outcomes.iter().map(|called| called.ended).max();
    Ok(Timings {
        wall: first.zip(last).map(|(first, last)| last - first).unwrap_or_default(),
        each: outcomes.iter().map(|called| called.ended - called.began).collect(),
        addresses: outcomes.iter().flat_map(|called| called.addresses.clone()).collect(),
        failures: outcomes.into_iter().filter_map(|called| called.failure).collect(),
    })
}

/// Executes all of them, each as soon as one of those before it has ended.
fn execute_all(calls: &Calls) -> Vec<Called> {
    let containers = &calls.containers;
    if calls.at_once <= 1 {
        return containers.iter().map(|container| execute(calls, container)).collect();
    }
    let callers = calls.at_once.min(containers.len());
    let (next, barrier) = (AtomicUsize::new(0), Barrier::new(callers));
    let call = || {
        barrier.wait();
        let mine = std::iter::from_fn(|| containers.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.map(|container| execute(calls, container)).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(call)).collect();
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| vec![Called::panicked()]));
        ended.flatten().collect()
    })
}

struct Called {
    began: Instant,
    ended: Instant,
    failure: Option<Failure>,
    addresses: Vec<String>,
}

impl Called {
    fn panicked() -> Self {
        let now = Instant::now();
        let failure = Some(Failure { id: String::new(), said: "the thread that called panicked".to_owned() });
        Self { began: now, ended: now, failure, addresses: Vec::new() }
    }
}

/// One execution, from before the start of the process until it is gone and all it said is read.
fn execute(calls: &Calls, container: &Container) -> Called {
    let mut command = Command::new(&calls.plugin);
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
        container.namespace, container.pod, container.id
    );
    command
        .env_clear()
        .env("CNI_COMMAND", &calls.verb)
        .env("CNI_CONTAINERID", &container.id)
        .env("CNI_NETNS", Path::new(NAMESPACES).join(&container.netns))
        .env("CNI_IFNAME", &calls.interface)
        .env("CNI_ARGS", args)
        .env("CNI_PATH", &calls.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let began = Instant::now();
    let outcome = run(command);
    let ended = Instant::now();
    // Who says nothing of an address has not done what it is measured for.
    let outcome =
        outcome.and_then(|said| if calls.verb == "ADD" { addresses(&said) } else { Ok(Vec::new()) });
    let (addresses, failure) = match outcome {
        Ok(addresses) => (addresses, None),
        Err(error) => {
            let said = format!("{}: {error:#}", calls.verb);
            (Vec::new(), Some(Failure { id: container.id.clone(), said }))
        }
    };
    Called { began, ended, failure, addresses }
}

/// The addresses of an ADD's result.
fn addresses(said: &str) -> Result<Vec<String>> {
    let result: serde_json::Value = serde_json::from_str(said).context("a result that is no JSON")?;
    let ips = result["ips"].as_array().into_iter().flatten();
    let addresses: Vec<String> = ips.filter_map(|ip| ip["address"].as_str().map(str::to_owned)).collect();
    ensure!(!addresses.is_empty(), "a result without an address: {said}");
    Ok(addresses)
}

fn run(mut command: Command) -> Result<String> {
    let mut child = command.stdin(File::open(CONFIGURATION)?).spawn()?;
    let mut said = String::new();
    let read = child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut said));
    let status = child.wait()?;
    read?;
    if !status.success() {
        bail!("{status}: {}", said.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_addresses_or_is_none() {
        let result = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.1/16"},{"address":"fd00::1/64"}]}"#;
        assert_eq!(addresses(result).unwrap(), ["10.1.0.1/16", "fd00::1/64"]);
        for wrong in ["", "{}", r#"{"ips":[]}"#, r#"{"ips":[{}]}"#] {
            assert!(addresses(wrong).is_err(), "{wrong:?}");
        }
    }
}
