//! A stand-in for Multus and its dynamic networks: every pod that selects networks gets them, one that selects more or fewer
//! later gets and loses these, and a pod that ends loses all.
//!
//! As a kubelet does, it tries again what was refused, and everything anew: one that fails takes the others back. (Only that the
//! pod runs already meanwhile is not as it is there; so nothing that waits for a pod's networks goes by its phase, but by its
//! network status.) Each pod has a thread, because plugins are programs that are waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tenure_testbed::cluster::Cluster;
use tokio::runtime::Handle;
use tokio::sync::watch;

use tenure_tests::caller::{self, Attached};

/// After this, what failed is tried again.
const AGAIN: Duration = Duration::from_millis(700);
/// So often it is tried to take away what a pod had that is gone.
const ENDS: usize = 20;

/// The stand-in, and what it knows of pods.
pub struct Multus<'c> {
    cluster: &'c Cluster,
    client: Client,
    runtime: Handle,
    pods: Mutex<BTreeMap<String, Seen>>,
}

/// A pod's additional networks, by the UID of the pod.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What each interface was given.
    pub interfaces: BTreeMap<String, Given>,
    /// What the last plugin said that refused.
    pub refusal: Option<String>,
    /// How often one has refused.
    pub refusals: usize,
    /// The selection that all of this is for.
    settled: Option<String>,
    /// Whether the pod has ended, and all of its networks were taken away.
    pub ended: bool,
}

/// What an interface was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub addresses: BTreeSet<IpNet>,
    pub mac: String,
}

impl<'c> Multus<'c> {
    pub fn new(cluster: &'c Cluster) -> Result<Self> {
        Ok(Self { cluster, client: cluster.client()?, runtime: Handle::current(), pods: Mutex::default() })
    }

    /// What is known of a pod, by its UID.
    pub fn seen(&self, uid: &str) -> Seen {
        self.pods().get(uid).cloned().unwrap_or_default()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves pods, as long as nobody drops it. Threads of pods end with their pods, or with this.
    pub async fn run<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let mut threads: BTreeMap<String, watch::Sender<Option<Pod>>> = BTreeMap::new();
        let mut events = watcher(Api::<Pod>::all(self.client.clone()), watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            let (pod, gone) = match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => (pod, false),
                Ok(Event::Delete(pod)) => (pod, true),
                Ok(Event::Init | Event::InitDone) | Err(_) => continue,
            };
            let Some(uid) = pod.uid().filter(|_| pod.annotations().contains_key(caller::SELECTED)) else {
                continue;
            };
            if gone {
                if let Some(thread) = threads.remove(&uid) {
                    thread.send_replace(None);
                }
            } else if let Some(thread) = threads.get(&uid) {
                thread.send_replace(Some(pod));
            } else {
                let (sender, pods) = watch::channel(Some(pod));
                threads.insert(uid.clone(), sender);
                scope.spawn(move || self.serve(&uid, pods));
            }
        }
    }

    /// Serves one pod until it is gone.
    fn serve(&self, uid: &str, mut pods: watch::Receiver<Option<Pod>>) {
        let (mut attached, mut ends) = (None, 0);
        loop {
            let pod = pods.borrow_and_update().clone();
            let phase = pod.as_ref().and_then(|pod| pod.status.as_ref()?.phase.clone()).unwrap_or_default();
            let outcome = match &pod {
                Some(pod) if phase == "Running" => self.settle(uid, pod, &mut attached),
                Some(_) if phase == "Pending" => Ok(()),
                _ => self.end(uid, &mut attached),
            };
            let failed = outcome.is_err();
            if let Err(refusal) = outcome {
                let mut all = self.pods();
                let seen = all.entry(uid.to_owned()).or_default();
                seen.refusal = Some(format!("{refusal:#}"));
                seen.refusals += 1;
                ends += usize::from(pod.is_none());
            }
            if pod.is_none() && (!failed || ends > ENDS) {
                return;
            }
            if failed {
                thread::sleep(AGAIN);
            }
            // Whoever sends is gone: the pod, or the whole test.
            let over = if failed {
                pods.has_changed().is_err()
            } else {
                self.runtime.block_on(pods.changed()).is_err()
            };
            if over && pods.borrow().is_some() {
                return;
            }
        }
    }

    /// Makes a pod's interfaces what it selects.
    fn settle(&self, uid: &str, pod: &Pod, attached: &mut Option<Attached<'c>>) -> Result<()> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let selected = pod.annotations().get(caller::SELECTED);
        if self.pods().get(uid).is_some_and(|seen| seen.settled.as_ref() == selected) {
            return Ok(());
        }
        let wanted = self.runtime.block_on(caller::delegates(&self.client, pod))?;
        let is_new = attached.is_none();
        if is_new {
            let mut found = self.runtime.block_on(caller::find(self.cluster, &namespace, &name))?;
            found.add()?;
            *attached = Some(found);
        }
        let Some(now) = attached else { return Ok(()) };
        let before = self.seen(uid).interfaces;
        if !is_new {
            // Those that are selected no more, then those that came.
            while let Some(index) =
                now.delegates.iter().position(|it| !wanted.iter().any(|other| other.ifname == it.ifname))
            {
                now.del_one(index)?;
                now.delegates.remove(index);
            }
            for delegate in wanted {
                if !now.delegates.iter().any(|it| it.ifname == delegate.ifname) {
                    now.delegates.push(delegate);
                    let last = now.delegates.len() - 1;
                    if let Err(refused) = now.add_one(last) {
                        let taken_back = now.del_one(last);
                        now.delegates.pop();
                        return Err(refused.context(format!("it was taken back: {taken_back:?}")));
                    }
                }
            }
        }
        let mut interfaces = BTreeMap::new();
        for delegate in &now.delegates {
            let mac = delegate.mac().context("a hardware address")?.to_owned();
            interfaces.insert(
                delegate.ifname.clone(),
                Given { addresses: delegate.addresses()?.into_iter().collect(), mac },
            );
        }
        if interfaces != before || is_new {
            now.has_what_was_said()?;
            let mut all = self.pods();
            let seen = all.entry(uid.to_owned()).or_default();
            (seen.interfaces, seen.refusal) = (interfaces, None);
            drop(all);
            self.runtime.block_on(now.publish(&self.client))?;
        }
        self.pods().entry(uid.to_owned()).or_default().settled = selected.cloned();
        Ok(())
    }

    /// Takes away what a pod had that has ended. Its namespace may be gone.
    fn end(&self, uid: &str, attached: &mut Option<Attached<'c>>) -> Result<()> {
        if let Some(had) = attached {
            had.del_late()?;
        }
        *attached = None;
        let mut all = self.pods();
        let seen = all.entry(uid.to_owned()).or_default();
        seen.interfaces.clear();
        seen.ended = true;
        Ok(())
    }
}
