//! Pods' interfaces, routes and rules on the real kernel, in namespaces made for each test. Needs root and iproute2 (to
//! look at the kernel with other eyes than ours).

mod bench_of_pods {
    //! A node and its pods, each in a namespace of its own.

    use std::net::IpAddr;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::time::Duration;

    use tenure_linux::netns::NetNs;
    use tenure_linux::pod::{self, Identity, PodPlan, Wired};
    use tenure_linux::{Host, Settings};
    use tenure_testbed::hosts::{self, Mounts, NetworkNamespace, Port, Segment};

    pub type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

    pub const SOON: Duration = Duration::from_secs(5);
    pub const NODE_V4: &str = "192.0.2.1";
    pub const NODE_V6: &str = "2001:db8::1";

    pub fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A node with an uplink, prepared to carry pods' traffic.
    pub struct Node {
        pub host: Host,
        pub bed: hosts::Host,
        _uplink: (Segment, Port),
    }

    impl Node {
        pub fn new(name: &str) -> Result<Self> {
            let mut node = Self::unprepared(name)?;
            node.host.prepare()?;
            Ok(node)
        }

        pub fn unprepared(name: &str) -> Result<Self> {
            let bed = hosts::Host::new(name)?;
            let wire = Segment::new("wire")?;
            let port = wire.connect(&bed, "uplink", &[&format!("{NODE_V4}/24"), &format!("{NODE_V6}/64")])?;
            bed.route("default", ip("192.0.2.254"))?;
            // The kernel takes a moment until it accepts packets for the address that it has.
            bed.ping(ip(NODE_V6), SOON)?;
            let host = Host::of(NetNs::open(bed.namespace().path())?, Settings::default())?;
            Ok(Self { host, bed, _uplink: (wire, port) })
        }

        /// A second pair of hands on the same node.
        pub fn another(&self) -> Host {
            Host::of(NetNs::open(self.bed.namespace().path()).unwrap(), Settings::default()).unwrap()
        }

        /// Sets up an interface for a new pod.
        pub fn pod(&mut self, name: &str, addresses: &[&str]) -> Result<Pod> {
            let mut pod = Pod::new(name, addresses)?;
            pod.wired = Some(self.set_up(&pod)?);
            Ok(pod)
        }

        pub fn set_up(&mut self, pod: &Pod) -> Result<Wired> {
            Ok(pod::setup(&mut self.host, &pod.namespace, &pod.plan)?)
        }

        /// The lines of `ip -json ARGS`.
        pub fn ip(&self, args: &[&str]) -> Vec<serde_json::Value> {
            self.bed.namespace().ip_json(args).unwrap().as_array().unwrap().clone()
        }

        /// Names of all links.
        pub fn links(&self) -> Vec<String> {
            let mut names: Vec<String> = self
                .ip(&["link", "show"])
                .iter()
                .map(|link| link["ifname"].as_str().unwrap().to_owned())
                .collect();
            names.sort();
            names
        }

        /// Destinations in a table, of both families.
        pub fn table(&self, id: u32) -> Vec<String> {
            let id = id.to_string();
            let mut found: Vec<String> = ["-4", "-6"]
                .into_iter()
                .flat_map(|family| {
                    match self.bed.namespace().ip_json(&[family, "route", "show", "table", &id]) {
                        Ok(routes) => routes.as_array().unwrap().clone(),
                        // "FIB table does not exist": nothing was ever in it.
                        Err(_) => Vec::new(),
                    }
                })
                .map(|route| route["dst"].as_str().unwrap().to_owned())
                .collect();
            found.sort();
            found
        }
    }

    /// A pod: a namespace as a runtime makes it, untouched, with duplicate address detection on.
    pub struct Pod {
        pub namespace: NetNs,
        pub bed: hosts::Host,
        pub plan: PodPlan,
        pub wired: Option<Wired>,
    }

    impl Pod {
        pub fn new(name: &str, addresses: &[&str]) -> Result<Self> {
            let namespace = NetNs::make()?;
            let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd()));
            let bed = hosts::Host::in_namespace(NetworkNamespace::open(name, &path)?, Mounts::default());
            let addresses = addresses.iter().map(|address| ip(address)).collect();
            Ok(Self { namespace, bed, plan: PodPlan::new(identity(name), addresses, 1450), wired: None })
        }

        pub fn wired(&self) -> &Wired {
            self.wired.as_ref().unwrap()
        }

        pub fn has_interface(&self) -> bool {
            self.bed.namespace().ip_json(&["link", "show", "eth0"]).is_ok()
        }
    }

    pub fn identity(name: &str) -> Identity {
        Identity {
            container: format!("{name}-sandbox"),
            interface: "eth0".into(),
            network: "k8s".into(),
            namespace: "shop".into(),
            pod: name.into(),
        }
    }
}

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bench_of_pods::{NODE_V4, NODE_V6, Node, Pod, Result, SOON, identity, ip};
use ipnet::IpNet;
use tenure_linux::inventory::Inventory;
use tenure_linux::link::Link;
use tenure_linux::netns::NetNs;
use tenure_linux::pod::{self, Destroyed, SetupError};
use tenure_linux::routes::PodRoute;
use tenure_linux::socket::Kind;
use tenure_linux::{Settings, announce, export, reaper, remote, routes, rule, sysctl, uplink};
use tenure_testbed::hosts::{self, Segment};

const A_MOMENT: Duration = Duration::from_millis(300);

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// N1: what is made is what was planned, and the caller is told what a CNI result needs.
#[test]
fn n1_six_pods_of_either_and_both_families_are_wired_as_planned() -> Result {
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

/// N2, and at once: no neighbour is asked for, no duplicate address is waited for.
#[test]
fn n2_pods_reach_the_host_and_each_other_over_both_families_with_their_first_packet() -> Result {
    let mut node = Node::new("node")?;
    let a = node.pod("a", &["10.2.0.1", "fd01::1"])?;
    let b = node.pod("b", &["10.2.0.2", "fd01::2"])?;
    let capture = a.bed.capture()?;
    // One try takes 100 ms; an answer to a second one would come later than that.
    let at_once = Duration::from_millis(90);
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
        let took = from.ping(ip(to), at_once)?;
        assert!(took < at_once, "{} to {to}: {took:?}", from.name());
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
    node.bed.ping(ip("10.2.0.1"), SOON)?;
    // With the address go the neighbours that were known, as with another network stack behind the same interface.
    pod.bed.ip("link set eth0 address 0a:00:00:00:00:99")?;
    pod.bed.ping(ip(NODE_V4), SOON)?;
    pod.bed.ping(ip(NODE_V6), SOON)?;
    node.bed.ping(ip("10.2.0.1"), SOON)?;
    node.bed.ping(ip("fd01::1"), SOON)?;
    Ok(())
}

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
    node.bed.ping(ip("fd01::44c"), SOON)?;
    Ok(())
}

#[test]
fn single_family_pods_reach_the_host_and_their_like() -> Result {
    let mut node = Node::new("node")?;
    let four = [node.pod("a", &["10.2.0.3"])?, node.pod("b", &["10.2.0.4"])?];
    let six = [node.pod("c", &["fd01::5"])?, node.pod("d", &["fd01::6"])?];
    four[0].bed.ping(ip("10.2.0.4"), SOON)?;
    four[1].bed.ping(ip(NODE_V4), SOON)?;
    node.bed.ping(ip("10.2.0.3"), SOON)?;
    six[0].bed.ping(ip("fd01::6"), SOON)?;
    six[1].bed.ping(ip(NODE_V6), SOON)?;
    node.bed.ping(ip("fd01::5"), SOON)?;
    Ok(())
}

/// N3: who has which address is found in the kernel alone.
#[test]
fn n3_the_inventory_leads_from_every_link_to_its_pod_and_addresses() -> Result {
    let mut node = Node::new("node")?;
    let both = node.pod("both", &["10.2.0.1", "fd01::1"])?;
    let four = node.pod("four", &["10.2.0.2"])?;
    let six = node.pod("six", &["fd01::3"])?;
    both.bed.ping(ip("10.2.0.2"), SOON)?;

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

/// N4: work for a pod happens in that pod and nowhere else.
#[test]
fn n4_work_runs_in_exactly_the_namespace_of_each_pod() -> Result {
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

/// N5: destroying twice is as good as once; what is gone is seen to be gone.
#[test]
fn n5_a_destroyed_pod_is_gone_and_can_be_destroyed_again() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1", "fd01::1"])?;
    let kept = node.pod("kept", &["10.2.0.2", "fd01::2"])?;
    node.bed.ping(ip("10.2.0.1"), SOON)?;

    let destroyed = pod::destroy(&mut node.host, &pod.plan.identity, None)?;
    assert!(
        matches!(&destroyed, Destroyed::ToTrash(link) if link.index == pod.wired().host_index),
        "{destroyed:?}"
    );
    assert_eq!(node.table(116), ["10.2.0.2", "fd01::2"], "routes are gone before the link is");
    assert!(node.bed.ping(ip("10.2.0.1"), A_MOMENT).is_err());
    assert!(!pod::check(&mut node.host, &pod.namespace, &pod.plan)?.is_empty());
    assert_eq!(pod::destroy(&mut node.host, &pod.plan.identity, None)?, Destroyed::AlreadyGone);
    assert_eq!(Inventory::take(&mut node.host)?.trash.len(), 1);

    assert!(reaper::reap(&mut node.host)?);
    assert!(!pod.has_interface());
    assert_eq!(pod::destroy(&mut node.host, &pod.plan.identity, None)?, Destroyed::AlreadyGone);
    assert!(!pod::check(&mut node.host, &pod.namespace, &pod.plan)?.is_empty());
    assert_eq!(pod::check(&mut node.host, &kept.namespace, &kept.plan)?, []);
    kept.bed.ping(ip(NODE_V4), SOON)?;
    Ok(())
}

#[test]
fn a_pod_whose_namespace_is_gone_is_destroyed_too() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1"])?;
    let identity = pod.plan.identity.clone();
    drop(pod);
    // The kernel takes the link down with the namespace, in its own time; either way there is nothing to complain about.
    pod::destroy(&mut node.host, &identity, None)?;
    assert_eq!(node.table(116), Vec::<String>::new());
    Ok(())
}

/// N6: the export table is exactly what it should be, after each change.
#[test]
fn n6_the_export_table_is_exactly_the_wanted_set_after_each_sync() -> Result {
    let mut node = Node::new("node")?;
    let steps: [&[&str]; 5] = [
        &["10.2.0.0/27", "10.2.0.64/27", "fd01::/123"],
        &["10.2.0.0/27", "10.2.0.64/27", "10.2.0.96/27", "fd01::/123", "fd01::40/123"],
        &["10.2.0.96/27", "fd01::40/123"],
        &["10.3.0.0/27", "10.9.9.9/32", "fd02::/123", "fd09::9/128"],
        &[],
    ];
    for step in steps {
        let wanted: BTreeSet<IpNet> = step.iter().map(|block| net(block)).collect();
        let changes = export::sync(&mut node.host, &wanted)?;
        assert_eq!(changes.refused, []);
        assert_eq!(export::list(&mut node.host)?, wanted);
        let mut shown: Vec<String> =
            step.iter().map(|b| b.trim_end_matches("/32").trim_end_matches("/128").to_owned()).collect();
        shown.sort();
        assert_eq!(node.table(119), shown);
        assert!(export::sync(&mut node.host, &wanted)?.is_empty(), "what is in order is left alone");
    }
    Ok(())
}

#[test]
fn the_export_table_is_cleared_of_what_others_put_there() -> Result {
    let mut node = Node::new("node")?;
    export::sync(&mut node.host, &[net("10.2.0.0/27"), net("fd01::/123")].into())?;
    node.bed.ip("route add 10.9.0.0/24 via 192.0.2.7 table 119 proto static\n\
         route add 10.9.1.0/24 table 119 proto static nexthop via 192.0.2.7 nexthop via 192.0.2.8\n\
         route add unreachable 10.9.2.0/24 table 119\n\
         route add 10.2.0.0/27 via 192.0.2.7 table 119 metric 5\n\
         route replace 10.2.0.32/27 dev uplink table 119 proto 30\n\
         route add fd09::/64 via 2001:db8::7 table 119 proto static\n\
         route add fd01::/123 via 2001:db8::7 table 119 metric 5")?;
    let wanted: BTreeSet<IpNet> = [net("10.2.0.0/27"), net("10.2.0.32/27"), net("fd01::/123")].into();
    let changes = export::sync(&mut node.host, &wanted)?;
    assert_eq!(changes.refused, []);
    assert_eq!(node.table(119), ["10.2.0.0/27", "10.2.0.32/27", "fd01::/123"]);
    assert!(export::sync(&mut node.host, &wanted)?.is_empty());
    let dev: Vec<_> =
        node.ip(&["-4", "route", "show", "table", "119"]).iter().map(|r| r["dev"].clone()).collect();
    assert_eq!(dev, ["lo", "lo"]);
    Ok(())
}

#[test]
fn one_destination_is_exported_and_withdrawn_without_touching_the_others() -> Result {
    let mut node = Node::new("node")?;
    for destination in ["10.2.0.0/27", "10.9.9.9/32", "fd09::9/128"] {
        export::add(&mut node.host, net(destination))?;
        export::add(&mut node.host, net(destination))?;
    }
    export::remove(&mut node.host, net("10.9.9.9/32"))?;
    export::remove(&mut node.host, net("10.9.9.9/32"))?;
    assert_eq!(node.table(119), ["10.2.0.0/27", "fd09::9"]);
    Ok(())
}

/// N7: the routes of our protocol are the wanted set; everybody else's stay.
#[test]
fn n7_remote_routes_follow_the_wanted_set_and_a_foreign_route_stays_intact() -> Result {
    let mut node = Node::new("node")?;
    node.bed.ip("route add 10.5.0.0/27 via 192.0.2.9 proto static\n\
         route add fd05::/123 via 2001:db8::9 proto static")?;
    let foreign = |node: &Node| {
        let routes = [
            node.ip(&["-4", "route", "show", "proto", "static"]),
            node.ip(&["-6", "route", "show", "proto", "static"]),
        ];
        routes.concat().iter().map(|r| format!("{} via {}", r["dst"], r["gateway"])).collect::<Vec<_>>()
    };
    let before = foreign(&node);
    assert_eq!(before.len(), 2);
    let steps: [&[(&str, &str)]; 5] = [
        &[("10.2.0.0/27", "192.0.2.2"), ("10.2.0.32/27", "192.0.2.3"), ("fd01::/123", "2001:db8::2")],
        // One block moved to another node, one is new, one has a foreign twin.
        &[
            ("10.2.0.0/27", "192.0.2.3"),
            ("10.2.0.64/27", "192.0.2.2"),
            ("10.5.0.0/27", "192.0.2.2"),
            ("fd01::/123", "2001:db8::3"),
            ("fd05::/123", "2001:db8::2"),
        ],
        &[("10.2.0.0/27", "192.0.2.3"), ("10.5.0.0/27", "192.0.2.4"), ("fd05::/123", "2001:db8::4")],
        &[("10.2.0.64/27", "192.0.2.2")],
        &[],
    ];
    for step in steps {
        let wanted: BTreeMap<IpNet, IpAddr> = step.iter().map(|(block, via)| (net(block), ip(via))).collect();
        let changes = remote::sync(&mut node.host, &wanted)?;
        assert_eq!(changes.refused, []);
        assert_eq!(remote::list(&mut node.host)?, wanted);
        let shown = ["-4", "-6"].map(|family| node.ip(&[family, "route", "show", "proto", "31"])).concat();
        let shown: BTreeMap<IpNet, IpAddr> = shown
            .iter()
            .map(|route| (net(route["dst"].as_str().unwrap()), ip(route["gateway"].as_str().unwrap())))
            .collect();
        assert_eq!(shown, wanted);
        assert_eq!(foreign(&node), before);
        assert!(remote::sync(&mut node.host, &wanted)?.is_empty());
    }
    Ok(())
}

#[test]
fn a_gateway_that_cannot_be_reached_is_reported_and_the_others_are_routed() -> Result {
    let mut node = Node::new("node")?;
    node.bed.ip("route delete default")?;
    let wanted =
        BTreeMap::from([(net("10.2.0.0/27"), ip("192.0.2.2")), (net("10.2.0.32/27"), ip("203.0.113.1"))]);
    let changes = remote::sync(&mut node.host, &wanted)?;
    assert_eq!(changes.added.len(), 1);
    let (route, refusal) = &changes.refused[0];
    assert_eq!(route.destination, net("10.2.0.32/27"));
    let text = refusal.to_string();
    assert!(
        text.contains("10.2.0.32/27 via 203.0.113.1") && text.contains("Nexthop has invalid gateway"),
        "{text}"
    );
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
fn an_error_on_the_host_takes_back_what_was_made_in_the_pod() -> Result {
    let mut node = Node::new("node")?;
    let before = node.links();
    let mut pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    // Not an address of this node: the kernel refuses the last message of the last batch.
    pod.plan.sources = vec![ip("198.51.100.1")];
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.contains("eth0 of container pod-sandbox") && text.contains("on the host"), "{text}");
    assert!(text.contains("add route 10.2.0.1/32") && text.contains("EINVAL"), "{text}");
    assert!(text.contains("Invalid prefsrc"), "the kernel's own words: {text}");
    assert_eq!(node.links(), before);
    assert_eq!(node.table(116), Vec::<String>::new());
    assert!(!pod.has_interface());

    pod.plan.sources = vec![ip(NODE_V4), ip(NODE_V6)];
    node.set_up(&pod)?;
    pod.bed.ping(ip(NODE_V4), SOON)?;
    Ok(())
}

#[test]
fn an_error_inside_the_pod_leaves_nothing_on_the_host() -> Result {
    let mut node = Node::new("node")?;
    let before = node.links();
    // A gateway that is to be reached through itself: the kernel refuses the route behind it.
    let mut pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    pod.plan.routes.insert(0, net("169.254.1.1/32"));
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.contains("inside the pod") && text.contains("via 169.254.1.1"), "{text}");
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(node.links(), before);
    assert!(!pod.has_interface());
    Ok(())
}

#[test]
fn a_repeated_setup_changes_nothing_and_interrupts_nothing() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1", "fd01::1"])?;
    let again = node.set_up(&pod)?;
    assert!(again.repeated);
    assert_eq!((again.host_index, again.pod_index), (pod.wired().host_index, pod.wired().pod_index));
    assert_eq!(node.table(116), ["10.2.0.1", "fd01::1"]);
    Ok(())
}

#[test]
fn what_an_earlier_attempt_left_is_replaced() -> Result {
    let mut node = Node::new("node")?;
    // Destroyed and not reaped yet: name and interface are still taken.
    let mut pod = node.pod("pod", &["10.2.0.1"])?;
    pod::destroy(&mut node.host, &pod.plan.identity, None)?;
    let second = node.set_up(&pod)?;
    assert!(!second.repeated && second.host_index != pod.wired().host_index);
    pod.bed.ping(ip(NODE_V4), SOON)?;

    // In service, but with another plan.
    pod.plan.addresses = vec![ip("10.2.0.9"), ip("fd01::9")];
    let third = node.set_up(&pod)?;
    assert!(!third.repeated);
    assert_eq!(node.table(116), ["10.2.0.9", "fd01::9"]);

    // Broken by someone: a route is missing.
    node.bed.ip("route delete 10.2.0.9 table 116")?;
    assert!(!node.set_up(&pod)?.repeated);
    assert_eq!(node.table(116), ["10.2.0.9", "fd01::9"]);

    // Cut short before it was marked, as by a crash: in our group, with our name, without an alias.
    let pod = Pod::new("cut-short", &["10.2.0.2"])?;
    let name = pod.plan.host_name(node.host.settings());
    node.bed.ip(&format!(
        "link add {name} group 11600 type veth peer name eth0 netns {}",
        pod.bed.namespace().path().display()
    ))?;
    assert_eq!(Inventory::take(&mut node.host)?.unmarked.len(), 1);
    assert!(!node.set_up(&pod)?.repeated);
    pod.bed.ping(ip(NODE_V4), SOON)?;
    assert_eq!(Inventory::take(&mut node.host)?.unmarked, []);
    Ok(())
}

#[test]
fn names_that_belong_to_others_are_left_alone() -> Result {
    let mut node = Node::new("node")?;
    let pod = Pod::new("pod", &["10.2.0.1"])?;
    let name = pod.plan.host_name(node.host.settings());
    node.bed.ip(&format!("link add {name} type veth peer name other"))?;
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    assert!(matches!(error, SetupError::NameTaken { .. }) && error.kind() == Kind::Exists, "{error}");
    assert_eq!(pod::destroy(&mut node.host, &pod.plan.identity, None)?, Destroyed::AlreadyGone);
    assert!(node.links().contains(&name));
    node.bed.ip(&format!("link delete {name}"))?;

    pod.bed.ip("link add eth0 type veth peer name other")?;
    let before = node.links();
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    assert!(matches!(error, SetupError::InterfaceTaken { .. }) && error.kind() == Kind::Exists, "{error}");
    assert_eq!(node.links(), before);

    let own = NetNs::open(node.bed.namespace().path())?;
    let error = pod::setup(&mut node.host, &own, &pod.plan).unwrap_err();
    assert!(matches!(error, SetupError::HostNamespace { .. }), "{error}");
    Ok(())
}

#[test]
fn a_late_destroy_does_not_touch_the_next_holder_of_the_address() -> Result {
    let mut node = Node::new("node")?;
    let first = node.pod("first", &["10.2.0.1", "fd01::1"])?;
    let second = node.pod("second", &["10.2.0.1", "fd01::1"])?;
    pod::destroy(&mut node.host, &first.plan.identity, None)?;
    pod::destroy(&mut node.host, &first.plan.identity, None)?;
    reaper::reap(&mut node.host)?;
    assert_eq!(pod::check(&mut node.host, &second.namespace, &second.plan)?, []);
    node.bed.ping(ip("10.2.0.1"), SOON)?;
    node.bed.ping(ip("fd01::1"), SOON)?;
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

#[test]
fn routes_of_pods_are_verified_and_repaired() -> Result {
    let mut node = Node::new("node")?;
    let a = node.pod("a", &["10.2.0.1", "fd01::1"])?;
    let b = node.pod("b", &["10.2.0.2", "fd01::2"])?;
    let wanted: BTreeMap<IpAddr, PodRoute> = [(&a, ["10.2.0.1", "fd01::1"]), (&b, ["10.2.0.2", "fd01::2"])]
        .into_iter()
        .flat_map(|(pod, addresses)| {
            addresses.map(|address| (ip(address), PodRoute { link: pod.wired().host_index, source: None }))
        })
        .collect();
    assert!(routes::verify(&mut node.host, &wanted)?.is_empty());

    let (link_a, link_b) = (&a.wired().host_name, &b.wired().host_name);
    node.bed.ip(&format!(
        "route delete 10.2.0.1 table 116\n\
         route replace 10.2.0.2 dev {link_a} table 116 proto 30\n\
         route add 10.2.0.3 dev {link_b} table 116 proto 30\n\
         route add 10.2.0.4 dev {link_b} table 116 proto static\n\
         route delete fd01::2 table 116\n\
         route add fd01::3 dev {link_a} table 116 proto 30"
    ))?;
    let difference = routes::verify(&mut node.host, &wanted)?;
    assert_eq!((difference.missing.len(), difference.surplus.len()), (3, 3), "{difference:?}");
    let changes = routes::repair(&mut node.host, &wanted)?;
    assert_eq!(changes.refused, []);
    assert!(routes::verify(&mut node.host, &wanted)?.is_empty());
    assert_eq!(
        node.table(116),
        ["10.2.0.1", "10.2.0.2", "10.2.0.4", "fd01::1", "fd01::2"],
        "10.2.0.4 is not ours"
    );
    assert!(routes::repair(&mut node.host, &wanted)?.is_empty());
    b.bed.ping(ip("10.2.0.1"), SOON)?;
    b.bed.ping(ip("fd01::1"), SOON)?;

    // Only the source changes: replaced in place, not lost.
    let with_source: BTreeMap<IpAddr, PodRoute> = wanted
        .iter()
        .map(|(address, route)| {
            let source = if address.is_ipv4() { ip(NODE_V4) } else { ip(NODE_V6) };
            (*address, PodRoute { source: Some(source), ..*route })
        })
        .collect();
    assert_eq!(routes::repair(&mut node.host, &with_source)?.refused, []);
    assert!(routes::verify(&mut node.host, &with_source)?.is_empty());
    assert_eq!(routes::repair(&mut node.host, &wanted)?.refused, []);
    assert!(routes::verify(&mut node.host, &wanted)?.is_empty());
    Ok(())
}

#[test]
fn a_host_is_prepared_once_and_then_left_alone() -> Result {
    let mut node = Node::unprepared("node")?;
    let first = node.host.prepare()?;
    assert!(first.rule_v4 && first.rule_v6, "{first:?}");
    assert!(first.parameters.contains(&"net.ipv4.ip_forward"), "{first:?}");
    assert!(first.parameters.contains(&"net.ipv6.conf.all.forwarding"), "{first:?}");
    assert_eq!(node.bed.run(|| sysctl::read_of_link("ipv6", "uplink", "accept_ra"))??, "2");
    let second = node.host.prepare()?;
    assert!(!second.rule_v4 && !second.rule_v6 && second.parameters.is_empty(), "{second:?}");
    for family in ["-4", "-6"] {
        let rules = node.ip(&[family, "rule", "show"]);
        let ours: Vec<_> = rules.iter().filter(|rule| rule["table"] == "116").collect();
        assert_eq!(ours.len(), 1, "{rules:?}");
        assert_eq!((&ours[0]["priority"], &ours[0]["src"]), (&2000.into(), &"all".into()));
    }
    // A rule that only looks like ours does not do.
    rule::remove(&mut node.host)?;
    rule::remove(&mut node.host)?;
    node.bed.ip("rule add from 10.0.0.0/8 priority 2000 table 116")?;
    node.bed
        .command("ip")
        .args(["-6", "rule", "add", "fwmark", "5", "priority", "2000", "table", "116"])
        .succeed()?;
    let presence = rule::find(&mut node.host)?;
    assert!(!presence.v4 && !presence.v6);
    rule::ensure(&mut node.host)?;
    let presence = rule::find(&mut node.host)?;
    assert!(presence.v4 && presence.v6);
    Ok(())
}

#[test]
fn the_uplink_is_the_interface_of_the_default_route() -> Result {
    let mut node = Node::unprepared("node")?;
    node.bed.ip("link set uplink mtu 1400")?;
    let found = uplink::find(&mut node.host)?.unwrap();
    assert_eq!((found.name.as_str(), found.mtu), ("uplink", 1400));
    assert_eq!(found.addresses, [net("192.0.2.1/24"), net("2001:db8::1/64")]);
    node.bed.ip("route delete default")?;
    assert_eq!(uplink::find(&mut node.host)?, None);
    node.bed.ip("route add default via 2001:db8::fe")?;
    assert_eq!(uplink::find(&mut node.host)?.unwrap().name, "uplink");
    Ok(())
}

#[test]
fn a_pod_gets_its_ipv6_address_where_the_runtime_switched_ipv6_off() -> Result {
    let mut node = Node::new("node")?;
    node.bed.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    let pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    pod.bed.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    node.set_up(&pod)?;
    pod.bed.ping(ip(NODE_V6), SOON)?;
    node.bed.ping(ip("fd01::1"), SOON)?;
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
    pod.bed.ping(ip("192.0.2.77"), SOON)?;
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
    other.bed.ping(ip("10.8.0.1"), SOON)?;
    pod::destroy(&mut node.host, &second.identity, None)?;
    assert_eq!(pod::check(&mut node.host, &pod.namespace, &pod.plan)?, []);
    pod.bed.ping(ip(NODE_V4), SOON)?;
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
    pod.bed.ping(ip(NODE_V4), SOON)?;
    pod.bed.ping(ip(NODE_V6), SOON)?;
    export::sync(&mut host, &[net("10.2.0.0/27"), net("fd01::/123")].into())?;
    assert_eq!(node.table(70_000), ["10.2.0.0/27", "fd01::/123"]);
    export::sync(&mut host, &BTreeSet::new())?;
    assert_eq!(node.table(70_000), Vec::<String>::new());
    assert!(pod::setup(&mut host, &pod.namespace, &pod.plan)?.repeated);
    pod::destroy(&mut host, &pod.plan.identity, None)?;
    assert!(reaper::reap(&mut host)?);
    Ok(())
}

#[test]
fn an_announced_address_is_found_at_its_new_place_by_those_who_knew_the_old_one() -> Result {
    let wire = Segment::new("wire")?;
    let (watcher, old, new) =
        (hosts::Host::new("watcher")?, hosts::Host::new("old")?, hosts::Host::new("new")?);
    let ports = [
        wire.connect(&watcher, "eth0", &["192.0.2.1/24", "2001:db8::1/64"])?,
        wire.connect(&old, "eth0", &["192.0.2.9/24", "2001:db8::9/64"])?,
        wire.connect(&new, "eth0", &["192.0.2.3/24", "2001:db8::3/64"])?,
    ];
    let moved = [ip("192.0.2.9"), ip("2001:db8::9")];
    for address in moved {
        watcher.ping(address, SOON)?;
    }
    old.ip("address delete 192.0.2.9/24 dev eth0\naddress delete 2001:db8::9/64 dev eth0")?;
    new.address("eth0", &["192.0.2.9/24", "2001:db8::9/64"])?;
    for address in moved {
        assert!(watcher.ping(address, A_MOMENT).is_err(), "{address} is still looked for at its old place");
    }
    let namespace = NetNs::open(new.namespace().path())?;
    let mac = Link::by_name(&mut namespace.socket()?, "eth0")?.unwrap().mac.unwrap();
    announce::announce(&namespace, "eth0", mac, &moved)?;
    for address in moved {
        let took = watcher.ping(address, SOON)?;
        assert!(took < A_MOMENT, "{address}: {took:?}");
        let neighbours = watcher.namespace().ip_json(&["neighbour", "show", "to", &address.to_string()])?;
        assert_eq!(neighbours[0]["lladdr"], mac.to_string());
    }
    let error = announce::announce(&namespace, "eth7", mac, &moved).unwrap_err();
    assert!(error.to_string().contains("eth7"), "{error}");
    drop(ports);
    Ok(())
}
