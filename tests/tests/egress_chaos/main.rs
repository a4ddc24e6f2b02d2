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
use std::thread;
use std::time::Duration;

use bed::{ChaosBed, INTERNET};
use gateway::{Gateway, NODE};
use plan::{CONTROLLERS, Change, EGRESSES, NODES, Plan, WORKERS};
use serde_json::json;
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::Segment;
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::course::{say, seed, until};
use tenure_tests::chaos::programs::{Agent, Programs};
use tenure_tests::chaos::proxy::{Mood, Proxy};
use tenure_tests::chaos::run::{FailureReport, each, last_lines, look_until_over};
use tenure_tests::egress::{ip, traffic};
use work::Worker;

/// How often the lists of clients are looked at.
const LOOK: Duration = Duration::from_millis(200);

#[test]
fn after_clients_and_gateways_come_and_go_in_chaos_exactly_those_are_served_who_ask_for_it() {
    let seed = seed();
    let plan = Plan::of(seed);
    let directory = tempfile::tempdir().unwrap();
    let options = ControlPlaneOptions::default().without_controller_manager();
    let cluster = Cluster::without_controller(options.service_range("10.96.0.0/16,fd96::/112"));
    let proxy = Proxy::before(&cluster, seed);
    let cluster = cluster.behind(proxy.address);
    cluster.pool("default", 3, json!([{"ipv4": "10.64.0.0/22", "ipv6": "fd64::/118"}]));
    cluster.namespace(INTERNET, None);
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = Machine::several(&cluster, &wire, NODES);
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
    let programs =
        Programs::start(&cluster, machines.iter().map(Agent::start).collect(), CONTROLLERS, &told, proxy);
    for egress in 0..EGRESSES.len() {
        bed.make_egress(egress);
    }
    let mut gateway = Gateway::start(&bed, directory.path().to_owned());
    let mut workers: Vec<Worker<'_>> = (0..WORKERS).map(|number| Worker::new(number, &bed)).collect();
    let gateways = || {
        let log = std::fs::read_to_string(directory.path().join("gateway.log")).unwrap_or_default();
        format!("the gateway's log:\n{}", last_lines(&log, 40))
    };
    let report = FailureReport { programs: &programs, test: "egress_chaos", seed, more: &gateways };

    say("everything was started; the chaos begins");
    chaos(&plan, &programs, &bed, &mut workers, &mut gateway);
    say(&format!("the chaos is over; what went wrong beside: {:?}", programs.struck.counted()));
    assert_eq!(bed.wrong(), Vec::<String>::new());
    programs.struck.assert_each(&Mood::ALL.map(Mood::name));
    programs.struck.assert_each(&["nodes made again"]);
    programs.assert_all_struck(&plan.trouble);
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
    drop(report);
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
    let (blame, looking) = (|what| bed.blame(what), look_until_over(LOOK, || bed.look()));
    programs.upset(&plan.trouble, &plan.spells, &blame, &[&looking], |done| {
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

/// Waits until nothing differs any more, anywhere.
fn heal(programs: &Programs<'_>, bed: &ChaosBed<'_>, workers: &[Worker<'_>], gateway: &Gateway<'_>) {
    until("everything to agree", || {
        bed.look();
        verdict::different(programs, bed, workers, gateway)
    });
    assert_eq!(bed.wrong(), Vec::<String>::new());
}
