use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses};
use tenure_linux::link::Link;
use tenure_linux::pod::Identity;
use tenure_linux::route::Route;

use super::*;
use crate::key::Pod;

fn key(container: &str) -> HoldKey {
    HoldKey::new("k8s", container, "eth0").unwrap()
}

fn hold(container: &str, address: &str) -> HoldView {
    let address: Address = address.parse().unwrap();
    HoldView {
        key: key(container),
        pod: Pod { namespace: "ns".into(), name: container.into(), uid: String::new() },
        pool: "default".into(),
        block: Some("default-0".into()),
        addresses: Addresses::from(address),
        since: Timestamp::default(),
        interface: true,
        settled: true,
        silenced: false,
        claim: None,
    }
}

fn link(container: &str, addresses: &[&str]) -> PodLink {
    PodLink {
        owner: Identity {
            network: "k8s".into(),
            container: container.into(),
            interface: "eth0".into(),
            namespace: "ns".into(),
            pod: container.into(),
        },
        link: Link { name: format!("veth-{container}"), up: true, ..Link::default() },
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    }
}

fn said(holds: &[HoldView], inventory: &Inventory) -> Vec<String> {
    compare(holds, inventory).into_iter().map(|it| format!("{}: {}", it.subject, it.problem)).collect()
}

#[test]
fn what_is_as_it_should_be_makes_no_difference() {
    let pods = vec![link("a", &["10.0.0.1"]), link("b", &["10.0.0.2"])];
    let inventory = Inventory { pods, ..Inventory::default() };
    assert_eq!(said(&[hold("a", "10.0.0.1"), hold("b", "10.0.0.2")], &inventory), Vec::<String>::new());
}

#[test]
fn what_is_under_way_or_somebody_elses_interface_makes_no_difference() {
    let under_way = HoldView { settled: false, ..hold("a", "10.0.0.1") };
    let elsewhere = HoldView { interface: false, ..hold("b", "10.0.0.2") };
    assert_eq!(said(&[under_way, elsewhere], &Inventory::default()), Vec::<String>::new());
}

#[test]
fn every_difference_is_named() {
    let mut down = link("down", &["10.0.0.5"]);
    down.link.up = false;
    let inventory = Inventory {
        pods: vec![link("wrong", &["10.0.0.9"]), link("nobody", &[]), down],
        unmarked: vec![Link { name: "half".into(), ..Link::default() }],
        trash: vec![Link { name: "waste".into(), ..Link::default() }],
        strays: vec![Route::on_link("10.0.0.7/32".parse().unwrap(), 4, 116, 30)],
    };
    let holds = [hold("gone", "10.0.0.1"), hold("wrong", "10.0.0.2"), hold("down", "10.0.0.5")];
    assert_eq!(
        said(&holds, &inventory),
        [
            "10.0.0.2: is held by ns/wrong, and no route leads to it",
            "10.0.0.9: a route leads to veth-wrong of ns/wrong, which does not hold it",
            "interface half: is ours, and does not say whose",
            "interface veth-nobody of ns/nobody (k8s/nobody/eth0): is there, and nobody holds an address for it",
            "ns/down: its interface veth-down is down",
            "ns/gone: holds 10.0.0.1, and has no interface on this host",
            "route to 10.0.0.7/32: leads to no pod",
        ]
    );
}
