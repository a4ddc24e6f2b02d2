//! Finding a journal, and handling an unusable one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Origin;
use super::writer::write_anew;
use crate::journal::codec::{self, ReadError};
use crate::journal::image::Image;
use crate::journal::record::{Known, Record};

/// Its file's name.
pub(crate) const NAME: &str = "journal";
const LOCK: &str = "journal.lock";
/// How many unusable journals are kept: enough to investigate, and never enough to fill `/run`.
const KEPT_ASIDE: usize = 8;

/// What people should know about how a journal was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// A crash tore its end; the torn record was never reported as committed.
    #[error("cut {bytes} bytes of a torn record off the journal {}", .path.display())]
    Torn {
        /// The journal.
        path: PathBuf,
        /// How many bytes.
        bytes: usize,
    },
    /// There is none, although an agent ran since the machine booted.
    #[error("there is no journal {}, and an agent ran since this machine was booted: addresses of this node's blocks are \
             assigned again only after namespaces, pods and the runtime were asked who uses them", .path.display())]
    Missing {
        /// Where it would be.
        path: PathBuf,
    },
    /// It was renamed.
    #[error("set a journal aside as {}: {reason}", .path.display())]
    SetAside {
        /// Its new name.
        path: PathBuf,
        /// Why.
        reason: Reason,
    },
}

/// What a missing journal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No agent ran since the machine booted: there is nothing to know.
    FirstOfBoot,
    /// An agent ran, and its journal was lost: containers that it served may still run.
    Lost,
    /// It is unknown whether an agent ran, so this counts as lost.
    Unknown,
}

impl Missing {
    /// The image to start from without a journal.
    fn image(self) -> Image {
        match self {
            Self::FirstOfBoot => Image::default(),
            Self::Lost | Self::Unknown => Image::lost(),
        }
    }
}

/// Why a journal was renamed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is not a journal, or of another version.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// It describes another boot, whose pods are gone; or another node on this boot, whose pods are here:
    /// then it was used.
    #[error("it is of boot {:?} of node {:?}, and this is boot {:?} of node {:?}", .found.boot, .found.node, .here.boot, .here.node)]
    Foreign {
        /// Where it comes from.
        found: Origin,
        /// Where we are.
        here: Origin,
    },
    /// Parts of it are damaged. The other parts were used, and what the damaged parts contained is doubted.
    #[error("{bytes} of its bytes are damaged; its {records} other records were used")]
    Damaged {
        /// How many bytes.
        bytes: usize,
        /// How many records were used.
        records: u64,
    },
}

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("cannot use the journal in {}: another process does", .directory.display())]
    Locked {
        /// The directory.
        directory: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {act} {}", .path.display())]
    Act {
        /// The operation.
        act: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Keeps other processes from the journal as long as it lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing the file is what unlocks it")] File);

pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) image: Image,
    pub(super) notes: Vec<Note>,
    pub(super) lock: Lock,
}

pub(super) fn open(directory: &Path, origin: &Origin, missing: Missing) -> Result<Found, OpenError> {
    let fail = |act, path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Act { act, path, source }
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(fail("make the directory", directory))?;
    let lock = lock(directory)?;
    let path = directory.join(NAME);
    let mut notes = Vec::new();
    let (image, keep) = match read(&path).map_err(fail("read the journal", &path))? {
        None => {
            if missing == Missing::Lost {
                notes.push(Note::Missing { path: path.clone() });
            }
            (missing.image(), None)
        }
        Some(bytes) => match usable(&bytes, origin, missing) {
            Usable::Whole { image, len, torn } => {
                if torn > 0 {
                    notes.push(Note::Torn { path: path.clone(), bytes: torn });
                }
                (image, Some(len))
            }
            Usable::SetAside { image, reason } => {
                let aside = name_aside(directory);
                fs::rename(&path, &aside).map_err(fail("set aside the journal", &path))?;
                notes.push(Note::SetAside { path: aside, reason });
                (image, None)
            }
        },
    };
    let (file, len) = match keep {
        Some(len) => (cut(&path, len).map_err(fail("cut the torn end of the journal", &path))?, len),
        None => write_anew(&path, origin, &image).map_err(fail("begin the journal", &path))?,
    };
    Ok(Found { path, file, len, image, notes, lock })
}

/// Locks the journal in an existing directory, without reading it.
pub fn lock(directory: &Path) -> Result<Lock, OpenError> {
    let path = directory.join(LOCK);
    let fail = |act| {
        let path = path.clone();
        move |source| OpenError::Act { act, path, source }
    };
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(fail("open the lock file"))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { directory: directory.to_owned() }),
        Err(TryLockError::Error(source)) => Err(fail("lock")(source)),
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?.read_to_end(&mut bytes)?,
    };
    Ok(Some(bytes))
}

enum Usable {
    Whole { image: Image, len: u64, torn: usize },
    SetAside { image: Image, reason: Reason },
}

fn usable(bytes: &[u8], here: &Origin, missing: Missing) -> Usable {
    match codec::read(bytes) {
        // The file is not a journal: an agent of this boot may have written one before.
        Err(error) => Usable::SetAside { image: missing.image(), reason: error.into() },
        Ok(reading) if reading.origin.boot != here.boot => Usable::SetAside {
            image: Image::default(),
            reason: Reason::Foreign { found: reading.origin, here: here.clone() },
        },
        Ok(mut reading) if reading.damaged > 0 => {
            reading.image.apply(Record::Known(Known::Lost));
            Usable::SetAside {
                image: reading.image,
                reason: Reason::Damaged { bytes: reading.damaged, records: reading.records },
            }
        }
        // The node has another name now, and its containers still run.
        Ok(reading) if reading.origin != *here => Usable::SetAside {
            image: reading.image,
            reason: Reason::Foreign { found: reading.origin, here: here.clone() },
        },
        Ok(reading) => Usable::Whole { image: reading.image, len: reading.whole as u64, torn: reading.torn },
    }
}

/// An unused name, or else the one used longest ago.
fn name_aside(directory: &Path) -> PathBuf {
    let names = (1..=KEPT_ASIDE).map(|number| directory.join(format!("{NAME}.aside-{number}")));
    let taken_since = |path: &PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    names.min_by_key(taken_since).unwrap_or_else(|| directory.join(format!("{NAME}.aside")))
}

fn cut(path: &Path, len: u64) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(len)?;
    file.seek(SeekFrom::Start(len))?;
    Ok(file)
}
