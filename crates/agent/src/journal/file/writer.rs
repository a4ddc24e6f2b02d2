//! Writing to the journal's file, and the thread that does it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Commit, Origin};
use crate::journal::codec;
use crate::journal::image::Image;
use crate::journal::record::Record;

/// How long after a failure a write is retried.
const RETRY: Duration = Duration::from_secs(1);
/// A file is compacted when it is larger than this and several times as large as after the last compaction.
const SMALLEST_TO_COMPACT: u64 = 64 << 10;
const GROWTH: u64 = 4;

/// A command for the thread.
#[derive(Debug)]
pub(super) enum Command {
    Append(Vec<Record>),
    /// Check whether something is left to do.
    Look,
    Stop,
}

/// Performs commands until it is told to stop.
pub(super) fn run(
    writer: &Mutex<Writer>,
    commands: &Receiver<Command>,
    waiting: &AtomicUsize,
    mut told: impl FnMut(Commit),
) {
    loop {
        let retrying = lock(writer).is_waiting();
        let first = if retrying {
            commands.recv_timeout(RETRY)
        } else {
            commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let mut writer = lock(writer);
        let mut stop = matches!(first, Err(RecvTimeoutError::Disconnected));
        let mut next = first.ok();
        while let Some(command) = next {
            stop |= writer.take(command);
            waiting.fetch_sub(1, Ordering::AcqRel);
            // All other waiting records share the write.
            next = if stop { None } else { commands.try_recv().ok() };
        }
        if writer.is_waiting() {
            told(writer.commit());
        }
        if writer.is_due() {
            writer.compact();
        }
        if stop {
            return;
        }
    }
}

/// If another thread panicked, its records are in the file or still wait; both are fine.
fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    origin: Origin,
    file: File,
    /// The number of complete bytes in the file.
    len: u64,
    /// Whether a failed write may have left more bytes than that.
    tainted: bool,
    /// The size of the file after the last compaction.
    compact_len: u64,
    image: Image,
    /// Records that are not in the file yet.
    waiting: Vec<Record>,
    committed: u64,
}

impl Writer {
    pub(super) fn new(path: PathBuf, file: File, len: u64, origin: Origin, image: Image) -> Self {
        Self {
            path,
            origin,
            file,
            len,
            tainted: false,
            compact_len: len,
            image,
            waiting: Vec::new(),
            committed: 0,
        }
    }

    /// Whether records are not in the file yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the file should be compacted.
    pub(super) fn is_due(&self) -> bool {
        self.len > SMALLEST_TO_COMPACT.max(GROWTH * self.compact_len)
    }

    /// Takes a command; true if it is the last.
    pub(super) fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Append(records) => {
                self.waiting.extend(records);
                false
            }
            Command::Look => false,
            Command::Stop => true,
        }
    }

    /// Writes all waiting records, or none.
    pub(super) fn commit(&mut self) -> Commit {
        match self.write() {
            Ok(()) => Commit::UpTo(self.committed),
            Err(error) => {
                Commit::Failed(format!("cannot write to the journal {}: {error}", self.path.display()))
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.waiting.iter().for_each(|record| codec::put(record, &mut bytes));
        if std::mem::replace(&mut self.tainted, true) {
            self.file.set_len(self.len)?;
            self.file.seek(SeekFrom::Start(self.len))?;
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.tainted = false;
        self.len += bytes.len() as u64;
        self.committed += self.waiting.len() as u64;
        self.waiting.drain(..).for_each(|record| self.image.apply(record));
        Ok(())
    }

    /// Compacts the file. If that fails, the old file stays in use.
    fn compact(&mut self) {
        self.image.prune();
        match write_anew(&self.path, &self.origin, &self.image) {
            Ok((file, len)) => (self.file, self.len, self.compact_len) = (file, len, len),
            // Try again when it has grown by the same factor.
            Err(_) => self.compact_len = self.len,
        }
    }
}

#[cfg(test)]
impl Writer {
    /// One write attempt, as the thread makes it.
    pub(super) fn try_commit(&mut self, records: Vec<Record>) -> io::Result<u64> {
        self.take(Command::Append(records));
        self.write().map(|()| self.committed)
    }

    /// Simulates an operator who makes room.
    pub(super) fn replace_file(&mut self, file: File) {
        self.file = file;
    }
}

/// Writes a journal with this image to a new file and renames it into place.
pub(super) fn write_anew(path: &Path, origin: &Origin, image: &Image) -> io::Result<(File, u64)> {
    let beside = path.with_extension("new");
    let mut bytes = codec::begin(origin);
    image.records().for_each(|record| codec::put(&record, &mut bytes));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    fs::rename(&beside, path)?;
    Ok((file, bytes.len() as u64))
}
