//! The files of a log.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The end of files' names. Another format would have another one.
const SUFFIX: &str = ".history";

/// Where a log is kept. Only one thread writes, and any may read.
pub trait Storage: Send + Sync + 'static {
    /// The numbers of all files.
    fn list(&self) -> io::Result<Vec<u64>>;
    /// The bytes of a file.
    fn read(&self, number: u64) -> io::Result<Vec<u8>>;
    /// Writes bytes at this place of a file, which has nothing behind it then. A file that does not exist is made.
    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Waits until what was written survives a power failure.
    fn sync(&self) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, number: u64) -> io::Result<()>;
}

/// A directory that only its owner may look into.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The file that was written last, and how many bytes it has.
    open: Mutex<Option<(u64, File, u64)>>,
}

impl Directory {
    /// The directory at this path; it is made if it does not exist.
    pub fn at(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self { path: path.to_owned(), open: Mutex::default() })
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:010}{SUFFIX}"))
    }
}

impl Storage for Directory {
    fn list(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        Ok(numbers)
    }

    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        fs::read(self.file(number))
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Whatever fails, the next write begins anew.
        let (file, len) = match open.take() {
            Some((written, file, len)) if written == number => (file, Some(len)),
            _ => {
                let mut options = OpenOptions::new();
                options.create(true).truncate(false).write(true).mode(0o600);
                (options.open(self.file(number))?, None)
            }
        };
        if len != Some(at) {
            file.set_len(at)?;
            (&file).seek(SeekFrom::Start(at))?;
        }
        (&file).write_all(bytes)?;
        *open = Some((number, file, at + bytes.len() as u64));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map_or(Ok(()), |(_, file, _)| file.sync_data())
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|(written, ..)| *written == number) {
            *open = None;
        }
        fs::remove_file(self.file(number))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn bytes_are_where_they_were_written_and_nothing_is_behind_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/history");
        let storage = Directory::at(&path).unwrap();
        storage.write(3, 0, b"one").unwrap();
        storage.write(3, 3, b"two").unwrap();
        storage.write(4, 0, b"other").unwrap();
        storage.sync().unwrap();
        storage.write(3, 3, b"2").unwrap();
        fs::write(path.join("notes.txt"), "no file of ours").unwrap();
        let mut numbers = storage.list().unwrap();
        numbers.sort_unstable();
        assert_eq!((numbers, storage.read(3).unwrap()), (vec![3, 4], b"one2".to_vec()));
        storage.remove(3).unwrap();
        storage.write(3, 0, b"again").unwrap();
        assert_eq!(storage.read(3).unwrap(), b"again");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&storage.file(3))), (0o700, 0o600));
    }

    #[test]
    fn a_write_that_failed_leaves_nothing_when_the_next_one_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Directory::at(directory.path()).unwrap();
        storage.write(1, 0, b"one").unwrap();
        // The kernel has no room in this file.
        std::os::unix::fs::symlink("/dev/full", storage.file(2)).unwrap();
        let error = storage.write(2, 0, b"two").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "a device cannot be cut: {error}");
        storage.write(1, 3, b"three").unwrap();
        assert_eq!(storage.read(1).unwrap(), b"onethree");
    }
}
