//! The node's interfaces, for tasks that must not block.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use tenure_linux::interface::{self, Difference, InterfacePlan, InterfaceState, PlannedRoute};
use tenure_linux::link::LinkKind;
use tenure_linux::netns::NetNs;
use tenure_linux::socket::Kind;
use tenure_linux::{Host, announce, chain};
use tenure_node_addresses::DesiredState;
use tenure_node_addresses::desired::InterfaceKind;

use super::machine::{Again, Failure};
use crate::objects::lock;

/// The node's interfaces. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    namespace: Option<PathBuf>,
    host: Arc<Mutex<Option<Host>>>,
}

/// What interfaces had before a change.
#[derive(Debug)]
pub(super) struct Undo {
    plans: Vec<InterfacePlan>,
    before: Vec<InterfaceState>,
}

impl Kernel {
    /// Those of the namespace at this path, or of the agent's own.
    pub(super) fn new(namespace: Option<PathBuf>) -> Self {
        Self { namespace, host: Arc::default() }
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (namespace, host) = (self.namespace.clone(), Arc::clone(&self.host));
        let ended = |_| failure("the agent is ending".to_owned(), Again::Later);
        let work = move || {
            let mut host = lock(&host);
            let open = match host.take() {
                Some(open) => open,
                None => open(namespace)?,
            };
            work(host.insert(open))
        };
        tokio::task::spawn_blocking(work).await.map_err(ended)?
    }

    /// What all interfaces have, with the routes through these.
    pub(super) async fn look<'n>(
        &self,
        routes_of: impl IntoIterator<Item = &'n str>,
    ) -> Result<Vec<InterfaceState>, Failure> {
        let routes_of = routes_of.into_iter().map(ToOwned::to_owned).collect();
        self.run(move |host| interface::read_all(host, &routes_of).map_err(|error| unlisted(&error))).await
    }

    /// What all interfaces have, with all routes.
    pub(super) async fn whole(&self) -> Result<Vec<InterfaceState>, Failure> {
        self.run(|host| interface::read_whole(host).map_err(|error| unlisted(&error))).await
    }

    /// Changes interfaces as planned, after a look at what they are; returns how to change them back.
    pub(super) async fn apply(&self, plans: Vec<InterfacePlan>) -> Result<Undo, Failure> {
        self.run(move |host| {
            let before = interface::apply(host, &plans).map_err(|error| refused(&error))?;
            Ok(Undo { plans, before })
        })
        .await
    }

    /// Changes interfaces back.
    pub(super) async fn undo(&self, undo: Undo) -> Result<(), Failure> {
        self.run(move |host| {
            interface::restore(host, &undo.plans, &undo.before).map_err(|error| refused(&error))
        })
        .await
    }

    /// Sets interfaces up or down, and nothing else; those that are gone are left out. Says which it had to.
    pub(super) async fn set_up(&self, names: Vec<String>, up: bool) -> Result<Vec<String>, Failure> {
        self.run(move |host| {
            let mut changed = Vec::new();
            for name in names {
                match interface::set_up(host, &name, up) {
                    Ok(true) => changed.push(name),
                    Ok(false) => {}
                    Err(error) if error.kind() == Kind::Gone => {}
                    Err(error) => return Err(refused(&error)),
                }
            }
            Ok(changed)
        })
        .await
    }

    /// Tells the segments' hosts where addresses are now: they may have been another node's.
    pub(super) async fn announce(&self, addresses: Vec<(String, IpNet)>) {
        let told = self
            .run(move |host| {
                for (name, address) in addresses {
                    let mac = interface::read(host, &name).ok().flatten().and_then(|it| it.mac);
                    if let Some(mac) = mac {
                        // Who is not told asks.
                        drop(announce::announce(host.namespace(), &name, mac, &[address.addr()]));
                    }
                }
                Ok(())
            })
            .await;
        drop(told);
    }
}

fn open(namespace: Option<PathBuf>) -> Result<Host, Failure> {
    let fail = |error: &dyn std::error::Error| {
        failure(format!("cannot open the node's network namespace: {}", chain(error)), Again::Later)
    };
    let namespace = match namespace {
        Some(path) => NetNs::open(path),
        None => NetNs::current(),
    };
    let namespace = namespace.map_err(|error| fail(&error))?;
    Host::of(namespace, tenure_linux::Settings::default()).map_err(|error| fail(&error))
}

fn unlisted(error: &tenure_linux::socket::Error) -> Failure {
    failure(format!("cannot list the node's interfaces: {}", chain(error)), Again::Later)
}

fn refused(error: &interface::Error) -> Failure {
    let again = if error.kind() == Kind::Gone { Again::Soon } else { Again::Later };
    failure(chain(error), again)
}

pub(super) fn failure(message: String, again: Again) -> Failure {
    Failure { message, again }
}

/// The plan of each interface of a desired state. `recorded` has what may be there from before.
pub(super) fn plans(desired: &DesiredState, recorded: &[(String, IpNet)]) -> Vec<InterfacePlan> {
    let plan = |it: &tenure_node_addresses::desired::Interface| {
        let routes = desired.routes.iter().filter(|route| route.interface == it.name);
        InterfacePlan {
            name: it.name.clone(),
            up: true,
            mtu: it.mtu,
            addresses: it.addresses.clone(),
            recorded: of_interface(recorded, &it.name),
            routes: routes
                .map(|route| PlannedRoute {
                    destination: route.destination,
                    gateway: route.gateway,
                    metric: route.metric,
                    table: route.table,
                })
                .collect(),
        }
    };
    desired.interfaces.iter().map(plan).collect()
}

/// The plan that takes off an interface what we put there.
pub(super) fn clearing(name: &str, recorded: &[(String, IpNet)]) -> InterfacePlan {
    InterfacePlan {
        name: name.to_owned(),
        recorded: of_interface(recorded, name),
        ..InterfacePlan::default()
    }
}

fn of_interface(recorded: &[(String, IpNet)], name: &str) -> BTreeSet<IpNet> {
    recorded.iter().filter(|(on, _)| on == name).map(|(_, address)| *address).collect()
}

/// What interfaces have that they should not have, or lack, in words; and whether it is worth another look a moment later.
pub(super) fn differences(plans: &[InterfacePlan], all: &[InterfaceState]) -> (Vec<String>, bool) {
    let mut words = Vec::new();
    let mut settling = true;
    for plan in plans {
        let state = all.iter().find(|it| it.name == plan.name);
        for difference in plan.differences(state) {
            settling &= matches!(difference, Difference::Tentative(_));
            words.push(format!("interface {}: {difference}", plan.name));
        }
    }
    (words, settling)
}

/// Those addresses of a desired state that interfaces have.
pub(super) fn found(desired: &DesiredState, all: &[InterfaceState]) -> Vec<(String, IpNet)> {
    let has =
        |name: &str, address: IpNet| all.iter().any(|it| it.name == name && it.address(address).is_some());
    let found = desired.addresses().filter(|(name, address)| has(name, *address));
    found.map(|(name, address)| (name.to_owned(), address)).collect()
}

/// Whether all interfaces are there, and are what the policy takes them for.
pub(super) fn check_kinds(desired: &DesiredState, all: &[InterfaceState]) -> Result<(), Failure> {
    for wanted in &desired.interfaces {
        let Some(there) = all.iter().find(|it| it.name == wanted.name) else {
            let message = format!(
                "interface {:?} does not exist on this node; it is configured as soon as it does",
                wanted.name
            );
            return Err(failure(message, Again::Soon));
        };
        let kind = match there.kind {
            LinkKind::Device => Some(InterfaceKind::Ethernet),
            LinkKind::Veth => Some(InterfaceKind::Veth),
            LinkKind::Bridge => Some(InterfaceKind::LinuxBridge),
            LinkKind::Bond => Some(InterfaceKind::Bond),
            LinkKind::Vlan => Some(InterfaceKind::Vlan),
            LinkKind::Other => None,
        };
        if let Some(asked) = wanted.kind
            && !kind.is_some_and(|kind| kind.serves(asked))
        {
            let is = kind.map_or("of another type", InterfaceKind::name);
            let message = format!(
                "interface {:?} is {is}, and the policy says {}; accepted is the type that it has",
                wanted.name,
                asked.name()
            );
            return Err(failure(message, Again::Soon));
        }
    }
    Ok(())
}
