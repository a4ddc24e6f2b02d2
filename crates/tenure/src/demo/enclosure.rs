//! The demo's own namespaces, which end with it however it ends.
//!
//! A second process plays the demo: the first one of a PID namespace, with mount and network namespaces that
//! only its children share. When it ends, the kernel ends all of them, and mounts, namespaces and links
//! disappear. It ends by itself, at Ctrl-C, and when the first process is gone, because a pipe between the
//! two breaks.
//!
//! A user who is not root becomes root in a user namespace, if the kernel allows it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getegid, geteuid};

/// The exit code of an interrupted program, as in shells.
const INTERRUPTED: u8 = 130;
/// Hidden by a file system in memory, only for this process and its children.
const HIDDEN: &str = "/run";
const DIRECTORY: &str = "/run/tenure-demo";

const NEEDED: &str = "the demo makes hosts out of namespaces, and the kernel does not let it; \
    it needs root, or user namespaces for everyone: they are allowed by \
    `sysctl -w kernel.unprivileged_userns_clone=1` on older Debian, \
    `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu, and for a container by --privileged";

/// Runs this program with these arguments and `--inside DIRECTORY`, in its own namespaces; returns its exit
/// code.
pub(crate) fn enclose(arguments: &[String]) -> Result<u8> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot wait for signals")?;
    separate().context(NEEDED)?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .args(["--inside", DIRECTORY])
        // Only this process gets the interrupt; the other one sees the end of the pipe.
        .process_group(0)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start this program again, in namespaces of its own")?;
    let mut interrupted = false;
    loop {
        // Blocked signals stay pending: one that comes in between is not lost.
        if let Some(status) = child.try_wait().context("cannot wait for the demo")? {
            if interrupted {
                // A closed terminal is no error.
                let _ = writeln!(io::stderr(), "\ntenure: interrupted; nothing is left of the demo");
                return Ok(INTERRUPTED);
            }
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX));
        }
        if signals.wait().context("cannot wait for signals")? != Signal::SIGCHLD {
            interrupted = true;
            drop(child.stdin.take());
        }
    }
}

/// In the second process: ends it, and so everything, when the first one closes the pipe or is gone.
pub(crate) fn live_as_long_as_asked() -> Result<()> {
    ensure!(std::process::id() == 1, "--inside is for processes that the demo starts itself");
    // Blocked signals are inherited, and must not be by the programs started from here.
    SigSet::all().thread_unblock().context("cannot take signals")?;
    let watch = || {
        // However the pipe ends.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(INTERRUPTED.into());
    };
    std::thread::Builder::new().name("lifeline".to_owned()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}

/// Leaves the machine's namespaces, and creates the demo's directory where nobody else sees it.
fn separate() -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    let apart = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    match if user.is_root() { unshare(apart) } else { Err(Errno::EPERM) } {
        // Root of a container may have no rights, and then uses the same way.
        Err(Errno::EPERM) => {
            unshare(apart | CloneFlags::CLONE_NEWUSER).context("making namespaces")?;
            for (file, text) in [
                ("setgroups", "deny".to_owned()),
                ("uid_map", format!("0 {user} 1")),
                ("gid_map", format!("0 {group} 1")),
            ] {
                fs::write(Path::new("/proc/self").join(file), text)
                    .with_context(|| format!("becoming root in a user namespace: writing {file}"))?;
            }
        }
        made => made.context("making namespaces")?,
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).context("making mounts private")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tenure-demo"), HIDDEN, Some("tmpfs"), flags, Some("mode=0700"))
        .with_context(|| format!("mounting memory at {HIDDEN}"))?;
    fs::create_dir(DIRECTORY).with_context(|| format!("making {DIRECTORY}"))
}
