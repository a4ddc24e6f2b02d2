//! Watches a directory for changes.
//!
//! It only shortens the delay: its users also check periodically. If the kernel has no more watches, or the
//! file system reports nothing, everything still works, only later.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;
use tracing::warn;

/// How long to wait for more changes after the first.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// A watch of a directory.
pub(crate) struct DirectoryWatch {
    directory: PathBuf,
    watcher: Option<AsyncFd<Watcher>>,
}

/// Owns its descriptor, and so keeps it open as long as it lives.
struct Watcher(Inotify);

impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl DirectoryWatch {
    pub(crate) fn new(directory: &Path) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
        #[expect(
            deprecated,
            reason = "its successor is unsafe; what it asks for, a descriptor that stays, `Watcher` gives"
        )]
        let watcher =
            inotify.map_err(std::io::Error::from).and_then(|inotify| AsyncFd::new(Watcher(inotify)));
        let watcher = match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                warn!(%error, directory = %directory.display(), "cannot watch a directory; it is checked every few seconds");
                None
            }
        };
        let watch = Self { directory: directory.to_owned(), watcher };
        watch.renew();
        watch
    }

    /// Watches the directory that has the name now. May be called repeatedly.
    pub(crate) fn renew(&self) {
        let changes = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        if let Some(watcher) = &self.watcher {
            // A missing directory is watched at the next call.
            _ = watcher.get_ref().0.add_watch(&self.directory, changes);
        }
    }

    /// Waits until something changes.
    pub(crate) async fn changed(&mut self) {
        let Some(watcher) = &mut self.watcher else { return std::future::pending().await };
        let Ok(mut ready) = watcher.readable_mut().await else { return std::future::pending().await };
        ready.clear_ready();
        tokio::time::sleep(DEBOUNCE).await;
        let Some(watcher) = &self.watcher else { return };
        while watcher.get_ref().0.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}
