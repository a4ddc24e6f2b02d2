//! Network namespaces: opened by path, told apart, entered.
//!
//! It promises that no thread of the caller is ever left in another namespace: what happens inside one happens on a thread
//! of its own that ends there, and a thread that goes inside itself, to open a socket, is back before it does anything else.
//! Where that is it remembers from the first time: whoever moves a thread by other means does so before.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::socket::{self, Memory, Socket};

/// The namespace of the thread that asks.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// An open network namespace; it stays in being at least as long as this does.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    path: Option<PathBuf>,
    id: NetNsId,
}

/// Which namespace it is, whatever path led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetNsId {
    device: u64,
    inode: u64,
}

/// A namespace that could not be opened, made or entered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing at the path, or it may not be read.
    #[error("open network namespace {}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The path leads to something else, for example to the file that a namespace was mounted on and is no more.
    #[error("{} is not a network namespace; accepted: a file such as /var/run/netns/NAME or /proc/PID/ns/net", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// The namespace cannot be entered.
    #[error("enter {namespace}: {errno}")]
    Enter {
        /// Which.
        namespace: String,
        /// Why.
        errno: Errno,
    },
    /// A new namespace cannot be made.
    #[error("make a network namespace: {0}")]
    Make(Errno),
    /// There is no thread to enter with, or it panicked.
    #[error("run a thread in another network namespace: {0}")]
    Thread(std::io::Error),
    /// No netlink socket inside.
    #[error("in {namespace}")]
    Socket {
        /// Which namespace.
        namespace: String,
        /// Why.
        source: socket::Error,
    },
}

impl Error {
    /// Whether the namespace is not there (any more): for whoever tears down, the same as done.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Open { source, .. } => {
                matches!(
                    source.raw_os_error().map(Errno::from_raw),
                    Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ESRCH)
                )
            }
            Self::Foreign { .. } => true,
            _ => false,
        }
    }
}

impl NetNs {
    /// Opens the namespace that `path` leads to.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let open = |source| Error::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(open)?;
        let kind = fstatfs(&file).map_err(|errno| open(errno.into()))?.filesystem_type();
        if kind != NSFS_MAGIC {
            return Err(Error::Foreign { path: path.to_owned() });
        }
        Self::from_fd(file.into(), Some(path.to_owned())).map_err(|errno| open(errno.into()))
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, Error> {
        Self::open(CURRENT)
    }

    /// Makes a new, empty namespace that lives as long as something holds it open.
    pub fn make() -> Result<Self, Error> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(Error::Make)?;
            Self::current().map(|made| Self { path: None, ..made })
        })?
    }

    fn from_fd(fd: OwnedFd, path: Option<PathBuf>) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self { fd, path, id: NetNsId { device: stat.st_dev, inode: stat.st_ino } })
    }

    /// Which namespace it is.
    pub fn id(&self) -> NetNsId {
        self.id
    }

    /// The path it was opened by.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Runs `work` inside, on a thread of its own, and waits for it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(|| {
            setns(&self.fd, CloneFlags::CLONE_NEWNET)
                .map_err(|errno| Error::Enter { namespace: self.to_string(), errno })?;
            Ok(work())
        })?
    }

    /// Opens a netlink socket that acts inside, from whichever thread it is used later.
    pub fn socket(&self) -> Result<Socket, Error> {
        self.visit(Socket::open)?.map_err(|source| self.without_socket(source))
    }

    /// Opens one for some changes, with the memory of a socket that is not needed any more.
    pub(crate) fn socket_for_changes(&self, memory: Memory) -> Result<Socket, Error> {
        self.visit(|| Socket::open_for_changes(memory))?.map_err(|source| self.without_socket(source))
    }

    fn without_socket(&self, source: socket::Error) -> Error {
        Error::Socket { namespace: self.to_string(), source }
    }

    /// Runs `work` inside, on the calling thread if that can come back, which is many times as fast as a thread of its own.
    fn visit<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        HOME.with(|home| {
            let home = if let Some(home) = home.get() {
                home
            } else {
                let found = Home::find()?;
                home.get_or_init(|| found)
            };
            let Home::Open(home) = home else { return self.run(work) };
            debug_assert_eq!(Self::current()?.id(), home.id(), "somebody else moved this thread meanwhile");
            let away = Away { home };
            setns(&self.fd, CloneFlags::CLONE_NEWNET)
                .map_err(|errno| Error::Enter { namespace: self.to_string(), errno })?;
            let done = work();
            drop(away);
            Ok(done)
        })
    }
}

thread_local! {
    /// Looking for it anew for every pod would take longer than the way there and back.
    static HOME: OnceCell<Home> = const { OnceCell::new() };
}

/// The namespace that a thread is in when it does not visit another.
enum Home {
    Open(NetNs),
    /// The thread could leave and not come back.
    Closed,
}

impl Home {
    fn find() -> Result<Self, Error> {
        let here = NetNs::current()?;
        // Going where one is takes the same right as coming back.
        let back = setns(&here.fd, CloneFlags::CLONE_NEWNET);
        Ok(if back.is_ok() { Self::Open(here) } else { Self::Closed })
    }
}

/// A thread that is away, until this is dropped.
struct Away<'a> {
    home: &'a NetNs,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.home.fd, CloneFlags::CLONE_NEWNET) {
            // Whatever this thread did next, it would do to the wrong network, and nobody would notice.
            let _ = writeln!(
                std::io::stderr(),
                "cannot come back to the thread's own network namespace: {errno}"
            );
            std::process::abort();
        }
    }
}

/// Runs `work` on a thread that ends with it, so that what it does to itself ends too.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("netns".to_owned())
            .stack_size(256 * 1024)
            .spawn_scoped(scope, work)
            .map_err(Error::Thread)?
            .join()
            .map_err(|_| Error::Thread(std::io::Error::other("it panicked")))
    })
}

impl std::fmt::Display for NetNs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            Some(path) => write!(f, "network namespace {}", path.display()),
            None => write!(f, "network namespace {}", self.id),
        }
    }
}

impl std::fmt::Display for NetNsId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "net:[{}]", self.inode)
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for NetNs {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_namespace_has_the_same_identity_by_every_path() {
        let a = NetNs::open("/proc/self/ns/net").unwrap();
        let b = NetNs::current().unwrap();
        assert_eq!(a.id(), b.id());
        assert_eq!(std::fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy(), a.id().to_string());
    }

    #[test]
    fn a_path_without_a_namespace_is_gone() {
        let missing = NetNs::open("/proc/self/ns/no-such-namespace").unwrap_err();
        assert!(missing.is_gone(), "{missing}");
        let stale = NetNs::open("/proc/self/status").unwrap_err();
        assert!(stale.is_gone() && stale.to_string().contains("/proc/self/status"), "{stale}");
        assert!(matches!(stale, Error::Foreign { .. }), "{stale}");
    }
}
