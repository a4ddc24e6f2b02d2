//! The kernel ends the processes of a host together with the test.
//!
//! A host that runs commands has its own PID, mount, UTS and IPC namespaces. The first process of the PID
//! namespace is a shell that reaps orphans and waits for the end of a pipe whose other end only the test
//! process has. When the test process is gone, however it ended, the pipe ends, the shell ends, and the
//! kernel kills every other process of the PID namespace; with the last of them the mount namespace
//! disappears, and all its mounts.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::sethostname;

use super::namespace::{failed, on_a_thread_of_its_own};
use super::{HostError, NetworkNamespace};

/// The first process's script. `wait` also reaps orphans; a background command would read from /dev/null if
/// its input were not named.
const INIT: &str = "mount -t proc proc /proc && echo ready && { exec 3<&0; cat <&3 >/dev/null & wait $!; }";

/// The differences between a host's file system and the machine's.
///
/// Every host has a `/proc` and a `/sys` of its own namespaces and an empty `/run`.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    binds: Vec<(PathBuf, PathBuf)>,
    proc_values: Vec<(String, String)>,
}

impl Mounts {
    /// Mounts `source` (not below `/run`) at `target`. Both are created if they are missing.
    #[must_use]
    pub fn bind(mut self, source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        self.binds.push((source.into(), target.into()));
        self
    }

    /// Gives the host its own file in place of a machine-wide `/proc/sys/KEY`, so that a program that insists
    /// on setting it does not set it for the whole machine.
    #[must_use]
    pub fn private_sysctl(mut self, key: &str, value: &str) -> Self {
        self.proc_values.push((key.replace('.', "/"), value.to_owned()));
        self
    }
}

/// The namespaces in which a host's commands run, and the process that keeps them.
#[derive(Debug)]
pub(crate) struct Lifeline {
    host: String,
    pid: u32,
    /// Each with its kind, in the order in which a thread must enter them.
    namespaces: Vec<(CloneFlags, File)>,
    init: Mutex<Child>,
}

impl Lifeline {
    /// Makes the namespaces and starts their first process.
    pub(crate) fn start(network: &NetworkNamespace, mounts: &Mounts) -> Result<Self, HostError> {
        let host = network.name().to_owned();
        let mut child = on_a_thread_of_its_own(|| start_init(network, mounts))?;
        if let Err(message) = await_ready(&mut child) {
            // It has ended or is useless; it only has to be reaped.
            let _ = child.kill();
            let _ = child.wait();
            return Err(HostError::Init { host, message });
        }
        let pid = child.id();
        let open = |kind: &str| {
            File::open(format!("/proc/{pid}/ns/{kind}"))
                .map_err(|source| failed("opening a namespace", network.name(), source))
        };
        let lifeline = Self {
            pid,
            namespaces: vec![
                (CloneFlags::CLONE_NEWUTS, open("uts")?),
                (CloneFlags::CLONE_NEWIPC, open("ipc")?),
                (CloneFlags::CLONE_NEWPID, open("pid")?),
                (CloneFlags::CLONE_NEWNS, open("mnt")?),
            ],
            init: Mutex::new(child),
            host,
        };
        lifeline.shadow_sysctls(mounts)?;
        Ok(lifeline)
    }

    /// The first process, as the machine numbers it.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Moves the calling thread into the namespaces. Only its children will be in the PID namespace, and it
    /// can start no more threads.
    pub(crate) fn enter(&self) -> Result<(), HostError> {
        let fail = |errno: nix::Error| failed("entering a namespace", &self.host, errno.into());
        // A thread that shares its root and working directory with others may not change mount namespaces.
        unshare(CloneFlags::CLONE_FS).map_err(fail)?;
        for (kind, file) in &self.namespaces {
            setns(file, *kind).map_err(fail)?;
        }
        Ok(())
    }

    /// Kills every process of the PID namespace. Those that this process started itself still have to be
    /// reaped by it: until then [`reap`](Self::reap) does not return.
    pub(crate) fn kill(&self) {
        // Fails only if it is gone already.
        let _ = self.init.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }

    /// Waits until every process of the PID namespace is gone.
    pub(crate) fn reap(&self) {
        let _ = self.init.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }

    fn shadow_sysctls(&self, mounts: &Mounts) -> Result<(), HostError> {
        if mounts.proc_values.is_empty() {
            return Ok(());
        }
        on_a_thread_of_its_own(|| {
            self.enter()?;
            for (index, (key, value)) in mounts.proc_values.iter().enumerate() {
                let target = Path::new("/proc/sys").join(key);
                let source = PathBuf::from(format!("/run/.sysctl-{index}"));
                let shadowed = fs::write(&source, value).and_then(|()| bind(&source, &target));
                shadowed.map_err(|source| mount_failed(&self.host, &target, source))?;
            }
            Ok(())
        })
    }
}

/// On a thread of its own: enters, makes the namespaces, mounts, and starts the first process.
fn start_init(network: &NetworkNamespace, mounts: &Mounts) -> Result<Child, HostError> {
    let host = network.name();
    network.enter()?;
    let kinds = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    unshare(kinds)
        .and_then(|()| sethostname(host))
        .map_err(|errno| failed("making the namespaces", host, errno.into()))?;
    mount_all(host, mounts)?;
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|errno| failed("making the PID namespace", host, errno.into()))?;
    Command::new("sh")
        .args(["-c", INIT])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| HostError::Command { host: host.to_owned(), program: "sh".to_owned(), source })
}

fn mount_all(host: &str, mounts: &Mounts) -> Result<(), HostError> {
    let at =
        |target: &Path, result: io::Result<()>| result.map_err(|source| mount_failed(host, target, source));
    let root = Path::new("/");
    // Mounts made here are not visible on the machine.
    at(root, flag_tree(root, MsFlags::MS_SLAVE))?;
    for (source, target) in &mounts.binds {
        at(target, fs::create_dir_all(source).and_then(|()| fs::create_dir_all(target)))?;
        at(target, bind(source, target))?;
    }
    let run = Path::new("/run");
    at(run, mount_new("tmpfs", run))?;
    // A /sys of this network namespace, with the machine's cgroups in it.
    let (sys, staged) = (Path::new("/sys"), Path::new("/run/.sys"));
    at(sys, fs::create_dir(staged).and_then(|()| mount_new("sysfs", staged)))?;
    for kept in ["fs/cgroup", "fs/bpf"] {
        let source = sys.join(kept);
        if source.is_dir() {
            at(&source, bind(&source, &staged.join(kept)))?;
        }
    }
    at(sys, mount(Some(staged), sys, None::<&str>, MsFlags::MS_MOVE, None::<&str>).map_err(Into::into))?;
    at(staged, fs::remove_dir(staged))?;
    // Container runtimes need mounts to propagate between the host and its pods.
    at(root, flag_tree(root, MsFlags::MS_SHARED))
}

fn flag_tree(target: &Path, flag: MsFlags) -> io::Result<()> {
    Ok(mount(None::<&str>, target, None::<&str>, flag | MsFlags::MS_REC, None::<&str>)?)
}

fn mount_new(kind: &str, target: &Path) -> io::Result<()> {
    Ok(mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>)?)
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(mount(Some(source), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?)
}

fn mount_failed(host: &str, target: &Path, source: io::Error) -> HostError {
    HostError::Mount { host: host.to_owned(), target: target.to_owned(), source }
}

fn await_ready(child: &mut Child) -> Result<(), String> {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
    }
    if line.trim() == "ready" {
        return Ok(());
    }
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut message).map_err(|e| e.to_string())?;
    }
    Err(message.trim().to_owned())
}
