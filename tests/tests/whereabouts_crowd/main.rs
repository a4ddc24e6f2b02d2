//! Fifty nodes' agents in one process against one API server and a controller, ten networks each: random ADDs, repeated
//! ones, DELs and GCs, while agents are dropped and started again, somebody else writes to the same objects, watches fall
//! behind or break off, and answers are lost or late. No address is told to two at any moment; afterwards pools,
//! reservations, slices' objects and agents say what is held, and nothing else. Needs root, etcd and kube-apiserver.
//!
//! One number decides what is done and what goes wrong; when exactly, the machine does. It is printed, and can be given
//! again: `TENURE_SEED=n cargo test -p tenure-tests --test whereabouts_crowd`.
//!
//! Agents are whole (`tenure_agent::Agent`), each in a runtime of its own, and are called through the plugin's own code and
//! the agent's socket. They share one network namespace, because nobody makes interfaces here.

mod foreign;
mod networks;
mod oracle;
mod plan;
mod trouble;
mod verdict;
mod work;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use foreign::Foreign;
use networks::{NETWORKS, Network, networks};
use oracle::Oracle;
use plan::{NODES, PODS, Plan, WORKERS_A_NODE};
use tenure_testbed::faults::{Calls, Verb};
use tenure_testbed::wait::PATIENCE;
use tenure_tests::chaos::course::seed;
use tenure_tests::whereabouts::node::{Interface, Node};
use tenure_tests::whereabouts::{Bed, now, say};
use trouble::{Doubts, make_trouble};
use work::{Machine, Worker, collect, pod_name};

#[test]
fn of_fifty_nodes_in_trouble_no_two_get_one_address_and_none_is_lost() {
    let seed = seed();
    let (plan, networks, oracle) = (Plan::of(seed), networks(), Oracle::default());
    let bed = Bed::new();
    let control = bed.control("first");
    let machines = prepare(&bed, &networks, seed);
    let mut workers: Vec<Worker<'_, '_>> = machines
        .iter()
        .flat_map(|machine| (0..WORKERS_A_NODE).map(move |worker| (machine, worker)))
        .map(|(machine, worker)| Worker::new(machine, worker, &networks, &oracle))
        .collect();
    say("everything was started; the trouble begins");

    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut foreign = Foreign::new(&bed, &networks, &oracle, seed);
    thread::scope(|scope| {
        let (bed, machines, done, over) = (&bed, &machines, &done, &over);
        let trouble = &plan.trouble;
        scope.spawn(move || make_trouble(bed, machines, control, trouble, done, over));
        scope.spawn(|| foreign.work(over));
        // Nobody waits for what a worker that panicked would have done.
        let _over = Over(over);
        let doubts = Doubts::begin(machines);
        thread::scope(|scope| {
            for (worker, acts) in workers.iter_mut().zip(&plan.work) {
                scope.spawn(move || worker.work(acts, done));
            }
        });
        drop(doubts);
    });
    say(&format!("the trouble is over: {:?}, {} live", oracle.count(), oracle.living().len()));
    say(&format!("calls, their middle and longest time in ms:\n{}", oracle.times()));
    say(&calls(&machines));
    assert_eq!(oracle.wrong(), Vec::<String>::new());
    oracle.count().is_enough();

    agree(&bed, &machines, &networks, &oracle);
    thread::scope(|scope| {
        for machine in machines.iter().step_by(2) {
            scope.spawn(|| {
                machine.node.crash();
                machine.node.start();
                machine.node.serving();
            });
        }
    });
    say("half of the agents were dropped and started once more");
    each(&mut workers, |worker| worker.repeat_all());
    assert_eq!(oracle.wrong(), Vec::<String>::new());
    agree(&bed, &machines, &networks, &oracle);
    each(&mut workers, Worker::end_all);
    assert_eq!(oracle.wrong(), Vec::<String>::new());
    assert!(oracle.living().is_empty());
    agree(&bed, &machines, &networks, &oracle);
    say(&format!("all went and nothing is left: {:?}", oracle.count()));
}

/// Names of all pods, and where they run.
fn all_pods() -> impl Iterator<Item = (String, usize)> {
    let workers = (0..NODES).flat_map(|machine| (0..WORKERS_A_NODE).map(move |worker| (machine, worker)));
    workers.flat_map(|(machine, worker)| (0..PODS).map(move |pod| (pod_name(machine, worker, pod), machine)))
}

/// Networks, nodes with their agents, and the pods that will come and go.
fn prepare<'b>(bed: &'b Bed, networks: &[Network], seed: u64) -> Vec<Machine<'b>> {
    let names: Vec<String> = (0..NODES).map(|number| format!("node{number:02}")).collect();
    bed.make_nodes(&names);
    let mut pods: Vec<(String, String)> =
        all_pods().map(|(name, machine)| (name, names[machine].clone())).collect();
    pods.push((foreign::POD.to_owned(), names[0].clone()));
    bed.make_pods(&pods);
    for network in networks {
        bed.attach(network.name, &network.config);
    }
    let machine = |(number, name): (usize, &String)| {
        let node = Node::new(bed, name, seed.wrapping_add(number as u64));
        Machine { number, node, quiet: RwLock::default() }
    };
    let machines: Vec<Machine<'b>> = names.iter().enumerate().map(machine).collect();
    thread::scope(|scope| {
        for machine in &machines {
            scope.spawn(|| {
                machine.node.start();
                machine.node.serving();
            });
        }
    });
    for pool in networks.iter().filter(|network| network.sliced).flat_map(Network::slice_pools) {
        bed.sliced(&pool, &names);
    }
    // Somebody who writes as Whereabouts does knows others' addresses by their reservations alone, and these are made
    // from when both of the ranges that overlap are there.
    let primer = Interface::in_container(&pod_name(0, 0, 0), "primer").named("net0");
    let lapped = || networks.iter().filter(|network| network.domain == "lapped");
    lapped().for_each(|network| drop(machines[0].node.add(&primer, &network.config)));
    lapped().for_each(|network| machines[0].node.del(&primer, &network.config));
    machines
}

/// Waits until nothing differs any more, anywhere; what nobody said the end of is collected.
fn agree(bed: &Bed, machines: &[Machine<'_>], networks: &[Network], oracle: &Oracle) {
    thread::scope(|scope| {
        for machine in machines {
            scope.spawn(|| {
                for (number, network) in networks.iter().enumerate() {
                    while collect(machine, network, number, oracle).is_later() {
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            });
        }
    });
    let (began, living) = (now(), oracle.living());
    // From here on the pods say what they have, and the controller takes away what is left of attempts that failed.
    let mut pods: BTreeMap<String, Vec<IpAddr>> = all_pods().map(|(name, _)| (name, Vec::new())).collect();
    for it in &living {
        let pod = it.podref.trim_start_matches("default/").to_owned();
        pods.entry(pod).or_default().extend(&it.addresses);
    }
    bed.tell_status(&pods);
    loop {
        let found = verdict::of(bed, machines, networks, &living);
        let waited = now().saturating_sub(began);
        if found.is_empty() {
            return say(&format!("everything agrees, after {:.1} s", waited.as_secs_f64()));
        }
        assert!(waited < PATIENCE, "waited {PATIENCE:?} for everything to agree:\n{}", found.join("\n"));
        thread::sleep(Duration::from_millis(200));
    }
}

/// What the API server was asked by agents.
fn calls(machines: &[Machine<'_>]) -> String {
    let mut all = Vec::new();
    for resource in ["ippools", "overlappingrangeipreservations", "nodeslicepools", "pods"] {
        for verb in
            [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete]
        {
            let of = Calls::of(verb).to(resource);
            let asked: u64 = machines.iter().map(|machine| machine.node.faults.tally(&of).asked).sum();
            all.push(format!("{verb:?} {resource}: {asked}"));
        }
    }
    format!("agents have asked: {}", all.join(", "))
}

/// Lets all workers do something at once.
fn each<'a, 'b: 'a>(workers: &mut [Worker<'a, 'b>], act: impl Fn(&mut Worker<'a, 'b>) + Sync) {
    thread::scope(|scope| {
        for worker in workers {
            let act = &act;
            scope.spawn(move || act(worker));
        }
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl oracle::Count {
    /// A run in which little happened proves little.
    fn is_enough(self) {
        let enough = self.adds > NODES * NETWORKS / 2 && self.repeated > 0 && self.checks > 0;
        assert!(enough && self.dels > NODES && self.collections > 0 && self.foreign > 0, "{self:?}");
    }
}
