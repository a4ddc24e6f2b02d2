//! The journal's file.
//!
//! A thread of its own writes it. All waiting records go out with one write and one sync, however many there
//! are, and then the thread reports the committed position. When the file is several times larger than its
//! image, the thread writes the image to a new file and renames that into place.
//!
//! If the file is in memory, as in `/run`, writing takes less time than waking a thread. Then the caller
//! writes its records itself, unless others wait.
//!
//! A failed write (a full `/run`) is reported and retried every second: records stay in order and none is
//! dropped.

mod open;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub(crate) use open::NAME;
pub use open::{Lock, Missing, Note, OpenError, Reason, lock};

use super::image::Image;
use super::record::Record;
use writer::{Command, Writer};

/// Where a journal comes from. One of another boot or node describes pods that are not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The kernel's boot ID.
    pub boot: String,
    /// The node's name.
    pub node: String,
}

/// How far the journal is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// This many records, counted since the journal was opened, are committed.
    UpTo(u64),
    /// The records after those cannot be written at present; the write is retried.
    Failed(String),
}

/// An open journal. Dropping it writes all waiting records and ends the thread.
#[derive(Debug)]
pub struct Journal {
    commands: Sender<Command>,
    /// How many commands the thread has not taken yet.
    waiting: Arc<AtomicUsize>,
    writer: Arc<Mutex<Writer>>,
    /// Whether the file is in memory.
    in_memory: bool,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    _lock: Lock,
}

/// A journal that was opened.
#[derive(Debug)]
pub struct Opened {
    /// To append to.
    pub journal: Journal,
    /// The state that it contains.
    pub image: Image,
    /// What people should know about how it was found.
    pub notes: Vec<Note>,
}

impl Journal {
    /// Opens the journal of a boot on which no agent ran before, unless there is a journal: see
    /// [`Journal::open_or_doubt`].
    pub fn open(
        directory: &Path,
        origin: &Origin,
        told: impl FnMut(Commit) + Send + 'static,
    ) -> Result<Opened, OpenError> {
        Self::open_or_doubt(directory, origin, Missing::FirstOfBoot, told)
    }

    /// Opens the journal in a directory, and creates the directory if needed. `told` is called on the
    /// journal's own thread.
    ///
    /// If records were lost, or are missing although an agent ran, the image says that it is incomplete. So
    /// does the journal until the node has recorded what it doubts.
    ///
    /// An unusable journal is renamed and a new one is started. Fails only if the directory cannot be used or
    /// another process has the journal open.
    pub fn open_or_doubt(
        directory: &Path,
        origin: &Origin,
        missing: Missing,
        told: impl FnMut(Commit) + Send + 'static,
    ) -> Result<Opened, OpenError> {
        let found = open::open(directory, origin, missing)?;
        let image = found.image.clone();
        let in_memory = tenure_linux::memory::holds(&found.file);
        let writer = Writer::new(found.path.clone(), found.file, found.len, origin.clone(), found.image);
        let writer = Arc::new(Mutex::new(writer));
        let waiting = Arc::<AtomicUsize>::default();
        let (commands, received) = mpsc::channel();
        let run = {
            let (writer, waiting) = (Arc::clone(&writer), Arc::clone(&waiting));
            move || writer::run(&writer, &received, &waiting, told)
        };
        let fail = |source| OpenError::Act { act: "start the thread of", path: found.path.clone(), source };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(run).map_err(fail)?;
        let (thread, path) = (Some(thread), found.path);
        let journal = Self { commands, waiting, writer, in_memory, thread, path, _lock: found.lock };
        Ok(Opened { journal, image, notes: found.notes })
    }

    /// Appends records in this order. Returns at once; `told` gets the result.
    pub fn append(&self, records: Vec<Record>) -> io::Result<()> {
        self.send(Command::Append(records)).map_err(|_| io::Error::other("the journal's thread has ended"))
    }

    /// Appends records immediately and returns the result, without calling `told`; returns the records if
    /// that may take time, or others come before them.
    pub fn append_now(&self, records: Vec<Record>) -> Result<Commit, Vec<Record>> {
        if !self.in_memory {
            return Err(records);
        }
        // If the lock is free and nothing waits, everything sent before is written.
        let Ok(mut writer) = self.writer.try_lock() else { return Err(records) };
        if self.waiting.load(Ordering::Acquire) > 0 || writer.is_waiting() {
            return Err(records);
        }
        writer.take(Command::Append(records));
        let commit = writer.commit();
        if writer.is_waiting() || writer.is_due() {
            // A retry or a compaction takes longer than microseconds, so the thread does it. If the thread is
            // gone, the next append reports that.
            let _ = self.send(Command::Look);
        }
        Ok(commit)
    }

    fn send(&self, command: Command) -> Result<(), mpsc::SendError<Command>> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.commands.send(command)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
