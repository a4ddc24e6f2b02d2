//! The directory with the data and logs of one test bed, and its cleanup.
//!
//! - After a success it is removed.
//! - After a panic of the test, or on request, the logs stay and everything else is removed; a line on
//!   standard error names their path. `TENURE_TESTBED_KEEP=1` has the same effect on every run.
//! - If the test process was killed, it could do neither. The next run finds the directory (the lock in it is
//!   free), keeps the logs and removes the rest.
//!
//! Of kept logs, the newest twenty stay.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::unistd::geteuid;

/// How many directories with only logs stay.
const KEPT: usize = 20;
/// Locked by the process that uses the directory.
const OWNED: &str = "owned.lock";
/// The part that is kept.
const LOGS: &str = "logs";

/// A directory that belongs to one test bed of this process.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    keep_logs: AtomicBool,
    _owned: File,
}

impl RunDirectory {
    /// Creates one for a test bed of the given kind, and cleans up after killed processes.
    pub(crate) fn create(kind: &str) -> io::Result<Self> {
        Self::create_in(&base()?, kind)
    }

    fn create_in(base: &Path, kind: &str) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Without it, a directory that another process has created and not yet locked would look abandoned.
        let all = lock_file(&base.join("all.lock"))?;
        all.lock()?;
        sweep(base);
        let path = loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("{kind}-{}-{count}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Of an earlier process with the same ID.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => break path,
            }
        };
        let owned = lock_file(&path.join(OWNED))?;
        owned.lock()?;
        fs::create_dir(path.join(LOGS))?;
        let keep =
            std::env::var_os("TENURE_TESTBED_KEEP").is_some_and(|value| !value.is_empty() && value != "0");
        Ok(Self { path, keep_logs: AtomicBool::new(keep), _owned: owned })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The part of it that is kept after a failure.
    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    /// Keeps the logs in any case.
    pub(crate) fn keep_logs(&self) {
        self.keep_logs.store(true, Ordering::Relaxed);
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if self.keep_logs.load(Ordering::Relaxed) || std::thread::panicking() {
            keep_only_logs(&self.path);
            // Directly to standard error: a failing test has no subscriber, and this line must be seen.
            drop(writeln!(io::stderr(), "logs of this test bed are kept in {}", self.logs().display()));
        } else if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a directory of the test bed could not be removed");
        }
    }
}

/// The base directory, one per user.
pub(crate) fn base() -> io::Result<PathBuf> {
    let base = std::env::temp_dir().join(format!("tenure-testbed-{}", geteuid()));
    match DirBuilder::new().mode(0o700).create(&base) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(base),
    }
}

/// Opens a lock file; creates it if it is missing.
pub(crate) fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Whether a live process uses the directory at `path`.
pub(crate) fn is_owned(path: &Path) -> bool {
    let owned = path.join(OWNED);
    owned.exists() && !lock_file(&owned).is_ok_and(|lock| lock.try_lock().is_ok())
}

/// Reduces directories that no live process owns to their logs, and limits the number of those.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let mut kept = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if !path.join(LOGS).is_dir() {
            continue;
        }
        if is_owned(&path) {
            continue;
        }
        keep_only_logs(&path);
        kept.push((entry.metadata().and_then(|metadata| metadata.modified()).ok(), path));
    }
    kept.sort();
    let superfluous = kept.len().saturating_sub(KEPT);
    for (_, path) in kept.into_iter().take(superfluous) {
        drop(fs::remove_dir_all(path));
    }
}

/// Removes everything but the logs, as far as it can be removed.
fn keep_only_logs(path: &Path) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name() != LOGS) {
        let path = entry.path();
        drop(if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_longer_needed_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create_in(base.path(), "thing").unwrap();
        fs::write(directory.path().join("data"), "x").unwrap();
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn after_a_panic_the_logs_stay_and_the_rest_goes() {
        let base = tempfile::tempdir().unwrap();
        let directory = RunDirectory::create_in(base.path(), "thing").unwrap();
        let path = directory.path().to_owned();
        let panicked = std::thread::spawn(move || {
            fs::write(directory.path().join("data"), "x").unwrap();
            fs::write(directory.logs().join("etcd.log"), "said").unwrap();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(fs::read_to_string(path.join("logs/etcd.log")).unwrap(), "said");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_reduced_to_its_logs_and_a_living_one_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let alive = RunDirectory::create_in(base.path(), "thing").unwrap();
        fs::write(alive.path().join("data"), "x").unwrap();
        let dead = base.path().join("thing-0-0");
        fs::create_dir_all(dead.join("logs")).unwrap();
        fs::write(dead.join(OWNED), "").unwrap();
        fs::write(dead.join("data"), "x").unwrap();
        let next = RunDirectory::create_in(base.path(), "thing").unwrap();
        assert!(alive.path().join("data").exists());
        assert!(dead.join("logs").exists());
        assert!(!dead.join("data").exists());
        drop((alive, next));
    }

    #[test]
    fn only_the_newest_logs_are_kept() {
        let base = tempfile::tempdir().unwrap();
        for count in 0..KEPT + 5 {
            fs::create_dir_all(base.path().join(format!("old-{count}/logs"))).unwrap();
        }
        let _next = RunDirectory::create_in(base.path(), "thing").unwrap();
        let left = fs::read_dir(base.path())
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("old-"));
        assert_eq!(left.count(), KEPT);
    }
}
