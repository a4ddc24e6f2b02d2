//! The node's own interfaces: addresses and routes that a plan gives and takes, beside those of others.

use std::collections::BTreeSet;

use ipnet::IpNet;
use tenure_handles::SystemClock;
use tenure_linux::interface::{
    self, Difference, InterfacePlan, InterfaceState, MARK, PlannedRoute, apply, read, read_all, read_whole,
    restore,
};
use tenure_linux::link::LinkKind;
use tenure_linux::netns::NetNs;
use tenure_linux::probe::{Answer, Question, probe};
use tenure_linux::{Host, Mac, Settings};
use tenure_testbed::hosts::{self, Port, Segment};
use tenure_testbed::wait::{PATIENCE, until};

use super::bed::{Result, ip, net};

/// A node with a second interface, `eth1`, on a segment with a neighbour.
struct Bed {
    host: Host,
    node: hosts::Host,
    neighbour: hosts::Host,
    _ports: (Segment, Port, Port),
}

impl Bed {
    fn new() -> Result<Self> {
        let (node, neighbour) = (hosts::Host::new("node")?, hosts::Host::new("neighbour")?);
        let wire = Segment::new("second")?;
        let own = wire.connect(&node, "eth1", &[])?;
        let other = wire.connect(&neighbour, "eth1", &["10.10.10.200/24", "fd10::200/64"])?;
        let host = Host::of(NetNs::open(node.namespace().path())?, Settings::default())?;
        Ok(Self { host, node, neighbour, _ports: (wire, own, other) })
    }

    fn read(&mut self) -> InterfaceState {
        read(&mut self.host, "eth1").unwrap().unwrap()
    }

    /// Addresses that mean something beyond the link, as `ip` shows them.
    fn addresses(&self) -> BTreeSet<String> {
        let links = self.node.namespace().ip_json(&["address", "show", "dev", "eth1"]).unwrap();
        let all = links[0]["addr_info"].as_array().unwrap().clone();
        let global = all.into_iter().filter(|it| it["scope"] == "global");
        global.map(|it| format!("{}/{}", it["local"].as_str().unwrap(), it["prefixlen"])).collect()
    }

    fn apply(&mut self, plan: &InterfacePlan) -> Vec<InterfaceState> {
        apply(&mut self.host, std::slice::from_ref(plan)).unwrap()
    }

    /// Waits until nothing differs from the plan.
    fn settle(&mut self, plan: &InterfacePlan) {
        until("the interface to have what was planned", || {
            plan.differences(Some(&self.read())).is_empty().then_some(())
        });
    }
}

fn plan(addresses: &[&str]) -> InterfacePlan {
    InterfacePlan {
        name: "eth1".to_owned(),
        up: true,
        addresses: addresses.iter().map(|it| net(it)).collect(),
        ..InterfacePlan::default()
    }
}

fn texts(addresses: &[&str]) -> BTreeSet<String> {
    addresses.iter().map(|&it| it.to_owned()).collect()
}

#[test]
fn an_interface_gets_addresses_mtu_and_routes_and_loses_them_again() -> Result {
    let mut bed = Bed::new()?;
    bed.node.ip("link set eth1 down")?;
    let mut wanted = plan(&["10.10.10.8/24", "fd10::8/64"]);
    wanted.mtu = Some(1400);
    let route = |destination: &str, gateway: &str, metric| PlannedRoute {
        destination: net(destination),
        gateway: Some(ip(gateway)),
        metric,
        table: None,
    };
    wanted.routes =
        vec![route("198.51.100.0/24", "10.10.10.200", Some(50)), route("2001:db8:9::/64", "fd10::200", None)];
    bed.apply(&wanted);
    bed.settle(&wanted);
    let state = bed.read();
    assert_eq!((state.up, state.mtu, state.kind), (true, 1400, LinkKind::Veth));
    let marked: Vec<IpNet> = state.addresses.iter().filter(|it| it.ours).map(|it| it.address).collect();
    assert_eq!(marked, [net("10.10.10.8/24"), net("fd10::8/64")]);
    assert_eq!(state.routes.iter().filter(|it| it.ours).count(), 2);
    bed.node.ping(ip("10.10.10.200"), PATIENCE)?;
    bed.node.ping(ip("fd10::200"), PATIENCE)?;
    // Once more changes nothing.
    let before = bed.read();
    bed.apply(&wanted);
    assert_eq!(bed.read().addresses, before.addresses);
    let nothing = InterfacePlan { name: "eth1".to_owned(), ..InterfacePlan::default() };
    bed.apply(&nothing);
    assert_eq!(bed.addresses(), BTreeSet::new());
    assert_eq!(bed.read().routes, []);
    assert!(bed.read().up, "whether it is up is left alone");
    assert_eq!(MARK, 32, "the mark is on nodes that run: it never changes");
    Ok(())
}

/// The first address of a network takes the others with it, unless `promote_secondaries` is set; those of others stay all the
/// same, and so does a second one of ours.
#[test]
fn addresses_of_others_stay_whatever_is_removed() -> Result {
    for promote in ["0", "1"] {
        let mut bed = Bed::new()?;
        bed.node.sysctl("net.ipv4.conf.all.promote_secondaries", "0")?;
        bed.node.sysctl("net.ipv4.conf.eth1.promote_secondaries", promote)?;
        bed.apply(&plan(&["10.10.10.8/24", "10.10.10.9/24"]));
        bed.node.ip("address add 10.10.10.70/24 dev eth1 label eth1:x\naddress add 10.10.99.1/24 dev eth1\naddress add fd10::70/64 dev eth1")?;
        bed.node.ip("route add 203.0.113.0/24 via 10.10.10.200 src 10.10.10.70")?;
        // Another first address of ours.
        let next = plan(&["10.10.10.9/24", "10.10.10.10/24"]);
        bed.apply(&next);
        bed.settle(&next);
        let others = ["10.10.10.70/24", "10.10.99.1/24", "fd10::70/64"];
        let expected = [&others[..], &["10.10.10.9/24", "10.10.10.10/24"]].concat();
        assert_eq!(bed.addresses(), texts(&expected), "promote_secondaries={promote}");
        let shown = bed.node.namespace().ip_json(&["address", "show", "dev", "eth1", "label", "eth1:x"])?;
        assert!(shown.to_string().contains("10.10.10.70"), "its label is lost: {shown}");
        let routes = bed.node.namespace().ip_json(&["route", "show", "203.0.113.0/24"])?;
        assert_eq!(routes.as_array().unwrap().len(), 1, "a route of others is lost");
        bed.apply(&InterfacePlan { name: "eth1".to_owned(), ..InterfacePlan::default() });
        assert_eq!(bed.addresses(), texts(&others));
    }
    Ok(())
}

/// Kernels before 5.18 keep no mark; then the record tells.
#[test]
fn an_address_on_record_is_removed_without_our_mark() -> Result {
    let mut bed = Bed::new()?;
    bed.node.ip("address add 10.10.10.8/24 dev eth1\naddress add 10.10.10.9/24 dev eth1")?;
    let mut wanted = plan(&["10.10.10.10/24"]);
    wanted.recorded = [net("10.10.10.8/24")].into();
    assert_eq!(
        wanted.differences(Some(&bed.read())),
        [Difference::AddressMissing(net("10.10.10.10/24")), Difference::AddressLeft(net("10.10.10.8/24"))]
    );
    bed.apply(&wanted);
    assert_eq!(bed.addresses(), texts(&["10.10.10.9/24", "10.10.10.10/24"]));
    Ok(())
}

#[test]
fn an_ipv6_address_that_another_host_has_is_seen() -> Result {
    let mut bed = Bed::new()?;
    // Hosts of the test bed do without duplicate address detection.
    bed.node.sysctl("net.ipv6.conf.eth1.accept_dad", "1")?;
    bed.node.sysctl("net.ipv6.conf.eth1.dad_transmits", "1")?;
    // The neighbour's own address is there for sure.
    bed.neighbour.ping(ip("fd10::200"), PATIENCE)?;
    let wanted = plan(&["fd10::200/64"]);
    bed.apply(&wanted);
    until("the duplicate to be seen", || {
        let found = wanted.differences(Some(&bed.read()));
        (found == [Difference::Duplicate(net("fd10::200/64"))]).then_some(())
    });
    // When the other has gone, it is asked for again.
    bed.neighbour.ip("address del fd10::200/64 dev eth1")?;
    bed.apply(&wanted);
    bed.settle(&wanted);
    Ok(())
}

#[test]
fn a_refusal_puts_back_what_was_there() -> Result {
    let mut bed = Bed::new()?;
    let first = plan(&["10.10.10.8/24"]);
    bed.apply(&first);
    bed.node.ip("address add 10.10.10.70/24 dev eth1\nroute add 203.0.113.0/24 via 10.10.10.200")?;
    let before = (bed.addresses(), bed.read().mtu);
    let mut wanted = plan(&["10.10.11.9/24"]);
    wanted.mtu = Some(1400);
    // A gateway that no network leads to.
    wanted.routes = vec![PlannedRoute {
        destination: net("198.51.100.0/24"),
        gateway: Some(ip("192.0.2.77")),
        metric: None,
        table: None,
    }];
    let error = apply(&mut bed.host, std::slice::from_ref(&wanted)).unwrap_err();
    assert!(error.to_string().contains("interface eth1: change its routes"), "{error}");
    assert_eq!((bed.addresses(), bed.read().mtu), before);
    assert!(first.differences(Some(&bed.read())).is_empty());
    let routes = bed.node.namespace().ip_json(&["route", "show", "203.0.113.0/24"])?;
    assert_eq!(routes.as_array().unwrap().len(), 1, "a route of others is lost");
    // A route of others is never replaced.
    let mut wanted = plan(&["10.10.10.8/24"]);
    wanted.routes = vec![PlannedRoute {
        destination: net("203.0.113.0/24"),
        gateway: Some(ip("10.10.10.201")),
        metric: None,
        table: None,
    }];
    assert!(apply(&mut bed.host, &[wanted]).is_err());
    let routes = bed.node.namespace().ip_json(&["route", "show", "203.0.113.0/24"])?;
    assert_eq!(routes[0]["gateway"], "10.10.10.200");
    Ok(())
}

#[test]
fn several_interfaces_are_changed_together_or_not_at_all_and_changed_back() -> Result {
    let mut bed = Bed::new()?;
    let missing = InterfacePlan { name: "eth9".to_owned(), ..plan(&["10.10.11.9/24"]) };
    let error = apply(&mut bed.host, &[plan(&["10.10.10.8/24"]), missing]).unwrap_err();
    assert!(matches!(error, interface::Error::NoInterface(ref name) if name == "eth9"), "{error}");
    assert_eq!(bed.addresses(), BTreeSet::new());
    // What was confirmed by nobody is taken back, also if it was down before.
    bed.node.ip("link set eth1 down")?;
    let wanted = plan(&["10.10.10.8/24"]);
    let before = bed.apply(&wanted);
    assert_eq!(bed.addresses(), texts(&["10.10.10.8/24"]));
    restore(&mut bed.host, &[wanted], &before)?;
    assert_eq!(bed.addresses(), BTreeSet::new());
    assert!(!bed.read().up);
    assert!(read(&mut bed.host, "eth9")?.is_none());
    bed.apply(&plan(&["10.10.10.8/24"]));
    bed.node.ip("route add 203.0.113.0/24 via 10.10.10.200")?;
    let routes = |all: Vec<InterfaceState>| all.iter().find(|it| it.name == "eth1").map(|it| it.routes.len());
    assert_eq!(routes(read_all(&mut bed.host, &BTreeSet::new())?), Some(0));
    assert_eq!(routes(read_all(&mut bed.host, &["eth1".to_owned()].into())?), Some(1));
    assert_eq!(routes(read_whole(&mut bed.host)?), Some(1));
    Ok(())
}

#[test]
fn a_host_that_has_an_address_answers_a_probe_for_it_and_nobody_else_does() -> Result<()> {
    let mut bed = Bed::new()?;
    let own = bed.read();
    assert!(own.up && own.carrier);
    let shown = bed.neighbour.namespace().ip_json(&["link", "show", "dev", "eth1"])?;
    let theirs: Mac = shown[0]["address"].as_str().unwrap().parse().unwrap();
    let ask = |addresses: &[&str], own_macs: &[Mac]| {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        let question = Question { link: "eth1".to_owned(), mac: own.mac.unwrap(), addresses };
        probe(bed.host.namespace(), &[question], &own_macs.iter().copied().collect(), &SystemClock)
    };
    assert_eq!(ask(&["10.10.10.9"], &[])?, None);
    let taken = Answer { link: "eth1".to_owned(), address: "10.10.10.200".parse()?, mac: theirs };
    assert_eq!(ask(&["10.10.10.9", "10.10.10.200"], &[])?, Some(taken));
    assert_eq!(ask(&["10.10.10.200"], &[theirs])?, None, "another interface of this host");
    let missing = Question { link: "eth9".to_owned(), mac: theirs, addresses: BTreeSet::new() };
    let said = probe(bed.host.namespace(), &[missing], &BTreeSet::new(), &SystemClock).unwrap_err();
    assert_eq!(said.to_string(), "ask on eth9 who has addresses: there is no such link");
    // Nobody learned anything from being asked.
    let known = bed.neighbour.namespace().ip_json(&["-4", "neigh", "show", "dev", "eth1"])?;
    assert_eq!(known.as_array().map(Vec::len), Some(0), "{known}");
    Ok(())
}
