//! Pods on the hosts of a bed: those that run all the time, and those of a case.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod as PodObject;
use serde_json::{Value, json};
use tenure_testbed::traffic::{Pace, Talker, Talking};
use tenure_testbed::wait::until;
use tenure_tests::agent::Pod;
use tenure_tests::chaos::pods;

use super::bed::Bed;

/// A pod that runs, with a connection to its host.
pub struct Running {
    pub machine: usize,
    pub pod: Pod,
    pub addresses: Vec<IpAddr>,
    pub interface: Value,
    pub talking: Option<(Talking, Talking)>,
}

impl Bed<'_> {
    /// Starts a pod that runs until the end.
    pub fn run(&mut self, machine: usize, name: &str) -> Running {
        let (pod, addresses) = self.start(machine, "default", name);
        let interface = interface_of(&pod);
        let host = &self.machines[machine];
        let to = SocketAddr::new(host.addresses[0], 0);
        let (one, other) =
            Talker::connected(pod.network.namespace(), host.host.namespace(), to, Pace::TICKS).unwrap();
        let talking = Some((one.start().unwrap(), other.start().unwrap()));
        Running { machine, pod, addresses, interface, talking }
    }

    /// A pod's object and its interface.
    pub fn start(&mut self, machine: usize, namespace: &str, name: &str) -> (Pod, Vec<IpAddr>) {
        let pod = self.place(machine, namespace, name);
        let addresses = self.machines[machine].add(&pod);
        let status =
            pods::object(namespace, &pod.name, &self.machines[machine].name, &addresses)["status"].clone();
        self.merge_status(&self.api_in::<PodObject>(namespace), &pod.name, status);
        (pod, addresses)
    }

    /// A pod's object and its namespace.
    pub fn place(&mut self, machine: usize, namespace: &str, name: &str) -> Pod {
        self.pods += 1;
        let name = format!("{name}-{}", self.pods);
        pods::make(self.cluster, &pods::object(namespace, &name, &self.machines[machine].name, &[]));
        self.machines[machine].pod_in(namespace, &name)
    }

    /// A pod for a case.
    pub fn attach(&mut self, machine: usize, namespace: &str, name: &str) -> Vec<IpAddr> {
        let (pod, addresses) = self.start(machine, namespace, name);
        self.extra.push((machine, pod));
        addresses
    }

    /// The pods of a case end.
    pub fn detach(&mut self) {
        for (machine, pod) in self.extra.split_off(self.staying) {
            self.machines[machine].del(&pod);
            self.delete_pod(&pod.namespace, &pod.name);
        }
    }

    /// The pods that there are now stay as long as the bed.
    pub fn keep_pods(&mut self) {
        self.staying = self.extra.len();
    }

    /// The object of the last pod of a case goes, and nothing else of it.
    pub fn forget_last(&self) {
        let (_, pod) = self.extra.last().expect("a pod of a case");
        self.delete_pod(&pod.namespace, &pod.name);
    }

    /// The name of a pod that runs, as records have it.
    pub fn podref(&self, machine: usize) -> String {
        format!("default/{}", self.running[machine].pod.name)
    }

    /// A pod's object that no agent knows.
    pub fn ghost(&self, name: &str, addresses: &[IpAddr]) {
        pods::make(self.cluster, &pods::object("default", name, &self.machines[0].name, addresses));
    }

    pub fn delete_pod(&self, namespace: &str, name: &str) {
        self.delete(&self.api_in::<PodObject>(namespace), name);
    }

    /// Pods have the same interfaces and addresses, and their connections.
    pub fn assert_pods_did_not_notice(&self) {
        for running in &self.running {
            assert_eq!(interface_of(&running.pod), running.interface, "{}", running.pod.name);
            self.machines[running.machine].assert_reached(&running.pod, &running.addresses);
            let (one, other) = running.talking.as_ref().expect("a connection");
            assert!(!one.has_ended() && !other.has_ended(), "the connection of {} broke", running.pod.name);
        }
    }

    /// Gives a pod an address of another network than the cluster's.
    pub fn attach_to(&mut self, machine: usize, name: &str, network: &Value) {
        let pod = self.place(machine, "default", name);
        self.machines[machine].call_with("ADD", &pod, network).succeeded();
        self.extra.push((machine, pod));
    }

    /// Takes it from the last pod, which ends.
    pub fn detach_last(&mut self, network: &Value) {
        let (machine, pod) = self.extra.pop().expect("a pod of a case");
        self.machines[machine].call_with("DEL", &pod, network).succeeded();
        self.delete_pod(&pod.namespace, &pod.name);
    }

    /// Begins to attach a pod. As a kubelet does, the bed tries again when there is no address, until [`Self::await_address`] or
    /// [`Self::give_up`].
    pub fn begin(&mut self, machine: usize, namespace: &str, name: &str) {
        let pod = self.place(machine, namespace, name);
        self.calling = RefCell::new(Some(self.machines[machine].plugin("ADD", &pod)));
        self.extra.push((machine, pod));
    }

    /// Asks for an address again, if the last call had none.
    pub fn ask_again(&self) {
        let mut calling = self.calling.borrow_mut();
        if calling.as_ref().is_none_or(|call| !call.has_ended()) {
            return;
        }
        let refused = calling.take().expect("a call").join().code != 0;
        *calling = refused.then(|| {
            let (machine, pod) = self.extra.last().expect("a pod of a case");
            self.machines[*machine].plugin("ADD", pod)
        });
    }

    /// Waits until the pod that was begun has an address.
    pub fn await_address(&self) {
        until("an address", || {
            self.ask_again();
            self.calling.borrow().is_none().then_some(())
        });
    }

    /// Asks no more.
    pub fn give_up(&self) {
        if let Some(calling) = self.calling.take() {
            calling.join();
        }
    }
}

/// A pod's interface, as its namespace has it, without its counters.
fn interface_of(pod: &Pod) -> Value {
    let shown = pod.network.namespace().ip_json(&["address", "show", "dev", "eth0"]).unwrap();
    let link = &shown[0];
    let addresses = link["addr_info"].as_array().unwrap().iter().map(|it| it["local"].clone());
    json!({"index": link["ifindex"], "mac": link["address"], "addresses": addresses.collect::<Vec<_>>()})
}
