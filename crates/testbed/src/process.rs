//! Child processes that never outlive the test process, and never stay as zombies.
//!
//! Three things make that true, also when the test process is killed with SIGKILL:
//!
//! - Each child is started through `setpriv --pdeathsig KILL`: the kernel kills it when its parent ends.
//!   (Doing the same between fork and exec would need unsafe code.)
//! - To the kernel, "parent" is the *thread* that started the child. So each child has a thread of its own,
//!   which starts it, waits for it, reaps it and does nothing else.
//! - A parent that died before `setpriv` was done would go unnoticed, so a line of shell compares the parent's
//!   id once more before the program starts.
//!
//! A child is in a process group of its own: Ctrl-C reaches the test process only, and ends the rest through it.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use std::os::unix::process::CommandExt as _;

/// How long a program that was asked to stop may take before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// Runs `"$@"` unless the process `$0` is no longer the parent.
const IF_STILL_WANTED: &str = r#"test "$PPID" = "$0" && exec "$@""#;

/// A program with its arguments, and the file for its output. Can be started any number of times.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    log: PathBuf,
}

impl Program {
    /// The program at `path`, called `name` in messages; its output is appended to the file `log`.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            log: log.into(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds `FLAG=VALUE` as one argument.
    #[must_use]
    pub fn flag(self, flag: &str, value: impl AsRef<OsStr>) -> Self {
        let mut argument = OsString::from(flag);
        argument.push("=");
        argument.push(value.as_ref());
        self.arg(argument)
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file for its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Starts it.
    pub fn start(&self) -> Result<Process, ProcessError> {
        Process::start(self)
    }

    fn command(&self) -> io::Result<Command> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c", IF_STILL_WANTED])
            .arg(std::process::id().to_string())
            .arg(&self.path)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        Ok(command)
    }
}

/// A running program. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    log: PathBuf,
    life: Arc<Life>,
}

impl Process {
    fn start(program: &Program) -> Result<Self, ProcessError> {
        let failed =
            |source| ProcessError::Start { name: program.name.clone(), path: program.path.clone(), source };
        // `setpriv` would be found and then report the missing program: report it here, with its name.
        program.path.metadata().map_err(failed)?;
        let mut command = program.command().map_err(failed)?;
        let life = Arc::new(Life::default());
        let (started, starting) = mpsc::channel();
        let keeper = Arc::clone(&life);
        thread::Builder::new()
            .name(format!("keeps-{}", program.name))
            .spawn(move || match command.spawn() {
                Ok(child) => {
                    // If there is no receiver, the caller is gone, and the child is no longer needed.
                    let wanted = started.send(Ok(child.id())).is_ok();
                    keeper.keep(child, wanted);
                }
                Err(error) => drop(started.send(Err(error))),
            })
            .map_err(failed)?;
        let id = starting.recv().map_err(|_| failed(io::Error::other("its thread ended")))?;
        let id = id.map_err(failed)?;
        let pid =
            i32::try_from(id).map_err(|_| failed(io::Error::other("its process id is out of range")))?;
        Ok(Self { name: program.name.clone(), pid: Pid::from_raw(pid), log: program.log.clone(), life })
    }

    /// Its process ID; useless once it has ended.
    pub fn id(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file for its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it has not ended. A paused program counts as running.
    pub fn is_running(&self) -> bool {
        matches!(*self.life.state(), State::Running)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        match *self.life.state() {
            State::Ended(status) => status,
            State::Running => None,
        }
    }

    /// Sends it a signal; does nothing if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        // It is reaped under the same lock, so its ID cannot belong to another process meanwhile.
        let state = self.life.state();
        if matches!(*state, State::Ended(_)) {
            return Ok(());
        }
        kill(self.pid, signal).map_err(|source| ProcessError::Signal {
            signal,
            name: self.name.clone(),
            pid: self.id(),
            source: source.into(),
        })
    }

    /// Suspends it where it is (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes it (SIGCONT).
    pub fn resume(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGCONT)
    }

    /// Ends it at once (SIGKILL) and returns when it is gone.
    pub fn kill(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGKILL)?;
        if self.life.wait(GRACE) {
            return Ok(());
        }
        Err(ProcessError::Stays { name: self.name.clone(), pid: self.id(), grace: GRACE })
    }

    /// Asks it to end (SIGTERM), kills it after ten seconds, and returns when it is gone.
    pub fn stop(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGTERM)?;
        // A paused program would not notice the request.
        self.resume()?;
        if self.life.wait(GRACE) { Ok(()) } else { self.kill() }
    }

    /// Waits at most `limit` until it ends by itself; returns whether it did.
    pub fn wait(&self, limit: Duration) -> bool {
        self.life.wait(limit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::error!(%error, "a process of the test bed could not be ended");
        }
    }
}

/// What the thread of a child and its users share.
#[derive(Debug, Default)]
struct Life {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Running,
    /// The status, if the system reported it.
    Ended(Option<ExitStatus>),
}

impl Life {
    /// Waits for the child's end and reaps it; first kills it if nobody needs it.
    fn keep(&self, mut child: Child, wanted: bool) {
        if !wanted {
            drop(child.kill());
        }
        if let Ok(pid) = i32::try_from(child.id()) {
            // Leaves it a zombie, so that its ID stays its own until the lock is held.
            while waitid(Id::Pid(Pid::from_raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
                == Err(nix::errno::Errno::EINTR)
            {}
        }
        let mut state = self.state();
        *state = State::Ended(child.wait().ok());
        self.ended.notify_all();
    }

    fn wait(&self, limit: Duration) -> bool {
        let (state, _) = self
            .ended
            .wait_timeout_while(self.state(), limit, |state| matches!(state, State::Running))
            .unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Ended(_))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error of a child process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("starting {name} ({path}) failed", path = path.display())]
    Start {
        /// Its name.
        name: String,
        /// The program's file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A signal could not be sent to it.
    #[error("sending {signal} to {name} (process {pid}) failed")]
    Signal {
        /// The signal.
        signal: Signal,
        /// Its name.
        name: String,
        /// Its process id.
        pid: u32,
        /// What the system says.
        source: io::Error,
    },
    /// It was killed and did not disappear.
    #[error("{name} (process {pid}) is still there {grace:?} after it was killed")]
    Stays {
        /// Its name.
        name: String,
        /// Its process id.
        pid: u32,
        /// How long this waited.
        grace: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(directory: &Path, script: &str) -> Program {
        Program::new("script", "/bin/sh", directory.join("script.log")).args(["-c", script])
    }

    fn state_of(id: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn a_process_that_is_dropped_is_gone_and_reaped() {
        let directory = tempfile::tempdir().unwrap();
        let process = shell(directory.path(), "exec sleep 1000").start().unwrap();
        let id = process.id();
        assert!(process.is_running());
        assert!(state_of(id).is_some());
        drop(process);
        assert_eq!(state_of(id), None);
    }

    #[test]
    fn a_process_that_ends_by_itself_is_reaped_and_its_status_kept() {
        let directory = tempfile::tempdir().unwrap();
        let process = shell(directory.path(), "echo said; exit 3").start().unwrap();
        assert!(process.wait(Duration::from_secs(10)));
        assert_eq!(process.ended().unwrap().code(), Some(3));
        assert_eq!(state_of(process.id()), None);
        assert_eq!(std::fs::read_to_string(process.log()).unwrap(), "said\n");
        process.signal(Signal::SIGTERM).expect("a signal to an ended process is nothing");
    }

    #[test]
    fn a_paused_process_stands_still_and_can_still_be_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let process =
            shell(directory.path(), "trap 'exit 7' TERM; while :; do sleep 0.05; done").start().unwrap();
        let until = |wanted: char| {
            for _ in 0..200 {
                if state_of(process.id()) == Some(wanted) {
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
            panic!("never became {wanted}: {:?}", state_of(process.id()));
        };
        process.pause().unwrap();
        until('T');
        process.resume().unwrap();
        until('S');
        process.pause().unwrap();
        process.stop().unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn a_process_outlives_the_thread_that_started_it() {
        let directory = tempfile::tempdir().unwrap();
        let program = shell(directory.path(), "exec sleep 1000");
        let process = thread::spawn(move || program.start().unwrap()).join().unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(process.is_running());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Program::new("etcd", "/nowhere/etcd", "/dev/null").start().unwrap_err();
        assert_eq!(error.to_string(), "starting etcd (/nowhere/etcd) failed");
    }
}
