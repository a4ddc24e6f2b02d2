//! Pods' interfaces: made as planned, and packets get through, from the first one on.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;

use ipnet::IpNet;
use tenure_linux::link::Link;
use tenure_linux::netns::NetNs;
use tenure_linux::pod;
use tenure_linux::{Settings, export, reaper, sysctl};
use tenure_testbed::wait::PATIENCE;

use super::bed::{NODE_V4, NODE_V6, Node, Pod, Result, identity, ip, net};

/// What is made is what was planned, and the caller is told what a CNI result needs.
#[test]
fn six_pods_of_either_and_both_families_are_wired_as_planned() -> Result {
    let mut node = Node::new("node")?;
    let wanted: [&[&str]; 6] = [
        &["10.2.0.1", "fd01::1"],
        &["10.2.0.2", "fd01::2"],
        &["10.2.0.3"],
        &["10.2.0.4"],
        &["fd01::5"],
        &["fd01::6"],
    ];
    for (number, addresses) in wanted.iter().enumerate() {
        let pod = node.pod(&format!("pod-{number}"), addresses)?;
        assert_eq!(pod::check(&mut node.host, &pod.namespace, &pod.plan)?, []);
        let wired = pod.wired();
        assert_eq!((wired.mtu, wired.repeated), (1450, false));
        assert_eq!(
            wired.host_name,
            pod::host_name(node.host.settings(), &format!("pod-{number}-sandbox"), "eth0")
        );

        let outside = &node.ip(&["-details", "link", "show", &wired.host_name])[0];
        assert_eq!(outside["ifindex"], wired.host_index);
        assert_eq!(outside["address"], wired.host_mac.to_string());
        assert_eq!(outside["mtu"], 1450);
        assert_eq!(outside["group"], "11600");
        assert_eq!(outside["ifalias"], format!("tenure/pod-{number}-sandbox/eth0/k8s/shop/pod-{number}"));
        assert_eq!(outside["num_tx_queues"], 1);
        assert_eq!(outside["operstate"], "UP");

        let inside = pod.bed.namespace().ip_json(&["address", "show", "eth0"])?[0].clone();
        assert_eq!(inside["address"], wired.pod_mac.to_string());
        assert_eq!(inside["ifindex"], wired.pod_index);
        let found: Vec<String> = inside["addr_info"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|address| address["scope"] == "global")
            .map(|address| format!("{}/{}", address["local"].as_str().unwrap(), address["prefixlen"]))
            .collect();
        let expected: Vec<String> = addresses.iter().map(|a| IpNet::from(ip(a)).to_string()).collect();
        assert_eq!(found, expected);

        let table = node.table(116);
        for address in *addresses {
            assert!(table.contains(&(*address).to_owned()), "{address} in {table:?}");
        }
    }
    Ok(())
}

/// No neighbour is asked for, no duplicate address is waited for.
#[test]
fn pods_reach_the_host_and_each_other_over_both_families_with_their_first_packet() -> Result {
    let mut node = Node::new("node")?;
    let a = node.pod("a", &["10.2.0.1", "fd01::1"])?;
    let b = node.pod("b", &["10.2.0.2", "fd01::2"])?;
    let capture = a.bed.capture()?;
    for (from, to) in [
        (&a.bed, NODE_V4),
        (&a.bed, NODE_V6),
        (&a.bed, "10.2.0.2"),
        (&a.bed, "fd01::2"),
        (&b.bed, "10.2.0.1"),
        (&b.bed, "fd01::1"),
        (&node.bed, "10.2.0.1"),
        (&node.bed, "fd01::1"),
        (&a.bed, "169.254.1.1"),
    ] {
        from.ping(ip(to), PATIENCE)?;
    }
    let asked: Vec<String> = capture
        .stop()
        .iter()
        .filter(|packet| {
            let solicitation = packet.ip().is_some_and(|ip| ip.icmp == Some((135, 0)));
            // The kernel checks the pod's own link-local address for duplicates; nobody waits for that.
            let duplicate_detection = packet.ip().is_some_and(|ip| ip.source.is_unspecified());
            packet.arp().is_some() || (solicitation && !duplicate_detection)
        })
        .map(ToString::to_string)
        .collect();
    assert_eq!(asked, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_pod_that_takes_another_ethernet_address_is_found_when_it_speaks() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1", "fd01::1"])?;
    node.bed.ping(ip("10.2.0.1"), PATIENCE)?;
    // With the address go the neighbours that were known, as with another network stack behind the same interface.
    pod.bed.ip("link set eth0 address 0a:00:00:00:00:99")?;
    pod.bed.ping(ip(NODE_V4), PATIENCE)?;
    pod.bed.ping(ip(NODE_V6), PATIENCE)?;
    node.bed.ping(ip("10.2.0.1"), PATIENCE)?;
    node.bed.ping(ip("fd01::1"), PATIENCE)?;
    Ok(())
}

#[test]
fn single_family_pods_reach_the_host_and_their_like() -> Result {
    let mut node = Node::new("node")?;
    let four = [node.pod("a", &["10.2.0.3"])?, node.pod("b", &["10.2.0.4"])?];
    let six = [node.pod("c", &["fd01::5"])?, node.pod("d", &["fd01::6"])?];
    four[0].bed.ping(ip("10.2.0.4"), PATIENCE)?;
    four[1].bed.ping(ip(NODE_V4), PATIENCE)?;
    node.bed.ping(ip("10.2.0.3"), PATIENCE)?;
    six[0].bed.ping(ip("fd01::6"), PATIENCE)?;
    six[1].bed.ping(ip(NODE_V6), PATIENCE)?;
    node.bed.ping(ip("fd01::5"), PATIENCE)?;
    Ok(())
}

/// Work for a pod happens in that pod and nowhere else.
#[test]
fn work_runs_in_exactly_the_namespace_of_each_pod() -> Result {
    let mut node = Node::new("node")?;
    let here = NetNs::current()?.id();
    let pods: Vec<Pod> =
        (1..=6).map(|n| node.pod(&format!("pod-{n}"), &[&format!("10.2.0.{n}")])).collect::<Result<_>>()?;
    for (pod, number) in pods.iter().zip(1..) {
        let inside = pod.namespace.run(NetNs::current)??;
        assert_eq!(inside.id(), pod.namespace.id());
        let mut socket = pod.namespace.socket()?;
        let eth0 = Link::by_name(&mut socket, "eth0")?.unwrap();
        let addresses = tenure_linux::address::of_link(&mut socket, eth0.index)?;
        assert!(addresses.iter().any(|a| a.address == net(&format!("10.2.0.{number}/32"))), "{addresses:?}");
        // The socket stays where it was opened, whichever thread uses it.
        let found = thread::spawn(move || Link::by_name(&mut socket, "eth0")).join().unwrap()?;
        assert_eq!(found.map(|link| (link.index, link.mac)), Some((eth0.index, eth0.mac)));
    }
    assert_eq!(NetNs::current()?.id(), here);
    Ok(())
}

#[test]
fn a_pod_gets_its_ipv6_address_where_the_runtime_switched_ipv6_off() -> Result {
    let mut node = Node::new("node")?;
    node.bed.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    let pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    pod.bed.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    node.set_up(&pod)?;
    pod.bed.ping(ip(NODE_V6), PATIENCE)?;
    node.bed.ping(ip("fd01::1"), PATIENCE)?;
    // Without an IPv6 address it stays off.
    let four = Pod::new("four", &["10.2.0.2"])?;
    four.bed.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    node.set_up(&four)?;
    assert_eq!(four.bed.run(|| sysctl::read_of_link("ipv6", "eth0", "disable_ipv6"))??, "1");
    Ok(())
}

#[test]
fn the_host_talks_to_pods_from_its_own_address() -> Result {
    let mut node = Node::new("node")?;
    let source = |node: &Node, to: &str| {
        node.ip(&["route", "get", to])[0]["prefsrc"].as_str().unwrap().parse::<IpAddr>().unwrap()
    };
    let mut pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    node.set_up(&pod)?;
    assert_eq!(source(&node, "10.2.0.1"), ip(NODE_V4));
    assert_eq!(source(&node, "fd01::1"), ip(NODE_V6));
    // With several addresses the plan says which.
    node.bed.address("uplink", &["192.0.2.77/24", "2001:db8::77/64"])?;
    pod.plan.sources = vec![ip("192.0.2.77"), ip("2001:db8::77")];
    node.set_up(&pod)?;
    assert_eq!(source(&node, "10.2.0.1"), ip("192.0.2.77"));
    assert_eq!(source(&node, "fd01::1"), ip("2001:db8::77"));
    pod.bed.ping(ip("192.0.2.77"), PATIENCE)?;
    Ok(())
}

#[test]
fn a_second_interface_carries_only_its_own_routes() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1", "fd01::1"])?;
    let mut second = pod.plan.clone();
    second.identity = tenure_linux::pod::Identity {
        interface: "net1".into(),
        network: "storage".into(),
        ..identity("pod")
    };
    second.addresses = vec![ip("10.8.0.1")];
    second.routes = vec![net("10.8.0.0/16")];
    pod::setup(&mut node.host, &pod.namespace, &second)?;
    let routes = pod.bed.namespace().ip_json(&["-4", "route", "show"])?;
    let of = |dst: &str| {
        routes
            .as_array()
            .unwrap()
            .iter()
            .filter(|r| r["dst"] == dst)
            .map(|r| r["dev"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("default"), ["eth0"]);
    assert_eq!(of("10.8.0.0/16"), ["net1"]);
    let other = node.pod("other", &["10.8.0.2"])?;
    other.bed.ping(ip("10.8.0.1"), PATIENCE)?;
    pod::destroy(&mut node.host, &second.identity, None)?;
    assert_eq!(pod::check(&mut node.host, &pod.namespace, &pod.plan)?, []);
    pod.bed.ping(ip(NODE_V4), PATIENCE)?;
    Ok(())
}

#[test]
fn other_numbers_and_names_can_be_chosen() -> Result {
    let settings = Settings {
        pod_table: 1016,
        export_table: 70_000,
        pod_rule_priority: 1500,
        protocol: 77,
        pod_group: 5,
        trash_group: 6,
        gateway_v4: "169.254.7.7".parse()?,
        gateway_v6: "fe80::77".parse()?,
        port_prefix: "my-".into(),
        ..Settings::default()
    };
    let node = Node::unprepared("node")?;
    let mut host = tenure_linux::Host::of(NetNs::open(node.bed.namespace().path())?, settings)?;
    host.prepare()?;
    let pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    let wired = pod::setup(&mut host, &pod.namespace, &pod.plan)?;
    assert!(wired.host_name.starts_with("my-"));
    assert_eq!(node.table(1016), ["10.2.0.1", "fd01::1"]);
    pod.bed.ping(ip(NODE_V4), PATIENCE)?;
    pod.bed.ping(ip(NODE_V6), PATIENCE)?;
    export::sync(&mut host, &[net("10.2.0.0/27"), net("fd01::/123")].into())?;
    assert_eq!(node.table(70_000), ["10.2.0.0/27", "fd01::/123"]);
    export::sync(&mut host, &BTreeSet::new())?;
    assert_eq!(node.table(70_000), Vec::<String>::new());
    assert!(pod::setup(&mut host, &pod.namespace, &pod.plan)?.repeated);
    pod::destroy(&mut host, &pod.plan.identity, None)?;
    assert!(reaper::reap(&mut host)?);
    Ok(())
}
