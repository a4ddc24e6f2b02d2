//! A range that is cut into slices while pods run, and made whole again: nobody loses an address, none is given twice.
//! Needs root, etcd and kube-apiserver.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use tenure_testbed::wait::until;
use tenure_tests::whereabouts::node::{Interface, Node};
use tenure_tests::whereabouts::{Bed, address_at, network};

const WHOLE: &str = "swap-10.30.0.0-24";

fn whole() -> Value {
    network("swap-network", json!({"range": "10.30.0.0/24", "network_name": "swap"}))
}

fn cut() -> Value {
    let ipam = json!({"range": "10.30.0.0/24", "network_name": "swap", "node_slice_size": "/28"});
    network("swap-network", ipam)
}

/// Who has which address: an address that anybody else gets is noticed.
#[derive(Default)]
struct Held(BTreeMap<IpAddr, Interface>);

impl Held {
    #[track_caller]
    fn add(&mut self, node: &Node<'_>, pod: &str, config: &Value) -> IpAddr {
        let interface = Interface::of(pod);
        let got = node.add(&interface, config);
        assert_eq!(got.len(), 1, "{got:?}");
        if let Some(other) = self.0.insert(got[0], interface) {
            panic!("{} was told to {pod} while {other:?} has it", got[0]);
        }
        got[0]
    }

    #[track_caller]
    fn del(&mut self, node: &Node<'_>, pod: &str, config: &Value) -> IpAddr {
        let interface = Interface::of(pod);
        let (address, _) = self.0.iter().find(|(_, it)| **it == interface).expect("it has an address");
        let address = *address;
        node.del(&interface, config);
        self.0.remove(&address);
        address
    }

    /// What is on record in all objects of the network is what is held.
    fn is_on_record(&self, bed: &Bed) -> bool {
        let pools = bed.all_ledgers().into_iter().filter(|pool| pool.spec.range.starts_with("10.30."));
        let mut recorded = Vec::new();
        for pool in pools {
            let range = pool.spec.range.clone();
            recorded.extend(
                pool.spec
                    .allocations
                    .into_iter()
                    .map(|(key, record)| (address_at(&range, &key).unwrap(), record.podref)),
            );
        }
        recorded.sort();
        let held: Vec<(IpAddr, String)> =
            self.0.iter().map(|(address, interface)| (*address, interface.podref())).collect();
        recorded == held
    }

    #[track_caller]
    fn settle(&self, bed: &Bed) {
        until("records to be what is held", || self.is_on_record(bed).then_some(()));
    }
}

#[test]
fn a_range_is_cut_into_slices_with_pods_running_and_made_whole_again() {
    let bed = Bed::new();
    bed.control("switch");
    bed.attach("swap", &whole());
    let nodes = [Node::running(&bed, "swap-1"), Node::running(&bed, "swap-2")];
    let names = ["swap-1".to_owned(), "swap-2".to_owned()];
    let pods: Vec<String> = (0..60).map(|number| format!("pod-{number}")).collect();
    bed.make_pods(&pods.iter().map(|pod| (pod.clone(), names[0].clone())).collect::<Vec<_>>());
    let mut next = pods.iter().map(String::as_str);
    let mut held = Held::default();

    // Unsliced, on both nodes.
    let running: Vec<(usize, &str)> = (0..6).map(|number| (number / 3, next.next().unwrap())).collect();
    for (node, pod) in &running {
        held.add(&nodes[*node], pod, &whole());
    }
    held.settle(&bed);

    // It is cut. Nobody gets an address of the whole range any more; who has one keeps it.
    bed.attach("swap", &cut());
    let slices = bed.sliced("swap", &names);
    assert_eq!(bed.state(WHOLE).as_deref(), Some("sliced"));
    let (code, words) = nodes[0].call("ADD", &Interface::of("pod-59"), &whole()).refused();
    assert_eq!(code, 7, "{words}");
    assert!(words.contains("node_slice_size") && words.contains(WHOLE), "{words}");
    for (node, pod) in &running {
        let again = nodes[*node].add(&Interface::of(pod), &whole());
        assert_eq!(held.0.get(&again[0]), Some(&Interface::of(pod)), "{again:?}");
    }

    // The slice that has what was held before: all of it is handed out but that.
    let in_slice = |node: &str, address: &IpAddr| {
        let slice: ipnet::IpNet = slices[node].parse().unwrap();
        slice.contains(address)
    };
    let of_slice = |held: &Held, node: usize| held.0.keys().filter(|it| in_slice(&names[node], it)).count();
    let first =
        (0..2).find(|node| slices[&names[*node]] == "10.30.0.0/28").expect("the first is given first");
    assert_eq!(of_slice(&held, first), 6, "they took the lowest");
    let mut newer: Vec<(usize, &str)> = Vec::new();
    for _ in 0..8 {
        let pod = next.next().unwrap();
        let address = held.add(&nodes[first], pod, &cut());
        assert!(in_slice(&names[first], &address), "{address}");
        newer.push((first, pod));
    }
    let pod = next.next().unwrap();
    let address = held.add(&nodes[1 - first], pod, &cut());
    assert!(in_slice(&names[1 - first], &address), "{address}");
    newer.push((1 - first, pod));
    // Fourteen of sixteen: the first and the last are for nobody.
    assert_eq!(of_slice(&held, first), 14);
    let over = next.next().unwrap();
    let (code, words) = nodes[first].call("ADD", &Interface::of(over), &cut()).refused();
    assert_eq!(code, 11, "{words}");
    held.settle(&bed);

    // What is released comes back one by one, whichever configuration the DEL has.
    for (position, (node, pod)) in running.iter().take(2).enumerate() {
        let config = if position == 0 { whole() } else { cut() };
        let freed = held.del(&nodes[*node], pod, &config);
        let over = next.next().unwrap();
        let got = until(&format!("{freed} to come back to the slice"), || {
            let called = nodes[first].call("ADD", &Interface::of(over), &cut());
            if called.code != 0 {
                assert!(called.is_later(), "{called:?}");
                return None;
            }
            Some(called.addresses()[0])
        });
        assert_eq!(got, freed);
        assert_eq!(held.0.insert(got, Interface::of(over)), None);
        newer.push((first, over));
    }
    held.settle(&bed);
    // Agents start anew in between, and know what they knew.
    for node in &nodes {
        node.crash();
        node.start();
        node.serving();
    }
    for (node, pod) in &newer {
        let again = nodes[*node].add(&Interface::of(pod), &cut());
        assert_eq!(held.0.get(&again[0]), Some(&Interface::of(pod)), "{again:?}");
    }

    // And back. What slices' pods have is given to nobody, and they keep it.
    bed.attach("swap", &whole());
    until("the range to be whole again", || {
        let gone = bed.wait(bed.slice_pools().get_opt("swap")).unwrap().is_none();
        (gone && bed.state(WHOLE).as_deref() != Some("sliced")).then_some(())
    });
    let before: BTreeSet<IpAddr> = held.0.keys().copied().collect();
    for node in [0, 1, 0, 1, 0] {
        let pod = next.next().unwrap();
        let address = held.add(&nodes[node], pod, &whole());
        assert!(!before.contains(&address));
    }
    let refused = until("the node to know that it has no slice", || {
        let called = nodes[0].call("ADD", &Interface::of("pod-59"), &cut());
        (called.code != 0).then_some(called)
    });
    assert!(refused.refused().1.contains("swap"), "{refused:?}");
    held.settle(&bed);

    // All go, each with the configuration that it came with, but for some of slices.
    for (position, (node, pod)) in newer.iter().enumerate() {
        held.del(&nodes[*node], pod, &if position % 3 == 0 { whole() } else { cut() });
    }
    let rest: Vec<Interface> = held.0.values().cloned().collect();
    for interface in rest {
        held.del(&nodes[0], &interface.pod, &whole());
    }
    held.settle(&bed);
    assert!(bed.all_reservations().is_empty());
}
