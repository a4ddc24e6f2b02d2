//! The cache of built programs, outside `target/` so that `cargo clean` does not cost ten minutes.
//!
//! A module's programs are in `MODULE-KEY/`, where the key is a hash of everything that they are built from.
//! The directory appears complete or not at all, by a rename; a file lock beside it makes one process build
//! and all others wait.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use super::go::{Go, GoModule};
use super::progress::say;
use super::{BinariesError, Origin};

/// The directory of all built programs.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// `tenure-testbed` below `XDG_CACHE_HOME`, or below `.cache` in the home directory.
    pub(super) fn from_environment() -> Result<Self, BinariesError> {
        let absolute =
            |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        Ok(Self { directory: base.ok_or(BinariesError::NoCache)?.join("tenure-testbed") })
    }

    /// The directory with the programs of `module`; builds them if they are missing.
    pub(super) fn built(&self, module: GoModule) -> Result<(PathBuf, Origin), BinariesError> {
        let go = Go::find(module)?;
        self.ensure(&name(module, &go), |directory| go.build(module, directory))
    }

    /// Downloads the sources of `module` in the background, if it is not built yet. The build finds out
    /// whether that succeeded.
    pub(super) fn fetch_aside(&self, module: GoModule) {
        let Ok(go) = Go::find(module) else { return };
        if !self.directory.join(name(module, &go)).is_dir() {
            drop(thread::spawn(move || go.fetch(module)));
        }
    }

    /// The directory `name`; `build` fills it if it is missing.
    pub(super) fn ensure(
        &self,
        name: &str,
        build: impl FnOnce(&Path) -> Result<(), BinariesError>,
    ) -> Result<(PathBuf, Origin), BinariesError> {
        let ready = self.directory.join(name);
        if ready.is_dir() {
            return Ok((ready, Origin::Cache));
        }
        let _lock = lock(&self.directory.join(format!("{name}.lock")), name)?;
        if ready.is_dir() {
            return Ok((ready, Origin::Cache));
        }
        let building = self.directory.join(format!("{name}.building"));
        match fs::remove_dir_all(&building) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("removing", &building)(error));
            }
            _ => {}
        }
        fs::create_dir_all(&building).map_err(failed("creating", &building))?;
        build(&building)?;
        fs::rename(&building, &ready).map_err(failed("renaming", &building))?;
        Ok((ready, Origin::Built))
    }
}

fn name(module: GoModule, go: &Go) -> String {
    format!("{}-{:016x}", module.name(), module.key(go))
}

/// Waits for the exclusive lock on the file `path`; holds it until the result is dropped.
pub(super) fn lock(path: &Path, what: &str) -> Result<File, BinariesError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed("creating", parent))?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed("opening", path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => say(&format!("another process prepares {what}: waiting for it\n")),
        Err(TryLockError::Error(error)) => return Err(failed("locking", path)(error)),
    }
    file.lock().map_err(failed("locking", path))?;
    Ok(file)
}

/// Turns an I/O error about a file into an error of this module.
pub(super) fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BinariesError {
    let path = path.to_owned();
    move |source| BinariesError::File { act, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn of_many_that_need_it_at_once_one_builds_and_the_others_find_it() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache { directory: directory.path().join("not/yet/there") };
        let (builds, together) = (AtomicUsize::new(0), Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    let (ready, _) = cache
                        .ensure("thing-1", |building| {
                            builds.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(50));
                            fs::write(building.join("program"), "x").map_err(failed("writing", building))
                        })
                        .unwrap();
                    assert!(ready.join("program").is_file());
                });
            }
        });
        assert_eq!(builds.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_build_that_failed_leaves_nothing_that_looks_ready_and_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache { directory: directory.path().to_owned() };
        let failing = cache.ensure("thing-1", |building| {
            fs::write(building.join("half"), "x").map_err(failed("writing", building))?;
            Err(BinariesError::NoCache)
        });
        assert!(matches!(failing, Err(BinariesError::NoCache)));
        let (ready, origin) = cache.ensure("thing-1", |_| Ok(())).unwrap();
        assert_eq!(origin, Origin::Built);
        assert!(!ready.join("half").exists(), "the next build begins with an empty directory");
        let (_, origin) = cache.ensure("thing-1", |_| Err(BinariesError::NoCache)).unwrap();
        assert_eq!(origin, Origin::Cache);
    }
}
