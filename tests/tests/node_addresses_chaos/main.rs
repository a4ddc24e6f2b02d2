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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bed::{ChaosBed, INTERFACES, NAMES};
use plan::{CONTROLLERS, ENDS, NODES, POLICIES, Plan};
use tenure_api::nmstate::NodeNetworkConfigurationPolicy as Policy;
use tenure_testbed::control_plane::{ControlPlaneOptions, Part};
use tenure_testbed::hosts::{Port, Segment};
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::course::{Over, say, seed, until};
use tenure_tests::chaos::objects::{Struck, ask};
use tenure_tests::chaos::programs::{Agent, Controller, Programs};
use tenure_tests::chaos::proxy::{Mood, Proxy};

/// The time between two looks at the interfaces.
const LOOK: Duration = Duration::from_millis(20);

#[test]
fn no_two_nodes_have_one_address_everything_agrees_and_nothing_is_left() {
    let seed = seed();
    say(&format!("TENURE_SEED={seed}"));
    let plan = Plan::of(seed);
    let options = ControlPlaneOptions::default().without_controller_manager();
    let cluster = Cluster::without_controller(options);
    let proxy = Proxy::before(&cluster, seed);
    let cluster = cluster.behind(proxy.address);
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines: Vec<Machine<'_>> =
        (1..=NODES).map(|number| Machine::on(&cluster, &wire, u8::try_from(number).unwrap())).collect();
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
    let logs = Logs { programs: &programs, seed };
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
    for (target, _) in &plan.trouble {
        programs.struck.assert_each(&[target.name()]);
    }

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
    drop(logs);
}

/// Does the plan, and looks at the interfaces all the time.
fn chaos(plan: &Plan, programs: &Programs<'_>, bed: &ChaosBed<'_>) {
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
    programs.revive(Part::Etcd);
    programs.revive(Part::ApiServer);
}

/// Waits until nothing differs any more, anywhere.
fn heal(programs: &Programs<'_>, bed: &ChaosBed<'_>) {
    until("everything to agree", || {
        bed.look();
        verdict::different(programs, bed)
    });
    assert_eq!(bed.wrong(), Vec::<String>::new());
}

/// Says after a failure what is needed to understand it.
struct Logs<'a> {
    programs: &'a Programs<'a>,
    seed: u64,
}

impl Drop for Logs<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.programs.tell();
            for agent in &self.programs.agents {
                let log = agent.machine.log();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(30)..].join("\n");
                say(&format!("the log of {}:\n{last}", agent.machine.name));
            }
            let seed = self.seed;
            say(&format!(
                "to see this again: TENURE_SEED={seed} cargo test -p tenure-tests --test node_addresses_chaos"
            ));
        }
    }
}
