//! The archives that images and releases are made of: everything in one belongs to root and is of one time, 1970 if none is given, so that
//! the same files make the same bytes.

use std::collections::BTreeSet;
use std::io;

use tar::{Builder, EntryType, Header};

/// An archive that is being written. Paths begin with a slash, as they do in a container; the directories above a path are
/// added if they are not there.
pub struct Archive {
    builder: Builder<Vec<u8>>,
    directories: BTreeSet<String>,
    seconds: u64,
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self::of(0)
    }

    /// An empty archive of this time, in seconds since 1970.
    pub fn of(seconds: u64) -> Self {
        Self { builder: Builder::new(Vec::new()), directories: BTreeSet::new(), seconds }
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        let mut header = self.header(EntryType::Regular, mode);
        header.set_size(bytes.len() as u64);
        self.builder.append_data(&mut header, inside(path), bytes)
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.parents(path)?;
        self.builder.append_link(&mut self.header(EntryType::Symlink, 0o777), inside(path), to)
    }

    pub(crate) fn directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.parents(path)?;
        self.directories.insert(path.to_owned());
        self.builder.append_data(&mut self.header(EntryType::Directory, mode), inside(path), io::empty())
    }

    /// The archive as it is now, with its end.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
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

    fn header(&self, kind: EntryType, mode: u32) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header.set_mtime(self.seconds);
        header
    }
}

fn inside(path: &str) -> &str {
    path.trim_start_matches('/')
}
