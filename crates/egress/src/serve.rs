//! The loop: what the kernel does follows who the clients are.
//!
//! Changes that come while the kernel is busy are made together afterwards, however many they are. Now and then it looks
//! whether everything is still as it was made, and repairs it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Api;
use kube::runtime::watcher;
use tenure_api::coil::egress::EgressClients;
use tenure_api::read::Read;
use tenure_handles::Clock;
use tenure_linux::chain;
use tenure_linux::conntrack::{self, Connections};
use tenure_linux::egress::gateway::{self, Gateway};
use tenure_linux::netns::NetNs;
use tenure_watch::Connection;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clients::Clients;
use crate::connections::Looks;
use crate::drain::{Drain, Verdict};
use crate::flags::Settings;
use crate::metrics::{self, Snapshot};
use crate::watch::Heard;

/// How often everything is looked at.
const REPAIR: Duration = Duration::from_secs(10);
/// The longest wait for something that may have failed for a moment only.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How old what metrics say of connections may be.
const OLDEST_METRIC: Duration = Duration::from_secs(5);
/// How old it may be while connections end.
const OLDEST_DRAIN: Duration = Duration::from_millis(400);
/// What the watch is called.
const WATCH: &str = "egressclients";

/// A gateway's server.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    connection: Connection,
    clock: SharedClock,
    clients: Mutex<Clients>,
    changed: Notify,
    /// Held while the kernel is asked for something.
    gateway: Arc<Mutex<Option<Gateway>>>,
    looks: Arc<Looks>,
    readiness: Mutex<Readiness>,
    failures: AtomicU64,
}

#[derive(Clone)]
struct SharedClock(Arc<dyn Clock>);

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Whether clients may be sent here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Nobody knows yet who the clients are.
    Listing,
    /// Every client is served.
    Ready {
        /// So many addresses.
        clients: usize,
    },
    /// The kernel does not do what it should.
    Failing(String),
    /// It was told to stop.
    Draining {
        /// So many connections are still open, if that is known.
        open: Option<u64>,
    },
}

impl Readiness {
    /// Whether it is.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listing => f.write_str("waiting for the first list of clients"),
            Self::Ready { clients } => write!(f, "ready: {clients} addresses of clients are served"),
            Self::Failing(why) => write!(f, "not serving: {why}"),
            Self::Draining { open: Some(open) } => write!(f, "told to stop: {open} connections are open"),
            Self::Draining { open: None } => f.write_str("told to stop"),
        }
    }
}

/// What the kernel did.
struct Done {
    datapath: &'static str,
    clients: usize,
    started: bool,
    repaired: Vec<String>,
    /// Addresses that the kernel does not take, and why not.
    unserved: Vec<(IpAddr, String)>,
}

impl Server {
    /// One that serves nobody yet.
    pub fn new(settings: Settings, connection: Connection, clock: Arc<dyn Clock>) -> Self {
        connection.health().expect(WATCH);
        Self {
            clients: Mutex::new(Clients::new(settings.plan.addresses.clone())),
            settings,
            connection,
            clock: SharedClock(clock),
            changed: Notify::new(),
            gateway: Arc::default(),
            looks: Arc::default(),
            readiness: Mutex::new(Readiness::Listing),
            failures: AtomicU64::new(0),
        }
    }

    /// Serves until it is told to stop, and then until connections have ended.
    pub async fn run(self: &Arc<Self>, stop: CancellationToken) {
        let Settings { namespace, egress, .. } = &self.settings;
        let api: Api<Read<EgressClients>> = Api::namespaced(self.connection.client(), namespace);
        let config = watcher::Config::default().labels(&EgressClients::of_egress(egress));
        let watching = self.connection.watch(WATCH, api, config, None, Heard(Arc::clone(self)));
        tokio::select! {
            () = watching => tracing::error!("the watch of clients ended"),
            () = self.follow(&stop) => {}
        }
    }

    /// Whether clients may be sent here.
    pub fn readiness(&self) -> Readiness {
        lock(&self.readiness).clone()
    }

    /// Something was heard about clients.
    pub(crate) fn hear(&self, tell: impl FnOnce(&mut Clients, Duration)) {
        tell(&mut lock(&self.clients), self.now());
        self.changed.notify_one();
    }

    fn now(&self) -> Duration {
        self.clock.0.elapsed()
    }

    async fn follow(&self, stop: &CancellationToken) {
        let mut backoff = self.connection.backoff().at_most(LONGEST_WAIT);
        let (mut applied, mut drain): (Option<BTreeSet<IpAddr>>, Option<Drain>) = (None, None);
        let (mut not_before, mut repair_at) = (Duration::ZERO, Duration::ZERO);
        loop {
            if stop.is_cancelled() && drain.is_none() {
                drain = Some(Drain::begin(self.now(), self.settings.grace_period));
                *lock(&self.readiness) = Readiness::Draining { open: None };
            }
            let now = self.now();
            let (wanted, next) = self.wanted(now);
            let mut wake = match wanted {
                // Nothing to wait for but the first list.
                None => None,
                Some(_) if now < not_before => Some(not_before),
                Some(wanted) => {
                    let repair = now >= repair_at;
                    if repair || applied.as_ref() != Some(&wanted) {
                        let before = applied.take();
                        match self.act(wanted.clone(), repair).await {
                            Ok(done) => {
                                self.tell(&done, before.as_ref(), &wanted, drain.is_some());
                                backoff.reset();
                                applied = Some(wanted);
                                if repair {
                                    repair_at = self.now() + REPAIR;
                                }
                            }
                            Err(why) => {
                                self.fail(why, drain.is_some());
                                (not_before, repair_at) = (self.now() + backoff.fail(), Duration::ZERO);
                            }
                        }
                        // Meanwhile more may have happened.
                        continue;
                    }
                    Some(next.map_or(repair_at, |next| next.min(repair_at)))
                }
            };
            if let Some(drain) = drain {
                match self.look(drain).await {
                    Verdict::End(why) => {
                        tracing::info!(why, "ending; what the kernel does goes on until the pod is gone");
                        return;
                    }
                    Verdict::Wait(wait) => {
                        let look = self.now() + wait;
                        wake = Some(wake.map_or(look, |wake| wake.min(look)));
                    }
                }
            }
            let waiting = async {
                match wake {
                    Some(wake) => sleep(wake.saturating_sub(self.now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = stop.cancelled(), if drain.is_none() => {}
                () = waiting => {}
            }
        }
    }

    /// Who is to be served, once everybody is known, and when that changes by itself.
    fn wanted(&self, now: Duration) -> (Option<BTreeSet<IpAddr>>, Option<Duration>) {
        let mut clients = lock(&self.clients);
        let next = clients.expire(now);
        (clients.is_complete().then(|| clients.served()), next)
    }

    /// Has the kernel serve these, and looks at everything if told to.
    async fn act(&self, wanted: BTreeSet<IpAddr>, repair: bool) -> Result<Done, String> {
        let (gateway, plan) = (Arc::clone(&self.gateway), self.settings.plan.clone());
        let acting = tokio::task::spawn_blocking(move || {
            let mut gateway = lock(&gateway);
            let mut done =
                Done { datapath: "", clients: 0, started: false, repaired: Vec::new(), unserved: Vec::new() };
            // One that fails is kept: it knows what is there.
            let serving = if let Some(serving) = &mut *gateway {
                serving.serve(&wanted)?;
                if repair {
                    done.repaired = serving.repair()?;
                }
                serving
            } else {
                let namespace = NetNs::current().map_err(tenure_linux::egress::client::Error::from)?;
                done.started = true;
                gateway.insert(Gateway::start(namespace, plan, wanted)?)
            };
            (done.datapath, done.clients) = (serving.datapath(), serving.clients().len());
            done.unserved = serving.unserved().iter().map(|(it, why)| (*it, why.clone())).collect();
            Ok::<_, gateway::Error>(done)
        });
        acting.await.map_err(|error| error.to_string())?.map_err(|error| chain(&error))
    }

    /// Says what was done.
    fn tell(&self, done: &Done, before: Option<&BTreeSet<IpAddr>>, wanted: &BTreeSet<IpAddr>, drains: bool) {
        let clients = done.clients;
        if done.started {
            let addresses = self.settings.plan.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
            let (datapath, addresses) = (done.datapath, addresses.join(", "));
            tracing::info!(datapath, addresses, clients, "serving clients");
        } else if let Some(before) = before.filter(|before| *before != wanted) {
            let (added, removed) = (wanted.difference(before).count(), before.difference(wanted).count());
            tracing::info!(added, removed, clients, "clients changed");
        }
        for (client, why) in &done.unserved {
            tracing::error!(%client, why, "the kernel does not take a client; the others are served");
        }
        for what in &done.repaired {
            tracing::warn!(what, "repaired what somebody changed");
        }
        if !drains {
            *lock(&self.readiness) = Readiness::Ready { clients };
        }
    }

    fn fail(&self, why: String, drains: bool) {
        tracing::error!(error = why, "the kernel does not serve clients as it should; trying again");
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !drains {
            *lock(&self.readiness) = Readiness::Failing(why);
        }
    }

    /// Looks whether connections have ended.
    async fn look(&self, drain: Drain) -> Verdict {
        let open = if drain.looks(self.now()) {
            self.connections(OLDEST_DRAIN).await.map(|connections| connections.open)
        } else {
            None
        };
        *lock(&self.readiness) = Readiness::Draining { open };
        drain.decide(self.now(), open)
    }

    async fn connections(&self, oldest: Duration) -> Option<Connections> {
        let (looks, clock, plan) = (Arc::clone(&self.looks), self.clock.clone(), self.settings.plan.clone());
        let looking = tokio::task::spawn_blocking(move || looks.connections(&*clock.0, &plan, oldest));
        looking.await.ok().flatten()
    }

    /// The metrics.
    pub async fn metrics(self: &Arc<Self>) -> Result<String, fmt::Error> {
        let connections = self.connections(OLDEST_METRIC).await;
        let server = Arc::clone(self);
        // It waits for the kernel, and for whoever asks it for something.
        tokio::task::spawn_blocking(move || server.snapshot(connections)).await.unwrap_or(Err(fmt::Error))
    }

    fn snapshot(&self, connections: Option<Connections>) -> Result<String, fmt::Error> {
        let limits = NetNs::current().ok().and_then(|namespace| conntrack::count_and_limit(&namespace));
        let mut gateway = lock(&self.gateway);
        let counted = gateway.as_mut().and_then(|gateway| gateway.counted().ok().flatten());
        let clients = lock(&self.clients);
        metrics::text(&Snapshot {
            settings: &self.settings,
            clients: &clients,
            gateway: gateway.as_ref(),
            ready: self.readiness().is_ready(),
            failures: self.failures.load(Ordering::Relaxed),
            watch_fails: self
                .connection
                .health()
                .look()
                .watches
                .values()
                .any(|watch| watch.failing.is_some()),
            limits,
            counted,
            connections,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
