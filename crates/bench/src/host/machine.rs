//! A host made of namespaces, with a container runtime on it that executes plugins and takes the time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tenure_testbed::hosts::{Host, HostChild, Port, Segment};

use super::log::tail;
use super::process::processor_time;
use super::runtime::{Order, Timings};

/// Longer than anything takes, also on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_mins(2);
/// How long interfaces may take to disappear after their DELs.
const SETTLED: Duration = Duration::from_secs(30);
/// How often is looked at what is waited for.
const LOOK: Duration = Duration::from_millis(5);

/// A host. All that is on it ends with this, and with this process, however that ends.
pub(crate) struct Machine {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// How many interfaces it has without pods.
    bare: usize,
    pub(crate) host: Host,
    runtime: HostChild,
    _uplink: (Segment, Port),
}

impl Machine {
    /// The address of every host, each on a segment of its own.
    pub(crate) const ADDRESS: &str = "192.0.2.1";

    /// A host with an uplink and a runtime.
    pub(crate) fn start(name: &str) -> Result<Self> {
        let host = Host::new(name)?;
        let segment = Segment::new("segment")?;
        let port = segment.connect(&host, "uplink", &[&format!("{}/24", Self::ADDRESS)])?;
        host.route("default", "192.0.2.254".parse()?)?;
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let command = host.command(own).arg("--runtime").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut runtime = command.spawn()?;
        let (to, from) = (runtime.stdin.take(), runtime.stdout.take());
        let (to, from) = to.zip(from).context("the runtime has no pipes")?;
        let bare = interfaces(&host)?;
        Ok(Self { to, from: BufReader::new(from), bare, host, runtime, _uplink: (segment, port) })
    }

    /// How much processor time the runtime's own children have had: the plugins, from their starts to their ends.
    pub(crate) fn plugins_time(&self) -> Result<f64> {
        Ok(processor_time(self.runtime.id())?.1)
    }

    /// Has the runtime do something.
    pub(crate) fn order(&mut self, order: &Order) -> Result<Timings> {
        writeln!(self.to, "{}", serde_json::to_string(order)?).context("the runtime is gone")?;
        let mut line = String::new();
        self.from.read_line(&mut line).context("cannot read what the runtime says")?;
        ensure!(!line.is_empty(), "the runtime of {} is gone", self.host.name());
        let answer: Result<Timings, String> = serde_json::from_str(&line)?;
        answer.map_err(|message| anyhow!("the runtime of {}: {message}", self.host.name()))
    }

    /// Starts a program that runs as long as the host; what it says goes to the file `log`.
    pub(crate) fn daemon(
        &self,
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Result<HostChild> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let mut command = self.host.command(program).args(arguments);
        for (key, value) in variables {
            command = command.env(key, value);
        }
        Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
    }

    /// Starts our agent, and waits until it answers.
    pub(crate) fn agent(&self, program: &Path, kubeconfig: &Path, log: &Path) -> Result<HostChild> {
        let kubeconfig = kubeconfig.display().to_string();
        let name = self.host.name();
        let arguments =
            ["--node-name", name, "--kubeconfig", &kubeconfig, "--metrics-address", "127.0.0.1:0"];
        let agent = self.daemon(program, &arguments, &[("NO_COLOR", "1")], log)?;
        let socket = self.path("/run/tenure/tenured.sock")?;
        until("tenured to answer", || {
            ensure!(agent.try_wait().is_none(), "tenured has ended: {}", tail(log));
            Ok(socket.exists().then_some(()))
        })?;
        Ok(agent)
    }

    /// A file of the host, for this process.
    pub(crate) fn path(&self, path: &str) -> Result<PathBuf> {
        Ok(self.host.path(path)?)
    }

    /// Waits until no more interfaces are left than those of `pods` pods; how many are left all the same. Those count as the
    /// host's own from then on.
    pub(crate) fn settle(&mut self, pods: usize) -> Result<usize> {
        let began = Instant::now();
        loop {
            let left = interfaces(&self.host)?.saturating_sub(self.bare + pods);
            if left == 0 || began.elapsed() > SETTLED {
                self.bare += left;
                return Ok(left);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Waits until there is something; how long that took.
pub(crate) fn until(what: &str, mut look: impl FnMut() -> Result<Option<()>>) -> Result<Duration> {
    let began = Instant::now();
    while look()?.is_none() {
        if began.elapsed() > SOON {
            bail!("waited {SOON:?} for {what}");
        }
        std::thread::sleep(LOOK);
    }
    Ok(began.elapsed())
}

fn interfaces(host: &Host) -> Result<usize> {
    let all = host.path("/sys/class/net")?;
    Ok(std::fs::read_dir(&all).with_context(|| format!("cannot read {}", all.display()))?.count())
}
