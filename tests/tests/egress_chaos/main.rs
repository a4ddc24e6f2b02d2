//! Clients, Egresses, Services and a gateway come, change and go at random on three hosts made of namespaces, while agents,
//! controllers, the API server, etcd and the ways between them fail at random, the API server refuses or takes ten seconds, and
//! nodes are deleted and made again. Nobody is ever listed as a client who never asked for it. Afterwards exactly the pods
//! that name an Egress have it, are listed and are served, and in the end nothing is left. Needs root, iproute2, nftables,
//! etcd and kube-apiserver.
//!
//! One number decides what is done and what goes wrong; when exactly, the machine does. It is printed, and can be given
//! again: `TENURE_SEED=n cargo test -p tenure-tests --test egress_chaos`.

mod bed;
mod gateway;
mod plan;
mod verdict;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bed::{ChaosBed, INTERNET};
use gateway::{Gateway, NODE};
use plan::{CONTROLLERS, Change, EGRESSES, NODES, Plan, WORKERS};
use serde_json::json;
use tenure_testbed::control_plane::{ControlPlaneOptions, Part};
use tenure_testbed::hosts::Segment;
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::course::{Over, say, seed, until};
use tenure_tests::chaos::objects::Struck;
use tenure_tests::chaos::programs::{Agent, Controller, Programs};
use tenure_tests::chaos::proxy::{Mood, Proxy};
use tenure_tests::egress::{ip, traffic};
use work::Worker;

/// How often the lists of clients are looked at.
const LOOK: Duration = Duration::from_millis(200);

#[test]
fn after_clients_and_gateways_come_and_go_in_chaos_exactly_those_are_served_who_ask_for_it() {
    let seed = seed();
    say(&format!("TENURE_SEED={seed}"));
    let plan = Plan::of(seed);
    let directory = tempfile::tempdir().unwrap();
    let options = ControlPlaneOptions::default().without_controller_manager();
    let cluster = Cluster::without_controller(options.service_range("10.96.0.0/16,fd96::/112"));
    let proxy = Proxy::before(&cluster, seed);
    let cluster = cluster.behind(proxy.address);
    cluster.pool("default", 3, json!([{"ipv4": "10.64.0.0/22", "ipv6": "fd64::/118"}]));
    cluster.namespace(INTERNET, None);
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines: Vec<Machine<'_>> =
        (1..=NODES).map(|number| Machine::on(&cluster, &wire, u8::try_from(number).unwrap())).collect();
    for machine in &mut machines {
        let arguments = ["--route-blocks", "--cooling", "3s", "--rest", "2s"];
        machine.arguments = arguments.map(str::to_owned).to_vec();
    }
    for outside in verdict::OUTSIDE {
        machines[NODE].host.address("lo", &[&format!("{outside}/{}", prefix(outside))]).unwrap();
        traffic::answer(&machines[NODE].host, ip(outside)).unwrap();
    }
    let bed = ChaosBed::new(&cluster, &machines);
    for node in 0..NODES {
        // As long as a pod is bound to it, a node without an object is in use.
        bed.make_pod("kube-system", &format!("tenured-{node}"), node, &json!({}));
    }
    let told = ["--missing-node-rest=3s", "--egress-image=tenure.test/tenure:1"];
    let programs = Programs {
        cluster: &cluster,
        agents: machines.iter().map(Agent::start).collect(),
        controllers: ["controller-a", "controller-b"][..CONTROLLERS]
            .iter()
            .map(|name| Controller::start(&cluster, name, &told))
            .collect(),
        proxy,
        struck: Struck::default(),
    };
    for egress in 0..EGRESSES.len() {
        bed.make_egress(egress);
    }
    let mut gateway = Gateway::start(&bed, directory.path().to_owned());
    let mut workers: Vec<Worker<'_>> = (0..WORKERS).map(|number| Worker::new(number, &bed)).collect();
    let logs = Logs { programs: &programs, directory: directory.path().to_owned(), seed };

    say("everything was started; the chaos begins");
    chaos(&plan, &programs, &bed, &mut workers, &mut gateway);
    say(&format!("the chaos is over; what went wrong beside: {:?}", programs.struck.counted()));
    assert_eq!(bed.wrong(), Vec::<String>::new());
    programs.struck.assert_each(&Mood::ALL.map(Mood::name));
    programs.struck.assert_each(&["nodes made again"]);
    for (target, _) in &plan.trouble {
        programs.struck.assert_each(&[target.name()]);
    }
    // Both Egresses have clients, whatever the dice said.
    each(&mut workers[..NODES], |worker| worker.name(3));
    heal(&programs, &bed, &workers, &gateway);
    verdict::lead(&bed, &gateway);
    until("clients to be served", || verdict::unserved(&workers, &gateway));
    say("everything agrees, and all clients are served");

    programs.agents.iter().for_each(Agent::restart);
    gateway.restart(Duration::ZERO);
    heal(&programs, &bed, &workers, &gateway);
    until("clients to be served", || verdict::unserved(&workers, &gateway));
    say("the same after all agents and the gateway were killed once more");

    each(&mut workers, Worker::end_all);
    heal(&programs, &bed, &workers, &gateway);
    gateway.end();
    for egress in 0..EGRESSES.len() {
        bed.delete_egress(egress);
    }
    until("all objects to go", || {
        bed.collect();
        bed.children()
    });
    assert_eq!(bed.wrong(), Vec::<String>::new());
    say("all went and nothing is left");
    drop(logs);
}

fn prefix(address: &str) -> u8 {
    if address.contains(':') { 128 } else { 32 }
}

/// Does the plan, and looks at the lists of clients all the time.
fn chaos(
    plan: &Plan,
    programs: &Programs<'_>,
    bed: &ChaosBed<'_>,
    workers: &mut [Worker<'_>],
    gateway: &mut Gateway<'_>,
) {
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (done, over) = (&done, &over);
        for (target, faults) in &plan.trouble {
            scope.spawn(move || programs.trouble(*target, faults, done, over, &|what| bed.blame(what)));
        }
        scope.spawn(move || programs.spells(&plan.spells, done, over));
        scope.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                bed.look();
                thread::sleep(LOOK);
            }
        });
        // Whoever waits for more steps to be done does not wait for those of a worker that panicked.
        let _over = Over(over);
        thread::scope(|scope| {
            scope.spawn(|| {
                for it in &plan.changes {
                    change(*it, bed, gateway);
                }
            });
            for (worker, steps) in workers.iter_mut().zip(&plan.work) {
                scope.spawn(move || worker.work(steps, done));
            }
        });
    });
    programs.revive(Part::Etcd);
    programs.revive(Part::ApiServer);
}

fn change(change: Change, bed: &ChaosBed<'_>, gateway: &mut Gateway<'_>) {
    match change {
        Change::Destinations { egress, choice } => bed.choose(egress, choice),
        Change::Recreate { egress, collect_late, lasts } => {
            bed.delete_egress(egress);
            thread::sleep(lasts);
            if !collect_late {
                bed.collect();
            }
            bed.make_egress(egress);
            bed.collect();
        }
        Change::Service { egress } => bed.delete_service(egress),
        Change::KillGateway { lasts } => gateway.restart(lasts),
        Change::ReplaceGateway => gateway.replace(),
        Change::Rest(time) => thread::sleep(time),
    }
}

/// Lets all workers do something at once.
fn each<'a>(workers: &mut [Worker<'a>], act: impl Fn(&mut Worker<'a>) + Sync) {
    thread::scope(|scope| {
        for worker in workers {
            let act = &act;
            scope.spawn(move || act(worker));
        }
    });
}

/// Waits until nothing differs any more, anywhere.
fn heal(programs: &Programs<'_>, bed: &ChaosBed<'_>, workers: &[Worker<'_>], gateway: &Gateway<'_>) {
    until("everything to agree", || {
        bed.look();
        verdict::different(programs, bed, workers, gateway)
    });
    assert_eq!(bed.wrong(), Vec::<String>::new());
}

/// Says after a failure what is needed to understand it.
struct Logs<'a> {
    programs: &'a Programs<'a>,
    directory: std::path::PathBuf,
    seed: u64,
}

impl Drop for Logs<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.programs.tell();
            let log = std::fs::read_to_string(self.directory.join("gateway.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            say(&format!("the gateway's log:\n{}", lines[lines.len().saturating_sub(40)..].join("\n")));
            let seed = self.seed;
            say(&format!(
                "to see this again: TENURE_SEED={seed} cargo test -p tenure-tests --test egress_chaos"
            ));
        }
    }
}
