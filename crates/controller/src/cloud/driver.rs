//! The driver: owns the regions, and sends their requests to the cloud while this process leads.
//!
//! Each term begins with a new driver without knowledge. It reads every machine before it changes it. It is told what
//! each machine should have ([`DriverChannel`]), and reports what it sees. A request in flight at the end of the term
//! is abandoned; the next leader finds out its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tenure_cloud::{
    Action, AliasRange, Answer, Attachment, Budget, Cloud, CloudError, InterfaceId, Managed, Options, Quota,
    Refusal, Region,
};
use tenure_handles::Timestamp;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::sleep;

use super::known::{Machine, MachineView};
use super::metrics::CloudNumbers;
use super::write::Wanted;
use crate::watch::Lead;

/// How long the driver sleeps at most.
const REST: Duration = Duration::from_secs(10);

/// Where the clouds are.
pub trait Clouds: Send + Sync {
    /// The cloud of a project. Does no I/O.
    fn cloud(&self, project: &str) -> Result<Arc<dyn Cloud>, CloudError>;
}

/// How alias addresses are attached.
#[derive(Clone)]
pub struct CloudSettings {
    /// The clouds of all projects.
    pub clouds: Arc<dyn Clouds>,
    /// Limits and times of each interface.
    pub options: Options,
    /// How many reads a region may have.
    pub reads: Quota,
    /// How many writes a region may have.
    pub writes: Quota,
}

impl CloudSettings {
    /// The defaults: a part of Google's quota, so that others in the project keep some.
    pub fn new(clouds: Arc<dyn Clouds>) -> Self {
        let quota = |per_minute, burst| Quota { per_minute, burst };
        Self { clouds, options: Options::default(), reads: quota(600, 60), writes: quota(300, 30) }
    }
}

impl std::fmt::Debug for CloudSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudSettings").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The channel to the driver.
#[derive(Clone, Debug, Default)]
pub(super) struct DriverChannel(Arc<Mutex<Option<UnboundedSender<Arc<Wanted>>>>>);

impl DriverChannel {
    /// A driver listens from now on.
    pub(super) fn open(&self) -> UnboundedReceiver<Arc<Wanted>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// Tells the driver. Returns whether it listens.
    pub(super) fn tell(&self, wanted: Arc<Wanted>) -> bool {
        let channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel.as_ref().is_some_and(|sender| sender.send(wanted).is_ok())
    }
}

/// A region of a project.
type RegionKey = (String, String);

/// The driver.
pub(super) struct Driver {
    settings: CloudSettings,
    lead: Lead,
    numbers: Arc<CloudNumbers>,
    /// The number of this driver, different in each term.
    number: u64,
    /// The term in which it works.
    term: Option<i32>,
    work: Work,
}

/// What a driver knows in one term.
#[derive(Default)]
struct Work {
    regions: BTreeMap<RegionKey, Region>,
    clouds: BTreeMap<String, Arc<dyn Cloud>>,
    /// What is wanted, by node.
    nodes: BTreeMap<String, Arc<Wanted>>,
    /// The nodes of a machine: one, or two if the older one is gone.
    of_machines: BTreeMap<Machine, BTreeSet<String>>,
    managed: Arc<Vec<Managed>>,
    calls: FuturesUnordered<BoxFuture<'static, (RegionKey, InterfaceId, Answer)>>,
    /// What was last reported of each node.
    views: BTreeMap<String, MachineView>,
    /// Nodes whose machines may have changed.
    touched: BTreeSet<String>,
}

impl Driver {
    pub(super) fn new(settings: CloudSettings, lead: Lead, numbers: Arc<CloudNumbers>) -> Self {
        Self { settings, lead, numbers, number: 0, term: None, work: Work::default() }
    }

    /// Runs forever.
    pub(super) async fn run(mut self, mut wants: UnboundedReceiver<Arc<Wanted>>) {
        loop {
            self.look_at_term();
            let now = self.lead.clock.now();
            let mut rest = REST;
            if let Some(term) = self.lead.term().filter(|_| self.term.is_some()) {
                let next = self.act(now).into_iter().chain([term.until]).min();
                rest = next.map_or(REST, |next| next.since(now)).clamp(Duration::from_millis(1), REST);
            }
            tokio::select! {
                changed = self.lead.role.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
                wanted = wants.recv() => {
                    let Some(wanted) = wanted else { return std::future::pending().await };
                    self.want(&wanted);
                    while let Ok(wanted) = wants.try_recv() {
                        self.want(&wanted);
                    }
                }
                Some((key, interface, answer)) = self.work.calls.next() => {
                    self.answered(&key, &interface, answer);
                }
                () = sleep(rest) => {}
            }
        }
    }

    /// Starts or stops with the term.
    pub(super) fn look_at_term(&mut self) {
        let term = self.lead.term().map(|term| term.number);
        if term == self.term {
            return;
        }
        self.work = Work::default();
        self.term = term;
        self.number += 1;
        let driver = term.map(|_| self.number);
        self.lead.tell(move |world| world.aliases_mut().note_driver(driver));
    }

    /// A machine should have something else.
    pub(super) fn want(&mut self, wanted: &Arc<Wanted>) {
        if self.term.is_none() || wanted.driver != self.number {
            return;
        }
        let now = self.lead.clock.now();
        let work = &mut self.work;
        if work.managed != wanted.managed {
            work.managed = Arc::clone(&wanted.managed);
            for region in work.regions.values_mut() {
                region.manage(&work.managed, now);
            }
        }
        let before = work.nodes.insert(wanted.node.clone(), Arc::clone(wanted));
        let same = before.as_ref().filter(|before| before.machine == wanted.machine);
        let renewed = same.is_some_and(|before| before.boot != wanted.boot);
        if let Some(before) = before.filter(|before| before.machine != wanted.machine) {
            if let Some(nodes) = work.of_machines.get_mut(&before.machine) {
                nodes.remove(&wanted.node);
            }
            self.want_at(&before.machine, now);
        }
        let nodes = self.work.of_machines.entry(wanted.machine.clone()).or_default();
        nodes.insert(wanted.node.clone());
        self.want_at(&wanted.machine, now);
        if renewed && let Some(region) = self.work.regions.get_mut(&key_of(&wanted.machine)) {
            region.look_again(&wanted.machine.interface, now);
        }
    }

    /// Tells the region what all nodes of a machine want there.
    fn want_at(&mut self, machine: &Machine, now: Timestamp) {
        let work = &mut self.work;
        let nodes = work.of_machines.get(machine).into_iter().flatten();
        let wanted: Vec<&Arc<Wanted>> = nodes.filter_map(|node| work.nodes.get(node)).collect();
        let ranges: BTreeSet<AliasRange> =
            wanted.iter().flat_map(|wanted| wanted.ranges.iter().cloned()).collect();
        work.touched.extend(wanted.iter().map(|wanted| wanted.node.clone()));
        let region = work.regions.entry(key_of(machine)).or_insert_with(|| {
            let budget = Budget::new(self.settings.reads, self.settings.writes);
            Region::new(work.managed.to_vec(), budget, self.settings.options)
        });
        region.want(&machine.interface, &ranges, now);
    }

    /// Sends requests that are due, reports changes, and returns when to look again.
    pub(super) fn act(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut next: Option<Timestamp> = None;
        let keys: Vec<RegionKey> = self.work.regions.keys().cloned().collect();
        for key in keys {
            let cloud = match self.cloud(&key.0) {
                Ok(cloud) => cloud,
                Err(error) => {
                    tracing::warn!(project = key.0, %error, "the cloud cannot be used");
                    self.refuse_all(&key.0, &error);
                    continue;
                }
            };
            let work = &mut self.work;
            let Some(region) = work.regions.get_mut(&key) else { continue };
            for (interface, action) in region.next(now, &*self.lead.entropy) {
                let machine = Machine { project: key.0.clone(), interface: interface.clone() };
                work.touched.extend(work.of_machines.get(&machine).into_iter().flatten().cloned());
                work.calls.push(call(cloud.clone(), key.clone(), interface, action, &self.numbers));
            }
            next = [next, region.next_look()].into_iter().flatten().min();
        }
        self.tell_views();
        next
    }

    fn cloud(&mut self, project: &str) -> Result<Arc<dyn Cloud>, CloudError> {
        if let Some(cloud) = self.work.clouds.get(project) {
            return Ok(cloud.clone());
        }
        let cloud = self.settings.clouds.cloud(project)?;
        self.work.clouds.insert(project.to_owned(), cloud.clone());
        Ok(cloud)
    }

    /// Takes all pending answers.
    #[cfg(test)]
    pub(super) fn take_answers(&mut self) {
        while let Some(Some((key, interface, answer))) = self.work.calls.next().now_or_never() {
            self.answered(&key, &interface, answer);
        }
    }

    fn answered(&mut self, key: &RegionKey, interface: &InterfaceId, answer: Answer) {
        let work = &mut self.work;
        let Some(region) = work.regions.get_mut(key) else { return };
        region.answer(interface, answer, self.lead.clock.now());
        let machine = Machine { project: key.0.clone(), interface: interface.clone() };
        work.touched.extend(work.of_machines.get(&machine).into_iter().flatten().cloned());
    }

    /// Reports changed machines to the world.
    fn tell_views(&mut self) {
        let work = &mut self.work;
        let touched = std::mem::take(&mut work.touched);
        for node in touched {
            let Some(wanted) = work.nodes.get(&node).cloned() else { continue };
            let Some(region) = work.regions.get_mut(&key_of(&wanted.machine)) else { continue };
            let view = MachineView::new(wanted.turn, region.view(&wanted.machine.interface));
            let unsettled = |is: &Attachment| *is != Attachment::Attached;
            let settled = view.known && !view.ranges.values().any(unsettled);
            // Its refusals may change without a request.
            if !settled {
                work.touched.insert(node.clone());
            }
            let number = self.number;
            let alone = work.of_machines.get(&wanted.machine).is_none_or(|nodes| nodes.len() < 2);
            let gone = wanted.leaves && wanted.ranges.is_empty() && settled;
            if gone && (!alone || region.forget(&wanted.machine.interface)) {
                work.nodes.remove(&node);
                work.views.remove(&node);
                if let Some(nodes) = work.of_machines.get_mut(&wanted.machine) {
                    nodes.remove(&node);
                }
                // It remains known that nothing is there.
                self.lead.tell(move |world| world.aliases_mut().note_machine(number, &node, &view));
            } else if work.views.get(&node) != Some(&view) {
                work.views.insert(node.clone(), view.clone());
                self.lead.tell(move |world| world.aliases_mut().note_machine(number, &node, &view));
            }
        }
    }

    /// Nothing can be done in a project.
    fn refuse_all(&mut self, project: &str, error: &CloudError) {
        let number = self.number;
        for (node, wanted) in self.work.nodes.iter().filter(|(_, wanted)| wanted.machine.project == project) {
            let refused = |range: &AliasRange| (range.cidr, Attachment::Refused(error.to_string()));
            let ranges = wanted.ranges.iter().map(refused).collect();
            let refusal = Refusal { ranges: wanted.ranges.clone(), error: error.clone() };
            let refusal = Some(refusal).filter(|refusal| !refusal.ranges.is_empty());
            let limit = self.settings.options.limit;
            let view = MachineView { turn: wanted.turn, known: false, ranges, others: 0, limit, refusal };
            if self.work.views.get(node) != Some(&view) {
                self.work.views.insert(node.clone(), view.clone());
                let node = node.clone();
                self.lead.tell(move |world| world.aliases_mut().note_machine(number, &node, &view));
            }
        }
    }
}

fn key_of(machine: &Machine) -> RegionKey {
    (machine.project.clone(), machine.interface.region().to_owned())
}

/// One request to the cloud.
fn call(
    cloud: Arc<dyn Cloud>,
    key: RegionKey,
    interface: InterfaceId,
    action: Action,
    numbers: &Arc<CloudNumbers>,
) -> BoxFuture<'static, (RegionKey, InterfaceId, Answer)> {
    let numbers = Arc::clone(numbers);
    async move {
        let (kind, answer) = match &action {
            Action::Unfinished => ("unfinished", Answer::Unfinished(cloud.unfinished(&interface).await)),
            Action::Observe => ("observe", Answer::Observed(cloud.observe(&interface).await)),
            Action::Apply(update) => ("update", Answer::Applied(cloud.apply(update).await)),
            Action::Poll(ticket) => ("poll", Answer::Polled(cloud.poll(&interface, ticket).await)),
            Action::Owner(range, page) => {
                ("owner", Answer::Owner(cloud.owner(&key.1, range, page.as_deref()).await))
            }
        };
        numbers.requested(kind, &answer);
        (key, interface, answer)
    }
    .boxed()
}
