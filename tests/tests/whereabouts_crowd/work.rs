//! A container runtime: pods come and go on one node, and what is answered is told to the oracle.

use std::net::IpAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::networks::{NETWORKS, Network};
use crate::oracle::{Living, Oracle};
use crate::plan::{Act, PODS};
use tenure_tests::whereabouts::node::{Called, Interface, Node};
use tenure_tests::whereabouts::now;

/// How long an ADD is tried, as a kubelet would.
const TRIES: Duration = Duration::from_mins(3);

/// A node as its runtime sees it.
pub struct Machine<'b> {
    pub number: usize,
    pub node: Node<'b>,
    /// Nobody is attached or detached while the runtime says who is alive.
    pub quiet: RwLock<()>,
}

/// Some pods of a node.
pub struct Worker<'a, 'b> {
    machine: &'a Machine<'b>,
    networks: &'a [Network],
    oracle: &'a Oracle,
    pods: [String; PODS],
    /// What each pod was told on each network: its container, and the result.
    told: [[Option<(Interface, Value)>; NETWORKS]; PODS],
    containers: usize,
}

/// The name of a pod.
pub fn pod_name(machine: usize, worker: usize, pod: usize) -> String {
    format!("pod-{machine}-{worker}-{pod}")
}

impl<'a, 'b> Worker<'a, 'b> {
    pub fn new(machine: &'a Machine<'b>, worker: usize, networks: &'a [Network], oracle: &'a Oracle) -> Self {
        let pods = std::array::from_fn(|pod| pod_name(machine.number, worker, pod));
        Self { machine, networks, oracle, pods, told: Default::default(), containers: 0 }
    }

    /// Does all acts.
    pub fn work(&mut self, acts: &[Act], done: &AtomicUsize) {
        for act in acts {
            match *act {
                Act::Add { pod, network } => self.add(pod, network),
                Act::Repeat { pod, network } => self.repeat(pod, network),
                Act::Check { pod, network } => self.check(pod, network),
                Act::Del { pod, network, twice } => self.del(pod, network, twice),
                Act::Replace { pod, network, told } => self.replace(pod, network, told),
                Act::Collect { network } => self.collect(network),
                Act::Rest(time) => sleep(time),
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn add(&mut self, pod: usize, network: usize) {
        if self.told[pod][network].is_some() {
            return;
        }
        let began = now();
        let mut interface = self.new_container(pod, network);
        loop {
            let quiet = self.machine.quiet.read().unwrap();
            let called = self.call("ADD", &interface, network);
            if called.code == 0 {
                self.hear(&interface, network, &called);
                self.told[pod][network] = Some((interface, called.json));
                return;
            }
            let (_, words) = called.refused();
            let exhausted = words.contains("could not allocate");
            if !exhausted && !called.is_later() {
                self.oracle.blame(format!("ADD of {interface:?}: {called:?}"));
            }
            self.oracle.counting(|count| if exhausted { count.exhausted += 1 } else { count.later += 1 });
            // A kubelet cleans up after a sandbox that failed, and tries another one; or asks once more.
            let gives_up = exhausted || now().saturating_sub(began) > TRIES;
            if gives_up || self.containers.is_multiple_of(2) {
                self.end(&interface, network);
                interface = self.new_container(pod, network);
            }
            drop(quiet);
            if exhausted {
                return;
            }
            if gives_up {
                self.oracle.blame(format!("ADD of {interface:?} was refused for {TRIES:?}: {called:?}"));
                return;
            }
            sleep(Duration::from_millis(100));
        }
    }

    fn repeat(&self, pod: usize, network: usize) {
        let Some((interface, result)) = &self.told[pod][network] else { return };
        let _quiet = self.machine.quiet.read().unwrap();
        let called = self.call("ADD", interface, network);
        self.oracle.counting(|count| count.repeated += 1);
        if called.code != 0 || called.json["ips"] != result["ips"] {
            self.expect_later("ADD again", interface, &called);
        }
    }

    fn check(&self, pod: usize, network: usize) {
        let Some((interface, result)) = &self.told[pod][network] else { return };
        let _quiet = self.machine.quiet.read().unwrap();
        let mut config = self.networks[network].config.clone();
        config["prevResult"] = result.clone();
        let called = self.machine.node.call("CHECK", interface, &config);
        self.oracle.counting(|count| count.checks += 1);
        self.expect_later("CHECK", interface, &called);
    }

    fn del(&mut self, pod: usize, network: usize, twice: bool) {
        let Some((interface, _)) = self.told[pod][network].take() else { return };
        let _quiet = self.machine.quiet.read().unwrap();
        for _ in 0..=usize::from(twice) {
            self.end(&interface, network);
        }
    }

    /// A container dies; its pod gets another one before the DEL of the first comes, if it comes.
    fn replace(&mut self, pod: usize, network: usize, told: bool) {
        let Some((interface, _)) = self.told[pod][network].take() else { return };
        self.oracle.ending(&interface.container, &interface.ifname);
        self.add(pod, network);
        if told {
            let _quiet = self.machine.quiet.read().unwrap();
            self.end(&interface, network);
        }
    }

    fn collect(&self, network: usize) {
        let _quiet = self.machine.quiet.write().unwrap();
        collect(self.machine, &self.networks[network], network, self.oracle);
    }

    /// A DEL, which succeeds whatever is down.
    fn end(&self, interface: &Interface, network: usize) {
        self.oracle.ending(&interface.container, &interface.ifname);
        let called = self.call("DEL", interface, network);
        self.oracle.counting(|count| count.dels += 1);
        if called.code != 0 {
            self.oracle.blame(format!("DEL of {interface:?}: {called:?}"));
        }
    }

    /// Attaches to no more networks, and detaches from all.
    pub fn end_all(&mut self) {
        for pod in 0..PODS {
            for network in 0..NETWORKS {
                self.del(pod, network, false);
            }
        }
    }

    /// Asks for all once more.
    pub fn repeat_all(&self) {
        for pod in 0..PODS {
            for network in 0..NETWORKS {
                self.repeat(pod, network);
            }
        }
    }

    fn hear(&self, interface: &Interface, number: usize, called: &Called) {
        let network = &self.networks[number];
        let told = called.networks();
        let addresses: Vec<IpAddr> = called.addresses();
        let right = told.len() == network.ranges.len()
            && told.iter().zip(&addresses).zip(&network.ranges).all(|((text, address), window)| {
                text.ends_with(&format!("/{}", window.net.prefix_len())) && window.hands_out(*address)
            });
        if !right {
            self.oracle.blame(format!("{interface:?} was told {told:?} on {}", network.name));
        }
        self.oracle.counting(|count| count.adds += 1);
        self.oracle.added(&Living {
            node: self.machine.number,
            network: number,
            domain: network.domain,
            podref: interface.podref(),
            ifname: interface.ifname.clone(),
            container: interface.container.clone(),
            addresses,
        });
    }

    fn call(&self, verb: &str, interface: &Interface, network: usize) -> Called {
        let called = self.machine.node.call(verb, interface, &self.networks[network].config);
        self.oracle.took(verb, self.networks[network].name, called.took);
        called
    }

    fn expect_later(&self, what: &str, interface: &Interface, called: &Called) {
        if called.is_later() {
            self.oracle.counting(|count| count.later += 1);
        } else if called.code != 0 || what != "CHECK" {
            self.oracle.blame(format!("{what} of {interface:?} on {}: {called:?}", self.machine.node.name));
        }
    }

    fn new_container(&mut self, pod: usize, network: usize) -> Interface {
        self.containers += 1;
        let pod = self.pods[pod].clone();
        let container = format!("{pod}-c{}", self.containers);
        Interface { pod, container, ifname: Network::ifname(network) }
    }
}

/// Says to a node who is alive on a network. Nobody else may be busy there.
pub fn collect(machine: &Machine<'_>, network: &Network, number: usize, oracle: &Oracle) -> Called {
    let here = oracle.living().into_iter().filter(|it| it.node == machine.number && it.network == number);
    let alive: Vec<Interface> =
        here.map(|it| Interface { pod: String::new(), container: it.container, ifname: it.ifname }).collect();
    let called = machine.node.collect(&alive, &network.config);
    oracle.counting(|count| count.collections += 1);
    if called.code != 0 && !called.is_later() {
        oracle.blame(format!("GC of {} on {}: {called:?}", network.name, machine.node.name));
    }
    called
}
