//! Nodes with old news, calls that nobody answers, ranges that overlap, and pods that are called like others which still run,
//! against what everybody was told.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::memory::Memory;
use super::*;
use crate::config::{Arguments, Config};
use crate::planted::Bug;

const NODES: usize = 3;

fn networks() -> Vec<Config> {
    let of = |ipam: serde_json::Value| {
        let mut network = json!({"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "ipam": ipam});
        network["ipam"]["type"] = json!("whereabouts");
        Config::load(&network, None, &Arguments::default()).unwrap()
    };
    vec![
        of(json!({"range": "10.0.0.0/28"})),
        of(json!({"range": "10.0.0.0/27", "exclude": ["10.0.0.2/31"]})),
        of(json!({"range": "10.0.0.8/29", "ipRanges": [{"range": "fd00::/126"}]})),
        of(json!({"range": "10.0.0.0-10.0.0.5/28", "ipRanges": [{"range": "10.0.0.0/28"}]})),
    ]
}

/// A pod's interface, on a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    number: u8,
    /// Which of the pods of this name: the earlier one may have been deleted by force, and still run where it was.
    life: u8,
    network: usize,
}

impl Pod {
    /// Where it runs.
    fn node(self) -> usize {
        usize::from(self.number + self.life) % NODES
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// On this node a pod arrives, or goes.
    Add(usize, Pod),
    Del(usize, Pod),
    /// A node does what waits, with what it knows, and after so many calls nobody answers any more.
    Work(usize, usize),
    /// A node hears what is new.
    Hear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let pod = || {
        let parts = (0_u8..10, prop_oneof![3 => Just(0_u8), 1 => Just(1)], 0_usize..4);
        parts.prop_map(|(number, life, network)| Pod { number, life, network })
    };
    let node = 0..NODES;
    prop_oneof![
        4 => pod().prop_map(|pod| Step::Add(pod.node(), pod)),
        2 => pod().prop_map(|pod| Step::Del(pod.node(), pod)),
        5 => (node.clone(), prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..5]).prop_map(|(n, p)| Step::Work(n, p)),
        2 => node.prop_map(Step::Hear),
    ]
}

fn who(pod: Pod) -> Who {
    let Pod { number, life, network } = pod;
    let (id, uid) = (format!("c{number}-{life}"), format!("u{number}-{life}"));
    Who { id, podref: format!("ns/p{number}"), uid, ifname: format!("net{network}") }
}

/// What a node knows, where it begins to look, and what waits there.
type Node = (Network, Spread, Vec<(Pod, Request)>);

struct World {
    memory: Memory,
    nodes: Vec<Node>,
    /// What pods were told, and have not given back.
    told: BTreeMap<Pod, Vec<Address>>,
    configs: Vec<Config>,
}

impl World {
    fn new() -> Self {
        let node = |n: usize| (Network::new(""), Spread::of(&format!("node{n}")), Vec::new());
        Self {
            memory: Memory::default(),
            nodes: (0..NODES).map(node).collect(),
            told: BTreeMap::new(),
            configs: networks(),
        }
    }

    fn ask(&mut self, node: usize, pod: Pod, hold: bool) {
        // One request of a pod at a time, as a runtime does it.
        let waiting = &mut self.nodes[node].2;
        if waiting.iter().all(|(other, _)| *other != pod) {
            let config = &self.configs[pod.network];
            let request = if hold {
                Request::hold(who(pod), Want::of(config, &[]))
            } else {
                // From now on it uses nothing, and may lose one address before the other.
                self.told.remove(&pod);
                Request::release(who(pod), config)
            };
            waiting.push((pod, request));
        }
    }

    fn hear(&mut self, node: usize) {
        self.nodes[node].0 = self.memory.read("", false);
    }

    fn work(&mut self, node: usize, patience: usize) {
        let (network, spread, waiting) = &mut self.nodes[node];
        let (pods, requests): (Vec<Pod>, Vec<Request>) = std::mem::take(waiting).into_iter().unzip();
        let now = Timestamp::from_millis(1_000);
        let mut plan = network.plan(requests, spread, now);
        let written = self.memory.carry_out(&mut plan, patience);
        // The server answers a write with the object.
        for pool in plan.write.iter().filter_map(|write| self.memory.pool(&write.name)) {
            network.see_pool(pool, |_| false);
        }
        for write in plan.write.iter().filter(|write| write.adds()) {
            let Some(pool) = network.pool_of(&write.name).cloned() else { continue };
            match written.outcome(&write.name) {
                Outcome::Written => spread.won(&pool),
                Outcome::Conflict => spread.lost(&pool, now),
            }
        }
        for (pod, settled) in pods.into_iter().zip(plan.settle(|name| written.outcome(name))) {
            match settled {
                Settled::Again(request) => self.nodes[node].2.push((pod, request)),
                Settled::Done(Answer::Held(addresses)) => {
                    if let Some(before) = self.told.insert(pod, addresses.clone()) {
                        assert_eq!(before, addresses, "{pod:?} was told something else before");
                    }
                }
                Settled::Done(Answer::Released(_)) => assert!(!self.told.contains_key(&pod)),
                Settled::Done(Answer::Refused(_)) => {
                    assert!(!self.told.contains_key(&pod), "{pod:?} lost what it had");
                }
                Settled::Done(Answer::Wait) => unreachable!("an answer"),
            }
        }
        if written.look_again || patience != usize::MAX {
            self.hear(node);
        }
    }

    /// Address → who, as the objects have it.
    fn recorded(&self) -> BTreeMap<Address, BTreeSet<(String, String)>> {
        let mut recorded: BTreeMap<Address, BTreeSet<(String, String)>> = BTreeMap::new();
        for pool in self.memory.pools() {
            for (address, held) in pool.spec.reservations().unwrap().entries {
                recorded.entry(address).or_default().insert((held.uid, held.ifname));
            }
        }
        recorded
    }

    fn check(&self) {
        let recorded = self.recorded();
        for (address, holders) in &recorded {
            assert!(holders.len() == 1, "{address} has several holders: {holders:?}");
        }
        let mut seen = BTreeMap::new();
        for (pod, addresses) in &self.told {
            for address in addresses {
                assert_eq!(seen.insert(*address, *pod), None, "{address} was told twice");
                let Who { uid, ifname, .. } = who(*pod);
                let known = recorded.get(address).is_some_and(|holders| holders.contains(&(uid, ifname)));
                assert!(known, "{pod:?} was told {address}, and no object says so");
            }
        }
    }

    /// Until nothing waits.
    fn settle(&mut self) {
        for _ in 0..200 {
            for node in 0..NODES {
                self.hear(node);
                self.work(node, usize::MAX);
            }
            if self.nodes.iter().all(|(_, _, waiting)| waiting.is_empty()) {
                return;
            }
        }
        panic!("requests wait for ever");
    }
}

fn run(steps: Vec<Step>) {
    let mut world = World::new();
    for step in steps {
        match step {
            Step::Add(node, pod) => world.ask(node, pod, true),
            Step::Del(node, pod) => world.ask(node, pod, false),
            Step::Work(node, patience) => world.work(node, patience),
            Step::Hear(node) => world.hear(node),
        }
        world.check();
    }
    world.settle();
    world.check();
    // All or nothing: what the objects have is what was told, no more.
    let told: usize = world.told.values().map(Vec::len).sum();
    assert_eq!(world.recorded().len(), told);
    let pods: Vec<Pod> = world.told.keys().copied().collect();
    for pod in pods {
        world.ask(pod.node(), pod, false);
    }
    world.settle();
    assert_eq!(world.recorded().len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_address_is_held_twice_nothing_is_lost_and_nothing_is_left(steps in prop::collection::vec(step(), 1..80)) {
        run(steps);
    }
}

#[test]
fn the_checker_finds_a_pod_that_is_taken_for_another_of_its_name() {
    crate::planted::must_be_found(Bug::SameNameIsSamePod, &prop::collection::vec(step(), 1..80), run);
}
