//! The archives that images are made of: everything in one belongs to root and is of the year 1970, so that the same files
//! make the same bytes.

use std::collections::BTreeSet;
use std::io;

use tar::{Builder, EntryType, Header};

/// An archive that is being written. Paths begin with a slash, as they do in a container; the directories above a path are
/// added if they are not there.
pub(crate) struct Archive {
    builder: Builder<Vec<u8>>,
    directories: BTreeSet<String>,
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self { builder: Builder::new(Vec::new()), directories: BTreeSet::new() }
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        let mut header = header(EntryType::Regular, mode);
        header.set_size(bytes.len() as u64);
        self.builder.append_data(&mut header, inside(path), bytes)
    }

    pub(crate) fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.parents(path)?;
        self.builder.append_link(&mut header(EntryType::Symlink, 0o777), inside(path), to)
    }

    pub(crate) fn directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.parents(path)?;
        self.directories.insert(path.to_owned());
        self.builder.append_data(&mut header(EntryType::Directory, mode), inside(path), io::empty())
    }

    /// The archive as it is now, with its end.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        Builder::new(self.builder.get_ref().clone()).into_inner()
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        for (at, _) in path.match_indices('/').skip(1) {
            if !self.directories.contains(&path[..at]) {
                self.directory(&path[..at], 0o755)?;
            }
        }
        Ok(())
    }
}

fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

fn inside(path: &str) -> &str {
    path.trim_start_matches('/')
}
