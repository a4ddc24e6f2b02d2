//! Hears when a directory changes.
//!
//! It only shortens the wait: whoever uses it looks now and then anyway, so where the kernel has no more watches to give,
//! or the file system tells nothing, everything still works, later.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;
use tracing::warn;

/// How long to wait for more of the same after something was heard.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// An ear at a directory.
pub(super) struct DirectoryWatch {
    directory: PathBuf,
    ear: Option<AsyncFd<Ear>>,
}

/// Owns its descriptor, and so keeps it for as long as it lives.
struct Ear(Inotify);

impl AsRawFd for Ear {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl DirectoryWatch {
    pub(super) fn new(directory: &Path) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
        #[expect(
            deprecated,
            reason = "its successor is unsafe; what it asks for, a descriptor that stays, `Ear` gives"
        )]
        let ear = inotify.map_err(std::io::Error::from).and_then(|inotify| AsyncFd::new(Ear(inotify)));
        let ear = match ear {
            Ok(ear) => Some(ear),
            Err(error) => {
                warn!(%error, "changes of pool files are not heard; they are looked at every few seconds");
                None
            }
        };
        let watch = Self { directory: directory.to_owned(), ear };
        watch.renew();
        watch
    }

    /// Listens at the directory that now has the name. Again is as good as once.
    pub(super) fn renew(&self) {
        let changes = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        if let Some(ear) = &self.ear {
            // A directory that is not there now is looked for again.
            _ = ear.get_ref().0.add_watch(&self.directory, changes);
        }
    }

    /// Waits until something changes.
    pub(super) async fn heard(&mut self) {
        let Some(ear) = &mut self.ear else { return std::future::pending().await };
        let Ok(mut ready) = ear.readable_mut().await else { return std::future::pending().await };
        ready.clear_ready();
        tokio::time::sleep(DEBOUNCE).await;
        let Some(ear) = &self.ear else { return };
        while ear.get_ref().0.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}
