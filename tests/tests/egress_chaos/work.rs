//! Those who start, change and end clients: users, a kubelet and a runtime in one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use tenure_testbed::wait::PATIENCE;
use tenure_tests::agent::{Called, Pod, config};
use tenure_tests::chaos::course::now;

use crate::bed::{CLIENTS, ChaosBed, annotations};
use crate::plan::{Manner, Named, SLOTS, Step};

/// CNI's "try again later".
const LATER: u64 = 11;

/// One who has pods on a node.
pub struct Worker<'a> {
    number: usize,
    pub node: usize,
    bed: &'a ChaosBed<'a>,
    slots: [Option<Client>; SLOTS],
    /// Pods are never named twice.
    names: usize,
}

/// A pod that runs.
pub struct Client {
    pub pod: Pod,
    pub uid: String,
    pub named: Named,
    pub addresses: Vec<IpAddr>,
}

/// Has the plugin attach a pod, however long that takes; a runtime ends what failed.
pub fn attach(bed: &ChaosBed<'_>, node: usize, pod: &Pod, uid: &str) -> Vec<IpAddr> {
    let began = now();
    for attempt in 0_u32.. {
        let called = call(bed, node, "ADD", pod, uid);
        if called.code == 0 {
            return called.addresses();
        }
        if called.json["code"] != LATER {
            bed.blame(format!("ADD of {}: {called:?}", pod.name));
        }
        let ended = call(bed, node, "DEL", pod, uid);
        if ended.code != 0 {
            bed.blame(format!("DEL of {} after a failed ADD: {ended:?}", pod.name));
        }
        assert!(now().saturating_sub(began) < PATIENCE, "no ADD of {} succeeds: {called:?}", pod.name);
        sleep(Duration::from_millis(50 << attempt.min(3)));
    }
    Vec::new()
}

/// Calls the plugin as a kubelet's runtime does.
pub fn call(bed: &ChaosBed<'_>, node: usize, verb: &str, pod: &Pod, uid: &str) -> Called {
    let (namespace, name) = (&pod.namespace, &pod.name);
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}");
    bed.machines[node].exec(verb, &pod.container, &pod.path, &args, &config())
}

/// Takes a pod's namespace away.
pub fn remove(bed: &ChaosBed<'_>, node: usize, pod: Pod) {
    let Pod { name, network, .. } = pod;
    // A namespace lives as long as somebody has it open.
    drop(network);
    bed.machines[node].host.command("ip").args(["netns", "del", &name]).succeed().unwrap();
}

impl<'a> Worker<'a> {
    pub fn new(number: usize, bed: &'a ChaosBed<'a>) -> Self {
        Self { number, node: number % bed.machines.len(), bed, slots: Default::default(), names: 0 }
    }

    /// Its pods.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.slots.iter().flatten()
    }

    /// Does all steps.
    pub fn work(&mut self, steps: &[Step], done: &AtomicUsize) {
        for step in steps {
            match *step {
                Step::Start { slot, named } => self.start(slot, named),
                Step::Annotate { slot, named } => self.annotate(slot, named),
                Step::Stop { slot, manner } => self.stop(slot, manner),
                Step::Repeat { slot } => self.repeat(slot),
                Step::Rest(time) => sleep(time),
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Sees to it that one of its pods names these, at least.
    pub fn name(&mut self, named: Named) {
        match self.slots.iter().position(Option::is_some) {
            Some(slot) => self.annotate(slot, named),
            None => self.start(0, named),
        }
    }

    /// Ends every pod.
    pub fn end_all(&mut self) {
        for slot in 0..SLOTS {
            self.stop(slot, Manner::Plain);
        }
    }

    fn start(&mut self, slot: usize, named: Named) {
        self.names += 1;
        let name = format!("client-{}-{}", self.number, self.names);
        let metadata = if named == 0 { json!({}) } else { json!({"annotations": annotations(named)}) };
        let uid = self.bed.make_pod(CLIENTS, &name, self.node, &metadata);
        self.bed.will_name(&uid, named);
        let pod = self.bed.machines[self.node].pod_in(CLIENTS, &name);
        let addresses = attach(self.bed, self.node, &pod, &uid);
        self.slots[slot] = Some(Client { pod, uid, named, addresses });
    }

    fn annotate(&mut self, slot: usize, named: Named) {
        let Some(client) = &mut self.slots[slot] else { return };
        self.bed.will_name(&client.uid, named);
        self.bed.annotate(&client.pod.name, named);
        client.named = named;
    }

    fn repeat(&self, slot: usize) {
        let Some(client) = &self.slots[slot] else { return };
        let called = call(self.bed, self.node, "ADD", &client.pod, &client.uid);
        let same = called.code == 0 && called.addresses() == client.addresses;
        if !same && called.json["code"] != LATER {
            self.bed.blame(format!("repeated ADD of {}: {called:?}", client.pod.name));
        }
    }

    fn stop(&mut self, slot: usize, manner: Manner) {
        let Some(Client { pod, uid, .. }) = self.slots[slot].take() else { return };
        let (name, container, path) = (pod.name.clone(), pod.container.clone(), pod.path.clone());
        let args =
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={CLIENTS};K8S_POD_NAME={name};K8S_POD_UID={uid}");
        let mut pod = Some(pod);
        match manner {
            Manner::Plain => {}
            Manner::ObjectFirst => self.bed.delete_pod(CLIENTS, &name),
            Manner::NamespaceFirst => {
                if let Some(pod) = pod.take() {
                    remove(self.bed, self.node, pod);
                }
            }
        }
        let called = self.bed.machines[self.node].exec("DEL", &container, &path, &args, &config());
        if called.code != 0 {
            self.bed.blame(format!("DEL of {name}: {called:?}"));
        }
        if let Some(pod) = pod {
            remove(self.bed, self.node, pod);
        }
        self.bed.delete_pod(CLIENTS, &name);
    }
}
