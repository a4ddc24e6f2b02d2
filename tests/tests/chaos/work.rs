//! A container runtime: it does what the plan says, and what every runtime does when something is down.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tenure_testbed::hosts::{Host, Mounts};
use tenure_testbed::wait::PATIENCE;

use crate::oracle::{Living, Oracle};
use crate::plan::{Manner, Pool, SLOTS, Step};
use tenure_tests::agent::{Called, Machine, config};
use tenure_tests::chaos::course::now;

/// A call takes no longer than this, whatever is down.
const LONGEST_CALL: Duration = Duration::from_secs(40);
/// A link that is out of service is deleted before this, if there is an agent.
const REAPED: Duration = Duration::from_secs(1);
/// CNI's "try again later".
const LATER: u64 = 11;

/// One who starts and ends containers on a node.
pub struct Worker<'a> {
    number: usize,
    node: usize,
    machine: &'a Machine<'a>,
    oracle: &'a Oracle,
    slots: Vec<Slot>,
    /// Containers and namespaces are never named twice.
    names: usize,
}

/// Where a container is, or will be.
struct Slot {
    place: PodNamespace,
    sandbox: Sandbox,
    /// What was told, while it lives.
    told: Option<(Vec<IpAddr>, Value)>,
}

/// A container, and the pod that it is the sandbox of.
#[derive(Clone, Debug, Default)]
struct Sandbox {
    container: String,
    namespace: &'static str,
    pod: String,
}

/// A namespace.
struct PodNamespace {
    name: String,
    path: PathBuf,
    inside: Host,
}

impl<'a> Worker<'a> {
    pub fn new(number: usize, node: usize, machine: &'a Machine<'a>, oracle: &'a Oracle) -> Self {
        let mut worker = Self { number, node, machine, oracle, slots: Vec::new(), names: 0 };
        (0..SLOTS).for_each(|_| worker.make_slot());
        worker
    }

    /// Does all steps.
    pub fn work(&mut self, steps: &[Step], done: &AtomicUsize) {
        for step in steps {
            match *step {
                Step::Add { slot, pool, same } => self.add(slot, pool, same),
                Step::Del { slot, manner } => self.del(slot, manner),
                Step::Repeat { slot } => self.repeat(slot),
                Step::Check { slot } => self.check(slot),
                Step::Ping { slot } => self.ping(slot),
                Step::Rest(time) => sleep(time),
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Starts so many more containers.
    pub fn start_more(&mut self, count: usize) {
        for _ in 0..count {
            self.make_slot();
            self.add(self.slots.len() - 1, Pool::Default, 0);
        }
    }

    fn make_slot(&mut self) {
        let place = self.make_place();
        self.slots.push(Slot { place, sandbox: Sandbox::default(), told: None });
    }

    /// That each container reaches the next one on this node.
    pub fn ping_each_other(&self) {
        let told: Vec<(&Slot, &Vec<IpAddr>)> =
            self.slots.iter().filter_map(|slot| Some((slot, &slot.told.as_ref()?.0))).collect();
        for (number, (from, _)) in told.iter().enumerate() {
            let (_, to) = told[(number + 1) % told.len()];
            for address in to.iter().filter(|address| from.has(address.is_ipv6())) {
                from.place.inside.ping(*address, PATIENCE).unwrap();
            }
        }
    }

    /// Ends every container.
    pub fn end_all(&mut self) {
        for slot in 0..self.slots.len() {
            self.del(slot, Manner::Plain);
        }
    }

    /// Namespaces without a container in which there is an interface.
    pub fn left_over(&self) -> Vec<String> {
        let idle = self.slots.iter().filter(|slot| slot.told.is_none() && slot.place.has_interface());
        idle.map(|slot| format!("namespace {} has an interface, and no container", slot.place.name)).collect()
    }

    /// Containers whose interface does not have their addresses.
    pub fn unlike_told(&self) -> Vec<String> {
        let told = self.slots.iter().filter_map(|slot| Some((slot, &slot.told.as_ref()?.0)));
        told.filter_map(|(slot, told)| {
            let mut expected = told.clone();
            expected.sort();
            let found = slot.place.addresses();
            (found != expected)
                .then(|| format!("{} has {found:?}, told were {told:?}", slot.sandbox.container))
        })
        .collect()
    }

    fn add(&mut self, slot: usize, pool: Pool, same: u64) {
        let began = now();
        self.slots[slot].sandbox = self.name_sandbox(pool);
        for attempt in 0_u32.. {
            self.vacate(slot);
            self.oracle.begin(self.node);
            let called = self.call("ADD", slot, &config());
            if called.code == 0 {
                let addresses = called.addresses();
                let Sandbox { container, namespace, pod } = self.slots[slot].sandbox.clone();
                let (namespace, told) = (namespace.to_owned(), addresses.clone());
                let living = Living { node: self.node, container, namespace, pod, addresses };
                self.oracle.added(living, pool);
                self.slots[slot].told = Some((told, called.json));
                return;
            }
            self.oracle.failed(self.node);
            if called.json["code"] != LATER {
                self.blame(slot, "ADD", &called);
            }
            // What every runtime does then.
            self.end(slot);
            if now().saturating_sub(began) > PATIENCE {
                return self.oracle.blame(format!("no ADD succeeds on node {}: {called:?}", self.node));
            }
            sleep(Duration::from_millis(50 << attempt.min(3)));
            if (same >> (attempt % 64)) & 1 == 0 {
                self.names += 1;
                let pod = &self.slots[slot].sandbox.pod;
                self.slots[slot].sandbox.container = format!("{pod}-sandbox{}", self.names);
            }
        }
    }

    fn del(&mut self, slot: usize, manner: Manner) {
        let path = self.slots[slot].place.path.clone();
        if manner == Manner::NamespaceFirst {
            self.replace_place(slot);
        }
        self.oracle.ending(&self.slots[slot].sandbox.container);
        self.slots[slot].told = None;
        self.end_at(slot, &path);
        match manner {
            Manner::Twice => self.end_at(slot, &path),
            Manner::NamespaceLast => self.replace_place(slot),
            Manner::Plain | Manner::NamespaceFirst => {}
        }
    }

    fn end(&self, slot: usize) {
        self.end_at(slot, &self.slots[slot].place.path);
    }

    /// A DEL, which succeeds whatever is down, and whether or not its namespace is there.
    fn end_at(&self, slot: usize, path: &Path) {
        let called = self.call_at("DEL", slot, path, &config());
        if called.code != 0 {
            self.blame(slot, "DEL", &called);
        }
    }

    fn repeat(&self, slot: usize) {
        let Some((told, _)) = &self.slots[slot].told else { return };
        let called = self.call("ADD", slot, &config());
        let same = called.code == 0 && called.addresses() == *told;
        if !same && called.json["code"] != LATER {
            self.blame(slot, &format!("ADD that told {told:?} before"), &called);
        }
    }

    fn check(&self, slot: usize) {
        let Some((_, result)) = &self.slots[slot].told else { return };
        let mut config = config();
        config["prevResult"] = result.clone();
        let called = self.call("CHECK", slot, &config);
        if called.code != 0 && called.json["code"] != LATER {
            self.blame(slot, "CHECK", &called);
        }
    }

    /// A container does not notice what is down.
    fn ping(&self, slot: usize) {
        let Some((told, _)) = &self.slots[slot].told else { return };
        if let Err(error) = self.machine.host.ping(told[0], Duration::from_secs(20)) {
            self.oracle.blame(format!("{}: {error}", self.slots[slot].sandbox.container));
        }
    }

    fn call(&self, verb: &str, slot: usize, config: &Value) -> Called {
        self.call_at(verb, slot, &self.slots[slot].place.path, config)
    }

    fn call_at(&self, verb: &str, slot: usize, path: &Path, config: &Value) -> Called {
        let Sandbox { container, namespace, pod } = &self.slots[slot].sandbox;
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}");
        let called = self.machine.exec(verb, container, path, &args, config);
        if called.took > LONGEST_CALL {
            self.blame(slot, verb, &called);
        }
        called
    }

    fn blame(&self, slot: usize, verb: &str, called: &Called) {
        let container = &self.slots[slot].sandbox.container;
        self.oracle.blame(format!("{verb} of {container} on node {}: {called:?}", self.node));
    }

    /// Sees to it that a slot's namespace has no interface.
    fn vacate(&mut self, slot: usize) {
        let began = now();
        while self.slots[slot].place.has_interface() {
            if now().saturating_sub(began) > REAPED {
                // Its agent is down; no runtime would wait for it.
                return self.replace_place(slot);
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn name_sandbox(&mut self, pool: Pool) -> Sandbox {
        self.names += 1;
        let pod = format!("pod-{}-{}", self.number, self.names);
        let namespace = match pool {
            Pool::Default => "default",
            Pool::Small => "small",
        };
        Sandbox { container: format!("{pod}-sandbox"), namespace, pod }
    }

    fn make_place(&mut self) -> PodNamespace {
        self.names += 1;
        let name = format!("ns-{}-{}", self.number, self.names);
        let (network, path) = self.machine.host.pod_namespace(&name).unwrap();
        PodNamespace { name, path, inside: Host::in_namespace(network, Mounts::default()) }
    }

    fn replace_place(&mut self, slot: usize) {
        let fresh = self.make_place();
        let PodNamespace { name, inside, .. } = std::mem::replace(&mut self.slots[slot].place, fresh);
        // A namespace lives as long as somebody has it open.
        drop(inside);
        self.machine.host.command("ip").args(["netns", "del", &name]).succeed().unwrap();
    }
}

impl Slot {
    fn has(&self, ipv6: bool) -> bool {
        self.told.as_ref().is_some_and(|(told, _)| told.iter().any(|address| address.is_ipv6() == ipv6))
    }
}

impl PodNamespace {
    fn has_interface(&self) -> bool {
        let devices = self.inside.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        devices.unwrap().unwrap().contains("eth0:")
    }

    /// The addresses of its interface that are not of the link alone.
    fn addresses(&self) -> Vec<IpAddr> {
        let found = self.inside.namespace().ip_json(&["address", "show", "dev", "eth0"]).unwrap_or_default();
        let each = found[0]["addr_info"].as_array().cloned().unwrap_or_default();
        let global = each.iter().filter(|address| address["scope"] == "global");
        let mut found: Vec<IpAddr> =
            global.filter_map(|address| address["local"].as_str()?.parse().ok()).collect();
        found.sort();
        found
    }
}
