//! Pods with alias addresses start, move between machines and end at random, while agents, controllers and the API server fail at random and
//! the cloud refuses, forgets, takes long and never ends. At no time is an address on two machines, or taken from the pod that was told it.
//! Afterwards machines, records and pods agree, and in the end nothing is left. Needs root, iproute2, etcd, kube-apiserver and the
//! reference plugins.
//!
//! One number decides what is done and what goes wrong; when exactly, the machine does. It is printed, and can be given
//! again: `TENURE_SEED=n cargo test -p tenure-tests --test cloud_chaos`.

mod bed;
mod plan;
mod verdict;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bed::{ChaosBed, ELSEWHERE, WARM, ZONES};
use plan::{CONTROLLERS, NODES, Plan, WORKERS};
use serde_json::json;
use tenure_testbed::compute::Settings;
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::Segment;
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::course::{say, seed, until};
use tenure_tests::chaos::programs::{Agent, Programs};
use tenure_tests::chaos::proxy::Proxy;
use tenure_tests::chaos::run::FailureReport;
use tenure_tests::chaos::trouble::Target;
use tenure_tests::cloud::{self, Cloud};
use work::Worker;

#[test]
fn no_address_is_on_two_machines_none_is_lost_and_no_alias_is_left() {
    let seed = seed();
    let plan = Plan::of(seed);
    let cluster = Cluster::without_controller(ControlPlaneOptions::default().without_controller_manager());
    let proxy = Proxy::before(&cluster, seed);
    let cluster = cluster.behind(proxy.address);
    cluster.namespace(ELSEWHERE, None);
    let millis = Duration::from_millis;
    let settings = Settings {
        update: millis(50)..millis(400),
        arrival: millis(5)..millis(50),
        seed,
        ..Settings::default()
    };
    let cloud = Cloud::start(&cluster, settings);
    Cloud::pool(&cluster, &json!({"cidr": "10.111.0.0/26", "warm": WARM, "cooling": "1s"}));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = Machine::several(&cluster, &wire, NODES);
    for (machine, zone) in machines.iter_mut().zip(ZONES) {
        machine.arguments = ["--cooling", "1s", "--rest", "2s"].map(str::to_owned).to_vec();
        cloud.join(machine, zone);
    }
    cloud.connect(&machines);
    let told = cloud.arguments();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let programs =
        Programs::start(&cluster, machines.iter().map(Agent::start).collect(), CONTROLLERS, &told, proxy);
    let (network, _plugins) = cloud::network();
    let bed = ChaosBed::new(&cluster, &machines, &cloud, &network);
    let mut workers: Vec<Worker<'_>> = (0..WORKERS).map(|number| Worker::new(number, &bed)).collect();
    let report = FailureReport { programs: &programs, test: "cloud_chaos", seed, more: &String::new };

    say("everything was started; the chaos begins");
    chaos(&plan, &programs, &bed, &mut workers);
    let (moves, updates) = (bed.moves.load(Ordering::SeqCst), cloud.updates());
    let adds = bed.promises().len();
    say(&format!(
        "the chaos is over: {adds} ADDs, {moves} moves, {updates} updates; what went wrong: {:?}",
        programs.struck.counted()
    ));
    assert_eq!(bed.wrong(), Vec::<String>::new());
    assert!(moves > WORKERS && adds > 2 * WORKERS, "little happened");
    programs.assert_all_struck(&plan.trouble);
    let weather: Vec<&str> = plan.weather.iter().map(|(_, it)| it.name()).collect();
    let met = programs.struck.counted();
    let unmet = weather.iter().filter(|name| !met.contains_key(*name)).count();
    assert!(unmet * 3 < weather.len(), "the cloud was too kind: {met:?}");

    // Nobody comes any more for what pods left behind.
    bed.change_pool(&json!({"moveTimeout": "1s"}));
    heal(&plan, &programs, &bed, &workers);
    until("pods to be reached", || verdict::unreached(&bed, &workers));
    say("everything agrees, and all pods are reached");
    programs.agents.iter().for_each(Agent::restart);
    heal(&plan, &programs, &bed, &workers);
    say("the same after all agents were killed once more");
    workers.iter_mut().for_each(Worker::end_all);
    bed.change_pool(&json!({"warm": 0}));
    until("all aliases to go", || verdict::left(&bed));
    assert_eq!(bed.wrong(), Vec::<String>::new());
    assert_eq!(verdict::history(&bed, starts(&plan)), Vec::<String>::new());
    say("nothing is left");
    drop(report);
}

/// Does the plan.
fn chaos(plan: &Plan, programs: &Programs<'_>, bed: &ChaosBed<'_>, workers: &mut [Worker<'_>]) {
    let blame = |what| bed.blame(what);
    let weather = |done: &AtomicUsize, over: &AtomicBool| {
        bed.weather(&plan.weather, done, over, &programs.struck);
    };
    programs.upset(&plan.trouble, &[], &blame, &[&weather], |done| {
        thread::scope(|scope| {
            for (worker, steps) in workers.iter_mut().zip(&plan.work) {
                scope.spawn(move || worker.work(steps, done));
            }
        });
    });
    bed.cloud.fake.calm();
}

/// How often controllers are started again.
fn starts(plan: &Plan) -> usize {
    let controllers = plan.trouble.iter().filter(|(target, _)| matches!(target, Target::Controller(_)));
    controllers.map(|(_, faults)| faults.len()).sum()
}

/// Waits until nothing differs any more, anywhere.
fn heal(plan: &Plan, programs: &Programs<'_>, bed: &ChaosBed<'_>, workers: &[Worker<'_>]) {
    until("everything to agree", || verdict::different(programs, bed, workers));
    assert_eq!(bed.wrong(), Vec::<String>::new());
    assert_eq!(verdict::history(bed, starts(plan)), Vec::<String>::new());
}
