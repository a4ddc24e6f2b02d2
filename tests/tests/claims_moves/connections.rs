//! TCP connections live through moves of the address of one of their ends.
//!
//! What is done here to a pod's connections is done to a container by CRIU and to a virtual machine by its hypervisor: the
//! pod stops, its connections are taken over by the pod on the other host, which goes on with them, and only then the mover
//! says so. From that moment on the address is to arrive there: the time until it does is the blackout beyond the freeze.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::hosts::Segment;
use tenure_testbed::traffic::Talking;
use tenure_testbed::wait::until;
use tenure_tests::moves::{Blackouts, Placed, Traffic, now, resets};

use crate::route_log::RouteLog;
use crate::stage::{NETWORK, Stage};

/// No blackout is as long as this, also on a machine that is busy with other things. (What it is to be is a measurement.)
const BOUND: Duration = Duration::from_secs(5);
/// How much a pod that goes on is let talk before it moves again.
const A_WHILE: Duration = Duration::from_millis(150);

/// Ends the pod's part of `talking`, lets it go on in `to`, tells the mover's word, and waits until `to` is reached.
fn carry<'a>(
    traffic: &mut Traffic,
    talking: Vec<Talking>,
    from: &Placed<'a>,
    to: &Placed<'a>,
    word: impl FnOnce(),
    blackouts: &mut Blackouts,
) -> Vec<Talking> {
    let stopped = now();
    let frozen = traffic.stop(talking);
    traffic.take_over(&frozen, to.network.namespace());
    let mut talking = traffic.go_on(to);
    let gone_on = now();
    blackouts.freeze.push(gone_on.saturating_sub(stopped));
    word();
    traffic.measure(to, gone_on, BOUND, blackouts);
    // Whatever still arrived at the source would be answered with a reset, if its connections were closed before.
    until("the source to give up the address", || {
        (!traffic.addresses.iter().any(|address| from.has_route(116, *address))).then_some(())
    });
    drop(frozen);
    blackouts.hear(traffic, &mut talking, gone_on);
    std::thread::sleep(A_WHILE);
    talking
}

/// That at each move the target got an export route, and that the source's went after its route to the pod, and not with it: packets
/// that arrive meanwhile are passed on. How long it stays is the agent's own decision, and no host's clock is compared with
/// another's. `moves`: from which host to which.
fn assert_exports_follow(logs: &[RouteLog], moves: &[(usize, usize)], addresses: &[IpAddr]) {
    for address in addresses {
        let mut next: Vec<_> =
            logs.iter().map(|log| log.of(*address).into_iter().filter(|it| it.table == 119)).collect();
        let first = next[moves[0].0].next().unwrap();
        assert!(!first.gone, "{first:?}");
        for (from, to) in moves {
            let (made, broken) = (next[*to].next().unwrap(), next[*from].next().unwrap());
            assert!(!made.gone && broken.gone, "{address}: {made:?}, then {broken:?}");
        }
        for (from, _) in moves {
            let of_host = logs[*from].of(*address);
            let mut gone = of_host.iter().filter(|it| it.gone).map(|it| it.table);
            while let Some(table) = gone.next() {
                assert_eq!((table, gone.next()), (116, Some(119)), "{address}: {of_host:?}");
            }
        }
    }
}

#[test]
fn connections_live_through_moves_that_any_mover_tells_by_an_annotation() {
    let stage = Stage::new();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let logs = [RouteLog::start(&machines[0].host), RouteLog::start(&machines[1].host)];
    let addresses = stage.claim("service", NETWORK, "eth0", &json!({}));
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    let refers = json!({"annotations": {"tenure/claim": "service"}});
    let one = stage.pod(&machines[0], "one", &refers);
    let client = stage.pod(&machines[2], "client", &json!({}));
    let own = client.add();
    assert_eq!(one.add(), addresses);
    let other = stage.pod(&machines[1], "other", &refers);
    assert_eq!(other.add(), addresses, "the second pod has the same");
    assert!(!other.has_route(116, addresses[0]) && !other.has_route(119, addresses[0]), "and is not reached");

    let capture = wire.capture().unwrap();
    let mut traffic = Traffic::start(&client, &own, &one, &addresses);
    let mut talking = traffic.go_on(&one);
    std::thread::sleep(A_WHILE);
    let (mut blackouts, mut moves) = (Blackouts::default(), Vec::new());
    let pods = [&one, &other];
    for number in 0..6_usize {
        let (from, to) = (number % 2, (number + 1) % 2);
        let active = json!({"annotations": {"tenure/active": format!("{}", number + 1)}});
        let word = || _ = stage.change(&pods[to].name, &active);
        talking = carry(&mut traffic, talking, pods[from], pods[to], word, &mut blackouts);
        moves.push((from, to));
        until("the source to export the address no longer", || {
            (!addresses.iter().any(|address| pods[from].has_route(119, *address))).then_some(())
        });
        assert!(addresses.iter().all(|address| pods[to].has_route(119, *address)), "the target exports it");
    }
    traffic.finish(talking);
    blackouts.print("moves by annotation");
    assert_eq!(resets(&capture.stop(), &addresses), Vec::<String>::new());
    assert_exports_follow(&logs, &moves, &addresses);
}

#[test]
fn connections_live_through_migrations_that_kubevirt_tells_by_its_labels() {
    let stage = Stage::new();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let addresses = stage.claim("machine.default", NETWORK, "eth0", &json!({"kubevirt.io/vm": "machine"}));
    let client = stage.pod(&machines[2], "client", &json!({}));
    let own = client.add();
    let mut running = stage.pod(&machines[0], "virt-launcher-machine-0", &launcher("machine"));
    stage.change(&running.name, &json!({"labels": {"kubevirt.io/nodeName": machines[0].name}}));
    assert_eq!(running.add(), addresses);

    let capture = wire.capture().unwrap();
    let mut traffic = Traffic::start(&client, &own, &running, &addresses);
    let mut talking = traffic.go_on(&running);
    std::thread::sleep(A_WHILE);
    let mut blackouts = Blackouts::default();
    for number in 1..=4_usize {
        let machine = &machines[number % 2];
        let target = stage.pod(machine, &format!("virt-launcher-machine-{number}"), &launcher("machine"));
        assert_eq!(target.add(), addresses, "while the machine still runs on the other host");
        let ready = json!({
            "labels": {"kubevirt.io/nodeName": machine.name},
            "annotations": {"kubevirt.io/migration-target-ready-timestamp": format!("2026-11-16T05:31:0{number}Z")},
        });
        let word = || _ = stage.change(&target.name, &ready);
        talking = carry(&mut traffic, talking, &running, &target, word, &mut blackouts);
        // The source's launcher ends when the machine is gone from it, and its sandbox later.
        stage.finish(&running.name);
        running.del();
        stage.delete_pod(&running.name);
        running = target;
    }
    traffic.finish(talking);
    blackouts.print("migrations as KubeVirt tells them");
    assert_eq!(resets(&capture.stop(), &addresses), Vec::<String>::new());
}

/// The metadata of a pod in which KubeVirt runs this machine.
fn launcher(vmi: &str) -> Value {
    json!({
        "labels": {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": vmi},
        "annotations": {"kubevirt.io/domain": vmi},
        "ownerReferences": [{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vmi,
            "uid": "5e0f3c9a-0000-4000-8000-000000000001", "controller": true, "blockOwnerDeletion": true,
        }],
    })
}
