//! A hundred at once, while everything else changes too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tenure_agent::node::{Action, Event};
use tenure_linux::pod::{self, Identity, PodPlan};

use super::bed::{Machine, Pod, Result, ip};

/// The failure of Coil under 100 calls at once: a list that was interrupted by a change. Ours lists nothing on the way of
/// an ADD or DEL, and takes a list again that was interrupted.
#[test]
fn a_hundred_adds_and_dels_at_once_never_fail_on_an_interrupted_list() -> Result {
    const PODS: usize = 100;
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    let pods: Vec<Pod> = (0..PODS)
        .map(|n| Pod::new(&format!("pod-{n}"), &[&format!("10.2.0.{n}"), &format!("fd01::{n:x}")]))
        .collect::<Result<_>>()?;
    let done = AtomicBool::new(false);
    let interruptions = thread::scope(|scope| {
        // Somebody else makes and deletes links all the time, and somebody lists them.
        let churn = scope.spawn(|| {
            let mut host = machine.host();
            let other = Pod::new("other", &["10.3.0.1"]).unwrap();
            let namespace = tenure_linux::netns::NetNs::open(other.netns()).unwrap();
            let identity = Identity {
                container: "other".into(),
                interface: "eth0".into(),
                network: "other".into(),
                namespace: String::new(),
                pod: String::new(),
            };
            let plan = PodPlan::new(identity, vec![ip("10.3.0.1")], 1500);
            while !done.load(Ordering::Relaxed) {
                pod::setup(&mut host, &namespace, &plan).unwrap();
                machine.bed.ip(&format!("link delete {}", plan.host_name(host.settings()))).unwrap();
            }
        });
        let lister = scope.spawn(|| {
            let mut host = machine.host();
            while !done.load(Ordering::Relaxed) {
                tenure_linux::inventory::Inventory::take(&mut host).unwrap();
            }
            host.socket().interruptions()
        });
        let mut jobs = 0;
        let mut number = || {
            jobs += 1;
            tenure_agent::node::Job(jobs)
        };
        for (n, pod) in pods.iter().enumerate() {
            node.wirer.carry_out(Action::Wire(pod.job(number())));
            if n % 10 == 0 {
                let interfaces = pods.iter().map(|pod| pod.key.clone()).collect();
                node.wirer.carry_out(Action::Look { job: number(), interfaces, namespaces: Vec::new() });
            }
        }
        let (mut wired, mut looked) = (0, 0);
        while wired < PODS || looked < PODS / 10 {
            match node.next() {
                Event::Wired { .. } => wired += 1,
                Event::Looked { .. } => looked += 1,
                other => panic!("{other:?}"),
            }
        }
        for pod in &pods {
            let job = number();
            node.wirer.carry_out(Action::Unwire { job, key: pod.key.clone(), pod: pod.named.clone() });
        }
        for _ in 0..PODS {
            let event = node.next();
            assert!(matches!(event, Event::Unwired { .. }), "{event:?}");
        }
        done.store(true, Ordering::Relaxed);
        churn.join().unwrap();
        lister.join().unwrap()
    });
    assert!(interruptions > 0, "nothing was interrupted, so this test proves nothing");
    machine.until("all links are deleted", |machine| machine.links().is_empty());
    assert_eq!(node.look(&[], &[]).strays, Vec::<String>::new());
    assert_eq!(machine.table(116), Vec::<String>::new());
    Ok(())
}
