//! The archive that a kernel unpacks as its root: cpio, in the "newc" format (Documentation/driver-api/early-userspace).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;

/// Files by their paths, without a leading slash.
#[derive(Debug, Default)]
pub(super) struct Archive {
    entries: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Archive {
    pub(super) fn directory(&mut self, path: &str) {
        self.put(path, DIRECTORY, Vec::new());
    }

    /// A file that can be run; those that are not are none the worse for it.
    pub(super) fn program(&mut self, path: &str, content: Vec<u8>) {
        self.put(path, FILE, content);
    }

    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.put(path, LINK, to.as_bytes().to_vec());
    }

    /// All files below a directory of this machine.
    pub(super) fn tree(&mut self, from: &Path, to: &str) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let path = format!("{to}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.tree(&entry.path(), &path)?;
            } else {
                self.program(&path, fs::read(entry.path())?);
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.entries.contains_key(parent)
        {
            self.directory(parent);
        }
        self.entries.insert(path.to_owned(), (mode, content));
    }

    /// Writes it. Directories come before what is in them, as the order of paths has it.
    pub(super) fn write(&self, to: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(File::create(to)?);
        let entries = self.entries.iter().map(|(path, (mode, content))| (path.as_str(), *mode, &content[..]));
        for (number, (path, mode, content)) in entries.chain([("TRAILER!!!", 0, &[][..])]).enumerate() {
            write!(out, "070701{:08x}{mode:08x}", number + 1)?;
            // Owner and group, links, time, length, four device numbers, the name's length with its end, no checksum.
            write!(out, "{:08x}{:08x}{:08x}{:08x}{:08x}", 0, 0, 1, 0, content.len())?;
            write!(out, "{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}", 0, 0, 0, 0, path.len() + 1, 0)?;
            out.write_all(path.as_bytes())?;
            out.write_all(&[0])?;
            pad(&mut out, 110 + path.len() + 1)?;
            out.write_all(content)?;
            pad(&mut out, content.len())?;
        }
        out.flush()
    }
}

fn pad(out: &mut impl Write, length: usize) -> io::Result<()> {
    out.write_all(&[0; 3][..length.next_multiple_of(4) - length])
}
