//! Policies, the pool that they share, and the nodes that they select change at random, while agents, controllers, the API server,
//! etcd and the ways between them fail at random, the API server refuses or takes ten seconds, and nodes are deleted and made
//! again. At no time do two interfaces have one address. Afterwards policies, enactments, the pool's record and interfaces agree, and
//! in the end nothing is left. Needs root, iproute2, etcd and kube-apiserver.
//!
//! One number decides what is done and what goes wrong; when exactly, the machine does. It is printed, and can be given
//! again: `TENURE_SEED=n cargo test -p tenure-tests --test node_addresses_chaos`.

mod bed;
mod plan;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use bed::{ChaosBed, INTERFACES, NAMES};
use plan::{CONTROLLERS, ENDS, NODES, POLICIES, Plan};
use tenure_api::nmstate::NodeNetworkConfigurationPolicy as Policy;
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::{Port, Segment};
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::course::{say, seed, until};
use tenure_tests::chaos::objects::ask;
use tenure_tests::chaos::programs::{Agent, Programs};
use tenure_tests::chaos::proxy::{Mood, Proxy};
use tenure_tests::chaos::run::{FailureReport, last_lines, look_until_over};

/// The time between two looks at the interfaces.
const LOOK: Duration = Duration::from_millis(20);

#[test]
fn no_two_nodes_have_one_address_everything_agrees_and_nothing_is_left() {
    let seed = seed();
    let plan = Plan::of(seed);
    let options = ControlPlaneOptions::default().without_controller_manager();
    let cluster = Cluster::without_controller(options);
    let proxy = Proxy::before(&cluster, seed);
    let cluster = cluster.behind(proxy.address);
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = Machine::several(&cluster, &wire, NODES);
    let second = Segment::new("second").unwrap();
    let mut ports: Vec<Port> = Vec::new();
    for machine in &mut machines {
        machine.arguments =
            ["--node-probe", "2s", "--dbus-socket", "/no/such/socket"].map(str::to_owned).to_vec();
        ports.extend(INTERFACES.map(|name| second.connect(&machine.host, name, &[]).unwrap()));
    }
    let bed = ChaosBed::new(&cluster, &machines);
    (0..NODES).for_each(|node| bed.bind_pod(node));
    let told = ["--missing-node-rest=3s", "--cooling=2s"];
    let programs =
        Programs::start(&cluster, machines.iter().map(Agent::start).collect(), CONTROLLERS, &told, proxy);
    let agents = || {
        let logs = programs.agents.iter().map(|agent| {
            format!("the log of {}:\n{}", agent.machine.name, last_lines(&agent.machine.log(), 30))
        });
        logs.collect::<Vec<_>>().join("\n")
    };
    let report = FailureReport { programs: &programs, test: "node_addresses_chaos", seed, more: &agents };
    // A controller defines policies; before, there is no such path.
    let policies = bed.api::<Policy>();
    ask(&cluster, &[], async || policies.list(&kube::api::ListParams::default()).await);
    bed.make_pool(ENDS[0]);
    for policy in 0..POLICIES {
        bed.make_policy(policy);
        (0..NODES).for_each(|node| bed.select(node, policy, true));
    }

    say("everything was started; the chaos begins");
    chaos(&plan, &programs, &bed);
    say(&format!("the chaos is over; what went wrong beside: {:?}", programs.struck.counted()));
    assert_eq!(bed.wrong(), Vec::<String>::new());
    programs.struck.assert_each(&Mood::ALL.map(Mood::name));
    programs.struck.assert_each(&["nodes made again"]);
    programs.assert_all_struck(&plan.trouble);

    bed.grow();
    for policy in 0..POLICIES {
        bed.make_policy(policy);
        (0..NODES).for_each(|node| bed.select(node, policy, true));
    }
    heal(&programs, &bed);
    say("everything agrees");
    programs.agents.iter().for_each(Agent::restart);
    heal(&programs, &bed);
    say("the same after all agents were killed once more");
    for policy in NAMES {
        _ = bed.delete::<Policy>(policy);
    }
    until("all addresses to be given back", || {
        bed.look();
        verdict::left(&programs, &bed)
    });
    assert_eq!(bed.wrong(), Vec::<String>::new());
    say("nothing is left");
    drop(report);
}

/// Does the plan, and looks at the interfaces all the time.
fn chaos(plan: &Plan, programs: &Programs<'_>, bed: &ChaosBed<'_>) {
    let (blame, looking) = (|what| bed.blame(what), look_until_over(LOOK, || bed.look()));
    programs.upset(&plan.trouble, &plan.spells, &blame, &[&looking], |done| {
        thread::scope(|scope| {
            for steps in &plan.work {
                scope.spawn(move || {
                    for step in steps {
                        bed.perform(*step);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
    });
}

/// Waits until nothing differs any more, anywhere.
fn heal(programs: &Programs<'_>, bed: &ChaosBed<'_>) {
    until("everything to agree", || {
        bed.look();
        verdict::different(programs, bed)
    });
    assert_eq!(bed.wrong(), Vec::<String>::new());
}
