//! Tables, rules and neighbours: the export table, routes to other nodes, repair, and what a node has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use tenure_linux::inventory::Inventory;
use tenure_linux::link::Link;
use tenure_linux::netns::NetNs;
use tenure_linux::routes::PodRoute;
use tenure_linux::{announce, export, remote, routes, rule, sysctl, uplink};
use tenure_testbed::hosts::{self, Segment};
use tenure_testbed::wait::PATIENCE;

use super::bed::{A_MOMENT, NODE_V4, NODE_V6, Node, Result, ip, net};

/// The export table is exactly what it should be, after each change.
#[test]
fn the_export_table_is_exactly_the_wanted_set_after_each_sync() -> Result {
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

/// The routes of our protocol are the wanted set; everybody else's stay.
#[test]
fn remote_routes_follow_the_wanted_set_and_a_foreign_route_stays_intact() -> Result {
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
    b.bed.ping(ip("10.2.0.1"), PATIENCE)?;
    b.bed.ping(ip("fd01::1"), PATIENCE)?;

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

/// Coil's pods run on when an agent takes their node over. Their routes look like ours.
#[test]
fn routes_of_coils_pods_stay_and_go_with_their_links() -> Result {
    let mut node = Node::new("node")?;
    let a = node.pod("a", &["10.2.0.1"])?;
    node.bed.ip("link add veth1234 type veth peer name theirs\n\
         link set veth1234 alias COIL:default:c0ffee:eth0\n\
         link set veth1234 up\n\
         link set theirs up\n\
         link add nobodys type veth peer name other\n\
         link set nobodys up\n\
         link set other up\n\
         route add 10.2.0.2 dev veth1234 table 116 proto 30\n\
         route add 10.2.0.3 dev nobodys table 116 proto 30")?;
    let wanted: BTreeMap<IpAddr, PodRoute> =
        [(ip("10.2.0.1"), PodRoute { link: a.wired().host_index, source: None })].into();
    let surplus = routes::verify(&mut node.host, &wanted)?.surplus;
    assert_eq!(surplus.iter().map(|it| it.destination).collect::<Vec<_>>(), [net("10.2.0.3/32")]);
    let strays = Inventory::take(&mut node.host)?.strays;
    assert_eq!(strays.iter().map(|it| it.destination).collect::<Vec<_>>(), [net("10.2.0.3/32")]);
    assert_eq!(routes::repair(&mut node.host, &wanted)?.removed.len(), 1);
    assert_eq!(node.table(116), ["10.2.0.1", "10.2.0.2"]);
    assert!(routes::repair(&mut node.host, &wanted)?.is_empty());
    // The runtime removes a pod's namespace, and the link with it.
    node.bed.ip("link delete veth1234")?;
    assert_eq!(node.table(116), ["10.2.0.1"]);
    Ok(())
}

#[test]
fn a_host_is_prepared_once_and_then_left_alone() -> Result {
    let mut node = Node::unprepared("node")?;
    let first = node.host.prepare()?;
    assert!(first.rule_v4 && first.rule_v6, "{first:?}");
    let parameters: Vec<&str> = first.parameters.iter().map(|it| it.name.as_str()).collect();
    let wanted = ["ipv4/ip_forward", "ipv6/conf/uplink/accept_ra", "ipv6/conf/all/forwarding"];
    assert_eq!(parameters, wanted, "{first:?}");
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
        watcher.ping(address, PATIENCE)?;
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
        watcher.ping(address, PATIENCE)?;
        let neighbours = watcher.namespace().ip_json(&["neighbour", "show", "to", &address.to_string()])?;
        assert_eq!(neighbours[0]["lladdr"], mac.to_string());
    }
    let error = announce::announce(&namespace, "eth7", mac, &moved).unwrap_err();
    assert!(error.to_string().contains("eth7"), "{error}");
    drop(ports);
    Ok(())
}
