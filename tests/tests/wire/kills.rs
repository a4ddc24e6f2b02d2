//! A process that is killed while it makes interfaces: what it leaves is understood by the next one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tenure_agent::node::Action;
use tenure_agent::wire::Wirer;
use tenure_handles::SystemClock;
use tenure_ipam::Address;
use tenure_testbed::wait::PATIENCE;

use super::bed::{Machine, Pod, Result, host, ip};

const PODS: usize = 60;
/// The path of the host's namespace, and those of the pods, for the process that is to be killed.
const ERRAND: &str = "TENURE_WIRE_ERRAND";

fn pod(n: usize) -> Result<Pod> {
    Pod::new(&format!("pod-{n}"), &[&format!("10.2.0.{n}"), &format!("fd01::{n:x}")])
}

/// What the process does that is to be killed.
fn run_errand(errand: &str) -> Result {
    let mut paths = errand.split(' ');
    let namespace = PathBuf::from(paths.next().unwrap());
    let wirer = Wirer::start(host(&namespace), host(&namespace), SystemClock, |_| {})?;
    for (n, path) in paths.enumerate() {
        let mut job = pod(n)?.job(tenure_agent::node::Job(1));
        path.clone_into(&mut job.wiring.netns);
        wirer.carry_out(Action::Wire(job));
    }
    // The thread's end is awaited.
    drop(wirer);
    Ok(())
}

#[test]
fn after_a_kill_between_any_two_steps_the_inventory_is_sound_and_every_add_can_be_repeated() -> Result {
    if let Ok(errand) = std::env::var(ERRAND) {
        return run_errand(&errand);
    }
    let machine = Machine::new("node")?;
    let pods: Vec<Pod> = (0..PODS).map(pod).collect::<Result<_>>()?;
    let mut errand = machine.bed.namespace().path().to_str().unwrap().to_owned();
    for pod in &pods {
        errand.push(' ');
        errand.push_str(&pod.netns());
    }
    let this =
        "kills::after_a_kill_between_any_two_steps_the_inventory_is_sound_and_every_add_can_be_repeated";
    let mut cut_short = 0;
    for enough in [1, 9, 23, 31, 47] {
        let mut child = Command::new(std::env::current_exe()?)
            .args([this, "--exact", "--quiet"])
            .env(ERRAND, &errand)
            .stdout(Stdio::null())
            .spawn()?;
        let mut eyes = machine.host();
        while tenure_linux::inventory::Inventory::take(&mut eyes)?.pods.len() < enough {
            assert!(child.try_wait()?.is_none(), "it ended before it could be killed");
        }
        child.kill()?;
        child.wait()?;

        let mut node = machine.start();
        let of = |key: &tenure_agent::HoldKey| pods.iter().find(|pod| pod.key == *key).unwrap();
        for found in &node.found {
            let pod = of(&found.key);
            assert_eq!(found.pod, pod.named);
            let planned: BTreeSet<Address> = pod.addresses.iter().collect();
            assert!(found.addresses.iter().all(|address| planned.contains(address)), "{found:?}");
        }
        cut_short += usize::from(node.found.len() < PODS);
        // Whoever was told of nothing asks again, and what is not asked for again goes.
        for pod in &pods[PODS / 2..] {
            node.wire(pod);
        }
        for pod in &pods[PODS / 2..] {
            assert_eq!(node.inspect(pod), Vec::<String>::new());
        }
        machine.bed.ping(ip(&format!("10.2.0.{}", PODS - 1)), PATIENCE)?;
        for pod in &pods {
            node.unwire(pod);
        }
        machine.until("nothing is left", |machine| machine.links().is_empty());
        let look = node.look(&[], &[]);
        assert_eq!((look.links.len(), look.strays), (0, Vec::new()));
    }
    assert!(cut_short > 0, "every kill came too late, so this test proves nothing");
    Ok(())
}

#[test]
fn a_link_that_was_never_marked_goes_after_two_looks_and_an_overwritten_mark_does_not() -> Result {
    let machine = Machine::new("node")?;
    let add = |name: &str| {
        let batch = format!("link add {name} group 11600 type veth peer name {name}p\n");
        machine.bed.ip(&batch).unwrap();
    };
    add("tnrcutshort");
    let mut node = machine.start();
    assert!(machine.links().contains(&"tnrcutshort".to_owned()), "nothing goes at a start");
    for _ in 0..2 {
        node.look(&[], &[]);
    }
    machine.until("it goes", |machine| machine.links().is_empty());
    let pod = Pod::new("pod", &["10.2.0.1"])?;
    let name = node.wire(&pod).host_name;
    machine.bed.ip(&format!("link set {name} alias somebody-was-here"))?;
    add("tnrcutagain");
    assert_eq!(node.look(&[&pod], &[]).gone, [].into(), "it is there, whatever is written on it");
    assert!(machine.links().contains(&"tnrcutagain".to_owned()), "once is not enough");
    assert_eq!(node.look(&[&pod], &[]).gone, [].into());
    machine.until("it goes", |machine| machine.links() == [name.as_str()]);
    pod.bed.ping(ip(super::bed::NODE_V4), PATIENCE)?;
    Ok(())
}
