//! The journal's file.
//!
//! A thread of its own writes it. All records that wait go out with one write and one sync, however many they are, and
//! then whoever asked is told up to where the journal is committed. When the file has grown to several times of what it
//! says, it is written anew, beside, and renamed into place.
//!
//! Where the file is in memory, as in `/run`, writing takes less than waking a thread for it. Then whoever has records writes
//! them himself, unless others wait.
//!
//! A write that fails (a full `/run`) is told and tried again every second: records stay in order and none is dropped.

mod open;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub use open::{Missing, Note, OpenError, Reason};

use super::image::Image;
use super::record::Record;
use open::Lock;
use writer::{Order, Writer};

/// Where a journal comes from. One of another boot or another node describes pods that are not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The kernel's boot id.
    pub boot: String,
    /// The node's name.
    pub node: String,
}

/// How far the journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The first so many records that were appended since the journal was opened are safe.
    UpTo(u64),
    /// The records after those cannot be written at present; it is tried again.
    Failed(String),
}

/// An open journal. Dropping it writes what waits and ends the thread.
#[derive(Debug)]
pub struct Journal {
    orders: Sender<Order>,
    /// How many of them the thread has not taken.
    waiting: Arc<AtomicUsize>,
    writer: Arc<Mutex<Writer>>,
    /// Whether the file is in memory.
    prompt: bool,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    _lock: Lock,
}

/// A journal that was opened.
#[derive(Debug)]
pub struct Opened {
    /// To append to.
    pub journal: Journal,
    /// What it says.
    pub image: Image,
    /// What a person should know about how it was found.
    pub notes: Vec<Note>,
}

impl Journal {
    /// Opens the journal of a boot in which no agent ran before unless there is one: see [`Journal::open_or_doubt`].
    pub fn open(
        directory: &Path,
        origin: &Origin,
        told: impl FnMut(Commit) + Send + 'static,
    ) -> Result<Opened, OpenError> {
        Self::open_or_doubt(directory, origin, Missing::FirstOfBoot, told)
    }

    /// Opens the journal in a directory, which is made if it is not there. `told` is called on the journal's own thread.
    ///
    /// Where records were lost, or are missing although an agent ran, the image says that it is incomplete, and so does the
    /// journal until the node has written down what it doubts.
    ///
    /// A journal that cannot be used is set aside, and a new one is begun. Fails only if the directory cannot be used
    /// or another process has the journal open.
    pub fn open_or_doubt(
        directory: &Path,
        origin: &Origin,
        missing: Missing,
        told: impl FnMut(Commit) + Send + 'static,
    ) -> Result<Opened, OpenError> {
        let found = open::open(directory, origin, missing)?;
        let image = found.image.clone();
        let prompt = tenure_linux::memory::holds(&found.file);
        let writer = Writer::new(found.path.clone(), found.file, found.len, origin.clone(), found.image);
        let writer = Arc::new(Mutex::new(writer));
        let waiting = Arc::<AtomicUsize>::default();
        let (orders, received) = mpsc::channel();
        let run = {
            let (writer, waiting) = (Arc::clone(&writer), Arc::clone(&waiting));
            move || writer::run(&writer, &received, &waiting, told)
        };
        let fail = |source| OpenError::Act { act: "start the thread of", path: found.path.clone(), source };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(run).map_err(fail)?;
        let (thread, path) = (Some(thread), found.path);
        let journal = Self { orders, waiting, writer, prompt, thread, path, _lock: found.lock };
        Ok(Opened { journal, image, notes: found.notes })
    }

    /// Appends records, in this order. Returns at once; what came of it is told.
    pub fn append(&self, records: Vec<Record>) -> io::Result<()> {
        self.give(Order::Append(records)).map_err(|_| io::Error::other("the journal's thread has ended"))
    }

    /// Appends records here and now, and says what came of it, which is not told then; gives them back if that may take
    /// time, or others come before them.
    pub fn append_now(&self, records: Vec<Record>) -> Result<Commit, Vec<Record>> {
        if !self.prompt {
            return Err(records);
        }
        // Who has the writer and finds nothing waiting comes after all that was given before.
        let Ok(mut writer) = self.writer.try_lock() else { return Err(records) };
        if self.waiting.load(Ordering::Acquire) > 0 || writer.is_waiting() {
            return Err(records);
        }
        writer.take(Order::Append(records));
        let commit = writer.commit();
        if writer.is_waiting() || writer.is_due() {
            // Neither trying again nor writing anew is a matter of microseconds. Without the thread it is not done; whoever
            // appends next will hear of that.
            let _ = self.give(Order::Look);
        }
        Ok(commit)
    }

    fn give(&self, order: Order) -> Result<(), mpsc::SendError<Order>> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.orders.send(order)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.give(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
