//! The journal's file.
//!
//! A thread of its own writes it. All records that wait go out with one write and one sync, however many they are, and
//! then whoever asked is told up to where the journal is committed. When the file has grown to several times of what it
//! says, it is written anew, beside, and renamed into place.
//!
//! A write that fails (a full `/run`) is told and tried again every second: records stay in order and none is dropped.

mod open;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

pub use open::{Note, OpenError, Reason};

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
    /// Opens the journal in a directory, which is made if it is not there. `told` is called on the journal's own thread.
    ///
    /// A journal that cannot be used is set aside, and a new one is begun. Fails only if the directory cannot be used
    /// or another process has the journal open.
    pub fn open(
        directory: &Path,
        origin: &Origin,
        told: impl FnMut(Commit) + Send + 'static,
    ) -> Result<Opened, OpenError> {
        let found = open::open(directory, origin)?;
        let image = found.image.clone();
        let writer = Writer::new(found.path.clone(), found.file, found.len, origin.clone(), found.image);
        let (orders, received) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run(&received, told))
            .map_err(|source| OpenError::Act {
                act: "start the thread of",
                path: found.path.clone(),
                source,
            })?;
        let journal = Self { orders, thread: Some(thread), path: found.path, _lock: found.lock };
        Ok(Opened { journal, image, notes: found.notes })
    }

    /// Appends records, in this order. Returns at once.
    pub fn append(&self, records: Vec<Record>) -> io::Result<()> {
        let gone = |_| io::Error::other("the journal's thread has ended");
        self.orders.send(Order::Append(records)).map_err(gone)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
