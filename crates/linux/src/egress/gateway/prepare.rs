//! What a gateway's container may not do itself; the node's agent does it.
//!
//! It keeps what exists, so it can run at any time. A gateway that serves with the kernel's tunnels gets no programs,
//! and the other way round, whatever the machine supports by now.

use std::net::IpAddr;

use super::super::client::{self, apply_with_ipv6, arriving, check_mtu, leaving, observe, usual_routes};
use super::super::datapath::{Datapath, Means};
use super::super::decapsulate::{Decapsulation, From};
use super::super::devices;
use super::super::encapsulate::{Encapsulation, To};
use super::super::fou::Ports;
use super::super::programs::Programs;
use super::super::state::{Observed, Wanted};
use super::super::{Family, SourcePort};
use super::{Error, GatewayPlan};
use crate::netns::NetNs;
use crate::route::Route;
use crate::socket::Request;
use crate::{ethtool, sysctl};

/// Prepares a pod's namespace for a gateway: forwarding, and for the BPF datapath its devices and programs. Returns
/// what was changed.
///
/// `interface` is the pod's, and has `addresses`, at most one of each family. The kernel's own Foo-over-UDP needs
/// only its modules, which [`Datapath::detect`] has loaded.
pub fn prepare(
    namespace: &NetNs,
    datapath: &mut Datapath,
    interface: &str,
    addresses: &[IpAddr],
) -> Result<Vec<String>, Error> {
    let source_port = SourcePort::default();
    let plan = GatewayPlan { interface: interface.to_owned(), addresses: addresses.to_vec(), source_port };
    Ok(prepare_for(namespace, datapath, &plan)?)
}

fn prepare_for(
    namespace: &NetNs,
    datapath: &mut Datapath,
    plan: &GatewayPlan,
) -> Result<Vec<String>, client::Error> {
    plan.validate()?;
    let mut changed = namespace.run(|| set_parameters(plan))??;
    let mut socket = namespace.socket()?;
    let observed = observe(&mut socket, namespace, &plan.interface)?;
    for family in plan.families() {
        check_mtu(family, &observed.interface)?;
    }
    if let Means::Bpf(programs) = &mut datapath.means
        && !serves_by_kernel(namespace, &observed)
    {
        let usual = usual_routes(&mut socket, observed.interface.index)?;
        let wanted = by_programs(plan, &observed, (&usual, programs))?;
        // Rules, routes and neighbours belong to the gateway.
        let (rules, routes, neighbours) = (Vec::new(), Vec::new(), Vec::new());
        let requests = wanted.difference(&Observed { rules, routes, neighbours, ..observed.clone() });
        if !requests.is_empty() {
            apply_with_ipv6(&mut socket, namespace, &requests)?;
            changed.extend(requests.iter().map(Request::describe));
        }
    }
    if ethtool::offloads_udp_segmentation(namespace, observed.interface.index)? {
        ethtool::offload_udp_segmentation(namespace, observed.interface.index, false)?;
        changed.push("segment UDP before it goes into tunnels".to_owned());
    }
    Ok(changed)
}

/// Whether a gateway serves here with the kernel's own tunnels.
fn serves_by_kernel(namespace: &NetNs, observed: &Observed) -> bool {
    let tunnels = observed.links.iter().any(|link| !devices::is_of_pair(link));
    tunnels || Ports::of(namespace).is_ok_and(|ports| ports.has_open())
}

/// Turns on forwarding, and accepts packets from tunnels.
fn set_parameters(plan: &GatewayPlan) -> Result<Vec<String>, sysctl::Error> {
    let changed = sysctl::enable_forwarding(Some(&plan.interface))?;
    let mut changed: Vec<String> = changed.into_iter().map(|it| format!("set {it}")).collect();
    let [v4, v6] = Family::ALL.map(devices::name_of_pair);
    // A client's address is routed by the interface, so reverse path filtering would drop it as it leaves a tunnel.
    let strict = |link: &str| match sysctl::read_of_link("ipv4", link, "rp_filter") {
        Ok(value) => Ok(value == "1"),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    };
    if (strict("all")? || strict("default")? || strict(v4)?)
        && sysctl::set_of_link("ipv4", "all", "rp_filter", "2")?
    {
        changed.push("set net.ipv4.conf.all.rp_filter".to_owned());
    }
    if plan.families().contains(&Family::V6) {
        for link in ["default", v6] {
            match sysctl::set_of_link("ipv6", link, "disable_ipv6", "0") {
                Ok(true) => changed.push(format!("set net.ipv6.conf.{link}.disable_ipv6")),
                Ok(false) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(changed)
}

/// The devices, and the programs on both sides of them.
fn by_programs(
    plan: &GatewayPlan,
    observed: &Observed,
    (usual, programs): (&[Route], &mut Programs),
) -> Result<Wanted, client::Error> {
    let mut wanted = Wanted::default();
    let pair = devices::closed_pair(&observed.interface, &observed.links);
    let interface = observed.interface.index;
    for (family, device) in Family::ALL.into_iter().zip(&pair) {
        let Some(own) = family.among(&plan.addresses) else { continue };
        let mac = only_router(usual, own).and_then(|router| observed.mac_of(router));
        let out = Encapsulation { family, interface, to: To::Clients { own, mac } };
        let (name, program) = programs.load("out", out.assemble())?;
        wanted.programs.push((leaving(device.index, family, name), program));
        let back = Decapsulation { family, device: Some(device.index), from: From::Anyone(own) };
        let (name, program) = programs.load("in", back.assemble())?;
        wanted.programs.push((arriving(interface, family, name), program));
    }
    wanted.devices.extend(pair);
    Ok(wanted)
}

/// The router to all other hosts of `own`'s family, if it is the only way: all routes by the interface lead through
/// it, to itself, to `own`, or to the link alone.
fn only_router(usual: &[Route], own: IpAddr) -> Option<IpAddr> {
    let of_family = || usual.iter().filter(|route| route.destination.addr().is_ipv4() == own.is_ipv4());
    let router = of_family().find(|route| route.destination.prefix_len() == 0)?.gateway?;
    let is_of_link = |address: IpAddr| match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    };
    let leads_elsewhere = |route: &Route| {
        let (destination, host) = (route.destination, route.destination.max_prefix_len());
        let to_one = destination.prefix_len() == host && [router, own].contains(&destination.addr());
        route.gateway != Some(router) && !to_one && !is_of_link(destination.addr())
    };
    (!of_family().any(leads_elsewhere)).then_some(router)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn routes(all: &[(&str, Option<&str>)]) -> Vec<Route> {
        let route = |(to, via): &(&str, Option<&str>)| Route {
            gateway: via.map(ip),
            ..Route::on_link(to.parse().unwrap(), 2, 254, 3)
        };
        all.iter().map(route).collect()
    }

    #[test]
    fn a_router_is_the_only_one_if_no_route_leads_past_it() {
        let own = [("10.2.0.7", "169.254.1.1"), ("fd02::7", "fe80::1")];
        let pod = [
            ("0.0.0.0/0", Some("169.254.1.1")),
            ("169.254.1.1/32", None),
            ("::/0", Some("fe80::1")),
            ("fd02::7/128", None),
            ("fe80::/64", None),
        ];
        for (own, router) in own {
            assert_eq!(only_router(&routes(&pod), ip(own)), Some(ip(router)));
        }
        for more in [("10.2.0.0/24", None), ("10.9.0.0/16", Some("169.254.1.2"))] {
            assert_eq!(only_router(&routes(&[&pod[..], &[more]].concat()), ip("10.2.0.7")), None, "{more:?}");
        }
        assert_eq!(only_router(&routes(&pod[1..2]), ip("10.2.0.7")), None, "there is no default route");
        assert_eq!(
            only_router(&routes(&[("0.0.0.0/0", None)]), ip("10.2.0.7")),
            None,
            "nor one with a router"
        );
    }
}
