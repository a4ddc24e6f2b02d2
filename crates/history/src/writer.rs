//! A log on a thread of its own, and the handle to it.
//!
//! Changes wait in a queue of limited length. What does not fit is dropped and counted.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use tenure_handles::Clock;
use tenure_view::{History as Answer, Period};
use tracing::warn;

use crate::line::What;
use crate::log::{Log, Written};
use crate::query::Query;
use crate::recorder::Change;
use crate::segments::Limits;
use crate::storage::Storage;

/// How many messages may wait.
const MOST_WAITING: usize = 4_096;
/// How many changes are written with one write, if as many wait.
const MOST_AT_ONCE: usize = 1_024;
/// How often the log is made to survive a power failure.
const SYNC: Duration = Duration::from_secs(1);
/// How long the log stays silent while an agent runs. So it is known to that much when one was killed.
const SILENCE: Duration = Duration::from_mins(10);

/// Who writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The node.
    pub node: String,
    /// The kernel's boot ID.
    pub boot: String,
    /// The program's version.
    pub version: String,
}

/// What became of changes, and how large the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries that were written since the start.
    pub written: u64,
    /// Changes that were dropped because too many waited.
    pub dropped: u64,
    /// Entries that could not be written and were lost.
    pub failed: u64,
    /// Entries that wait because the log cannot be written.
    pub waiting: u64,
    /// The bytes of all files.
    pub bytes: u64,
    /// When the oldest entry was written, in seconds since the epoch; 0 if there is none.
    pub begins: i64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The log is being read.
    #[error("the log of this node's history is still being read; ask again in a moment")]
    Opening,
    /// The log cannot be read.
    #[error("the log of this node's history cannot be read: {0}")]
    Unreadable(String),
}

/// The handle to a log. Cheap to clone; the last one that is dropped ends the thread, after all that waits is written.
#[derive(Clone, Debug)]
pub struct History {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    queue: SyncSender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
    node: String,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("node", &self.node).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Shared {
    log: OnceLock<Result<Box<dyn Asked>, String>>,
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    /// Dropped changes that the log does not know of yet.
    unsaid: AtomicU64,
    /// Why the last write failed, if it did.
    problem: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Message {
    /// All that is held.
    Held(Vec<Period>),
    Changes(Vec<Change>),
    Stop,
}

/// A log that can be asked.
trait Asked: Send + Sync + std::fmt::Debug {
    fn ask(&self, query: &Query, node: &str, now: Timestamp) -> io::Result<Answer>;
    fn extent(&self) -> (u64, Option<Timestamp>);
    fn waiting(&self) -> usize;
}

impl<S: Storage + std::fmt::Debug> Asked for Arc<Log<S>> {
    fn ask(&self, query: &Query, node: &str, now: Timestamp) -> io::Result<Answer> {
        Log::ask(self, query, node, now)
    }
    fn extent(&self) -> (u64, Option<Timestamp>) {
        Log::extent(self)
    }
    fn waiting(&self) -> usize {
        Log::waiting(self)
    }
}

impl History {
    /// Begins to write. `held` is all that is held now. The log is opened on the thread: nobody waits for it.
    pub fn start<S: Storage + std::fmt::Debug>(
        open: impl FnOnce() -> io::Result<S> + Send + 'static,
        limits: Limits,
        origin: Origin,
        held: Vec<Period>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (queue, messages) = sync_channel(MOST_WAITING);
        // The queue is empty.
        let _ = queue.try_send(Message::Held(held));
        let node = origin.node.clone();
        let run = {
            let (shared, clock) = (Arc::clone(&shared), Arc::clone(&clock));
            move || run(open, limits, origin, &messages, &shared, &clock)
        };
        let thread = std::thread::Builder::new().name("history".into()).spawn(run)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { inner: Arc::new(Inner { shared, queue, thread, node, clock }) })
    }

    /// Hands changes over. Never waits.
    pub fn tell(&self, changes: Vec<Change>) {
        let count = changes.len() as u64;
        if count > 0 && self.inner.queue.try_send(Message::Changes(changes)).is_err() {
            self.lose(count);
        }
    }

    /// Notes that changes were dropped before they came here.
    pub fn lose(&self, count: u64) {
        self.inner.shared.dropped.fetch_add(count, Ordering::Relaxed);
        self.inner.shared.unsaid.fetch_add(count, Ordering::Relaxed);
    }

    /// Writes what waits, and that the agent ended. What is told later is dropped.
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// Answers a question. Reads files, so it must not be called where waiting is not allowed.
    pub fn ask(&self, query: &Query) -> Result<Answer, AskError> {
        let now = self.inner.clock.now().to_jiff();
        match self.inner.shared.log.get() {
            None => Err(AskError::Opening),
            Some(Err(problem)) => Err(AskError::Unreadable(problem.clone())),
            Some(Ok(log)) => {
                log.ask(query, &self.inner.node, now).map_err(|error| AskError::Unreadable(error.to_string()))
            }
        }
    }

    /// What became of changes.
    pub fn counts(&self) -> Counts {
        let shared = &self.inner.shared;
        let log = shared.log.get().and_then(|log| log.as_ref().ok());
        let (bytes, begins) = log.map(|log| log.extent()).unwrap_or_default();
        let begins = begins.map_or(0, Timestamp::as_second);
        let waiting = log.map_or(0, |log| log.waiting() as u64);
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (written, dropped, failed) = (load(&shared.written), load(&shared.dropped), load(&shared.failed));
        Counts { written, dropped, failed, waiting, bytes, begins }
    }
}

impl Inner {
    fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Fails only if the thread has ended.
            let _ = self.queue.send(Message::Stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run<S: Storage + std::fmt::Debug>(
    open: impl FnOnce() -> io::Result<S>,
    limits: Limits,
    origin: Origin,
    messages: &Receiver<Message>,
    shared: &Shared,
    clock: &dyn Clock,
) {
    let log = match open().and_then(|storage| Log::open(storage, limits)) {
        Ok(log) => Arc::new(log),
        Err(error) => {
            warn!(%error, "cannot open the log of this node's history: nothing is recorded until the next start");
            _ = shared.log.set(Err(error.to_string()));
            for message in messages {
                match message {
                    Message::Held(_) => {}
                    Message::Changes(changes) => {
                        _ = shared.failed.fetch_add(changes.len() as u64, Ordering::Relaxed);
                    }
                    Message::Stop => break,
                }
            }
            return;
        }
    };
    let now = || clock.now().to_jiff();
    let Origin { node, boot, version } = origin;
    let started = What::Started { node, boot, version };
    let mut writer = Writer { log: &log, shared, now, started, synced: clock.elapsed(), dirty: true };
    while writer.step(messages, clock) {
        // Only now is known what is open.
        if shared.log.get().is_none() {
            _ = shared.log.set(Ok(Box::new(Arc::clone(&log))));
        }
    }
    shared.note(log.mark(What::Stopped {}, (writer.now)()));
    _ = log.sync();
}

struct Writer<'a, S, N> {
    log: &'a Log<S>,
    shared: &'a Shared,
    now: N,
    /// What is written of this start.
    started: What,
    synced: Duration,
    dirty: bool,
}

impl<S: Storage, N: Fn() -> Timestamp> Writer<'_, S, N> {
    /// Takes what waits, or waits for it; false at the end.
    fn step(&mut self, messages: &Receiver<Message>, clock: &dyn Clock) -> bool {
        let patience = if self.dirty || self.is_behind() { SYNC } else { SILENCE };
        match messages.recv_timeout(patience) {
            Ok(Message::Held(held)) => {
                let written = self.log.start(self.started.clone(), held, (self.now)());
                self.shared.note(written);
                self.dirty = true;
            }
            Ok(Message::Changes(mut changes)) => {
                let mut stop = false;
                while changes.len() < MOST_AT_ONCE && !stop {
                    match messages.try_recv() {
                        Ok(Message::Changes(more)) => changes.extend(more),
                        // All that is held is told first, and once.
                        Ok(Message::Held(_)) => {}
                        Ok(Message::Stop) => stop = true,
                        Err(_) => break,
                    }
                }
                self.lose_dropped();
                let written = self.log.take(changes, (self.now)());
                self.shared.note(written);
                self.dirty = true;
                if stop {
                    return false;
                }
            }
            Err(RecvTimeoutError::Timeout) if self.is_behind() => {
                self.lose_dropped();
                let written = self.log.take(Vec::new(), (self.now)());
                self.dirty |= written.entries > 0;
                self.shared.note(written);
            }
            Err(RecvTimeoutError::Timeout) if !self.dirty => {
                self.shared.note(self.log.mark(What::Alive {}, (self.now)()));
                self.dirty = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
        }
        let elapsed = clock.elapsed();
        if self.dirty && elapsed.saturating_sub(self.synced) >= SYNC {
            _ = self.log.sync();
            (self.synced, self.dirty) = (elapsed, false);
        }
        true
    }

    fn is_behind(&self) -> bool {
        self.log.waiting() > 0 || self.shared.unsaid.load(Ordering::Relaxed) > 0
    }

    fn lose_dropped(&self) {
        let unsaid = self.shared.unsaid.swap(0, Ordering::Relaxed);
        if unsaid > 0 {
            self.log.lose(unsaid, (self.now)());
        }
    }
}

impl Shared {
    fn note(&self, written: Written) {
        self.written.fetch_add(written.entries, Ordering::Relaxed);
        self.failed.fetch_add(written.lost, Ordering::Relaxed);
        let now = written.problem;
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*problem, &now) {
            (None, Some(problem)) => {
                warn!(
                    problem,
                    "cannot write this node's history; pods are served, and the latest records wait"
                );
            }
            (Some(_), None) => warn!("this node's history is written again; if it lacks records, it says so"),
            _ => {}
        }
        *problem = now;
    }
}
