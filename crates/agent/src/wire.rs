//! Interfaces: creates, checks and removes them one after the other, because the kernel is no faster in
//! parallel.
//!
//! It promises that every job is answered by one event, and that jobs are done in the order in which they
//! came: by a thread of their own, or, while that is idle, by the caller, who would only wait otherwise. No
//! step of a job lists anything. Another thread deletes removed links, many at once.

mod announcer;
mod observer;
mod plan;
mod reaping;
mod stand_in;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tenure_handles::Clock;
use tenure_ipam::Cidr;
use tenure_linux::host::HostError;
use tenure_linux::{Host, socket};
use tracing::info;

use crate::node::{Action, Event};
use announcer::Announcer;
use reaping::Reaping;
pub(crate) use stand_in::Interfaces;
pub use stand_in::StandIn;
use worker::{Task, Worker};

/// Why the kernel's thread cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The host cannot be prepared.
    #[error("cannot prepare the host's network")]
    Host(#[from] HostError),
    /// Our links cannot be listed.
    #[error("cannot list what the kernel has of ours")]
    List(#[from] socket::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
}

/// The handle to the kernel's thread. Dropping it ends the thread after its remaining jobs.
pub struct Wirer {
    tasks: Option<Sender<Task>>,
    /// How many jobs are not done.
    waiting: Arc<AtomicUsize>,
    worker: Arc<Mutex<Worker>>,
    thread: Option<JoinHandle<()>>,
}

impl Wirer {
    /// Prepares the host, reports its links, and starts. `reaper` is a second handle to the same host, for
    /// deleting.
    ///
    /// `tell` is called on the kernel's thread, with the results of jobs passed to it.
    pub fn start(
        mut host: Host,
        reaper: Host,
        clock: impl Clock + Clone,
        tell: impl Fn(Event) + Send + 'static,
    ) -> Result<Self, StartError> {
        let prepared = host.prepare()?;
        info!(?prepared, "prepared the host's network");
        tell(Event::Kernel(observer::inventory(&mut host)?));
        let (tasks, received) = mpsc::channel();
        let (announcer, reaping) = (Announcer::start(clock.clone())?, Reaping::start(reaper, clock)?);
        let worker = Arc::new(Mutex::new(Worker::new(host, reaping, announcer, Box::new(tell))));
        let waiting = Arc::<AtomicUsize>::default();
        let thread = {
            let (worker, waiting) = (Arc::clone(&worker), Arc::clone(&waiting));
            let run = move || worker::run(&worker, &received, &waiting);
            thread::Builder::new().name("kernel".into()).spawn(run)?
        };
        Ok(Self { tasks: Some(tasks), waiting, worker, thread: Some(thread) })
    }

    /// Performs an [`Action::Wire`], [`Action::Unwire`] or [`Action::Inspect`] immediately, unless other jobs
    /// come first; then it returns the job, and also any other action.
    #[expect(
        clippy::result_large_err,
        reason = "returning the action is no failure, and it is not worth a heap allocation"
    )]
    pub fn at_once(&self, job: Action) -> Result<Event, Action> {
        if !matches!(job, Action::Wire(_) | Action::Unwire { .. } | Action::Inspect(_)) {
            return Err(job);
        }
        // If the lock is free and nothing waits, all earlier jobs are done.
        let Ok(mut worker) = self.worker.try_lock() else { return Err(job) };
        if self.waiting.load(Ordering::Acquire) > 0 {
            return Err(job);
        }
        worker.answer(job)
    }

    /// Passes a job to the kernel's thread: [`Action::Wire`], [`Action::Unwire`], [`Action::Inspect`],
    /// [`Action::Reach`], [`Action::Announce`], [`Action::Repair`], [`Action::Look`] or [`Action::Export`].
    /// Returns at once.
    pub fn carry_out(&self, job: Action) {
        self.give(Task::Job(Box::new(job)));
    }

    /// Routes other nodes' blocks, each through its node's address, and removes all other such routes. If
    /// this is never called, such routes are left alone. They are verified periodically. Returns at once.
    pub fn remote(&self, blocks: BTreeMap<IpAddr, BTreeSet<Cidr>>) {
        self.give(Task::Remote(blocks));
    }

    fn give(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            // The thread outlives this handle.
            let _ = tasks.send(task);
        }
    }
}

impl std::fmt::Debug for Wirer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wirer").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Drop for Wirer {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
