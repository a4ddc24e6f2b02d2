//! Workers: processes, or one in this process for a small run.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

use super::Plan;
use super::cluster::{Used, used};
use super::order::{Answer, Begin, Order, Said};
use super::worker::{Way, Worker};

/// A worker.
pub(super) enum Hand {
    /// A process of its own.
    Process(Mutex<Process>),
    /// A part of this one.
    Inside(Box<Worker>),
}

/// A worker's process. It ends with this, and with this process, however that ends: it reads the end of its input.
pub(super) struct Process {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Hand {
    /// A worker in a process of its own.
    pub(super) fn process(begin: Begin) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(own);
        command.args(["scale", "--worker"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a worker")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.context("a worker has no pipes")?;
        let hand = Self::Process(Mutex::new(Process { child, to, from: BufReader::new(from) }));
        hand.order(&Order::Begin(begin), &|_| {})?;
        Ok(hand)
    }

    /// A worker in this process.
    pub(super) fn inside(way: Way, plan: &Plan) -> Result<Self> {
        let networks = plan.kind.networks(plan.networks, plan.nodes)?;
        Ok(Self::Inside(Box::new(Worker::new(way, plan.kind, networks)?)))
    }

    /// Has it do something.
    pub(super) fn order(&self, order: &Order, say: &(dyn Fn(usize) + Sync)) -> Result<Answer> {
        match self {
            Self::Inside(worker) => worker.perform(order.clone(), say),
            Self::Process(process) => {
                process.lock().unwrap_or_else(PoisonError::into_inner).order(order, say)
            }
        }
    }

    /// What its process has used.
    pub(super) fn used(&self) -> Result<Used> {
        match self {
            Self::Inside(_) => used(std::process::id()),
            Self::Process(process) => used(process.lock().unwrap_or_else(PoisonError::into_inner).child.id()),
        }
    }

    /// Ends it as a crash does.
    pub(super) fn kill(self) -> Result<()> {
        match self {
            Self::Inside(_) => bail!("a worker in this process cannot be killed"),
            Self::Process(process) => {
                drop(process);
                Ok(())
            }
        }
    }
}

impl Process {
    fn order(&mut self, order: &Order, say: &dyn Fn(usize)) -> Result<Answer> {
        writeln!(self.to, "{}", serde_json::to_string(order)?).context("a worker is gone")?;
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).context("cannot read what a worker says")?;
            if line.is_empty() {
                bail!("a worker has ended");
            }
            match serde_json::from_str(&line).with_context(|| format!("a worker says {line:?}"))? {
                Said::Progress(count) => say(count),
                Said::Done(answer) => return Ok(*answer),
                Said::Failed(message) => bail!("a worker: {message}"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
