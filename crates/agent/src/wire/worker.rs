//! Jobs on the kernel, and the thread that performs them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tenure_ipam::{Addresses, Cidr};
use tenure_linux::chain;
use tenure_linux::inventory::Inventory;
use tenure_linux::netns::NetNs;
use tenure_linux::pod::{self, Destroyed, Reached};
use tenure_linux::routes::PodRoute;
use tenure_linux::{Changes, Host, export, remote, routes, socket, uplink};
use tracing::{info, warn};

use super::announcer::{Announcement, Announcer};
use super::observer::{KernelObserver, key_of};
use super::plan::{self, Node};
use super::reaping::Reaping;
use crate::key::{HoldKey, Pod};
use crate::node::{Action, Event, Job, Link, WireJob};

/// How often the thread checks the node's own state while it is idle.
const CHECK_HOST_EVERY: Duration = Duration::from_secs(30);

/// A task for the thread.
#[derive(Debug)]
pub(super) enum Task {
    Job(Box<Action>),
    /// Other nodes' blocks by node address.
    Remote(BTreeMap<IpAddr, BTreeSet<Cidr>>),
}

/// Receives the result of each job.
pub(super) type Tell = Box<dyn Fn(Event) + Send>;

pub(super) struct Worker {
    host: Host,
    node: Node,
    observer: KernelObserver,
    reaping: Reaping,
    announcer: Announcer,
    /// The networks to export; `None` until they are known.
    exported: Option<BTreeSet<IpNet>>,
    /// Other nodes' blocks; `None` if they are not routed.
    remote: Option<BTreeMap<IpNet, IpAddr>>,
    tell: Tell,
}

/// Runs jobs until all senders are gone; checks the node's own state when idle.
pub(super) fn run(worker: &Mutex<Worker>, tasks: &Receiver<Task>, waiting: &AtomicUsize) {
    lock(worker).check_host();
    loop {
        match tasks.recv_timeout(CHECK_HOST_EVERY) {
            Ok(task) => {
                let mut worker = lock(worker);
                match task {
                    Task::Job(job) => worker.carry_out(*job),
                    Task::Remote(blocks) => {
                        worker.remote = Some(by_block(&blocks));
                        worker.sync_remote();
                    }
                }
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
            Err(RecvTimeoutError::Timeout) => lock(worker).check_host(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// If a job panicked on another thread, its state here is no worse than what it left in the kernel.
fn lock(worker: &Mutex<Worker>) -> MutexGuard<'_, Worker> {
    worker.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    pub(super) fn new(host: Host, reaping: Reaping, announcer: Announcer, tell: Tell) -> Self {
        let (node, observer) = (Node::default(), KernelObserver::default());
        Self { host, node, observer, reaping, announcer, exported: None, remote: None, tell }
    }

    /// Performs a job on one interface and returns the result; returns any other action unchanged.
    #[expect(
        clippy::result_large_err,
        reason = "returning the action is no failure, and it is not worth a heap allocation"
    )]
    pub(super) fn answer(&mut self, job: Action) -> Result<Event, Action> {
        match job {
            Action::Wire(job) => Ok(self.wire(job)),
            Action::Unwire { job, key, pod } => Ok(self.unwire(job, &key, &pod)),
            Action::Inspect(job) => Ok(self.inspect(&job)),
            other => Err(other),
        }
    }

    fn carry_out(&mut self, job: Action) {
        match self.answer(job) {
            Ok(event) => (self.tell)(event),
            Err(other) => self.perform_shared(other),
        }
    }

    /// Performs a job that concerns more than one interface.
    fn perform_shared(&mut self, job: Action) {
        match job {
            Action::Reach { key, pod, addresses, reached } => self.reach(&key, &pod, &addresses, reached),
            Action::Announce { key, netns, addresses, reached, contested } => {
                let addresses = addresses.into_iter().map(tenure_ipam::Address::to_ip).collect();
                self.announcer.announce(Announcement { key, netns, addresses, reached, contested });
            }
            Action::Repair(holds) => {
                if let Err(error) = self.repair(&holds) {
                    warn!(error = chain(&error), "cannot verify the routes to pods");
                }
            }
            Action::Look { job, interfaces, namespaces } => {
                self.check_host();
                self.look(job, &interfaces, &namespaces);
            }
            Action::Export(networks) => {
                self.exported = Some(networks.iter().filter_map(to_net).collect());
                self.sync_export();
            }
            other => warn!(?other, "unexpected action for the kernel's thread"),
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
            Err(error) => Event::WiringFailed { job: number, error },
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
            Err(error) => Event::UnwiringFailed { job, error: plan::not_destroyed(key, &error) },
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
            Err(error) => vec![tenure_cni::Failure::from(error).to_string()],
        };
        Event::Inspected { job: number, differences }
    }

    /// Adds or removes the routes to an interface. The next observation finds and repairs what failed.
    fn reach(&mut self, key: &HoldKey, pod: &Pod, addresses: &Addresses, reached: bool) {
        let identity = plan::identity(key, pod);
        let addresses: Vec<IpAddr> = addresses.iter().map(tenure_ipam::Address::to_ip).collect();
        let Self { host, node, .. } = self;
        let done = if reached {
            pod::reach(host, &identity, &addresses, |address| node.source_for(address))
        } else {
            pod::withdraw(host, &identity, &addresses)
        };
        match done {
            Ok(Reached::Done) => info!(%key, ?addresses, reached, "a claim's addresses"),
            Ok(Reached::NoInterface) => info!(%key, ?addresses, reached, "the interface is not there"),
            Err(error) => warn!(%key, ?addresses, reached, error = chain(&error), "cannot change the reach"),
        }
    }

    /// Makes the routes of the pod table lead to the links of the holders.
    fn repair(&mut self, holds: &[(HoldKey, Addresses)]) -> Result<(), socket::Error> {
        let inventory = Inventory::take(&mut self.host)?;
        let links: BTreeMap<HoldKey, u32> =
            inventory.pods.iter().filter_map(|pod| Some((key_of(&pod.owner)?, pod.link.index))).collect();
        let mut wanted = BTreeMap::new();
        for (key, addresses) in holds {
            let Some(link) = links.get(key).copied() else { continue };
            for address in addresses.iter().map(tenure_ipam::Address::to_ip) {
                wanted.insert(address, PodRoute { link, source: self.node.source_for(address) });
            }
        }
        let changes = routes::repair(&mut self.host, &wanted)?;
        say("the routes to pods", &changes);
        Ok(())
    }

    /// Observes what the kernel has of ours, and reports it. Deletes links without an owner that were
    /// observed before.
    fn look(&mut self, job: Job, interfaces: &[HoldKey], namespaces: &[(HoldKey, String)]) {
        let seen = match self.observer.look(&mut self.host, interfaces, namespaces) {
            Ok(seen) => seen,
            Err(error) => return warn!(error = chain(&error), "cannot observe the kernel"),
        };
        for link in seen.cut_short {
            warn!(link.name, "deleting a link whose creation was interrupted");
            match pod::discard(&mut self.host, link) {
                Ok(_) => self.reaping.trashed(),
                Err(error) => warn!(error = chain(&error), "cannot delete a link"),
            }
        }
        (self.tell)(Event::Looked { job, look: seen.look });
    }

    fn sync_export(&mut self) {
        let Some(wanted) = &self.exported else { return };
        match export::sync(&mut self.host, wanted) {
            Ok(changes) => say("the export table", &changes),
            Err(error) => warn!(error = chain(&error), "cannot export routes"),
        }
    }

    fn sync_remote(&mut self) {
        let Some(wanted) = &self.remote else { return };
        match remote::sync(&mut self.host, wanted) {
            Ok(changes) => say("the routes to other nodes' blocks", &changes),
            Err(error) => warn!(error = chain(&error), "cannot route other nodes' blocks"),
        }
    }

    /// Checks the node's own state, and what is ours independently of pods.
    fn check_host(&mut self) {
        match uplink::find(&mut self.host) {
            Ok(uplink) => self.node.learn(uplink.as_ref()),
            Err(error) => warn!(error = chain(&error), "cannot find the uplink"),
        }
        match self.host.prepare() {
            Ok(prepared) if prepared == tenure_linux::host::Prepared::default() => {}
            Ok(prepared) => warn!(?prepared, "the host's network was changed; repaired it"),
            Err(error) => warn!(error = chain(&error), "cannot verify the host's network"),
        }
        self.sync_export();
        self.sync_remote();
    }
}

/// Logs what was changed, and what could not be.
fn say(what: &str, changes: &Changes) {
    if !changes.refused.is_empty() {
        let refused: Vec<String> = changes.refused.iter().map(|(_, refusal)| refusal.to_string()).collect();
        warn!(?refused, "the kernel refused some of {what}");
    }
    let texts = |routes: &[tenure_linux::route::Route]| -> Vec<String> {
        routes.iter().map(ToString::to_string).collect()
    };
    if !changes.added.is_empty() || !changes.removed.is_empty() {
        info!(added = ?texts(&changes.added), removed = ?texts(&changes.removed), "changed {what}");
    }
}

/// Each block with its next hop. A node without an address of a family has no routes of that family.
fn by_block(blocks: &BTreeMap<IpAddr, BTreeSet<Cidr>>) -> BTreeMap<IpNet, IpAddr> {
    let pairs = blocks.iter().flat_map(|(via, blocks)| blocks.iter().map(move |block| (block, *via)));
    let pairs = pairs.filter_map(|(block, via)| Some((to_net(block)?, via)));
    pairs.filter(|(block, via)| block.addr().is_ipv4() == via.is_ipv4()).collect()
}

fn to_net(network: &Cidr) -> Option<IpNet> {
    IpNet::new(network.first().to_ip(), network.prefix()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_routed_through_an_address_of_its_own_family() {
        let cidr = |text: &str| text.parse::<Cidr>().unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let both: BTreeSet<Cidr> = [cidr("10.2.0.0/27"), cidr("fd01::/123")].into();
        let blocks = BTreeMap::from([
            (ip("192.0.2.2"), both.clone()),
            (ip("2001:db8::2"), both),
            (ip("192.0.2.3"), [cidr("10.2.0.32/27"), cidr("fd01::20/123")].into()),
        ]);
        let routed: Vec<String> =
            by_block(&blocks).into_iter().map(|(block, via)| format!("{block} via {via}")).collect();
        let expected =
            ["10.2.0.0/27 via 192.0.2.2", "10.2.0.32/27 via 192.0.2.3", "fd01::/123 via 2001:db8::2"];
        assert_eq!(routed, expected);
    }
}
