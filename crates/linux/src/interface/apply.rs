//! Applies plans, and restores everything if one of them fails.

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;

use super::plan::{AddressStep, RouteStep, taken_along};
use super::{InterfaceAddress, InterfacePlan, InterfaceState, MARK, read};
use crate::address::family;
use crate::host::Host;
use crate::socket::{self, Kind, Message, Request};
use crate::{link, sysctl};

// See rtnetlink(7).
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_PROTO: u16 = 11;

/// Why an interface could not be configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no interface of this name.
    #[error("there is no interface {0:?}")]
    NoInterface(String),
    /// The kernel refused.
    #[error("interface {name}: {act}")]
    Kernel {
        /// The interface.
        name: String,
        /// The step that failed.
        act: &'static str,
        /// The cause.
        source: socket::Error,
    },
}

impl Error {
    /// What it means for the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoInterface(_) => Kind::Gone,
            Self::Kernel { source, .. } => source.kind(),
        }
    }
}

/// Changes all interfaces as planned. Returns their previous state, for [`restore`]. If one of them cannot be
/// changed, the others are restored.
pub fn apply(host: &mut Host, plans: &[InterfacePlan]) -> Result<Vec<InterfaceState>, Error> {
    let mut before = Vec::with_capacity(plans.len());
    for plan in plans {
        let state = look(host, &plan.name)?.ok_or_else(|| Error::NoInterface(plan.name.clone()))?;
        before.push(state);
    }
    for (number, (plan, state)) in plans.iter().zip(&before).enumerate() {
        if let Err(error) = change(host, plan, state) {
            // The first error is the one that people can act on.
            let _ = restore(host, &plans[..=number], &before[..=number]);
            return Err(error);
        }
    }
    Ok(before)
}

/// Restores interfaces to their previous state. Tries all of them, and returns the first error.
pub fn restore(host: &mut Host, plans: &[InterfacePlan], before: &[InterfaceState]) -> Result<(), Error> {
    let mut failed = None;
    for (plan, before) in plans.iter().zip(before) {
        if let Err(error) = restore_one(host, plan, before) {
            failed = failed.or(Some(error));
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Sets an interface up or down, and changes nothing else. Returns whether that changed anything.
pub fn set_up(host: &mut Host, name: &str, up: bool) -> Result<bool, Error> {
    let state = look(host, name)?.ok_or_else(|| Error::NoInterface(name.to_owned()))?;
    if state.up == up {
        return Ok(false);
    }
    let act = if up { "set it up" } else { "set it down" };
    let refused = |source| Error::Kernel { name: name.to_owned(), act, source };
    host.socket.apply(&[link::change(state.index, Some(up), None)]).map_err(refused)?;
    Ok(true)
}

fn look(host: &mut Host, name: &str) -> Result<Option<InterfaceState>, Error> {
    read(host, name).map_err(|source| Error::Kernel { name: name.to_owned(), act: "read its state", source })
}

fn change(host: &mut Host, plan: &InterfacePlan, state: &InterfaceState) -> Result<(), Error> {
    let fail = |act| move |source| Error::Kernel { name: plan.name.clone(), act, source };
    let up = (plan.up && !state.up).then_some(true);
    let mtu = plan.mtu.filter(|mtu| *mtu != state.mtu);
    if up.is_some() || mtu.is_some() {
        let request = link::change(state.index, up, mtu);
        host.socket.apply(&[request]).map_err(fail("set it up with its MTU"))?;
    }
    let steps = plan.address_steps(state);
    let mut requests: Vec<Request> = Vec::with_capacity(steps.len());
    let mut promoting = false;
    for step in &steps {
        requests.push(match step {
            AddressStep::Delete(address) => delete(state.index, *address),
            AddressStep::Keep(address) => {
                promoting = true;
                keep(address)
            }
            AddressStep::Add(address) => add(state.index, *address),
        });
    }
    let promotion = promoting.then(|| Promotion::begin(host, &plan.name));
    let changed = host.socket.apply(&requests).map_err(fail("change its addresses"));
    if let Some(promotion) = promotion {
        promotion.end(host);
    }
    changed?;
    if plan.routes.is_empty() && !state.routes.iter().any(|it| it.ours) {
        return Ok(());
    }
    // Routes may have disappeared with addresses.
    let state = look(host, &plan.name)?.ok_or_else(|| Error::NoInterface(plan.name.clone()))?;
    let requests: Vec<Request> = plan
        .route_steps(&state)
        .iter()
        .map(|step| match step {
            RouteStep::Remove(route) => route.remove(),
            RouteStep::Create(route) => route.create(),
        })
        .collect();
    host.socket.apply(&requests).map_err(fail("change its routes"))
}

fn restore_one(host: &mut Host, plan: &InterfacePlan, before: &InterfaceState) -> Result<(), Error> {
    let fail = |act| move |source| Error::Kernel { name: plan.name.clone(), act, source };
    // A deleted interface has taken everything with it.
    let Some(now) = look(host, &plan.name)? else { return Ok(()) };
    let had = |address: &InterfaceAddress| before.address(address.address).is_some();
    let added = |it: &&InterfaceAddress| (it.ours || plan.addresses.contains(&it.address)) && !had(it);
    let gone: Vec<&InterfaceAddress> = now.addresses.iter().filter(added).collect();
    let stay: Vec<&InterfaceAddress> = now.addresses.iter().filter(|it| !added(it)).collect();
    let lost = before.addresses.iter().filter(|it| now.address(it.address).is_none());
    let mut requests: Vec<Request> = gone.iter().map(|it| delete(now.index, it.address)).collect();
    let kept: Vec<&InterfaceAddress> = taken_along(&gone, &stay).collect();
    requests.extend(kept.iter().map(|it| keep(it)));
    // The kernel manages link-local IPv6 addresses: they come back with the link.
    let lost = lost.filter(|it| it.global || it.address.addr().is_ipv4());
    requests.extend(lost.map(keep));
    let promotion = (!kept.is_empty()).then(|| Promotion::begin(host, &plan.name));
    let addresses = host.socket.apply(&requests).map_err(fail("put its addresses back"));
    if let Some(promotion) = promotion {
        promotion.end(host);
    }
    let mtu = (now.mtu != before.mtu && plan.mtu.is_some()).then_some(before.mtu);
    let down = (now.up && !before.up).then_some(false);
    let mut linked = Ok(());
    if mtu.is_some() || down.is_some() {
        let request = link::change(now.index, down, mtu);
        linked = host.socket.apply(&[request]).map_err(fail("put its MTU back"));
    }
    let Some(now) = look(host, &plan.name)? else { return Ok(()) };
    let has = |route: &super::InterfaceRoute, of: &InterfaceState| {
        of.routes.iter().any(|it| it.route == route.route)
    };
    let surplus = now.routes.iter().filter(|it| it.ours && !has(it, before));
    let mut requests: Vec<Request> = surplus.map(|it| it.route.remove()).collect();
    if now.up {
        let lost = before.routes.iter().filter(|it| !has(it, &now));
        let again = |it: &super::InterfaceRoute| RouteNetlinkMessage::NewRoute(it.message.clone());
        requests.extend(lost.map(|it| Request::create(again(it)).tolerating(&[nix::errno::Errno::EEXIST])));
    }
    let routes = host.socket.apply(&requests).map_err(fail("put its routes back"));
    addresses.and(linked).and(routes)
}

/// Adds one of our addresses to an interface, unless it exists.
fn add(index: u32, address: IpNet) -> Request {
    let message = about(RTM_NEWADDR, index, address);
    let broadcast = match address {
        IpNet::V4(net) if net.prefix_len() < 31 => Some(net.broadcast()),
        _ => None,
    };
    let message = match broadcast {
        Some(broadcast) => message.with(IFA_BROADCAST, &broadcast.octets()),
        None => message,
    };
    Request::put(message.with(IFA_PROTO, &[MARK]))
}

fn delete(index: u32, address: IpNet) -> Request {
    Request::remove(about(RTM_DELADDR, index, address))
}

fn keep(address: &InterfaceAddress) -> Request {
    Request::put(RouteNetlinkMessage::NewAddress(address.message.clone()))
}

fn about(kind: u16, index: u32, address: IpNet) -> Message {
    let [i0, i1, i2, i3] = index.to_ne_bytes();
    let message =
        Message::new(kind, [family(address.addr()).into(), address.prefix_len(), 0, 0, i0, i1, i2, i3]);
    match address {
        IpNet::V4(net) => {
            message.with(IFA_LOCAL, &net.addr().octets()).with(IFA_ADDRESS, &net.addr().octets())
        }
        IpNet::V6(net) => {
            message.with(IFA_LOCAL, &net.addr().octets()).with(IFA_ADDRESS, &net.addr().octets())
        }
    }
}

/// While this exists, the kernel keeps the secondary addresses of a network whose primary is removed, so that their
/// connections and routes survive. If the parameter cannot be written, they are added again anyway.
struct Promotion {
    name: String,
    set: bool,
}

impl Promotion {
    const PARAMETER: &str = "promote_secondaries";

    fn begin(host: &Host, name: &str) -> Self {
        let set = || sysctl::set_of_link("ipv4", name, Self::PARAMETER, "1");
        let set = host.namespace.run(set).is_ok_and(|set| set.is_ok_and(|changed| changed));
        Self { name: name.to_owned(), set }
    }

    fn end(self, host: &Host) {
        if self.set {
            let back = || sysctl::set_of_link("ipv4", &self.name, Self::PARAMETER, "0");
            // It stays on if it cannot be restored, which does no harm.
            drop(host.namespace.run(back));
        }
    }
}
