//! Random claims, pods, moves and deletions on three hosts made of namespaces, on a routed pool and on ranges with and
//! without slices, while agents, controllers, the API server and the ways between them fail at random, the API server refuses
//! or takes ten seconds, nodes are deleted and made again, agents' wall clocks are set hours ahead and back, pods' annotations
//! lie, and somebody hostile makes definitions and forges claims. Afterwards every address has one holder or none, every claim
//! what its status says, and no route is without its pod. Needs root, iproute2, etcd, kube-apiserver, cc and the reference
//! plugins.
//!
//! One number decides what is done and what goes wrong; when exactly, the machine does. It is printed, and can be given
//! again: `TENURE_SEED=n cargo test -p tenure-tests --test claims_chaos`.

mod hostile;
mod networks;
mod oracle;
mod place;
mod plan;
mod verdict;
mod work;

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kube::api::ListParams;
use networks::Network;
use oracle::Oracle;
use place::ChaosBed;
use plan::{CONTROLLERS, NODES, Plan};
use serde_json::json;
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::PATIENCE;
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::clock::{self, Clocks};
use tenure_tests::chaos::course::{say, seed, until, until_within};
use tenure_tests::chaos::programs::{Agent, CLOCKS_SET, Programs};
use tenure_tests::chaos::proxy::{Mood, Proxy};
use tenure_tests::chaos::run::{FailureReport, each, look_until_over};
use verdict::Objects;
use work::Worker;

/// How often all claims are looked at.
const LOOK: Duration = Duration::from_millis(200);

#[test]
fn after_claims_and_moves_in_chaos_every_address_has_one_holder_or_none_and_every_route_its_pod() {
    let seed = seed();
    let plan = Plan::of(seed);
    let cluster = Cluster::without_controller(ControlPlaneOptions::default().without_controller_manager());
    let proxy = Proxy::before(&cluster, seed);
    let cluster = cluster.behind(proxy.address);
    place::define_networks(&cluster);
    cluster.namespace(hostile::NAMESPACE, None);
    cluster.pool("default", 3, json!([{"ipv4": "10.64.0.0/22", "ipv6": "fd64::/118"}]));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = Machine::several(&cluster, &wire, NODES);
    for (number, machine) in machines.iter_mut().enumerate() {
        let arguments = ["--route-blocks", "--cooling", "2s", "--rest", "2s"];
        machine.arguments = arguments.map(str::to_owned).to_vec();
        for network in Network::ALL {
            let own = network.of_host(number);
            machine.host.address("uplink", &own.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        }
    }
    let clocks = Clocks::new();
    let told =
        ["--cluster-network", Network::Routed.name(), "--cooling=2s", "--rest=3s", "--missing-node-rest=3s"];
    let agents = machines.iter().map(|machine| Agent::with_clock(machine, Some(clocks.make(&machine.name))));
    let programs = Programs::start(&cluster, agents.collect(), CONTROLLERS, &told, proxy);
    let (oracle, plugins) = (Oracle::default(), place::plugins());
    let place = ChaosBed {
        cluster: &cluster,
        machines: &machines,
        oracle: &oracle,
        struck: &programs.struck,
        plugins: plugins.path(),
        lost: Mutex::default(),
    };
    let mut workers: Vec<Worker<'_>> =
        plan.lanes.iter().enumerate().map(|(number, lane)| Worker::new(number, lane, &place)).collect();
    let objects = || {
        let objects = Objects::read(&place).map_or_else(|error| error, |objects| objects.told());
        format!("the API has:\n{objects}")
    };
    let report = FailureReport { programs: &programs, test: "claims_chaos", seed, more: &objects };
    say("everything was started; the chaos begins");

    chaos(&plan, &programs, &mut workers, &place);
    let living = oracle.living();
    say(&format!("the chaos is over: {:?}, {} live", oracle.count(), living.len()));
    let forgotten = living.iter().filter(|it| it.claim.is_some() && place.is_forgotten(it)).count();
    say(&format!("{forgotten} pods with claims live that their agent has forgotten"));
    assert_eq!(oracle.wrong(), Vec::<String>::new());
    oracle.count().is_enough();
    say(&format!("what went wrong beside: {:?}", programs.struck.counted()));
    programs.struck.assert_each(&Mood::ALL.map(Mood::name));
    programs.struck.assert_each(&["nodes made again", "hostile definitions", "forged claims"]);
    programs.struck.assert_each(&CLOCKS_SET);
    programs.assert_all_struck(&plan.trouble);
    clock::assert_set(&machines);
    heal(&programs, &workers, &place);
    say("everything agrees");
    programs.agents.iter().for_each(Agent::restart);
    heal(&programs, &workers, &place);
    say("everything agrees after all agents were killed once more");

    each(&mut workers, Worker::end_all);
    until("everything to go", || {
        let objects = Objects::read(&place);
        let mut found = objects.map_or_else(|error| vec![error], |objects| objects.left_over());
        found.extend(different(&programs, &workers, &place));
        found
    });
    assert_eq!(oracle.wrong(), Vec::<String>::new());
    say(&format!("all went and nothing is left: {:?}", oracle.count()));
    drop(report);
}

/// Does the plan, and looks at all claims all the time.
fn chaos(plan: &Plan, programs: &Programs<'_>, workers: &mut [Worker<'_>], place: &ChaosBed<'_>) {
    let (struck, blame) = (&programs.struck, |what| place.oracle.blame(what));
    let looking = look_until_over(LOOK, || look(place));
    let defining = |done: &AtomicUsize, over: &AtomicBool| {
        hostile::define(place, &plan.definitions, (done, over), struck);
    };
    let forging = |done: &AtomicUsize, over: &AtomicBool| {
        hostile::forge(place, &plan.forgeries, (done, over), struck);
    };
    programs.upset(&plan.trouble, &plan.spells, &blame, &[&looking, &defining, &forging], |done| {
        thread::scope(|scope| {
            for worker in workers {
                scope.spawn(move || worker.work(done));
            }
        });
    });
}

fn look(place: &ChaosBed<'_>) {
    let (settled, claims, all) = (place.oracle.all_settled(), place.claims(), ListParams::default());
    let listed = async { tokio::time::timeout(Duration::from_secs(5), claims.list(&all)).await };
    if let Ok(Ok(claims)) = place.cluster.runtime.block_on(listed) {
        place.oracle.saw(&claims.items, &settled);
    }
}

/// Waits until nothing differs any more, anywhere; what nobody said the end of is collected.
fn heal(programs: &Programs<'_>, workers: &[Worker<'_>], place: &ChaosBed<'_>) {
    until("the agents to collect", || place.collect());
    until_within(PATIENCE, "everything to agree", || different(programs, workers, place));
    assert_eq!(place.oracle.wrong(), Vec::<String>::new());
}

fn different(programs: &Programs<'_>, workers: &[Worker<'_>], place: &ChaosBed<'_>) -> Vec<String> {
    let (mut found, living) = (programs.ended(), place.oracle.living());
    let objects = match Objects::read(place) {
        Ok(objects) => objects,
        Err(error) => return vec![error],
    };
    found.extend(objects.unlike(&living));
    for node in 0..place.machines.len() {
        found.extend(verdict::of_node(place, &objects, &living, node));
    }
    found.extend(workers.iter().flat_map(Worker::unlike_told));
    if found.is_empty() {
        found.extend(verdict::unreached(place, &objects));
    }
    found
}

impl oracle::Count {
    /// A run in which little happened proves little.
    fn is_enough(self) {
        assert!(
            self.adds > 20 && self.claims > 12 && self.moves > 10 && self.looks > 20 && self.lies > 0,
            "{self:?}"
        );
    }
}
