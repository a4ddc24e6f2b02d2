//! An agent that is killed, upgraded, or wakes up after a reboot.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use tenure_tests::agent::{Cluster, Machine, Pod, assert_distinct};

/// A machine with three pods of a pool of its own.
fn with_pods<'a>(cluster: &'a Cluster, pool: &str, subnet: &str) -> (Machine<'a>, Vec<Pod>, Vec<IpAddr>) {
    cluster.tenant(pool, 4, json!([{"ipv4": subnet}]));
    let machine = Machine::running(cluster);
    let pods: Vec<_> = (0..3).map(|number| machine.pod_in(pool, &format!("pod{number}"))).collect();
    let addresses = pods.iter().flat_map(|pod| machine.add(pod)).collect();
    (machine, pods, addresses)
}

/// Pods' names are not used twice.
static FRESH: AtomicU32 = AtomicU32::new(0);

/// That the pods have these addresses and nobody else gets one of them.
fn assert_kept(machine: &Machine<'_>, pods: &[Pod], addresses: &[IpAddr]) {
    for (pod, address) in pods.iter().zip(addresses) {
        machine.assert_reached(pod, &[*address]);
        assert_eq!(machine.add(pod), [*address], "an ADD that is repeated");
        machine.call("CHECK", pod).succeeded();
    }
    let fresh = || format!("fresh{}", FRESH.fetch_add(1, Ordering::SeqCst));
    let fresh: Vec<_> = (0..5).map(|_| machine.pod_in(&pods[0].namespace, &fresh())).collect();
    let mut all: Vec<_> = fresh.iter().flat_map(|pod| machine.add(pod)).collect();
    all.extend(addresses);
    assert_distinct(&all);
    for pod in &fresh {
        machine.del(pod);
    }
}

#[test]
fn a_killed_agent_comes_back_with_the_same_holds_and_repairs_routes() {
    let cluster = Cluster::shared();
    let (mut machine, pods, addresses) = with_pods(&cluster, "e4", "10.94.0.0/24");
    let blocks = machine.blocks();
    machine.kill();
    // Pods do not notice.
    machine.assert_reached(&pods[0], &addresses[..1]);
    machine.host.ip(&format!("route del {} table 116\nroute flush table 119\n", addresses[1])).unwrap();
    machine.host.ip("route add 10.94.0.200 dev uplink table 116 protocol 30\n").unwrap();
    machine.start();
    machine.until("routes", || {
        let routes = machine.table(116);
        (addresses.iter().all(|address| routes.contains(&address.to_string())) && routes.len() == 3)
            .then_some(())
    });
    assert_eq!(machine.blocks(), blocks);
    machine.until("the export table", || (machine.table(119) == machine.networks()).then_some(()));
    assert_kept(&machine, &pods, &addresses);
}

#[test]
fn an_agent_that_is_told_to_stop_leaves_everything_in_place() {
    let cluster = Cluster::shared();
    let (mut machine, pods, addresses) = with_pods(&cluster, "stop", "10.95.0.0/24");
    let (routes, exported) = (machine.table(116), machine.table(119));
    machine.stop();
    assert_eq!((machine.table(116), machine.table(119)), (routes, exported));
    machine.assert_reached(&pods[0], &addresses[..1]);
    machine.start();
    assert_kept(&machine, &pods, &addresses);
}

#[test]
fn a_del_without_an_agent_leaves_a_tombstone_that_is_done_before_the_door_opens() {
    let cluster = Cluster::shared();
    let (mut machine, pods, addresses) = with_pods(&cluster, "tomb", "10.96.0.0/24");
    machine.kill();
    machine.del(&pods[0]);
    machine.del(&pods[0]);
    assert_eq!(machine.tombstones(), 1);
    assert!(pods[0].has_interface(), "nobody was there to take it away");
    std::fs::write(machine.file("tombstones/foreign.tombstone"), [0xff; 9]).unwrap();
    machine.start();
    machine.until_gone(&pods[0]);
    assert!(!machine.table(116).contains(&addresses[0].to_string()));
    assert!(machine.file("tombstones/foreign.refused").exists(), "what is none is set aside");
    assert_eq!(machine.tombstones(), 1);
    assert_kept(&machine, &pods[1..], &addresses[1..]);
    // One that appears while an agent is there is done, too.
    machine.kill();
    machine.del(&pods[1]);
    let left = std::fs::read_dir(machine.file("tombstones")).unwrap().map(|entry| entry.unwrap().path());
    let left = left.into_iter().find(|path| path.extension().is_some_and(|it| it == "tombstone")).unwrap();
    let aside = left.with_extension("late");
    std::fs::rename(&left, &aside).unwrap();
    machine.start();
    assert!(pods[1].has_interface());
    std::fs::copy(&aside, &left).unwrap();
    machine.until("the late DEL", || (!pods[1].has_interface() && !left.exists()).then_some(()));
}

#[test]
fn after_a_reboot_nothing_is_held_and_no_block_is_lost() {
    let cluster = Cluster::shared();
    let (mut machine, _, addresses) = with_pods(&cluster, "reboot", "10.97.0.0/24");
    let blocks = machine.blocks();
    machine.reboot();
    machine.start();
    assert_eq!(machine.table(116), Vec::<String>::new());
    assert_eq!(machine.blocks(), blocks, "a reboot must neither lose nor leak a block");
    // All addresses of the block can be had: none is held by the dead.
    let pods: Vec<_> = (0..12).map(|number| machine.pod_in("reboot", &format!("after{number}"))).collect();
    let after: Vec<_> = pods.iter().flat_map(|pod| machine.add(pod)).collect();
    assert_distinct(&after);
    assert!(addresses.iter().any(|address| after.contains(address)), "{addresses:?} are held by nobody");
}

#[test]
fn a_torn_journal_is_cut_and_a_lost_one_is_rebuilt_from_the_kernel() {
    let cluster = Cluster::shared();
    let (mut machine, pods, addresses) = with_pods(&cluster, "torn", "10.98.0.0/24");
    machine.kill();
    let journal = machine.file("journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes.truncate(bytes.len() - 3);
    std::fs::write(&journal, &bytes).unwrap();
    machine.start();
    assert!(machine.log().contains("torn record"), "it must be said");
    assert_kept(&machine, &pods, &addresses);
    machine.kill();
    std::fs::remove_file(&journal).unwrap();
    machine.start();
    assert_kept(&machine, &pods, &addresses);
}

#[test]
fn a_foreign_or_damaged_journal_is_set_aside_and_rebuilt_from_the_kernel() {
    let cluster = Cluster::shared();
    let (mut machine, pods, addresses) = with_pods(&cluster, "foreign", "10.99.0.0/24");
    let (other, _, _) = with_pods(&cluster, "foreigner", "10.100.0.0/24");
    machine.kill();
    let journal = machine.file("journal");
    for (number, bytes) in
        [std::fs::read(other.file("journal")).unwrap(), b"nonsense".to_vec()].into_iter().enumerate()
    {
        std::fs::write(&journal, bytes).unwrap();
        machine.start();
        assert!(machine.file(&format!("journal.aside-{}", number + 1)).exists());
        let said = machine.log().matches("set a journal aside").count();
        assert_eq!(said, number + 1, "it must be said");
        assert_kept(&machine, &pods, &addresses);
        machine.kill();
    }
}

#[test]
fn a_call_that_is_under_way_at_the_end_is_told_to_try_again_and_the_end_is_not_put_off() {
    let cluster = Cluster::embedded();
    cluster.pool("default", 4, json!([{"ipv4": "10.102.0.0/24"}]));
    let mut machine = Machine::running(&cluster);
    let pod = machine.pod("web");
    // There is no controller: nobody will ever answer.
    let waits = machine.plugin("ADD", &pod);
    machine.until("the ADD to wait", || machine.log().contains("requesting a block").then_some(()));
    machine.stop();
    assert_eq!(waits.join().refused(), 11);
    // The next one finds nothing half done.
    cluster.control("late");
    machine.start();
    let addresses = machine.add(&pod);
    machine.assert_reached(&pod, &addresses);
}
