//! The client's side: turns a plan into rules, routes and tunnels in a pod's namespace.
//!
//! It reads the current state first, and changes only what differs from the plan, in one batch. So the same call sets
//! up a new pod, follows a changed plan, and repairs what somebody broke. A plan without an Egress removes
//! everything. A change does not disturb unrelated traffic.
//!
//! ```text
//!  pod's namespace, BPF datapath
//!
//!  table 118: default via 169.254.117.9 dev eth0 mtu 1472     a router that nobody is: its Ethernet address says which gateway
//!       │
//!       ▼
//!  eth0 ── program: encapsulate ──▶ 10.96.7.7
//!  eth0 ◀── program: decapsulate ── 10.96.7.7
//! ```
//!
//! There is no tunnel device: creating a pair takes nearly as long as everything else together, and packets would
//! have to pass it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::answers::{self, Interface};
use super::datapath::{Datapath, Means};
use super::decapsulate::{Decapsulation, From};
use super::devices::{self, Tunnel};
use super::encapsulate::{Encapsulation, To, Way, neighbour, stand_ins};
use super::fou::{self, Ports};
use super::masquerade;
use super::places::Places;
use super::programs::Programs;
use super::state::{Observed, Wanted};
use super::{ClientPlan, Family, InvalidPlan, MAIN_TABLE, PROTOCOL, SourcePort};
use crate::Mac;
use crate::bpf::{LoadError, Program};
use crate::link::Link;
use crate::netns::{self, NetNs};
use crate::route::{self, Route};
use crate::socket::{self, Kind, Request, Socket};
use crate::tc::{Filter, Side};
use crate::{ethtool, nft, sysctl};

/// Why a pod's egress is not as planned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid.
    #[error("plan of a pod's egress")]
    Plan(#[from] InvalidPlan),
    /// The pod's namespace cannot be entered.
    #[error("set up egress")]
    Namespace(#[from] netns::Error),
    /// There is no such interface.
    #[error("set up egress: {namespace} has no interface {interface:?}")]
    NoInterface {
        /// The namespace.
        namespace: String,
        /// The interface.
        interface: String,
    },
    /// The interface's MTU is too small.
    #[error(
        "set up egress: interface {interface:?} has an MTU of {mtu}, of which a tunnel leaves too little; accepted: \
         {least} or more"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// What is accepted.
        least: u32,
    },
    /// The kernel refused a program.
    #[error("set up egress")]
    Program(#[from] LoadError),
    /// The kernel's Foo-over-UDP ports cannot be changed.
    #[error("set up egress")]
    Ports(#[from] fou::Error),
    /// The interface's features could not be changed.
    #[error("set up egress: UDP must be segmented before it goes into a tunnel")]
    Features(#[from] ethtool::Error),
    /// The kernel refused something else.
    #[error("set up egress: {step}")]
    Kernel {
        /// The step that failed.
        step: &'static str,
        /// The cause.
        source: socket::Error,
    },
    /// A parameter cannot be set.
    #[error("set up egress")]
    Parameter(#[from] sysctl::Error),
}

impl Error {
    /// What this error means for the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Namespace(source)
            | Self::Ports(fou::Error::Namespace(source))
            | Self::Features(ethtool::Error::Namespace(source)) => {
                if source.is_gone() {
                    Kind::Gone
                } else {
                    Kind::Retry
                }
            }
            Self::NoInterface { .. } => Kind::Gone,
            Self::Kernel { source, .. }
            | Self::Ports(fou::Error::Kernel(source))
            | Self::Features(ethtool::Error::Kernel(source)) => source.kind(),
            _ => Kind::Invalid,
        }
    }

    pub(super) fn kernel(step: &'static str) -> impl FnOnce(socket::Error) -> Self {
        move |source| Self::Kernel { step, source }
    }
}

/// Makes a pod's egress as planned. Returns what was changed, in words; empty if nothing was.
pub fn apply(namespace: &NetNs, datapath: &mut Datapath, plan: &ClientPlan) -> Result<Vec<String>, Error> {
    let mut pod = Pod::open(namespace, plan)?;
    let mut changes = pod.difference(datapath)?;
    pod.carry_out(&mut changes)?;
    Ok(changes.describe())
}

/// What [`apply`] would change, in words.
pub fn check(namespace: &NetNs, datapath: &mut Datapath, plan: &ClientPlan) -> Result<Vec<String>, Error> {
    Ok(Pod::open(namespace, plan)?.difference(datapath)?.describe())
}

/// A pod and its plan.
struct Pod<'a> {
    namespace: &'a NetNs,
    plan: &'a ClientPlan,
    socket: Socket,
}

/// The changes that a pod needs.
#[derive(Default)]
struct Changes {
    /// The interface that tunnels go through.
    interface: u32,
    /// The kernel's ports, and how they change.
    ports: Option<(Ports, Vec<Request>)>,
    requests: Vec<Request>,
    /// Whether UDP must be segmented before it enters a tunnel. Otherwise, if client and gateway are on one machine,
    /// the programs at the other end decapsulate the packet, and the kernel then segments it as a tunnel packet, and
    /// loses it.
    segment: bool,
    /// Whether answering packets are to be marked, if that changes.
    mark_replies: Option<bool>,
    /// Links whose reverse path filter drops packets that arrive by another interface, and must not.
    strict: Vec<String>,
}

impl Changes {
    fn describe(&self) -> Vec<String> {
        let ports = self.ports.iter().flat_map(|(_, requests)| requests);
        let mark = self.mark_replies.map(|mark| {
            if mark { "mark answers to connections from elsewhere" } else { "mark answers no more" }
                .to_owned()
        });
        let requests = ports.chain(&self.requests).map(Request::describe);
        let strict = self.strict.iter().map(|link| format!("loosen net.ipv4.conf.{link}.rp_filter"));
        let late = self.segment && self.requests.is_empty();
        let segment = late.then(|| "segment UDP before it goes into tunnels".to_owned());
        requests.chain(mark).chain(strict).chain(segment).collect()
    }
}

impl<'a> Pod<'a> {
    fn open(namespace: &'a NetNs, plan: &'a ClientPlan) -> Result<Self, Error> {
        plan.validate()?;
        Ok(Self { namespace, plan, socket: namespace.socket()? })
    }

    fn difference(&mut self, datapath: &mut Datapath) -> Result<Changes, Error> {
        let observed = observe(&mut self.socket, self.namespace, &self.plan.interface)?;
        let used: Vec<Family> = Family::ALL.into_iter().filter(|family| self.plan.uses(*family)).collect();
        for family in &used {
            check_mtu(*family, &observed.interface)?;
        }
        let only = self.plan.has_originating_only();
        let marked = (only || observed.has_reply_rules()) && self.marks_replies()?;
        let mark_replies = (only != marked).then_some(only);
        let interfaces = if only {
            answers::interfaces(&mut self.socket).map_err(Error::kernel("look at the pod's interfaces"))?
        } else {
            Vec::new()
        };
        // Answers may arrive by any of them.
        let mut loose: BTreeSet<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let mut changes = Changes { interface: observed.interface.index, mark_replies, ..Changes::default() };
        let wanted = match &mut datapath.means {
            Means::Bpf(programs) => {
                let usual = if used.is_empty() {
                    Vec::new()
                } else {
                    usual_routes(&mut self.socket, observed.interface.index)?
                };
                by_programs(self.plan, &used, (&observed, &interfaces), (&usual, programs))?
            }
            Means::Kernel => {
                let ports = Ports::of(self.namespace)?;
                let difference = ports.difference(&used);
                changes.ports = Some((ports, difference));
                let mut elsewhere = only;
                let wanted = by_kernel(self.plan, &used, (&observed, &interfaces), &mut elsewhere);
                if elsewhere {
                    loose.insert(&self.plan.interface);
                }
                wanted
            }
        };
        if !loose.is_empty() {
            changes.strict = self.namespace.run(|| strict_links(&loose))??;
        }
        changes.requests = wanted.difference(&observed);
        // These two are not part of the batch, so an earlier call may have been stopped before them. If there are
        // requests anyway, no query is needed.
        changes.segment = !used.is_empty()
            && (!changes.requests.is_empty()
                || ethtool::offloads_udp_segmentation(self.namespace, changes.interface)?);
        Ok(changes)
    }

    fn carry_out(&mut self, changes: &mut Changes) -> Result<(), Error> {
        if let Some((ports, requests)) = &mut changes.ports {
            ports.apply(requests).map_err(fou::Error::from)?;
        }
        if changes.mark_replies == Some(true) {
            let mut socket = nft::open(self.namespace)?;
            masquerade::mark_replies(&mut socket).map_err(Error::kernel("mark answers"))?;
        }
        if !changes.requests.is_empty() {
            apply_with_ipv6(&mut self.socket, self.namespace, &changes.requests)?;
        }
        if !changes.strict.is_empty() {
            self.namespace.run(|| loosen(&changes.strict))??;
        }
        if changes.segment {
            ethtool::offload_udp_segmentation(self.namespace, changes.interface, false)?;
        }
        if changes.mark_replies == Some(false) {
            let mut socket = nft::open(self.namespace)?;
            masquerade::remove(&mut socket).map_err(Error::kernel("mark answers no more"))?;
        }
        Ok(())
    }

    fn marks_replies(&self) -> Result<bool, Error> {
        let mut socket = nft::open(self.namespace)?;
        nft::has_table(&mut socket, masquerade::TABLE).map_err(Error::kernel("look for marks on answers"))
    }
}

/// A pod's own routes, by interface.
pub(super) fn usual_routes(socket: &mut Socket, interface: u32) -> Result<Vec<Route>, Error> {
    let filter = route::Filter { table: MAIN_TABLE, protocol: None, link: Some(interface) };
    route::list(socket, filter).map_err(Error::kernel("look at the pod's own routes"))
}

pub(super) fn observe(socket: &mut Socket, namespace: &NetNs, interface: &str) -> Result<Observed, Error> {
    let observed = Observed::take(socket, interface).map_err(Error::kernel("look at what is there"))?;
    observed.ok_or_else(|| Error::NoInterface {
        namespace: namespace.to_string(),
        interface: interface.to_owned(),
    })
}

pub(super) fn check_mtu(family: Family, interface: &Link) -> Result<(), Error> {
    devices::inner_mtu(family, interface.mtu).map(drop).map_err(|least| Error::Mtu {
        interface: interface.name.clone(),
        mtu: interface.mtu,
        least,
    })
}

/// Some hosts and runtimes turn IPv6 off on every new link. A plan with IPv6 needs it, so a batch that fails with a
/// denial is tried once more with IPv6 on.
pub(super) fn apply_with_ipv6(
    socket: &mut Socket,
    namespace: &NetNs,
    requests: &[Request],
) -> Result<(), Error> {
    let switch_on = || {
        let links = Link::all(&mut Socket::open().ok()?).ok()?;
        let tunnels = links.iter().filter(|link| devices::is_ours(link));
        let on = tunnels.map(|link| sysctl::set_of_link("ipv6", &link.name, "disable_ipv6", "0"));
        Some(on.filter(|changed| matches!(changed, Ok(true))).count())
    };
    let result = match socket.apply(requests) {
        Err(error) if error.kind() == Kind::Denied => match namespace.run(switch_on) {
            Ok(Some(1..)) => socket.apply(requests),
            // That was not the cause, or cannot be changed: the first error is the better one.
            _ => Err(error),
        },
        result => result,
    };
    result.map_err(Error::kernel("change rules, routes and tunnels"))
}

/// Where the reverse path filter drops packets that arrive by another interface.
fn strict_links(links: &BTreeSet<&str>) -> Result<Vec<String>, sysctl::Error> {
    let mut strict = Vec::new();
    for link in ["all"].into_iter().chain(links.iter().copied()) {
        if sysctl::read_of_link("ipv4", link, "rp_filter")? == "1" {
            strict.push(link.to_owned());
        }
    }
    Ok(strict)
}

/// Turns that off.
fn loosen(links: &[String]) -> Result<(), sysctl::Error> {
    for link in links {
        sysctl::set_of_link("ipv4", link, "rp_filter", "2")?;
    }
    Ok(())
}

/// The desired state of a pod with programs.
fn by_programs(
    plan: &ClientPlan,
    used: &[Family],
    (observed, interfaces): (&Observed, &[Interface]),
    (usual, programs): (&[Route], &mut Programs),
) -> Result<Wanted, Error> {
    let mut wanted = Wanted::default();
    if used.is_empty() {
        return Ok(wanted);
    }
    let interface = &observed.interface;
    for family in used.iter().copied() {
        let gateways = plan.gateways(family);
        let stand_ins = stand_ins(&gateways);
        wanted.neighbours.extend(
            stand_ins.iter().map(|(gateway, router)| (interface.index, *router, neighbour(*gateway))),
        );
        let mtu = devices::inner_mtu(family, interface.mtu).unwrap_or_default();
        for route in plan.routes(family) {
            let (source, gateway) = (family.among(&plan.addresses), stand_ins.get(&route.gateway).copied());
            let route = Route::on_link(route.destination, interface.index, route.table, PROTOCOL);
            wanted.routes.insert(Route { gateway, source, mtu, ..route });
        }
        wanted.rules.extend(plan.rules(family, interfaces));
        wanted.routes.extend(answers::routes(interfaces, family));
        let turns_back = gateways.iter().any(|gateway| plan.leads_to(*gateway));
        let way = |gateway: &IpAddr| {
            let hop = next_hop(usual, *gateway);
            let port = plan.source_port(*gateway);
            let mac = hop.and_then(|hop| observed.mac_of(hop));
            Way { gateway: *gateway, port, next_hop: hop.filter(|_| turns_back), mac }
        };
        let ways: Vec<Way> = gateways.iter().map(way).collect();
        let out = Encapsulation { family, interface: interface.index, to: To::Gateways(&ways) };
        let spread = ways.iter().any(|way| way.port == SourcePort::PerFlow);
        let from = if spread { From::AnyGateway } else { From::Gateways(&gateways) };
        wanted.programs.push(receive(observed, family, from, programs)?);
        let (name, program) = programs.load("out", out.assemble())?;
        wanted.programs.push((leaving(interface.index, family, name), program));
    }
    Ok(wanted)
}

/// The decapsulating program: for packets from `from`, or from any gateway if the pod has had others.
///
/// The client's node tracks a tunnel by its ports. If a Service gets another address, or a pod another Egress, and
/// the gateway stays, then the node takes returning packets for those of the old tunnel as long as any arrive, and
/// translates them to the old address. Stand-ins of earlier gateways, and the attached program, tell that a pod has
/// had others.
fn receive(
    observed: &Observed,
    family: Family,
    from: From<'_>,
    programs: &mut Programs,
) -> Result<(Filter, Arc<Program>), LoadError> {
    let link = observed.interface.index;
    let mut load = |from| {
        let (name, program) = programs.load("in", Decapsulation { family, device: None, from }.assemble())?;
        Ok::<_, LoadError>((arriving(link, family, name), program))
    };
    let From::Gateways(gateways) = from else { return load(from) };
    let known: BTreeSet<Mac> = gateways.iter().map(|gateway| neighbour(*gateway)).collect();
    let mut stand_ins = observed.neighbours.iter().filter(|(_, address, _)| Family::of(*address) == family);
    if stand_ins.any(|(_, _, mac)| !known.contains(mac)) {
        return load(From::AnyGateway);
    }
    let strict = load(from)?;
    let mut there = observed.filters.iter().filter(|filter| {
        (filter.link, filter.side, filter.priority) == (strict.0.link, strict.0.side, strict.0.priority)
    });
    if there.any(|filter| filter.name != strict.0.name) {
        let any = load(From::AnyGateway)?;
        if observed.filters.contains(&any.0) {
            return Ok(any);
        }
    }
    Ok(strict)
}

/// The next hop to a gateway by the pod's routes without egress: the router of the longest match, or the gateway
/// itself if it is on the link. A route that changes later is found at the next look.
fn next_hop(usual: &[Route], gateway: IpAddr) -> Option<IpAddr> {
    let ways = usual.iter().filter(|route| route.link.is_some() && route.destination.contains(&gateway));
    let best = ways.min_by_key(|route| (Reverse(route.destination.prefix_len()), route.metric))?;
    Some(best.gateway.unwrap_or(gateway))
}

/// The place of a program for packets that enter the tunnels' interface.
pub(super) fn arriving(link: u32, family: Family, name: String) -> Filter {
    let priority = 5550 + u16::from(family.protocol());
    Filter { link, side: Side::Arriving, priority, protocol: family.ether_type(), name }
}

/// The place of a program for packets that leave a tunnel's device.
pub(super) fn leaving(link: u32, family: Family, name: String) -> Filter {
    Filter { side: Side::Leaving, ..arriving(link, family, name) }
}

/// The desired state of a pod with the kernel's own tunnels.
pub(super) fn by_kernel(
    plan: &ClientPlan,
    used: &[Family],
    (observed, interfaces): (&Observed, &[Interface]),
    loose: &mut bool,
) -> Wanted {
    let mut wanted = Wanted::default();
    let mut places = Places::of(&observed.links);
    for family in used {
        let Some(local) = family.among(&plan.addresses) else { continue };
        let mut tunnel = |remote, port| {
            let device = Tunnel { local, remote, port }.device(&observed.interface, &mut places);
            let index = device.index;
            wanted.devices.push(device);
            index
        };
        let gateways = plan.gateways(*family);
        let links: Vec<_> = gateways
            .iter()
            .map(|gateway| (*gateway, tunnel(Some(*gateway), plan.source_port(*gateway))))
            .collect();
        let spread = gateways.iter().any(|gateway| plan.source_port(*gateway) == SourcePort::PerFlow);
        // As with programs, pods that have had other gateways accept packets from any.
        let has_had = |link: &Link| {
            let tunnel = |gateway: &IpAddr| Tunnel { local, remote: Some(*gateway), port: SourcePort::Fixed };
            let is_of = |tunnel: Tunnel| match link.alias.as_deref() {
                Some(alias) => devices::ends_of(alias) == Some(tunnel.ends().as_str()),
                None => tunnel.name(0) == link.name,
            };
            link.name.starts_with(devices::name_of_pair(*family))
                && !gateways.iter().any(|gateway| is_of(tunnel(gateway)))
        };
        if spread || observed.links.iter().any(has_had) {
            // Answers come from the gateways' own addresses, which have no route out.
            tunnel(None, SourcePort::PerFlow);
            *loose = true;
        }
        for route in plan.routes(*family) {
            let link = links.iter().find(|(gateway, _)| *gateway == route.gateway).map(|(_, link)| *link);
            let found = Route::on_link(route.destination, link.unwrap_or_default(), route.table, PROTOCOL);
            wanted.routes.insert(Route { source: Some(local), ..found });
        }
        wanted.rules.extend(plan.rules(*family, interfaces));
        wanted.routes.extend(answers::routes(interfaces, *family));
    }
    wanted
}
