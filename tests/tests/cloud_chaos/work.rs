//! One who starts, moves and ends pods, whatever is down.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_api::cloud::annotation;
use tenure_testbed::wait::PATIENCE;
use tenure_tests::agent::Called;
use tenure_tests::chaos::course::now;

use crate::bed::{ChaosBed, ELSEWHERE, NAMESPACE};
use crate::plan::{Moving, NODES, SLOTS, Step};

/// CNI's "try again later".
const LATER: u64 = 11;
/// How long a thief waits.
const A_WHILE: Duration = Duration::from_millis(300);

/// One who starts, moves and ends pods.
pub struct Worker<'a> {
    number: usize,
    bed: &'a ChaosBed<'a>,
    pub pods: [Option<Running>; SLOTS],
    names: usize,
}

/// A pod that was told an address.
#[derive(Clone, Debug)]
pub struct Running {
    pub name: String,
    uid: String,
    pub node: usize,
    path: PathBuf,
    pub address: IpAddr,
}

impl<'a> Worker<'a> {
    pub fn new(number: usize, bed: &'a ChaosBed<'a>) -> Self {
        Self { number, bed, pods: [const { None }; SLOTS], names: 0 }
    }

    pub fn work(&mut self, steps: &[Step], done: &AtomicUsize) {
        for step in steps {
            self.perform(*step);
            done.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Start { slot, node } if self.pods[slot].is_none() => {
                let name = self.name();
                self.pods[slot] = self.start(name, node, &json!({}));
            }
            Step::Start { .. } => {}
            Step::Move { slot, by, manner } => {
                if let Some(pod) = self.pods[slot].take() {
                    self.pods[slot] = self.carry(pod, by, manner);
                }
            }
            Step::Stop { slot, object_first } => {
                if let Some(pod) = self.pods[slot].take() {
                    self.end(&pod, object_first);
                }
            }
            Step::Steal { slot, node } => {
                let Some(address) = self.pods[slot].as_ref().map(|pod| pod.address.to_string()) else {
                    return;
                };
                let name = self.name();
                self.bed.make_pod(ELSEWHERE, &name, node, &json!({annotation::ADDRESS: address}));
                sleep(A_WHILE);
                self.bed.delete_pod(ELSEWHERE, &name);
            }
            Step::Rest(time) => sleep(time),
        }
    }

    /// Ends all of its pods.
    pub fn end_all(&mut self) {
        for slot in 0..SLOTS {
            self.perform(Step::Stop { slot, object_first: slot == 0 });
        }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("pod-{}-{}", self.number, self.names)
    }

    /// Makes a pod and calls ADD until it succeeds.
    fn start(&self, name: String, node: usize, annotations: &Value) -> Option<Running> {
        let uid = self.bed.make_pod(NAMESPACE, &name, node, annotations);
        let (_, path) = self.bed.machines[node].host.pod_namespace(&name).unwrap();
        let began = now();
        let mut pod = Running { name, uid, node, path, address: IpAddr::from([0, 0, 0, 0]) };
        loop {
            let called = self.call("ADD", &pod);
            if called.code == 0 {
                pod.address = called.addresses()[0];
                self.bed.told(&pod.name, node, pod.address);
                return Some(pod);
            }
            if called.json["code"] != LATER || now().saturating_sub(began) > PATIENCE {
                self.bed.blame(format!("no ADD of {} succeeds: {called:?}", pod.name));
                return None;
            }
            // What every runtime does after an ADD that failed.
            self.del(&pod);
            sleep(Duration::from_millis(100));
        }
    }

    fn carry(&mut self, pod: Running, by: usize, manner: Moving) -> Option<Running> {
        let (bed, node) = (self.bed, (pod.node + by) % NODES);
        let instance = &bed.machines[pod.node].name;
        let name = self.name();
        let takes_over = json!({
            annotation::ADDRESS: pod.address.to_string(), annotation::ORIGINAL_INSTANCE: instance,
        });
        bed.annotate(&pod.name, &json!({annotation::MOVE_OUT: "true"}));
        if manner == Moving::SourceFirst {
            let began = now();
            while !bed.is_leaving(pod.node, pod.address) {
                if now().saturating_sub(began) > PATIENCE {
                    bed.blame(format!("nobody says that {} leaves with {}", pod.name, pod.address));
                    break;
                }
                sleep(Duration::from_millis(50));
            }
            self.end(&pod, false);
        }
        bed.ends(&pod.name);
        if let Moving::Aborted(after) = manner {
            bed.make_pod(NAMESPACE, &name, node, &takes_over);
            sleep(after);
            bed.delete_pod(NAMESPACE, &name);
            bed.annotate(&pod.name, &json!({annotation::MOVE_OUT: null}));
            return Some(pod);
        }
        let next = self.start(name, node, &takes_over);
        if next.as_ref().is_some_and(|next| next.address != pod.address) {
            bed.blame(format!("{next:?} does not have the address of {pod:?}"));
        }
        bed.moves.fetch_add(1, Ordering::SeqCst);
        if manner == Moving::Plain {
            self.end(&pod, false);
        }
        next
    }

    /// DEL, and the object goes.
    fn end(&self, pod: &Running, object_first: bool) {
        self.bed.ends(&pod.name);
        if object_first {
            self.bed.delete_pod(NAMESPACE, &pod.name);
        }
        self.del(pod);
        let gone = self.bed.machines[pod.node].host.command("ip").args(["netns", "del", &pod.name]);
        gone.succeed().unwrap();
        if !object_first {
            self.bed.delete_pod(NAMESPACE, &pod.name);
        }
    }

    /// A DEL, which succeeds whatever is down.
    fn del(&self, pod: &Running) {
        let called = self.call("DEL", pod);
        if called.code != 0 {
            self.bed.blame(format!("DEL of {}: {called:?}", pod.name));
        }
    }

    fn call(&self, verb: &str, pod: &Running) -> Called {
        let Running { name, uid, path, .. } = pod;
        let args =
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={name};K8S_POD_UID={uid}");
        let container = format!("{name}-sandbox");
        let about = (container.as_str(), path.as_path(), args.as_str());
        let network = self.bed.network;
        let machine = &self.bed.machines[pod.node];
        machine.start_program(&network.plugin, "eth0", verb, about, &network.config).join()
    }
}
