//! A fake of Google's cloud: the part of the Compute and Network Connectivity APIs that attaching addresses uses, and a metadata
//! server for each machine. As strict as the cloud: what the cloud refuses is refused here, in its words where they are known.
//!
//! Two planes, each with its own delay, because a finished operation does not mean that packets flow:
//!
//! ```text
//!  PATCH ──▶ operation ──[update]──▶ configuration ──[arrival]──▶ data plane ──▶ metadata's ipAliases, callback
//!                                    (what GET says)
//! ```
//!
//! The callback ([`FakeCloud::on_arrival`]) gets every change of the data plane, so that a test bed can make routes of it. All changes of
//! both planes are kept with their times ([`FakeCloud::changes`]).
//!
//! What is not known of the real cloud is a setting: whether one update may add and remove, how long things take, how large quotas are.

mod answer;
mod faults;
mod instances;
mod metadata;
mod operations;
mod ranges;
mod reservations;
mod server;
mod state;
mod subnets;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_handles::SeededEntropy;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use faults::{Call, Fault, Harm};
pub use ranges::Net;
use state::State;

/// The project of the fake.
pub const PROJECT: &str = "test-project";
/// The token that the metadata server gives, and the APIs accept.
pub const TOKEN: &str = "ya29.fake-token";

/// How the cloud behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an update of an interface or a subnet takes.
    pub update: Range<Duration>,
    /// How long it takes from there until packets flow.
    pub arrival: Range<Duration>,
    /// Whether an update that adds and removes is refused.
    pub strict_mixed: bool,
    /// So many alias ranges an interface takes.
    pub ranges_per_interface: usize,
    /// So many machines are on a page of a list, if the client does not ask for fewer.
    pub page_size: usize,
    /// So many alias ranges a network takes.
    pub ranges_per_network: usize,
    /// So many reads, and so many writes, a region takes in a window.
    pub requests_per_window: usize,
    /// The window of that quota; they begin at whole multiples.
    pub window: Duration,
    /// So many operations at once.
    pub operations_at_once: usize,
    /// Whether requests need [`TOKEN`].
    pub needs_token: bool,
    /// Where randomness begins.
    pub seed: u64,
}

impl Default for Settings {
    /// Fast, and with the cloud's own limits.
    fn default() -> Self {
        let soon = Duration::from_millis(5)..Duration::from_millis(20);
        Self {
            update: soon.clone(),
            arrival: soon,
            strict_mixed: true,
            ranges_per_interface: 150,
            page_size: 500,
            ranges_per_network: 15_000,
            requests_per_window: 1_500,
            window: Duration::from_mins(1),
            operations_at_once: 500,
            needs_token: true,
            seed: 1,
        }
    }
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// When it was answered, as `Clock::elapsed` counts.
    pub at: Duration,
    /// What was called.
    pub call: Call,
    /// The path and query.
    pub path: String,
    /// The status of the answer; 0 if there was none.
    pub status: u16,
}

/// Where something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// What the cloud says that a machine has.
    Configuration,
    /// Where packets arrive.
    Data,
}

/// A change of what a machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, as `Clock::elapsed` counts.
    pub at: Duration,
    /// Where.
    pub plane: Plane,
    /// The zone of the machine.
    pub zone: String,
    /// The machine.
    pub instance: String,
    /// The range.
    pub range: String,
    /// Whether the machine has it from now on.
    pub there: bool,
}

/// The fake. Its servers end when it is dropped.
#[derive(Debug)]
pub struct FakeCloud {
    shared: Arc<Shared>,
    address: SocketAddr,
    servers: Mutex<JoinSet<()>>,
}

/// What requests and timers share.
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) settings: Settings,
    pub(crate) entropy: SeededEntropy,
    /// Something changed in the data plane: those who wait at a metadata server look again.
    pub(crate) arrived: tokio::sync::Notify,
    /// Grows when operations that never end are to end.
    pub(crate) ended: tokio::sync::watch::Sender<u64>,
    on_arrival: Mutex<Option<Callback>>,
}

type Callback = Box<dyn Fn(&[Change]) + Send>;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A time within a range.
    pub(crate) fn takes(&self, range: &Range<Duration>) -> Duration {
        use tenure_handles::Entropy;
        let width =
            u64::try_from(range.end.saturating_sub(range.start).as_micros()).unwrap_or(u64::MAX).max(1);
        range.start + Duration::from_micros(self.entropy.next_u64() % width)
    }

    pub(crate) fn tell(&self, arrivals: &[Change]) {
        let callback = self.on_arrival.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(callback) = callback.as_ref().filter(|_| !arrivals.is_empty()) {
            callback(arrivals);
        }
        self.arrived.notify_waiters();
    }
}

impl FakeCloud {
    /// Starts it on a loopback port, without subnets and machines.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        Self::start_at(IpAddr::V4(Ipv4Addr::LOCALHOST), settings).await
    }

    /// The same at an address that hosts of the test bed reach.
    pub async fn start_at(address: IpAddr, settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            entropy: SeededEntropy::new(settings.seed),
            settings,
            arrived: tokio::sync::Notify::new(),
            ended: tokio::sync::watch::Sender::new(0),
            on_arrival: Mutex::new(None),
        });
        let mut servers = JoinSet::new();
        servers.spawn(server::serve(listener, shared.clone(), server::Site::Apis));
        Ok(Self { shared, address, servers: Mutex::new(servers) })
    }

    /// The address of the Compute API.
    pub fn compute(&self) -> String {
        format!("http://{}/compute/v1", self.address)
    }

    /// The address of the Network Connectivity API.
    pub fn connectivity(&self) -> String {
        format!("http://{}/networkconnectivity/v1", self.address)
    }

    /// Starts the metadata server of a machine. Returns its host and port.
    pub async fn metadata(&self, zone: &str, instance: &str) -> io::Result<String> {
        self.serve_metadata(server::Machines::One((zone.to_owned(), instance.to_owned()))).await
    }

    /// Starts a metadata server for several machines, by their addresses: zone and name of each. Returns its host and port.
    pub async fn metadata_by_address(
        &self,
        machines: BTreeMap<IpAddr, (String, String)>,
    ) -> io::Result<String> {
        self.serve_metadata(server::Machines::At(machines)).await
    }

    async fn serve_metadata(&self, machines: server::Machines) -> io::Result<String> {
        let listener = TcpListener::bind((self.address.ip(), 0)).await?;
        let host = listener.local_addr()?.to_string();
        let site = server::Site::Metadata(machines);
        let server = server::serve(listener, self.shared.clone(), site);
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).spawn(server);
        Ok(host)
    }

    /// Makes a subnet with a primary range.
    pub fn add_subnet(&self, region: &str, name: &str, range: &str) -> io::Result<()> {
        self.shared.state().add_subnet(region, name, range)
    }

    /// Gives a subnet one more range, as somebody else would.
    pub fn add_secondary_range(&self, region: &str, subnet: &str, name: &str, range: &str) -> io::Result<()> {
        self.shared.state().add_secondary_range(region, subnet, name, range)
    }

    /// The secondary ranges of a subnet by name.
    pub fn secondary_ranges(&self, region: &str, subnet: &str) -> BTreeMap<String, String> {
        self.shared.state().secondary_ranges(region, subnet)
    }

    /// The reservations by name.
    pub fn internal_ranges(&self) -> BTreeMap<String, String> {
        self.shared.state().internal_ranges()
    }

    /// Makes a machine with one interface in a subnet of its region.
    pub fn add_instance(&self, zone: &str, name: &str, subnet: &str) {
        self.shared.state().add_instance(zone, name, subnet);
    }

    /// Deletes a machine: packets for its ranges arrive nowhere at once.
    pub fn delete_instance(&self, zone: &str, name: &str) {
        let arrivals = self.shared.state().delete_instance(zone, name);
        self.shared.tell(&arrivals);
    }

    /// Puts alias ranges on a machine, as somebody else would, and lets packets flow.
    pub fn set_aliases(&self, zone: &str, name: &str, aliases: &[(&str, &str)]) -> io::Result<()> {
        let arrivals = self.shared.state().set_aliases(zone, name, aliases)?;
        self.shared.tell(&arrivals);
        Ok(())
    }

    /// The alias ranges that a machine is configured with.
    pub fn aliases(&self, zone: &str, name: &str) -> BTreeSet<String> {
        self.shared.state().aliases(zone, name)
    }

    /// The alias ranges that arrive at a machine.
    pub fn arriving(&self, zone: &str, name: &str) -> BTreeSet<String> {
        self.shared.state().arriving(zone, name)
    }

    /// Calls this for changes of the data plane, with those of one machine that happen together.
    pub fn on_arrival(&self, callback: impl Fn(&[Change]) + Send + 'static) {
        *self.shared.on_arrival.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(callback));
    }

    /// Harms the next calls of a kind.
    pub fn harm(&self, fault: Fault) {
        self.shared.state().faults.push(fault);
    }

    /// How many calls are still to be harmed.
    pub fn harm_left(&self) -> usize {
        self.shared.state().faults.iter().map(|fault| fault.times).sum()
    }

    /// Harms no call from now on, and lets operations end that never would.
    pub fn calm(&self) {
        self.shared.state().faults.clear();
        self.shared.ended.send_modify(|times| *times += 1);
    }

    /// All changes so far, of both planes, in order.
    pub fn changes(&self) -> Vec<Change> {
        self.shared.state().changes.clone()
    }

    /// All requests so far.
    pub fn log(&self) -> Vec<Logged> {
        self.shared.state().log.clone()
    }

    /// How many requests of a kind were accepted.
    pub fn accepted(&self, call: Call) -> usize {
        self.log().iter().filter(|logged| logged.call == call && (200..300).contains(&logged.status)).count()
    }
}

#[cfg(test)]
mod tests;
