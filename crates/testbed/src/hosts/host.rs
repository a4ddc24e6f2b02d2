//! A machine made of namespaces.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::lifeline::{Lifeline, Mounts};
use super::{Capture, HostCommand, HostError, NetworkNamespace, ping};

/// A test host: a network namespace, and processes in namespaces of their own.
///
/// When it is dropped, its processes are killed and reaped, and its interfaces disappear.
#[derive(Debug)]
pub struct Host {
    place: Arc<HostNamespaces>,
}

/// The namespaces of a host's programs: shared with commands that are about to start.
#[derive(Debug)]
pub(super) struct HostNamespaces {
    namespace: NetworkNamespace,
    mounts: Mounts,
    /// Created for the first program; gone after [`Host::end_processes`] until the next one.
    lifeline: Mutex<Option<Arc<Lifeline>>>,
    /// The threads that reap the programs started here.
    reapers: Mutex<Vec<JoinHandle<()>>>,
}

impl Host {
    /// A host without interfaces other than loopback, and with the machine's files.
    pub fn new(name: &str) -> Result<Self, HostError> {
        Self::with_mounts(name, Mounts::default())
    }

    /// A host whose files differ from the machine's.
    pub fn with_mounts(name: &str, mounts: Mounts) -> Result<Self, HostError> {
        Ok(Self::in_namespace(NetworkNamespace::new(name)?, mounts))
    }

    /// A host in an existing network namespace.
    pub fn in_namespace(namespace: NetworkNamespace, mounts: Mounts) -> Self {
        let place =
            HostNamespaces { namespace, mounts, lifeline: Mutex::default(), reapers: Mutex::default() };
        Self { place: Arc::new(place) }
    }

    /// The host's name; also its hostname for commands.
    pub fn name(&self) -> &str {
        self.place.name()
    }

    /// The host's network namespace.
    pub fn namespace(&self) -> &NetworkNamespace {
        &self.place.namespace
    }

    /// Runs `f` in the network namespace, on a thread of its own. Its files are the machine's, not the
    /// host's. A panic of `f` reaches the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, HostError> {
        self.namespace().run(f)
    }

    /// A program to be run inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> HostCommand {
        HostCommand::new(Arc::clone(&self.place), program)
    }

    /// Runs lines of `ip -batch` inside.
    pub fn ip(&self, batch: &str) -> Result<(), HostError> {
        self.namespace().ip(batch)
    }

    /// Adds addresses (`192.0.2.1/24`, `2001:db8::1/64`) to an interface; they are usable at once.
    pub fn address(&self, interface: &str, addresses: &[&str]) -> Result<(), HostError> {
        let lines = addresses.iter().map(|address| address_line(interface, address));
        self.ip(&lines.collect::<String>())
    }

    /// Adds a route to a network (`default`, `198.51.100.0/24`) through a neighbour.
    pub fn route(&self, network: &str, via: IpAddr) -> Result<(), HostError> {
        self.ip(&format!("route add {network} via {via}"))
    }

    /// Makes the host a router, for both families.
    pub fn forward(&self) -> Result<(), HostError> {
        self.sysctl("net.ipv4.ip_forward", "1")?;
        self.sysctl("net.ipv6.conf.all.forwarding", "1")
    }

    /// Sets a sysctl below `net.`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), HostError> {
        self.namespace().sysctl(key, value)
    }

    /// Sends echo requests until one is answered; an error if none is within `limit`. Returns how long the
    /// answered one took.
    pub fn ping(&self, target: IpAddr, limit: Duration) -> Result<Duration, HostError> {
        self.run(|| ping::echo(target, limit))?.map_err(|source| HostError::Ping {
            host: self.name().to_owned(),
            target,
            source,
        })
    }

    /// Records every packet that the host sends or receives from now on.
    pub fn capture(&self) -> Result<Capture, HostError> {
        Capture::start(self.namespace())
    }

    /// Creates a named network namespace inside: `/run/netns/NAME` for the host's programs, as a container
    /// runtime creates one for a pod. Returns it for the test, and that path.
    pub fn pod_namespace(&self, name: &str) -> Result<(NetworkNamespace, PathBuf), HostError> {
        self.command("ip").args(["netns", "add", name]).succeed()?;
        let inside = Path::new("/run/netns").join(name);
        let namespace = NetworkNamespace::open(name, &self.path(&inside)?)?;
        Ok((namespace, inside))
    }

    /// The path for the test of a file of the host; `path` is the one inside the host.
    pub fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf, HostError> {
        let pid = self.place.lifeline()?.pid();
        let path = path.as_ref();
        let below_root = path.strip_prefix("/").unwrap_or(path);
        Ok(Path::new("/proc").join(pid.to_string()).join("root").join(below_root))
    }

    /// The ID on the machine of the host's first process, which has all of the host's namespaces.
    pub fn init_pid(&self) -> Result<u32, HostError> {
        Ok(self.place.lifeline()?.pid())
    }

    /// Kills all processes inside, waits until they are gone, and drops all mounts, like a power cut. The
    /// network namespace stays; the next command starts afresh.
    pub fn end_processes(&self) {
        self.place.end();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.place.end();
    }
}

impl AsRef<NetworkNamespace> for Host {
    fn as_ref(&self) -> &NetworkNamespace {
        self.namespace()
    }
}

impl AsRef<NetworkNamespace> for Arc<Host> {
    fn as_ref(&self) -> &NetworkNamespace {
        self.namespace()
    }
}

impl HostNamespaces {
    pub(super) fn name(&self) -> &str {
        self.namespace.name()
    }

    pub(super) fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// The namespaces of the host's programs, created for the first one.
    pub(super) fn lifeline(&self) -> Result<Arc<Lifeline>, HostError> {
        let mut current = self.lifeline.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lifeline) = &*current {
            return Ok(Arc::clone(lifeline));
        }
        let lifeline = Arc::new(Lifeline::start(&self.namespace, &self.mounts)?);
        *current = Some(Arc::clone(&lifeline));
        Ok(lifeline)
    }

    /// Keeps a program's reaper, and drops those whose programs have ended.
    pub(super) fn adopt(&self, reaper: JoinHandle<()>) {
        let mut reapers = self.reapers.lock().unwrap_or_else(PoisonError::into_inner);
        reapers.retain(|reaper| !reaper.is_finished());
        reapers.push(reaper);
    }

    fn end(&self) {
        let lifeline = self.lifeline.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(lifeline) = lifeline else { return };
        lifeline.kill();
        let reapers = std::mem::take(&mut *self.reapers.lock().unwrap_or_else(PoisonError::into_inner));
        for reaper in reapers {
            // A reaper does not panic; if one did, there is nothing left to wait for.
            let _ = reaper.join();
        }
        lifeline.reap();
    }
}

/// A line of `ip -batch` that adds an address without waiting for duplicates to answer.
pub(super) fn address_line(interface: &str, address: &str) -> String {
    let no_detection = if address.contains(':') { " nodad" } else { "" };
    format!("address add {address} dev {interface}{no_detection}\n")
}
