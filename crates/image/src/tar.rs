//! Writes tar archives (POSIX.1-1988, "ustar"): as much of it as images need.

use std::collections::BTreeSet;

const BLOCK: usize = 512;

/// An archive that is being written. Everything in it belongs to root and is of the year 1970, so that the same
/// files make the same bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
}

/// What an entry is, as the format's letter.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    File = b'0',
    Link = b'2',
    Directory = b'5',
}

/// Each gives nothing when a path or a size is beyond what the format holds. Paths begin with a slash, as they do
/// in a container; the directories above a path are added if they are not there.
impl Archive {
    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Option<()> {
        self.parents(path)?;
        self.header(Kind::File, path, mode, bytes.len(), "")?;
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        Some(())
    }

    pub(crate) fn link(&mut self, path: &str, to: &str) -> Option<()> {
        self.parents(path)?;
        self.header(Kind::Link, path, 0o777, 0, to)
    }

    pub(crate) fn directory(&mut self, path: &str, mode: u32) -> Option<()> {
        self.parents(path)?;
        self.directories.insert(path.to_owned());
        self.header(Kind::Directory, path, mode, 0, "")
    }

    /// The archive with its end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    fn parents(&mut self, path: &str) -> Option<()> {
        for (at, _) in path.match_indices('/').skip(1) {
            let parent = &path[..at];
            if self.directories.insert(parent.to_owned()) {
                self.header(Kind::Directory, parent, 0o755, 0, "")?;
            }
        }
        Some(())
    }

    fn header(&mut self, kind: Kind, path: &str, mode: u32, size: usize, link: &str) -> Option<()> {
        let mut block = [0; BLOCK];
        put(&mut block[0..100], path.trim_start_matches('/').as_bytes())?;
        put(&mut block[100..107], format!("{mode:07o}").as_bytes())?;
        // User, group and time of change are zero.
        for field in [108..115, 116..123, 136..147] {
            block[field].fill(b'0');
        }
        put(&mut block[124..135], format!("{size:011o}").as_bytes())?;
        block[156] = kind as u8;
        put(&mut block[157..257], link.as_bytes())?;
        put(&mut block[257..265], b"ustar\x0000")?;
        // The sum is taken with its own field filled with spaces.
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        put(&mut block[148..155], format!("{sum:06o}\0").as_bytes())?;
        self.bytes.extend(block);
        Some(())
    }
}

fn put(field: &mut [u8], value: &[u8]) -> Option<()> {
    field.get_mut(..value.len())?.copy_from_slice(value);
    Some(())
}
