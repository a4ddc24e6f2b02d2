//! A network namespace that lives as long as it is held.
//!
//! It is held by a file descriptor and has no name in the file system, so it cannot outlive the
//! process that made it, however that process ends.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use super::HostError;

/// A network namespace, held open.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
    file: File,
}

impl NetworkNamespace {
    /// A new and empty one. The name is for messages only.
    ///
    /// The loopback interface is up, and IPv6 addresses are usable at once: no duplicate address
    /// detection, no router solicitations.
    pub fn new(name: &str) -> Result<Self, HostError> {
        let made = on_a_thread_of_its_own(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = made.map_err(|source| failed("making the network namespace", name, source))?;
        let namespace = Self { name: name.to_owned(), file };
        for family in ["all", "default"] {
            for key in ["accept_dad", "dad_transmits", "router_solicitations"] {
                namespace.sysctl(&format!("net.ipv6.conf.{family}.{key}"), "0")?;
            }
        }
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The namespace that this process was started in.
    pub fn current() -> Result<Self, HostError> {
        Self::open("outside", Path::new("/proc/self/ns/net"))
    }

    /// An existing one, by a path such as `/run/netns/NAME`.
    pub fn open(name: &str, path: &Path) -> Result<Self, HostError> {
        let file =
            File::open(path).map_err(|source| failed("opening the network namespace", name, source))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number for it, as in `readlink /proc/PID/ns/net`.
    pub fn inode(&self) -> Result<u64, HostError> {
        let metadata = self.file.metadata();
        metadata
            .map(|m| m.ino())
            .map_err(|source| failed("looking at the network namespace", &self.name, source))
    }

    /// A path to it for programs outside of the hosts; valid as long as this value lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Runs `f` inside, on a thread of its own. A panic of `f` reaches the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, HostError> {
        on_a_thread_of_its_own(|| self.enter().map(|()| f()))
    }

    /// Moves the calling thread into the namespace, for the rest of that thread's life.
    pub(crate) fn enter(&self) -> Result<(), HostError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| failed("entering the network namespace", &self.name, errno.into()))
    }

    /// Runs lines of `ip -batch` inside. The first line that fails ends it.
    pub fn ip(&self, batch: &str) -> Result<(), HostError> {
        let refused = |message| HostError::Ip { host: self.name.clone(), batch: batch.to_owned(), message };
        let output = self.run(|| {
            let mut child = Command::new("ip")
                .args(["-batch", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(batch.as_bytes())?;
            }
            child.wait_with_output()
        })?;
        let output = output.map_err(|source: io::Error| refused(source.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// The answer of `ip -json ARGS` inside.
    pub fn ip_json(&self, args: &[&str]) -> Result<serde_json::Value, HostError> {
        let refused = |message| HostError::Ip { host: self.name.clone(), batch: args.join(" "), message };
        let output = self
            .run(|| Command::new("ip").arg("-json").args(args).stdin(Stdio::null()).output())?
            .map_err(|source| refused(source.to_string()))?;
        if !output.status.success() {
            return Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        // `ip` answers with nothing, and not with an empty list, if there are no entries.
        let text = if output.stdout.is_empty() { b"[]".as_slice() } else { &output.stdout };
        serde_json::from_slice(text).map_err(|source| refused(source.to_string()))
    }

    /// Sets a sysctl (`net.ipv4.ip_forward`) of the namespace. A dot in an interface's name is written as `/`,
    /// as sysctl(8) has it.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), HostError> {
        let swapped: String = key
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect();
        // The kernel uses the namespace of the thread that opens the file, so this is the namespace's own
        // value.
        let path = Path::new("/proc/sys").join(swapped);
        self.run(|| std::fs::write(path, value))?.map_err(|source| HostError::Sysctl {
            host: self.name.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            source,
        })
    }
}

impl AsRef<NetworkNamespace> for NetworkNamespace {
    fn as_ref(&self) -> &NetworkNamespace {
        self
    }
}

/// Runs `f` on a dedicated thread: a thread that has entered a namespace must not return to a pool.
pub(crate) fn on_a_thread_of_its_own<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(f).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

pub(crate) fn failed(act: &'static str, host: &str, source: io::Error) -> HostError {
    HostError::Namespace { act, host: host.to_owned(), source }
}
