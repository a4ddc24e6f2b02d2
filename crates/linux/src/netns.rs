//! Network namespaces: opens, compares and enters them.
//!
//! No thread of a caller is ever left in another namespace. Work inside a namespace runs on its own thread, which ends there. A
//! thread that enters one itself, to open a socket, returns before it does anything else. Each thread remembers its own
//! namespace from the first use, so a caller that moves a thread by other means must do so before.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::socket::{self, Memory, Raw, Socket};

/// The namespace of the calling thread.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// An open network namespace; it exists at least as long as this value.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    path: Option<PathBuf>,
    id: NetNsId,
}

/// Identifies a namespace, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetNsId {
    device: u64,
    inode: u64,
}

/// Why a namespace could not be opened, created or entered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path does not exist or is not readable.
    #[error("open network namespace {}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The path leads to something else, for example to a file whose namespace was unmounted.
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
        /// The cause.
        errno: Errno,
    },
    /// A new namespace cannot be made.
    #[error("make a network namespace: {0}")]
    Make(Errno),
    /// The thread for the namespace could not start, or panicked.
    #[error("run a thread in another network namespace: {0}")]
    Thread(std::io::Error),
    /// No netlink socket could be opened inside.
    #[error("in {namespace}")]
    Socket {
        /// Which namespace.
        namespace: String,
        /// The cause.
        source: socket::Error,
    },
}

impl Error {
    /// Whether the namespace does not exist (any more): teardown treats this as success.
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

    /// Creates an empty namespace that exists as long as something holds it open.
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

    /// The identity of the namespace.
    pub fn id(&self) -> NetNsId {
        self.id
    }

    /// The path by which it was opened.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Runs `work` inside, on its own thread, and waits for it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(|| {
            // No rights are needed to stay in the current namespace.
            if Self::current()?.id() != self.id() {
                setns(&self.fd, CloneFlags::CLONE_NEWNET)
                    .map_err(|errno| Error::Enter { namespace: self.to_string(), errno })?;
            }
            Ok(work())
        })?
    }

    /// Opens a netlink socket inside; any thread may use it later.
    pub fn socket(&self) -> Result<Socket, Error> {
        self.visit(Socket::open)?.map_err(|source| self.without_socket(source))
    }

    /// Opens a socket for a few changes that reuses the buffers of a closed one.
    pub(crate) fn socket_for_changes(&self, memory: Memory) -> Result<Socket, Error> {
        self.visit(|| Socket::open_for_changes(memory))?.map_err(|source| self.without_socket(source))
    }

    /// Opens a netlink socket of another family (`NETLINK_…`) inside.
    pub(crate) fn raw_socket(&self, protocol: isize) -> Result<Socket<Raw>, Error> {
        self.visit(|| Socket::open_raw(protocol))?.map_err(|source| self.without_socket(source))
    }

    fn without_socket(&self, source: socket::Error) -> Error {
        Error::Socket { namespace: self.to_string(), source }
    }

    /// Runs `work` inside: on the calling thread if it can return, which is many times faster than a new thread.
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
    /// Cached: opening it for every pod would take longer than entering and leaving.
    static HOME: OnceCell<Home> = const { OnceCell::new() };
}

/// The namespace of a thread while it visits no other.
enum Home {
    Open(NetNs),
    /// The thread could enter another namespace and not return.
    Closed,
}

impl Home {
    fn find() -> Result<Self, Error> {
        let here = NetNs::current()?;
        // Entering the current namespace needs the same right as returning to it.
        let back = setns(&here.fd, CloneFlags::CLONE_NEWNET);
        Ok(if back.is_ok() { Self::Open(here) } else { Self::Closed })
    }
}

/// A thread in another namespace; dropping this returns it.
struct Away<'a> {
    home: &'a NetNs,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.home.fd, CloneFlags::CLONE_NEWNET) {
            // Whatever this thread did next would change the wrong network without any error.
            let _ = writeln!(
                std::io::stderr(),
                "cannot come back to the thread's own network namespace: {errno}"
            );
            std::process::abort();
        }
    }
}

/// Runs `work` on a thread that ends with it, so that changes to the thread end too.
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
