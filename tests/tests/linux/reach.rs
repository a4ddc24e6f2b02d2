//! Reach: interfaces that have an address and get no packets for it, until they do; and addresses that are on two interfaces
//! while they move.
#![expect(clippy::disallowed_methods, reason = "what a move costs is measured with the machine's clock")]

use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use tenure_linux::netns::NetNs;
use tenure_linux::pod::{self, Reached};
use tenure_linux::{announce, answering};
use tenure_testbed::hosts::{self, Segment};
use tenure_testbed::wait::PATIENCE;

use super::bed::{A_MOMENT, Node, Pod, Result, ip};

const ADDRESSES: [&str; 2] = ["10.2.0.1", "fd01::1"];

fn addresses() -> Vec<IpAddr> {
    ADDRESSES.iter().map(|address| ip(address)).collect()
}

fn reach(node: &mut Node, pod: &Pod) -> Result<Reached> {
    Ok(pod::reach(&mut node.host, &pod.plan.identity, &addresses(), |_| None)?)
}

fn withdraw(node: &mut Node, pod: &Pod) -> Result<Reached> {
    Ok(pod::withdraw(&mut node.host, &pod.plan.identity, &addresses())?)
}

/// Sets up a pod that is not reached.
fn incoming(node: &mut Node, name: &str) -> Result<Pod> {
    let mut pod = Pod::new(name, &ADDRESSES)?;
    pod.plan.reached = false;
    pod.wired = Some(node.set_up(&pod)?);
    Ok(pod)
}

/// The number of the link that the pod table leads to for each address: exactly one.
fn led_to(node: &Node) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for family in ["-4", "-6"] {
        let routes = node.bed.namespace().ip_json(&[family, "-details", "route", "show", "table", "116"]);
        // "FIB table does not exist": nothing was ever in it.
        let Ok(routes) = routes else { continue };
        for route in routes.as_array().unwrap() {
            let link = node.ip(&["link", "show", route["dev"].as_str().unwrap()]);
            found.push((route["dst"].as_str().unwrap().to_owned(), link[0]["ifindex"].as_u64().unwrap()));
        }
    }
    found
}

fn all_to(pod: &Pod) -> Vec<(String, u64)> {
    ADDRESSES.iter().map(|it| ((*it).to_owned(), pod.wired().host_index.into())).collect()
}

#[test]
fn an_interface_that_is_not_reached_is_complete_and_gets_no_packet_until_it_is() -> Result {
    let mut node = Node::new("node")?;
    let pod = incoming(&mut node, "pod")?;
    assert_eq!(pod::check(&mut node.host, &pod.namespace, &pod.plan)?, []);
    assert_eq!(led_to(&node), []);
    for address in ADDRESSES {
        assert!(node.bed.ping(ip(address), A_MOMENT).is_err(), "{address} answers");
    }
    assert_eq!(reach(&mut node, &pod)?, Reached::Done);
    assert_eq!(led_to(&node), all_to(&pod));
    for address in ADDRESSES {
        node.bed.ping(ip(address), PATIENCE)?;
    }
    let differences = pod::check(&mut node.host, &pod.namespace, &pod.plan)?;
    assert_eq!(differences.len(), 2, "it was not to be reached: {differences:?}");
    assert_eq!(withdraw(&mut node, &pod)?, Reached::Done);
    assert_eq!(withdraw(&mut node, &pod)?, Reached::Done, "repeated, it changes nothing");
    assert_eq!(led_to(&node), []);
    for address in ADDRESSES {
        assert!(node.bed.ping(ip(address), A_MOMENT).is_err(), "{address} answers");
    }
    assert_eq!(pod::check(&mut node.host, &pod.namespace, &pod.plan)?, []);
    Ok(())
}

/// Invariant 1, on the kernel: at every moment an address leads to one interface.
#[test]
fn an_address_that_moves_between_two_interfaces_leads_to_one_of_them_and_a_late_withdrawal_harms_nobody()
-> Result {
    let mut node = Node::new("node")?;
    let source = node.pod("source", &ADDRESSES)?;
    let target = incoming(&mut node, "target")?;
    assert_eq!(led_to(&node), all_to(&source), "the second interface took nothing away");
    for _ in 0..20 {
        reach(&mut node, &target)?;
        assert_eq!(led_to(&node), all_to(&target));
        withdraw(&mut node, &source)?;
        assert_eq!(led_to(&node), all_to(&target), "what is withdrawn is only its own");
        reach(&mut node, &source)?;
        assert_eq!(led_to(&node), all_to(&source));
        withdraw(&mut node, &target)?;
        assert_eq!(led_to(&node), all_to(&source));
    }
    pod::destroy(&mut node.host, &target.plan.identity, None)?;
    assert_eq!(led_to(&node), all_to(&source), "whoever goes takes nothing along");
    assert_eq!(reach(&mut node, &target)?, Reached::NoInterface);
    assert_eq!(led_to(&node), all_to(&source));
    Ok(())
}

#[test]
fn a_repeated_setup_changes_the_reach_and_not_the_interface() -> Result {
    let mut node = Node::new("node")?;
    let mut pod = node.pod("pod", &ADDRESSES)?;
    let made = pod.wired().clone();
    for reached in [false, false, true, true, false] {
        pod.plan.reached = reached;
        let again = node.set_up(&pod)?;
        assert_eq!(
            (again.host_index, again.pod_index, again.repeated),
            (made.host_index, made.pod_index, true)
        );
        assert_eq!(led_to(&node), if reached { all_to(&pod) } else { Vec::new() });
    }
    Ok(())
}

/// Two pods with one address on a segment, where another plugin made their interfaces.
#[test]
fn of_two_interfaces_on_a_segment_the_quiet_one_is_never_asked_and_found_at_once_when_it_speaks() -> Result {
    let wire = Segment::new("wire")?;
    let client = hosts::Host::new("client")?;
    let (source, target) = (hosts::Host::new("source")?, hosts::Host::new("target")?);
    let _client = wire.connect(&client, "eth0", &["198.51.100.1/24"])?;
    let _source = wire.connect(&source, "net1", &["198.51.100.7/24"])?;
    let _target = wire.connect(&target, "net1", &[])?;
    let namespace = |host: &hosts::Host| NetNs::open(host.namespace().path()).unwrap();
    let (from, to) = (namespace(&source), namespace(&target));
    assert!(answering::stop_answering(&to, "net1")?);
    assert!(!answering::stop_answering(&to, "net1")?, "repeated, it changes nothing");
    target.address("net1", &["198.51.100.7/24"])?;
    let (old, new) = (answering::mac(&from, "net1")?, answering::mac(&to, "net1")?);
    let capture = client.capture()?;
    for _ in 0..5 {
        client.ip("neighbour flush dev eth0")?;
        client.ping(ip("198.51.100.7"), PATIENCE)?;
        assert_eq!(neighbour(&client, "198.51.100.7"), old.to_string());
    }
    assert!(answering::stop_answering(&from, "net1")?);
    assert!(answering::start_answering(&to, "net1")?);
    announce::announce(&to, "net1", new, &[ip("198.51.100.7")])?;
    let began = Instant::now();
    while neighbour(&client, "198.51.100.7") != new.to_string() {
        assert!(began.elapsed() < PATIENCE, "the announcement changed nothing");
    }
    client.ping(ip("198.51.100.7"), PATIENCE)?;
    client.ip("neighbour flush dev eth0")?;
    client.ping(ip("198.51.100.7"), PATIENCE)?;
    assert_eq!(neighbour(&client, "198.51.100.7"), new.to_string(), "the one that lost it is quiet");
    drop(capture);
    let nobody = answering::stop_answering(&to, "net7").unwrap_err();
    assert!(nobody.is_early() && !nobody.is_gone(), "{nobody}");
    assert!(NetNs::open(Path::new("/run/netns/no-such-namespace")).unwrap_err().is_gone());
    Ok(())
}

fn neighbour(host: &hosts::Host, address: &str) -> String {
    let found = host.namespace().ip_json(&["neighbour", "show", address]).unwrap();
    found[0]["lladdr"].as_str().unwrap_or_default().to_owned()
}
