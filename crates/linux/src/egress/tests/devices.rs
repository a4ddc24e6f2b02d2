//! Devices, and the difference between actual and desired state, without a kernel.

use std::net::IpAddr;

use proptest::prelude::*;

use super::super::client::by_kernel;
use super::super::devices::{self, Tunnel, inner_mtu, is_ours};
use super::super::encapsulate::{is_stand_in, neighbour, stand_ins};
use super::super::places::Places;
use super::super::state::{Observed, Wanted};
use super::super::{ClientPlan, Egress, Family, SourcePort};
use crate::link::Link;
use crate::socket::Request;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn interface() -> Link {
    Link { index: 2, name: "eth0".into(), up: true, mtu: 1500, ..Link::default() }
}

/// A namespace that has nothing of egress.
fn empty() -> Observed {
    let (links, rules, routes) = (Vec::new(), Vec::new(), Vec::new());
    Observed {
        interface: interface(),
        links,
        rules,
        routes,
        neighbours: Vec::new(),
        fixed: Vec::new(),
        filters: Vec::new(),
    }
}

/// A namespace that has exactly this.
fn having(wanted: &Wanted) -> Observed {
    let links = wanted.devices.iter().map(|device| Link {
        index: device.index,
        name: device.name.clone(),
        alias: Some(device.alias().to_owned()),
        up: true,
        ..Link::default()
    });
    Observed {
        links: links.collect(),
        rules: wanted.rules.clone(),
        routes: wanted.routes.iter().copied().collect(),
        neighbours: wanted.neighbours.clone(),
        ..empty()
    }
}

fn any_plan() -> impl Strategy<Value = ClientPlan> {
    let destination = prop_oneof![
        (0..4_u8, 0..3_u8).prop_map(|(net, bits)| format!("10.{net}.0.0/{}", 16 + 4 * bits)),
        (0..4_u8).prop_map(|net| format!("198.51.{net}.0/24")),
        Just("0.0.0.0/0".to_owned()),
        Just("::/0".to_owned()),
        (0..4_u8).prop_map(|net| format!("2001:db8:{net}::/48")),
    ];
    let egress = (0..4_u8, prop::collection::vec(destination, 0..5), any::<bool>(), any::<bool>()).prop_map(
        |(number, destinations, spread, originating_only)| Egress {
            services: vec![ip(&format!("10.96.0.{number}")), ip(&format!("fd96::{number}"))],
            destinations: destinations.iter().map(|it| it.parse::<ipnet::IpNet>().unwrap().trunc()).collect(),
            source_port: if spread { SourcePort::PerFlow } else { SourcePort::Fixed },
            originating_only,
        },
    );
    prop::collection::vec(egress, 0..4).prop_map(|egresses| ClientPlan {
        egresses,
        ..ClientPlan::new("eth0", vec![ip("10.2.0.7"), ip("fd02::7")])
    })
}

fn wanted(plan: &ClientPlan, observed: &Observed) -> Wanted {
    let used: Vec<Family> = Family::ALL.into_iter().filter(|family| plan.uses(*family)).collect();
    by_kernel(plan, &used, (observed, &[]), &mut false)
}

proptest! {
    #[test]
    fn what_is_as_planned_is_left_alone_and_what_is_not_planned_goes(plan in any_plan(), next in any_plan()) {
        prop_assert_eq!(plan.validate(), Ok(()));
        let first = wanted(&plan, &empty());
        let there = having(&first);
        let again = wanted(&plan, &there);
        prop_assert_eq!(again.difference(&there), vec![]);
        let indices: std::collections::BTreeSet<u32> = first.devices.iter().map(|device| device.index).collect();
        prop_assert_eq!(indices.len(), first.devices.len(), "each device has a number of its own");

        // Of what both plans have, nothing is removed.
        let second = wanted(&next, &there);
        let removed: Vec<String> = second.difference(&there).iter().map(crate::socket::Request::describe).collect();
        for device in &second.devices {
            let delete = format!("delete link {}", device.index);
            prop_assert!(!removed.contains(&delete), "{} in {:?}", delete, removed);
        }
        prop_assert_eq!(wanted(&next, &having(&second)).difference(&having(&second)), vec![]);
    }

    #[test]
    fn names_of_tunnels_are_names_of_links_and_differ(one in any::<u128>(), other in any::<u128>()) {
        let name = |bits: u128| {
            let remote = Some(std::net::Ipv6Addr::from(bits).into());
            Tunnel { local: ip("fd00::1"), remote, port: SourcePort::Fixed }.name(0)
        };
        prop_assert!(name(one).len() <= 15);
        prop_assert_eq!(name(one) == name(other), one == other);
    }
}

#[test]
fn a_tunnel_is_named_as_coil_names_it() {
    let name = |local, remote: Option<&str>| {
        Tunnel { local: ip(local), remote: remote.map(ip), port: SourcePort::Fixed }.name(0)
    };
    assert_eq!(name("10.2.0.7", Some("10.96.0.1")), "fou4_0a600001");
    assert_eq!(name("10.2.0.7", None), "fou4_any");
    assert_eq!(name("fd02::7", None), "fou6_any");
}

/// Two addresses whose device names are equal.
const COLLIDING: [&str; 2] = ["fd02::d601:5974:bad5:6f5a", "fd02::9caa:d9b5:51e8:1218"];

#[test]
fn tunnels_with_the_same_name_are_told_apart_by_their_ends() {
    let tunnel =
        |remote: &str| Tunnel { local: ip("fd03::9"), remote: Some(ip(remote)), port: SourcePort::Fixed };
    let [one, other] = COLLIDING.map(tunnel);
    assert_eq!(one.name(0), other.name(0), "somebody looked for such addresses");
    let mut places = Places::default();
    let devices = [one, other].map(|tunnel| tunnel.device(&interface(), &mut places));
    assert_ne!(devices[0].name, devices[1].name);
    assert_ne!(devices[0].index, devices[1].index);
    assert!(devices.iter().all(|device| device.name.len() <= 15));
    // A later look finds each of them, in any order, and after the other one is gone.
    let wanted = Wanted { devices: devices.to_vec(), ..Wanted::default() };
    let there = having(&wanted);
    let mut places = Places::of(&there.links);
    let again = [other, one].map(|tunnel| tunnel.device(&interface(), &mut places));
    assert_eq!(again, [devices[1].clone(), devices[0].clone()]);
    assert_eq!(Wanted { devices: again.to_vec(), ..Wanted::default() }.difference(&there), vec![]);
    places.forget(&one);
    assert_eq!(other.device(&interface(), &mut places), devices[1]);
}

#[test]
fn devices_are_deleted_together_and_one_on_its_way_out_comes_back() {
    let tunnels = ["10.2.0.1", "10.2.0.2", "10.2.0.3"].map(|remote| Tunnel {
        local: ip("10.3.0.9"),
        remote: Some(ip(remote)),
        port: SourcePort::Fixed,
    });
    let mut places = Places::default();
    let devices = tunnels.map(|tunnel| tunnel.device(&interface(), &mut places)).to_vec();
    let mut there = having(&Wanted { devices: devices.clone(), ..Wanted::default() });
    let kept = Wanted { devices: devices[..1].to_vec(), ..Wanted::default() };
    let acts: Vec<String> = kept.difference(&there).iter().map(Request::describe).collect();
    let delete = |index: usize| format!("delete link {}", devices[index].index);
    assert_eq!(acts, [delete(1), delete(2), "delete the links of the trash group".to_owned()]);
    // Somebody was stopped after the first of these: whoever wants it back takes it out of there.
    there.links[0].group = 11_602;
    assert!(!kept.devices[0].difference(there.links.first()).is_empty());
}

#[test]
fn a_tunnel_leaves_what_it_does_not_add_itself() {
    assert_eq!(inner_mtu(Family::V4, 1500), Ok(1472));
    assert_eq!(inner_mtu(Family::V6, 1500), Ok(1452));
    assert_eq!(inner_mtu(Family::V6, 1327), Err(1328));
    assert_eq!(inner_mtu(Family::V4, 20), Err(96));
}

#[test]
fn a_device_that_is_somebody_elses_is_not_ours() {
    let named = |name: &str, alias: Option<&str>, index| Link {
        index,
        name: name.into(),
        alias: alias.map(str::to_owned),
        ..Link::default()
    };
    assert!(is_ours(&named("fou4", Some("tenure-egress mtu=1472"), 3)));
    assert!(is_ours(&named("fou4", None, 55_554)), "an attempt that was cut short");
    assert!(!is_ours(&named("fou4_0a600001", None, 7)), "one of Coil's");
    assert!(!is_ours(&named("fou4", Some("of somebody"), 55_554)));
    let pair = devices::closed_pair(&interface(), &[]);
    assert_ne!(pair[0].index, pair[1].index);
}

#[test]
fn routers_that_stand_for_gateways_are_link_local_and_differ() {
    let gateways: Vec<IpAddr> =
        (0..64_u8).flat_map(|last| [IpAddr::from([10, 96, last, 7]), ip(&format!("fd96::{last}"))]).collect();
    let found = stand_ins(&gateways);
    assert_eq!(found.len(), gateways.len());
    let routers: std::collections::BTreeSet<IpAddr> = found.values().copied().collect();
    assert_eq!(routers.len(), gateways.len());
    for (gateway, router) in &found {
        match router {
            IpAddr::V4(router) => assert!(gateway.is_ipv4() && router.octets().starts_with(&[169, 254, 117])),
            IpAddr::V6(router) => assert!(gateway.is_ipv6() && router.is_unicast_link_local()),
        }
        assert!(is_stand_in(*router, neighbour(*gateway)));
        assert!(!is_stand_in(*gateway, neighbour(*gateway)));
    }
    assert!(
        !is_stand_in(ip("169.254.1.1"), crate::Mac([0x0a, 0x54, 0x65, 0x6e, 0x75, 0x72])),
        "a pod's own router"
    );
    let one = stand_ins(&gateways[..1]);
    assert_eq!(
        one.get(&gateways[0]),
        found.get(&gateways[0]),
        "others do not matter where none is in the way"
    );
}

#[test]
fn a_tunnel_that_is_there_is_changed_and_not_made_again() {
    let plan = |source_port| {
        let (services, destinations) = (vec![ip("10.96.0.7")], vec!["0.0.0.0/0".parse().unwrap()]);
        let egress = Egress { services, destinations, source_port, originating_only: false };
        ClientPlan { egresses: vec![egress], ..ClientPlan::new("eth0", vec![ip("10.2.0.7")]) }
    };
    let there = having(&by_kernel(&plan(SourcePort::Fixed), &[Family::V4], (&empty(), &[]), &mut false));
    let wanted = by_kernel(&plan(SourcePort::PerFlow), &[Family::V4], (&there, &[]), &mut false);
    let acts: Vec<String> = wanted.difference(&there).iter().map(Request::describe).collect();
    let of = |name: &str| acts.iter().filter(|act| act.contains(name)).cloned().collect::<Vec<_>>();
    // Kernels before 6.2 refuse a name for a link that is up.
    assert_eq!(
        of("fou4_0a600007").first().map(String::as_str),
        Some("change link fou4_0a600007"),
        "{acts:#?}"
    );
    assert!(of("fou4_any").iter().any(|act| act.starts_with("create")), "{acts:#?}");
}
