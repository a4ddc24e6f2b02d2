//! TCP connections live through moves of an alias from machine to machine.
//!
//! The mover stops the pod, makes the next one, and goes on with the connections there once its ADD is answered. So the connections are
//! silent while the cloud removes the alias from one machine and adds it to the other: what is left of the silence without the cloud's own
//! time and the mover's is ours.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_testbed::compute::Plane;
use tenure_testbed::hosts::{Host, Segment};
use tenure_testbed::traffic::Talking;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::agent::Machine;
use tenure_tests::cloud::{aliases_of, delay_of_move};
use tenure_tests::moves::{Blackouts, Placed, Traffic, now, resets, say};

use crate::stage::{Stage, ZONES, takes_over};

/// How much a pod that goes on is let talk before it moves again.
const A_WHILE: Duration = Duration::from_millis(150);

/// Keeps everything out of a pod until its connections are there: otherwise the kernel would answer with resets. CRIU does the same.
struct Lock<'a>(&'a Host);

impl<'a> Lock<'a> {
    fn on(pod: &'a Host) -> Self {
        // Rules are looked at in order, so that the table of local addresses is not the first any more.
        pod.ip("rule add pref 100 lookup local\nrule del pref 0 lookup local\nrule add pref 10 iif eth0 blackhole")
            .unwrap();
        Self(pod)
    }

    fn open(self) {
        self.0.ip("rule del pref 10").unwrap();
    }
}

/// Carries the connections of a pod to the next one, which has its address when its ADD is answered. `leave` is what happens to the source
/// once the pod has stopped; it says whether its machine is still there.
fn carry<'a>(
    stage: &Stage,
    traffic: &mut Traffic,
    talking: Vec<Talking>,
    from: &Placed<'_>,
    (to, name): (&'a Machine<'a>, &str),
    leave: impl FnOnce() -> bool,
) -> (Placed<'a>, Vec<Talking>) {
    let address = traffic.addresses[0];
    let stopped = now();
    let frozen = traffic.stop(talking);
    let is_there = leave();
    let leaving = now();
    let pod = stage.pod(to, name, &takes_over(address, &from.machine.name));
    let lock = Lock::on(&pod.network);
    assert_eq!(pod.add(), [address], "the address moves with the pod");
    let added = now();
    traffic.take_over(&frozen, pod.network.namespace());
    let mut talking = traffic.go_on(&pod);
    lock.open();
    let gone_on = now();
    let mut blackouts = Blackouts::default();
    traffic.measure(&pod, gone_on, PATIENCE, &mut blackouts);
    // In the middle of a repair, so that nobody is told.
    drop(frozen);
    blackouts.hear(traffic, &mut talking, gone_on);
    let (log, changes) = (stage.cloud.fake.log(), stage.cloud.fake.changes());
    let source = Some(from.machine.name.as_str()).filter(|_| is_there);
    let delay = delay_of_move(&log, &changes, address, (source, &to.name), stopped).unwrap();
    let millis = |it: Duration| format!("{:.0} ms", it.as_secs_f64() * 1e3);
    let silent = (gone_on + blackouts.questions[0]).saturating_sub(stopped);
    let freeze = leaving.saturating_sub(stopped) + gone_on.saturating_sub(added);
    say(&format!(
        "{address} moved from {} to {}: silent for {}, of which freeze {}, cloud {} (removal {}, addition {}, arrival {}); beyond both {}",
        from.machine.name,
        to.name,
        millis(silent),
        millis(freeze),
        millis(delay.sum()),
        millis(delay.removal),
        millis(delay.addition),
        millis(delay.arrival),
        millis(silent.saturating_sub(freeze + delay.sum()))
    ));
    std::thread::sleep(A_WHILE);
    (pod, talking)
}

#[test]
fn connections_live_through_moves_between_zones_that_cost_two_updates_each() {
    let stage = Stage::new(&json!({"warm": 0}));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let client = stage.pod(&machines[2], "client", &json!({}));
    let own = client.add();
    let mut running = stage.pod(&machines[0], "one", &json!({}));
    let addresses = running.add();
    let capture = wire.capture().unwrap();
    let mut traffic = Traffic::start(&client, &own, &running, &addresses);
    let mut talking = traffic.go_on(&running);
    std::thread::sleep(A_WHILE);
    for (number, name) in ["two", "three"].into_iter().enumerate() {
        let (from, to) = (number % 2, (number + 1) % 2);
        stage.mark(&[&running], &addresses);
        let before = stage.cloud.fake.changes().len();
        let (next, going_on) = carry(&stage, &mut traffic, talking, &running, (&machines[to], name), || true);
        // An agent that is called before it hears of the pod wants an address of the pod's own as well: that is none of the move's.
        let changes = stage.cloud.fake.changes().split_off(before);
        let moved: Vec<_> = changes
            .iter()
            .filter(|it| it.plane == Plane::Configuration)
            .filter(|it| addresses.iter().any(|address| it.range == format!("{address}/32")))
            .map(|it| (it.instance.as_str(), it.there))
            .collect();
        let [source, target] = [from, to].map(|number| machines[number].name.as_str());
        assert_eq!(moved, [(source, false), (target, true)], "one removal and one addition");
        stage.assert_only_on(to, machines.each_ref(), &addresses);
        stage.until_recorded(&machines[to].name, &addresses);
        // The end of the source takes nothing away.
        stage.end(&[&running]);
        until("the source to forget the address", || {
            let aliases = aliases_of(&stage.cluster, &machines[from].name)?;
            aliases.spec.leaving.is_empty().then_some(())
        });
        (running, talking) = (next, going_on);
    }
    traffic.finish(talking);
    assert_eq!(resets(&capture.stop(), &addresses), Vec::<String>::new());
    stage.assert_only_on(0, machines.each_ref(), &addresses);
}

#[test]
fn connections_live_though_the_source_machine_is_gone() {
    let stage = Stage::new(&json!({"warm": 0}));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let client = stage.pod(&machines[2], "client", &json!({}));
    let own = client.add();
    let running = stage.pod(&machines[0], "one", &json!({}));
    let addresses = running.add();
    let capture = wire.capture().unwrap();
    let mut traffic = Traffic::start(&client, &own, &running, &addresses);
    let talking = traffic.go_on(&running);
    std::thread::sleep(A_WHILE);
    stage.mark(&[&running], &addresses);
    let before = stage.cloud.updates();
    let gone = || {
        machines[0].host.end_processes();
        stage.cloud.fake.delete_instance(ZONES[0], &machines[0].name);
        stage.delete_node(&machines[0].name);
        stage.delete_pod(&running.name);
        false
    };
    let (_, talking) = carry(&stage, &mut traffic, talking, &running, (&machines[1], "two"), gone);
    assert_eq!(stage.cloud.updates() - before, 1, "there is nothing to remove from a machine that is gone");
    traffic.finish(talking);
    assert_eq!(resets(&capture.stop(), &addresses), Vec::<String>::new());
    stage.until_recorded(&machines[1].name, &addresses);
    stage.assert_only_on(1, machines.each_ref(), &addresses);
}
