//! Many pods: found in the kernel alone, looked at while others come and go, deleted together.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tenure_linux::inventory::Inventory;
use tenure_linux::pod::{self, Destroyed};
use tenure_linux::reaper;
use tenure_testbed::wait::PATIENCE;

use super::bed::{Node, Pod, Result, ip};

#[test]
fn more_addresses_than_the_kernel_keeps_neighbours_for_are_all_known_at_once() -> Result {
    const ADDRESSES: usize = 1_100; // the limit is 1,024, for all namespaces together
    let mut node = Node::new("node")?;
    let mut pod = Pod::new("pod", &[])?;
    pod.plan.addresses = (1..=ADDRESSES).map(|n| ip(&format!("fd01::{n:x}"))).collect();
    node.set_up(&pod)?;
    assert_eq!(pod::check(&mut node.host, &pod.namespace, &pod.plan)?, []);
    let name = pod.plan.host_name(node.host.settings());
    let neighbours = node.ip(&["-6", "neighbour", "show", "dev", &name]);
    let ours = neighbours.iter().filter(|n| n["dst"].as_str().unwrap().starts_with("fd01::"));
    assert_eq!(ours.count(), ADDRESSES);
    node.bed.ping(ip("fd01::44c"), PATIENCE)?;
    Ok(())
}

/// Who has which address is found in the kernel alone.
#[test]
fn the_inventory_leads_from_every_link_to_its_pod_and_addresses() -> Result {
    let mut node = Node::new("node")?;
    let both = node.pod("both", &["10.2.0.1", "fd01::1"])?;
    let four = node.pod("four", &["10.2.0.2"])?;
    let six = node.pod("six", &["fd01::3"])?;
    both.bed.ping(ip("10.2.0.2"), PATIENCE)?;

    let inventory = Inventory::take(&mut node.host)?;
    let found: BTreeMap<String, Vec<IpAddr>> =
        inventory.pods.iter().map(|pod| (pod.owner.pod.clone(), pod.addresses.clone())).collect();
    let expected = [
        ("both".to_owned(), vec![ip("10.2.0.1"), ip("fd01::1")]),
        ("four".to_owned(), vec![ip("10.2.0.2")]),
        ("six".to_owned(), vec![ip("fd01::3")]),
    ];
    assert_eq!(found, expected.into());
    assert!(inventory.unmarked.is_empty() && inventory.trash.is_empty() && inventory.strays.is_empty());
    for pod in [&both, &four, &six] {
        let entry = inventory.pods.iter().find(|entry| entry.owner == pod.plan.identity).unwrap();
        assert_eq!(entry.link.index, pod.wired().host_index);
    }
    let counters =
        |name: &str| inventory.pods.iter().find(|pod| pod.owner.pod == name).unwrap().link.counters;
    assert!(counters("both").received.packets > 0, "what a pod sends, its host end receives");
    assert!(counters("four").sent.bytes > 0, "what a pod receives, its host end sends");
    Ok(())
}

#[test]
fn a_pod_with_the_longest_names_is_found_by_what_fits() -> Result {
    let mut node = Node::new("node")?;
    let mut pod = Pod::new("pod", &["10.2.0.1"])?;
    pod.plan.identity.container = "c".repeat(64);
    pod.plan.identity.interface = "a-long-ifname15".into();
    pod.plan.identity.namespace = "n".repeat(63);
    pod.plan.identity.pod = "p".repeat(253);
    node.set_up(&pod)?;
    let found = &Inventory::take(&mut node.host)?.pods[0];
    assert!(found.owner.is_same_holder(&pod.plan.identity));
    assert_eq!(found.owner.namespace, pod.plan.identity.namespace);
    assert!(found.owner.pod.len() > 90 && pod.plan.identity.pod.starts_with(&found.owner.pod));
    assert_eq!(found.link.alias.as_ref().unwrap().len(), 254);
    assert!(node.set_up(&pod)?.repeated);
    Ok(())
}

/// The failure of Coil under 100 calls at once: a list that was interrupted by a change.
#[test]
fn a_hundred_setups_at_once_and_lists_in_between_never_fail() -> Result {
    const WORKERS: usize = 4;
    const EACH: usize = 25;
    let node = Node::new("node")?;
    let done = AtomicBool::new(false);
    let (interruptions, looks) = thread::scope(|scope| {
        let lookers: Vec<_> = (0..2)
            .map(|_| {
                let mut host = node.another();
                let done = &done;
                scope.spawn(move || {
                    let mut looks = 0;
                    while !done.load(Ordering::Relaxed) {
                        let inventory = Inventory::take(&mut host).unwrap();
                        assert!(inventory.pods.len() <= WORKERS * EACH);
                        looks += 1;
                    }
                    (host.socket().interruptions(), looks)
                })
            })
            .collect();
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let mut host = node.another();
                scope.spawn(move || {
                    let pods: Vec<Pod> = (0..EACH)
                        .map(|n| {
                            let pod = Pod::new(
                                &format!("pod-{worker}-{n}"),
                                &[&format!("10.2.{worker}.{n}"), &format!("fd01::{worker}:{n}")],
                            )
                            .unwrap();
                            pod::setup(&mut host, &pod.namespace, &pod.plan).unwrap();
                            pod
                        })
                        .collect();
                    for pod in &pods {
                        assert_eq!(pod::check(&mut host, &pod.namespace, &pod.plan).unwrap(), []);
                    }
                    // Half of them go again, while others still come.
                    for pod in &pods[..EACH / 2] {
                        let destroyed = pod::destroy(&mut host, &pod.plan.identity, None).unwrap();
                        assert!(matches!(destroyed, Destroyed::ToTrash(_)));
                    }
                    pods
                })
            })
            .collect();
        let pods: Vec<Pod> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        let looked = lookers.into_iter().map(|looker| looker.join().unwrap());
        let sums = looked.fold((0, 0), |sum, (i, l)| (sum.0 + i, sum.1 + l));
        let mut host = node.another();
        let inventory = Inventory::take(&mut host).unwrap();
        assert_eq!(inventory.pods.len(), WORKERS * (EACH - EACH / 2));
        assert_eq!(inventory.trash.len(), WORKERS * (EACH / 2));
        assert_eq!(inventory.strays, []);
        assert!(reaper::reap(&mut host).unwrap());
        drop(pods);
        sums
    });
    assert!(interruptions > 0, "nothing was interrupted in {looks} looks, so this test proves nothing");
    Ok(())
}

#[test]
fn a_hundred_links_are_reaped_as_a_group_and_nothing_else_is() -> Result {
    let mut node = Node::new("node")?;
    let kept = node.pod("kept", &["10.2.1.1"])?;
    let pods: Vec<Pod> =
        (0..100).map(|n| node.pod(&format!("pod-{n}"), &[&format!("10.2.0.{n}")])).collect::<Result<_>>()?;
    for pod in &pods {
        pod::destroy(&mut node.host, &pod.plan.identity, None)?;
    }
    assert_eq!(Inventory::take(&mut node.host)?.trash.len(), 100);
    assert!(reaper::reap(&mut node.host)?);
    let inventory = Inventory::take(&mut node.host)?;
    assert_eq!((inventory.trash.len(), inventory.pods.len()), (0, 1));
    assert_eq!(node.links(), ["lo", &kept.wired().host_name, "uplink"]);
    assert!(!reaper::reap(&mut node.host)?, "an empty trash is no error");
    Ok(())
}
