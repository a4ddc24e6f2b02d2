//! The kernel's thread: makes, looks at and takes away interfaces, one after the other, because the kernel does not do
//! it any faster side by side.
//!
//! What it promises: every job is answered by one event. Nothing on the way of a job lists anything; what has to be
//! listed (the uplink) is looked up while there is nothing to do. Links that were taken out of service are deleted by
//! another thread, many at once.

mod plan;
mod reaping;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{error, io};

use ipnet::IpNet;
use tenure_handles::Clock;
use tenure_ipam::{Addresses, Cidr};
use tenure_linux::host::HostError;
use tenure_linux::inventory::Inventory;
use tenure_linux::netns::NetNs;
use tenure_linux::pod::{self, Destroyed};
use tenure_linux::routes::PodRoute;
use tenure_linux::{Host, export, routes, socket, uplink};
use tracing::{info, warn};

use crate::key::{HoldKey, Pod};
use crate::node::{Action, Event, Found, Job, Link, WireJob};
use plan::Node;
use reaping::Reaping;

/// How often the uplink is looked up while there is nothing to do.
const LOOK_AROUND: Duration = Duration::from_secs(30);

/// Why there is no thread for the kernel.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The host cannot be prepared.
    #[error("cannot prepare the host's network")]
    Host(#[from] HostError),
    /// What is there cannot be listed.
    #[error("cannot list what the kernel has of ours")]
    List(#[from] socket::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
}

/// The way to the kernel's thread. Dropping it ends the thread after what it was given to do.
#[derive(Debug)]
pub struct Wirer {
    jobs: Option<Sender<Action>>,
    thread: Option<JoinHandle<()>>,
}

impl Wirer {
    /// Prepares the host, tells what links there are, and starts. `reaper` is the same host once more, for deleting.
    ///
    /// `tell` is called on the kernel's thread.
    pub fn start(
        mut host: Host,
        reaper: Host,
        clock: impl Clock + Clone,
        tell: impl Fn(Event) + Send + 'static,
    ) -> Result<Self, StartError> {
        let prepared = host.prepare()?;
        info!(?prepared, "prepared the host's network");
        tell(Event::Kernel(take_inventory(&mut host)?));
        let (jobs, received) = mpsc::channel();
        let reaping = Reaping::start(reaper, clock)?;
        let worker = Worker { host, node: Node::default(), reaping, tell };
        let thread = thread::Builder::new().name("kernel".into()).spawn(move || worker.run(&received))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Gives the kernel something to do: [`Action::Wire`], [`Action::Unwire`], [`Action::Inspect`], [`Action::Repair`] or
    /// [`Action::Export`]. Returns at once.
    pub fn carry_out(&self, job: Action) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only after this does.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Wirer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker<T> {
    host: Host,
    node: Node,
    reaping: Reaping,
    tell: T,
}

impl<T: Fn(Event)> Worker<T> {
    fn run(mut self, jobs: &Receiver<Action>) {
        self.look_around();
        loop {
            match jobs.recv_timeout(LOOK_AROUND) {
                Ok(job) => self.carry_out(job),
                Err(RecvTimeoutError::Timeout) => self.look_around(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn carry_out(&mut self, job: Action) {
        match job {
            Action::Wire(job) => {
                let event = self.wire(job);
                (self.tell)(event);
            }
            Action::Unwire { job, key, pod } => {
                let event = self.unwire(job, &key, &pod);
                (self.tell)(event);
            }
            Action::Inspect(job) => {
                let event = self.inspect(&job);
                (self.tell)(event);
            }
            Action::Repair(holds) => {
                if let Err(error) = self.repair(&holds) {
                    warn!(error = chain(&error), "cannot verify the routes to pods");
                }
            }
            Action::Export(networks) => self.export(&networks),
            other => warn!(?other, "this is nothing for the kernel"),
        }
    }

    fn wire(&mut self, job: WireJob) -> Event {
        let number = job.job;
        let wired = self.node.plan(job).and_then(|(plan, netns)| {
            let namespace = NetNs::open(&netns).map_err(|error| plan::no_namespace(&netns, &error))?;
            pod::setup(&mut self.host, &namespace, &plan).map_err(|error| plan::not_set_up(&error))
        });
        match wired {
            Ok(wired) => {
                let link = Link {
                    host_name: wired.host_name,
                    host_mac: wired.host_mac.to_string(),
                    pod_mac: wired.pod_mac.to_string(),
                    mtu: wired.mtu,
                };
                Event::Wired { job: number, link }
            }
            Err(failure) => Event::WiringFailed { job: number, failure },
        }
    }

    fn unwire(&mut self, job: Job, key: &HoldKey, pod: &Pod) -> Event {
        match pod::destroy(&mut self.host, &plan::identity(key, pod), None) {
            Ok(destroyed) => {
                if let Destroyed::ToTrash(_) = destroyed {
                    self.reaping.trashed();
                }
                Event::Unwired { job }
            }
            Err(error) => Event::UnwiringFailed { job, failure: plan::not_destroyed(key, &error) },
        }
    }

    fn inspect(&mut self, job: &WireJob) -> Event {
        let number = job.job;
        let differences = self.node.plan(job.clone()).and_then(|(plan, netns)| {
            let namespace = NetNs::open(&netns).map_err(|error| plan::no_namespace(&netns, &error))?;
            pod::check(&mut self.host, &namespace, &plan).map_err(|error| plan::not_checked(&error))
        });
        let differences = match differences {
            Ok(differences) => differences.iter().map(ToString::to_string).collect(),
            Err(failure) => vec![failure.to_string()],
        };
        Event::Inspected { job: number, differences }
    }

    /// Makes the routes of the pod table lead to the links of those who hold addresses.
    fn repair(&mut self, holds: &[(HoldKey, Addresses)]) -> Result<(), socket::Error> {
        let inventory = Inventory::take(&mut self.host)?;
        let key_of = |link: &tenure_linux::inventory::PodLink| {
            let owner = &link.owner;
            HoldKey::new(owner.network.clone(), owner.container.clone(), owner.interface.clone()).ok()
        };
        let links: BTreeMap<HoldKey, u32> =
            inventory.pods.iter().filter_map(|pod| Some((key_of(pod)?, pod.link.index))).collect();
        let mut wanted = BTreeMap::new();
        for (key, addresses) in holds {
            let Some(link) = links.get(key).copied() else { continue };
            for address in addresses.iter().map(tenure_ipam::Address::to_ip) {
                wanted.insert(address, PodRoute { link, source: self.node.source_for(address) });
            }
        }
        let changes = routes::repair(&mut self.host, &wanted)?;
        if !changes.is_empty() {
            info!(?changes, "repaired the routes to pods");
        }
        Ok(())
    }

    fn export(&mut self, networks: &BTreeSet<Cidr>) {
        let wanted: BTreeSet<IpNet> = networks.iter().filter_map(to_net).collect();
        match export::sync(&mut self.host, &wanted) {
            Ok(changes) if changes.refused.is_empty() => {}
            Ok(changes) => warn!(?changes.refused, "the kernel refused routes to export"),
            Err(error) => warn!(error = chain(&error), "cannot export routes"),
        }
    }

    fn look_around(&mut self) {
        match uplink::find(&mut self.host) {
            Ok(uplink) => self.node.learn(uplink.as_ref()),
            Err(error) => warn!(error = chain(&error), "cannot find the uplink"),
        }
    }
}

/// The links that the kernel has of ours. Attempts that were cut short before they said whose they are go to the trash.
fn take_inventory(host: &mut Host) -> Result<Vec<Found>, socket::Error> {
    let inventory = Inventory::take(host)?;
    for link in inventory.unmarked {
        pod::discard(host, link)?;
    }
    let found = inventory.pods.into_iter().filter_map(|pod| {
        let owner = pod.owner;
        let key = HoldKey::new(owner.network, owner.container, owner.interface).ok()?;
        let addresses: Vec<IpAddr> = pod.addresses;
        let pod = Pod { namespace: owner.namespace, name: owner.pod, uid: String::new() };
        Some(Found { key, pod, addresses: addresses.into_iter().map(Into::into).collect() })
    });
    Ok(found.collect())
}

fn to_net(network: &Cidr) -> Option<IpNet> {
    IpNet::new(network.first().to_ip(), network.prefix()).ok()
}

/// An error with all its causes.
fn chain(error: &dyn error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
