//! A thousand ADDs and DELs on four agents and two controllers against one API server, while agents, controllers, the API
//! server, etcd and the ways between them fail at random, the API server refuses or takes ten seconds, nodes are deleted and made
//! again, run directories are removed under running containers, agents' wall clocks are set hours ahead and back, and pools grow
//! into each other. Needs root, iproute2, etcd, kube-apiserver and cc.
//!
//! One number decides what is done and what goes wrong; when exactly, the machine does. It is printed, and can be given
//! again: `TENURE_SEED=n cargo test -p tenure-tests --test chaos`.

mod oracle;
mod plan;
mod verdict;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use oracle::{Living, Oracle};
use plan::{CONTROLLERS, LOSES_JOURNAL, NODES, Plan, Pool, WITH_POD, WORKERS};
use serde_json::json;
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::Segment;
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::clock::{self, Clocks};
use tenure_tests::chaos::course::{now, say, seed, until, until_within};
use tenure_tests::chaos::egress::Egress;
use tenure_tests::chaos::objects;
use tenure_tests::chaos::pods;
use tenure_tests::chaos::programs::{Agent, CLOCKS_SET, Programs};
use tenure_tests::chaos::proxy::{Mood, Proxy};
use tenure_tests::chaos::run::{FailureReport, each};
use work::Worker;

/// How long a freed address cools.
const COOLING: Duration = Duration::from_secs(3);
/// Agents that lost a journal ask around twice, half a minute apart, and again after two minutes as long as somebody is found whom
/// nobody knows.
const DOUBT: Duration = Duration::from_mins(5);
/// A pool grows after this, whatever is done.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

#[test]
fn after_a_thousand_adds_and_dels_in_chaos_everything_agrees_and_still_works() {
    let seed = seed();
    let plan = Plan::of(seed);
    let directory = tempfile::tempdir().unwrap();
    let egress = Egress::open(directory.path());
    let cluster = Cluster::without_controller(
        egress.used_by(ControlPlaneOptions::default().without_controller_manager()),
    );
    let proxy = Proxy::before(&cluster, seed);
    let cluster = cluster.behind(proxy.address);
    cluster.pool("default", 3, json!([Pool::Default.first()]));
    cluster.tenant("small", 1, json!([Pool::Small.first()]));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = Machine::several(&cluster, &wire, NODES);
    for machine in &mut machines {
        let cooling = format!("{}s", COOLING.as_secs());
        machine.arguments = ["--cooling", &cooling, "--rest", "2s"].map(str::to_owned).to_vec();
    }
    egress.serve(cluster.runtime.handle(), &machines);
    for node in WITH_POD {
        pods::make(&cluster, &pods::of_agent(&machines[node]));
    }
    let clocks = Clocks::new();
    let told = ["--missing-node-rest=10s"];
    let agents = machines.iter().map(|machine| Agent::with_clock(machine, Some(clocks.make(&machine.name))));
    let programs = Programs::start(&cluster, agents.collect(), CONTROLLERS, &told, proxy);
    let oracle = Oracle::new(COOLING);
    let mut workers: Vec<Worker<'_>> = (0..WORKERS)
        .map(|number| Worker::new(number, number % NODES, &machines[number % NODES], &oracle))
        .collect();
    let report = FailureReport { programs: &programs, test: "chaos", seed, more: &String::new };

    say("everything was started; the chaos begins");
    chaos(&plan, &programs, &mut workers, &oracle);
    say(&format!("the chaos is over: {:?}, {} live", oracle.count(), oracle.living().len()));
    assert_eq!(oracle.wrong(), Vec::<String>::new());
    say(&format!("what went wrong beside: {:?}", programs.struck.counted()));
    programs.struck.assert_each(&["nodes made again", "pools grown", "lost journals"]);
    programs.struck.assert_each(&Mood::ALL.map(Mood::name));
    programs.struck.assert_each(&CLOCKS_SET);
    programs.assert_all_struck(&plan.trouble);
    clock::assert_set(&machines);
    assert!(oracle.count().grown > 0, "{:?}", oracle.count());
    heal(&programs, &machines, &workers, &oracle);
    say("everything agrees");
    let differences = verdict::of_check(&cluster, &machines, &oracle.living());
    assert_eq!(differences, None, "tenure check");

    // Journal, kernel and API agree, whichever of them an agent asks.
    programs.agents.iter().for_each(Agent::restart);
    heal(&programs, &machines, &workers, &oracle);
    say("everything agrees after all agents were killed once more");

    each(&mut workers, |worker| {
        worker.start_more(5);
        worker.ping_each_other();
    });
    say(&format!("{} live and reach each other", oracle.living().len()));
    heal(&programs, &machines, &workers, &oracle);
    each(&mut workers, Worker::end_all);
    verdict::remove_pods(&cluster, [Pool::Default, Pool::Small].map(Pool::name));
    heal(&programs, &machines, &workers, &oracle);
    let spare = |machine: &Machine<'_>| {
        let blocks = machine.blocks();
        let of = |pool: &str| blocks.iter().filter(|name| name.starts_with(pool)).count();
        (of("default-") > 1 || of("small-") > 1).then(|| format!("{} has {blocks:?}", machine.name))
    };
    // Those that lost a journal keep their blocks until they have asked around.
    let kept: Vec<_> = (0..NODES).filter(|node| !LOSES_JOURNAL.contains(node)).collect();
    until("blocks to go back", || kept.iter().filter_map(|node| spare(&machines[*node])).collect());
    say("blocks went back where no journal was lost");
    until_within(DOUBT, "agents to know again who uses what", || {
        LOSES_JOURNAL.into_iter().filter_map(|node| verdict::doubts(&machines[node])).collect()
    });
    say("nothing is doubted any more");
    until("all blocks to go back", || machines.iter().filter_map(spare).collect());
    heal(&programs, &machines, &workers, &oracle);
    assert_eq!(oracle.wrong(), Vec::<String>::new());
    say(&format!("all went and nothing is left: {:?}", oracle.count()));
    drop(report);
}

/// Does the plan.
fn chaos(plan: &Plan, programs: &Programs<'_>, workers: &mut [Worker<'_>], oracle: &Oracle) {
    let blame = |what| oracle.blame(what);
    let growing = |done: &AtomicUsize, over: &AtomicBool| grow(plan, programs, done, over);
    programs.upset(&plan.trouble, &plan.spells, &blame, &[&growing], |done| {
        thread::scope(|scope| {
            for (worker, steps) in workers.iter_mut().zip(&plan.work) {
                scope.spawn(move || worker.work(steps, done));
            }
        });
    });
}

/// Lets pools grow, each when so many steps are done: or sooner, because workers may wait for it.
fn grow(plan: &Plan, programs: &Programs<'_>, done: &AtomicUsize, over: &AtomicBool) {
    for growth in &plan.growth {
        let began = now();
        while done.load(Ordering::SeqCst) < growth.after
            && now().saturating_sub(began) < LONGEST_WAIT
            && !over.load(Ordering::SeqCst)
        {
            thread::sleep(Duration::from_millis(10));
        }
        objects::grow(programs.cluster, growth.pool.name(), &growth.subnet, &programs.struck);
    }
}

/// Waits until nothing differs any more, anywhere.
fn heal(programs: &Programs<'_>, machines: &[Machine<'_>], workers: &[Worker<'_>], oracle: &Oracle) {
    let living = oracle.living();
    until("the agents to collect", || verdict::collect(machines, &living));
    until("everything to agree", || {
        let mut found = programs.ended();
        for (node, machine) in machines.iter().enumerate() {
            let here: Vec<&Living> = living.iter().filter(|it| it.node == node).collect();
            found.extend(verdict::of_node(machine, &here));
        }
        found.extend(verdict::of_objects(programs.cluster));
        found.extend(workers.iter().flat_map(Worker::left_over));
        if found.is_empty() {
            found.extend(workers.iter().flat_map(Worker::unlike_told));
        }
        found
    });
}
