//! Reads the directory of pool files.
//!
//! A file that was modified a moment ago may still be in the middle of a write, and half a list of subnets is
//! also a list of subnets: a file counts once it was not modified for [`SETTLED`].

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use tenure_handles::Timestamp;

use super::manifest::{self, Mistake, Wanted};

/// How long a file must be unmodified before it is read.
pub(super) const SETTLED: Duration = Duration::from_millis(150);
/// The largest file that is read. A thousand pools are smaller.
const LARGEST: u64 = 4 << 20;

/// The state of one file.
#[derive(Debug)]
pub(super) enum FileState {
    /// Its pools.
    Read(Vec<Wanted>),
    /// It cannot be used.
    Bad(Mistake),
    /// Somebody is writing to it.
    Unsettled,
}

/// All files of the directory that could contain pools, by name; hidden ones and those with other extensions
/// are ignored.
pub(super) fn read(directory: &Path, now: Timestamp) -> io::Result<BTreeMap<String, FileState>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // A name that is not UTF-8 has none of the usual extensions.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let ends = Path::new(&name).extension().and_then(|extension| extension.to_str());
        if name.starts_with('.') || !matches!(ends, Some("yaml" | "yml" | "json")) {
            continue;
        }
        let state = match settled(&entry.path(), now) {
            // Deleted since the directory was listed, or a dangling link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => FileState::Bad(Mistake::of_file(&name, format!("cannot be read: {error}"))),
            Ok(None) => FileState::Unsettled,
            Ok(Some(text)) => manifest::read(&name, &text).map_or_else(FileState::Bad, FileState::Read),
        };
        files.insert(name, state);
    }
    Ok(files)
}

/// The text of a file; `None` while somebody writes to it.
fn settled(path: &Path, now: Timestamp) -> io::Result<Option<String>> {
    let before = fs::metadata(path)?;
    if !before.is_file() {
        return Err(io::Error::other("it is no file; accepted are files and links to files"));
    }
    if before.len() > LARGEST {
        let message = format!("it has {} bytes; accepted are {LARGEST}", before.len());
        return Err(io::Error::other(message));
    }
    if is_fresh(&before, now)? {
        return Ok(None);
    }
    let text = fs::read_to_string(path)?;
    let after = fs::metadata(path)?;
    let same = after.len() == before.len() && after.modified()? == before.modified()?;
    Ok(same.then_some(text))
}

/// Whether it was modified a moment ago. One from the future counts as settled.
fn is_fresh(metadata: &Metadata, now: Timestamp) -> io::Result<bool> {
    let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified = Timestamp::default().plus(modified);
    Ok(modified <= now && now.since(modified) < SETTLED)
}
