//! Commands inside a host.
//!
//! A program is started by a thread that has entered the host's namespaces and then stays to reap it:
//! no code runs between fork and exec, and no zombie keeps a dying PID namespace waiting.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::HostError;
use super::host::HostNamespaces;

/// A program to run inside a host; built like [`std::process::Command`].
#[derive(Debug)]
pub struct HostCommand {
    place: Arc<HostNamespaces>,
    command: Command,
}

impl HostCommand {
    pub(super) fn new(place: Arc<HostNamespaces>, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        // The host's mounts may hide the directory that the test was started in.
        command.current_dir("/");
        Self { place, command }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Sets the working directory, as a path inside the host; the default is `/`.
    #[must_use]
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Sets its standard input.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Sets its standard output.
    #[must_use]
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    /// Sets its standard error.
    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.command.stderr(stderr);
        self
    }

    /// Starts it. It runs until it ends, is killed, or the host is dropped.
    pub fn spawn(self) -> Result<HostChild, HostError> {
        let Self { place, mut command } = self;
        let host = place.name().to_owned();
        let program = command.get_program().to_string_lossy().into_owned();
        let fail = |source| HostError::Command { host: host.clone(), program: program.clone(), source };
        let lifeline = place.lifeline()?;
        let end = Arc::new(End::default());
        let (started, start) = mpsc::sync_channel(1);
        let ended = Arc::clone(&end);
        // Only during the start: the child must not keep the host alive.
        let starting = Arc::clone(&place);
        let reaper = thread::Builder::new().name(format!("{host}: {program}"));
        let reaper = reaper.spawn(move || {
            let entered = starting.namespace().enter().and_then(|()| lifeline.enter());
            drop((starting, lifeline));
            let mut child = match entered.map(|()| command.spawn()) {
                Ok(Ok(child)) => child,
                Ok(Err(source)) => return drop(started.send(Err(Ok(source)))),
                Err(error) => return drop(started.send(Err(Err(error)))),
            };
            let pid = pid_of(&child);
            let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
            // If the receiver is gone, nobody wants the streams; reaping continues.
            drop(started.send(Ok((pid, streams))));
            // Its files must close now, and not when it ends.
            drop(command);
            ended.reap(pid, &mut child);
        });
        let reaper = reaper.map_err(fail)?;
        let answer = start.recv().map_err(|_| fail(io::Error::other("the thread that starts it is gone")))?;
        let (pid, (stdin, stdout, stderr)) = answer.map_err(|error| match error {
            Ok(source) => fail(source),
            Err(error) => error,
        })?;
        place.adopt(reaper);
        Ok(HostChild { host, program, pid, end, stdin, stdout, stderr })
    }

    /// Runs it to its end and returns its output. Its input is empty by default.
    pub fn output(mut self) -> Result<Output, HostError> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (host, program) = (self.place.name().to_owned(), self.text());
        self.spawn_with_null_input()?.output().map_err(|source| HostError::Command { host, program, source })
    }

    /// Runs it to its end and returns its standard output as text; if it fails, an error with its standard
    /// error.
    pub fn succeed(self) -> Result<String, HostError> {
        let (host, program) = (self.place.name().to_owned(), self.text());
        let output = self.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(HostError::Failed { host, program, status: output.status, message })
    }

    fn spawn_with_null_input(self) -> Result<HostChild, HostError> {
        // Otherwise a program that reads would read from the terminal of the tests.
        self.stdin(Stdio::null()).spawn()
    }

    fn text(&self) -> String {
        let mut text = self.command.get_program().to_string_lossy().into_owned();
        for arg in self.command.get_args() {
            text.push(' ');
            text.push_str(&arg.to_string_lossy());
        }
        text
    }
}

/// A program that runs, or ran, inside a host. Dropping this does not end it; the end of the host does.
#[derive(Debug)]
pub struct HostChild {
    host: String,
    program: String,
    pid: Pid,
    end: Arc<End>,
    /// Its standard input, if that is a pipe and was not taken yet.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if that is a pipe and was not taken yet.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, if that is a pipe and was not taken yet.
    pub stderr: Option<ChildStderr>,
}

impl HostChild {
    /// Its process ID on the machine.
    pub fn id(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends it a signal; does nothing if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), HostError> {
        self.end.signal(self.pid, signal).map_err(|source| HostError::Command {
            host: self.host.clone(),
            program: self.program.clone(),
            source,
        })
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&self) -> Result<ExitStatus, HostError> {
        self.signal(Signal::SIGKILL)?;
        Ok(self.wait())
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        *self.end.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it ends.
    pub fn wait(&self) -> ExitStatus {
        let mut status = self.end.status.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(status) = *status {
                return status;
            }
            status = self.end.changed.wait(status).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until it ends, at most `limit`.
    pub fn wait_for(&self, limit: Duration) -> Option<ExitStatus> {
        let status = self.end.status.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.end.changed.wait_timeout_while(status, limit, |status| status.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (out, err) = (self.stdout.take(), self.stderr.take());
        thread::scope(|scope| {
            let errors = scope.spawn(|| err.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stderr)));
            out.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stdout))?;
            errors.join().unwrap_or_else(|_| Err(io::Error::other("reading standard error panicked")))
        })?;
        Ok(Output { status: self.wait(), stdout, stderr })
    }
}

/// The end of a program, set by the thread that reaps it.
#[derive(Debug, Default)]
struct End {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl End {
    fn reap(&self, pid: Pid, child: &mut Child) {
        // The process ID stays its own until it is reaped, and it is reaped under the lock: a signal can
        // never reach a successor with the same ID.
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::Error::EINTR) {}
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        *status = child.wait().ok();
        self.changed.notify_all();
    }

    fn signal(&self, pid: Pid, signal: Signal) -> io::Result<()> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if status.is_none() {
            kill(pid, signal)?;
        }
        Ok(())
    }
}

fn pid_of(child: &Child) -> Pid {
    // Process ids are positive and far below the limit of i32; the kernel's own type is that.
    Pid::from_raw(child.id().cast_signed())
}
