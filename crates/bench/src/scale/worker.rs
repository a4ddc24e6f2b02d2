//! A worker: a process, or a part of one, that has some of the nodes, or a controller. It does one order at a time.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::Value;
use tenure_controller::{Controller, Settings};
use tenure_handles::{Entropy as _, SystemClock, SystemEntropy};
use tenure_localapi::LocalApi;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::churn;
use super::counted::{Counted, Moments, now};
use super::kind::Kind;
use super::node::{Node, Sandbox};
use super::order::{Answer, Begin, Order, Said, Serve};

/// Calls that wait for an answer at once; each has a thread.
const CALLS: usize = 2_048;
/// What such a thread needs.
const STACK: usize = 512 * 1024;
/// Agents that a worker starts at once.
const STARTS: usize = 32;
/// How often progress is said.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// How to reach the API server.
#[derive(Clone)]
pub(super) enum Way {
    /// As this file says, like all programs.
    Kubeconfig(PathBuf),
    /// It is in this process.
    Inside(LocalApi),
}

impl Way {
    /// A client of one's own.
    pub(super) async fn client(&self) -> Result<Client> {
        match self {
            Self::Kubeconfig(path) => Ok(tenure_daemon::connect(Some(path), None).await?),
            Self::Inside(server) => Ok(server.client()),
        }
    }
}

/// A worker.
pub(super) struct Worker {
    pub(super) way: Way,
    pub(super) kind: Kind,
    pub(super) networks: Arc<Vec<Value>>,
    nodes: Mutex<BTreeMap<usize, Arc<Node>>>,
    moments: Arc<Moments>,
    directory: tempfile::TempDir,
    controller: Mutex<Option<Arc<Counted>>>,
    runtime: Runtime,
    stop: CancellationToken,
}

impl Worker {
    /// A worker without nodes.
    pub(super) fn new(way: Way, kind: Kind, networks: Vec<Value>) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(CALLS)
            .thread_stack_size(STACK)
            .enable_all()
            .build()?;
        // A node's journal is in memory.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }?;
        Ok(Self {
            way,
            kind,
            networks: Arc::new(networks),
            nodes: Mutex::default(),
            moments: Arc::default(),
            directory,
            controller: Mutex::default(),
            runtime,
            stop: CancellationToken::new(),
        })
    }

    /// Does what is ordered. `say` learns how much is done.
    pub(super) fn perform(&self, order: Order, say: &(dyn Fn(usize) + Sync)) -> Result<Answer> {
        match order {
            Order::Begin(_) => anyhow::bail!("the worker has begun"),
            Order::Serve(serve) => self.serve(&serve, say),
            Order::Restart { nodes, at_once } => self.restart(&nodes, at_once),
            Order::Forget { nodes } => self.forget(&nodes),
            Order::Churn(churn) => {
                let nodes = self.some(&churn.nodes)?;
                churn::churn(self, &nodes, &churn, say)
            }
            Order::Lead => self.lead(),
            Order::Moments { begin: true } => {
                self.moments.begin();
                Ok(Answer::default())
            }
            Order::Moments { begin: false } => {
                Ok(Answer { moments: self.moments.end(), ..Answer::default() })
            }
            Order::Count => Ok(self.count()),
        }
    }

    fn some(&self, numbers: &[usize]) -> Result<Vec<Arc<Node>>> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let find =
            |number| nodes.get(number).cloned().with_context(|| format!("there is no node {number} here"));
        numbers.iter().map(find).collect()
    }

    fn serve(&self, serve: &Serve, say: &(dyn Fn(usize) + Sync)) -> Result<Answer> {
        let nodes: Result<Vec<Arc<Node>>> = {
            let mut all = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            let mut get = |number: &usize| -> Result<Arc<Node>> {
                if let Some(node) = all.get(number) {
                    return Ok(Arc::clone(node));
                }
                let node = Arc::new(Node::new(*number, self.directory.path())?);
                all.insert(*number, Arc::clone(&node));
                Ok(node)
            };
            serve.nodes.iter().map(&mut get).collect()
        };
        let done = Arc::new(AtomicUsize::new(0));
        self.runtime.block_on(async {
            tokio::select! {
                never = progress(&done, say) => never,
                served = self.serve_all(nodes?, &serve.pods, &done) => served,
            }
        })
    }

    /// Starts all agents, some at a time, and gives pods their addresses as soon as their agent answers.
    async fn serve_all(
        &self,
        nodes: Vec<Arc<Node>>,
        pods: &[usize],
        done: &Arc<AtomicUsize>,
    ) -> Result<Answer> {
        let starts = tokio::sync::Semaphore::new(STARTS);
        let each = nodes.into_iter().map(|node| {
            let (starts, done) = (&starts, Arc::clone(done));
            let (pods, networks) = (pods.to_vec(), Arc::clone(&self.networks));
            let plugin = self.kind.plugin();
            async move {
                let mut progress = {
                    let _turn = starts.acquire().await?;
                    node.start(&self.way, &self.moments).await?
                };
                ensure!(progress.serving().await, "an agent ended before it answered");
                let answering = now();
                let mut answer =
                    tokio::task::spawn_blocking(move || add_all(&node, plugin, &pods, &networks)).await?;
                answer.answering = vec![answering];
                answer.served = vec![now()];
                done.fetch_add(1, Ordering::Relaxed);
                anyhow::Ok(answer)
            }
        });
        let mut all = Answer::default();
        let mut each = stream::iter(each).buffer_unordered(CALLS);
        while let Some(answer) = each.try_next().await? {
            all.merge(answer);
        }
        Ok(all)
    }

    fn restart(&self, numbers: &[usize], at_once: usize) -> Result<Answer> {
        let nodes = self.some(numbers)?;
        self.runtime.block_on(async {
            let each = nodes.into_iter().map(|node| async move {
                let began = now();
                node.stop().await?;
                let mut progress = node.start(&self.way, &self.moments).await?;
                ensure!(progress.serving().await, "an agent ended before it answered");
                anyhow::Ok(now().saturating_sub(began))
            });
            let away: Vec<u64> = stream::iter(each).buffer_unordered(at_once.max(1)).try_collect().await?;
            Ok(Answer { away, ..Answer::default() })
        })
    }

    fn forget(&self, numbers: &[usize]) -> Result<Answer> {
        let nodes = self.some(numbers)?;
        self.nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|number, _| !numbers.contains(number));
        self.runtime.block_on(async {
            let each = nodes.into_iter().map(|node| async move { node.stop().await });
            stream::iter(each).buffer_unordered(STARTS).try_collect::<()>().await
        })?;
        Ok(Answer::default())
    }

    /// Runs a controller as shipped, until this process ends.
    fn lead(&self) -> Result<Answer> {
        let counted = Arc::<Counted>::default();
        let settings = Settings::new(&format!("scale_{}", SystemEntropy::new()?.uuid()));
        self.runtime.block_on(async {
            let client = self.way.client().await?;
            let client = counted.counting(client, &self.moments);
            let controller = Controller::new(client, SystemClock, settings);
            tokio::spawn(controller.run(self.stop.clone()));
            anyhow::Ok(())
        })?;
        *self.controller.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
        Ok(Answer::default())
    }

    fn count(&self) -> Answer {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let flows = nodes.iter().map(|(number, node)| (*number, node.counted.look())).collect();
        let controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        let controller = controller.as_ref().map(|counted| counted.look()).unwrap_or_default();
        Answer { flows, controller, ..Answer::default() }
    }

    /// The runtime that everything of it runs in.
    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.cancel();
        let nodes = std::mem::take(&mut *self.nodes.lock().unwrap_or_else(PoisonError::into_inner));
        self.runtime.block_on(async {
            let stopping = nodes.values().map(|node| node.stop());
            stream::iter(stopping).buffer_unordered(STARTS).map(drop).collect::<()>().await;
        });
    }
}

/// Says how many nodes are served, forever.
async fn progress(done: &AtomicUsize, say: &(dyn Fn(usize) + Sync)) -> Result<Answer> {
    loop {
        tokio::time::sleep(SAY_EVERY).await;
        say(done.load(Ordering::Relaxed));
    }
}

/// One pod after the other gets an address on one network after the other.
fn add_all(node: &Node, plugin: &str, pods: &[usize], networks: &[Value]) -> Answer {
    let mut answer = Answer::default();
    for pod in pods {
        let sandbox = Sandbox::of(node.number, *pod);
        for network in networks.iter().enumerate() {
            let outcome = node.add(plugin, &sandbox, network);
            answer.calls.extend(outcome.called);
            answer.failed += outcome.failed;
            answer.last_failure = outcome.last_failure.or(answer.last_failure);
        }
    }
    answer
}

fn begun(Begin { kubeconfig, kind, networks, nodes }: Begin) -> Result<Worker> {
    Worker::new(Way::Kubeconfig(kubeconfig), kind, kind.networks(networks, nodes)?)
}

/// A process that is a worker: orders come in, answers go out. It ends with its input, at once.
pub(super) fn run(input: impl BufRead + Send + 'static, mut output: impl Write + Send) -> Result<()> {
    let (orders, received) = mpsc::channel();
    std::thread::spawn(move || {
        for line in input.lines() {
            let Ok(line) = line else { break };
            if orders.send(line).is_err() {
                break;
            }
        }
        // Whoever gave orders is gone; what is under way is for nobody.
        std::process::exit(0);
    });
    let mut worker = None;
    let output = Mutex::new(&mut output);
    let put = |said: &Said| -> Result<()> {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(output, "{}", serde_json::to_string(said)?)?;
        Ok(output.flush()?)
    };
    while let Ok(line) = received.recv() {
        let done = match serde_json::from_str(&line)? {
            Order::Begin(begin) if worker.is_none() => begun(begin).map(|new| {
                worker = Some(new);
                Answer::default()
            }),
            order => match &worker {
                Some(worker) => worker.perform(order, &|count| drop(put(&Said::Progress(count)))),
                None => Err(anyhow::anyhow!("the worker has not begun")),
            },
        };
        put(&match done {
            Ok(answer) => Said::Done(Box::new(answer)),
            Err(error) => Said::Failed(format!("{error:#}")),
        })?;
    }
    Ok(())
}
