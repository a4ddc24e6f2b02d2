//! Sets up a pod's interface from a plan.
//!
//! After success the interface is as planned, whatever existed before for the same holder. A repeated call with the same plan
//! changes nothing and interrupts no traffic. After an error nothing that the call created is left.

use std::os::fd::AsRawFd;

use super::{CheckError, Identity, InvalidPlan, PodPlan, check};
use super::{messages, reach};
use crate::host::Host;
use crate::link::{self, Link};
use crate::netns::{self, NetNs};
use crate::socket::{self, Answer, Kind, Request, Socket};
use crate::{Mac, Settings, sysctl};

/// A pod's interface that is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wired {
    /// The name of the host end.
    pub host_name: String,
    /// The number of the host end.
    pub host_index: u32,
    /// The Ethernet address of the host end.
    pub host_mac: Mac,
    /// The number of the pod's end, in the pod's namespace.
    pub pod_index: u32,
    /// The Ethernet address of the pod's end.
    pub pod_mac: Mac,
    /// The MTU.
    pub mtu: u32,
    /// Whether it existed already.
    pub repeated: bool,
}

/// Why an interface could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The plan is invalid.
    #[error("plan of a pod's interface")]
    Plan(#[from] InvalidPlan),
    /// The pod's namespace is the host's own.
    #[error("{namespace} is the host's own; a pod's interface needs a namespace of its own")]
    HostNamespace {
        /// The namespace as given.
        namespace: String,
    },
    /// The pod's namespace cannot be entered.
    #[error("set up {holder}")]
    Namespace {
        /// For whom.
        holder: String,
        /// The cause.
        source: netns::Error,
    },
    /// The pod has an interface of this name already, from someone else.
    #[error("set up {holder}: {namespace} has an interface of this name already")]
    InterfaceTaken {
        /// For whom.
        holder: String,
        /// The pod's namespace.
        namespace: String,
    },
    /// The host end's name belongs to another holder.
    #[error("set up {holder}: the host's link {name} belongs to {owner}")]
    NameTaken {
        /// For whom.
        holder: String,
        /// The name of the host end.
        name: String,
        /// The owner.
        owner: String,
    },
    /// The existing interface cannot be compared with the plan.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The kernel refused a step.
    #[error("set up {holder}: {step}")]
    Step {
        /// For whom.
        holder: String,
        /// The step: creating the link, inside the pod, or on the host.
        step: &'static str,
        /// The cause.
        source: socket::Error,
    },
    /// A step failed, and the link that was created could not be removed either.
    #[error("{failure}; removing the link {host_name} failed too")]
    Rollback {
        /// The first failure.
        failure: Box<SetupError>,
        /// The link that is left.
        host_name: String,
        /// The cause.
        source: socket::Error,
    },
}

impl SetupError {
    /// The kind of this failure, for the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Plan(_) | Self::HostNamespace { .. } => Kind::Invalid,
            Self::Namespace { source, .. } if source.is_gone() => Kind::Gone,
            Self::Namespace { .. } | Self::Check(CheckError::Namespace { .. }) => Kind::Retry,
            Self::InterfaceTaken { .. } | Self::NameTaken { .. } => Kind::Exists,
            Self::Step { source, .. } | Self::Check(CheckError::Kernel { source, .. }) => source.kind(),
            Self::Rollback { failure, .. } => failure.kind(),
        }
    }
}

/// Sets up a pod's interface as planned.
pub fn setup(host: &mut Host, namespace: &NetNs, plan: &PodPlan) -> Result<Wired, SetupError> {
    plan.validate(&host.settings)?;
    if namespace.id() == host.namespace.id() {
        return Err(SetupError::HostNamespace { namespace: namespace.to_string() });
    }
    let mut attempt = Attempt { host, namespace, plan };
    let link = match attempt.create()? {
        Created::Made(link) => link,
        Created::InPlaceAlready(wired) => return Ok(wired),
    };
    attempt.finish(&link).map_err(|failure| match host.socket.apply(&[link::delete(link.index)]) {
        Ok(()) => failure,
        Err(source) => {
            SetupError::Rollback { failure: Box::new(failure), host_name: link.name.clone(), source }
        }
    })
}

struct Attempt<'a> {
    host: &'a mut Host,
    namespace: &'a NetNs,
    plan: &'a PodPlan,
}

enum Created {
    Made(Link),
    InPlaceAlready(Wired),
}

/// The result of an attempt to create the pair.
enum Met {
    Nothing(Link),
    Link(Link),
    Interface,
}

impl Attempt<'_> {
    /// Creates the pair, and replaces what an earlier attempt for the same holder left.
    fn create(&mut self) -> Result<Created, SetupError> {
        let found = match self.try_create()? {
            Met::Nothing(made) => return Ok(Created::Made(made)),
            Met::Interface => return Err(self.interface_taken()),
            Met::Link(found) => found,
        };
        self.must_be_ours(&found)?;
        let in_service = found.group == self.host.settings.pod_group;
        if in_service && (self.is_as_planned()? || self.has_become_as_planned(&found)?) {
            return Ok(Created::InPlaceAlready(self.wired(&found, true)));
        }
        // Its name is needed now, so it cannot wait for the reaper.
        let deleted = self.host.socket.apply(&[link::delete(found.index)]);
        deleted.map_err(|source| self.step("replace what was left", source))?;
        match self.try_create()? {
            Met::Nothing(made) => Ok(Created::Made(made)),
            Met::Interface => Err(self.interface_taken()),
            Met::Link(found) => Err(self.name_taken(&found)),
        }
    }

    fn is_as_planned(&mut self) -> Result<bool, CheckError> {
        Ok(check(self.host, self.namespace, self.plan)?.is_empty())
    }

    /// Repairs routes without touching the interface, so that a running pod does not lose it.
    fn has_become_as_planned(&mut self, found: &Link) -> Result<bool, SetupError> {
        let (plan, addresses) = (self.plan, &self.plan.addresses);
        let mended = if plan.reached {
            reach::put(self.host, found.index, addresses, |address| plan.source_for(address))
        } else {
            reach::remove(self.host, found.index, addresses)
        };
        // A link that is down takes no routes, and is created anew anyway.
        Ok(mended.is_ok() && self.is_as_planned()?)
    }

    fn try_create(&mut self) -> Result<Met, SetupError> {
        let create = messages::create(self.plan, &self.host.settings, self.namespace.as_raw_fd());
        let outcomes = self.host.socket.exchange(std::slice::from_ref(&create));
        let outcome = outcomes.map_err(|source| self.step(MAKE, source))?.pop().unwrap_or(Ok(None));
        let made = match outcome {
            Ok(Some(Answer::Link(made))) => return Ok(Met::Nothing(made)),
            Ok(_) => true,
            Err(refusal) if refusal.kind() == Kind::Exists => false,
            Err(refusal) => return Err(self.step(MAKE, refusal.into())),
        };
        // Some kernels do not return the created link, or refuse because of an existing one: read it.
        let name = self.plan.host_name(&self.host.settings);
        let found = Link::by_name(&mut self.host.socket, &name).map_err(|source| self.step(MAKE, source))?;
        match found {
            Some(link) if made => Ok(Met::Nothing(link)),
            Some(link) => Ok(Met::Link(link)),
            None if made => Err(self.step(MAKE, socket::Error::Unanswered { act: create.describe() })),
            None => Ok(Met::Interface),
        }
    }

    /// Configures both ends.
    fn finish(&mut self, link: &Link) -> Result<Wired, SetupError> {
        let wired = self.wired(link, false);
        let inside = messages::inside(self.plan, &self.host.settings, wired.pod_index);
        let memory = std::mem::take(&mut self.host.memory);
        let mut pod =
            self.namespace.socket_for_changes(memory).map_err(|source| self.in_namespace(source))?;
        apply(&mut pod, self.namespace, &self.plan.identity.interface, self.plan, &inside)
            .map_err(|source| self.step("inside the pod", source))?;
        self.host.memory = pod.into_memory();
        let mut outside = messages::outside(self.plan, &self.host.settings, link.index);
        // The end that came up first cannot send until the kernel notices that the other one is up. Reading the link forces
        // that (since Linux 6.8; on older kernels the first packets may be lost).
        outside.extend(link.peer_namespace.map(|namespace| link::look_into(namespace, wired.pod_index)));
        let Host { namespace, socket, .. } = &mut *self.host;
        apply(socket, namespace, &link.name, self.plan, &outside)
            .map_err(|source| self.step("on the host", source))?;
        Ok(wired)
    }

    fn wired(&self, link: &Link, repeated: bool) -> Wired {
        Wired {
            host_name: link.name.clone(),
            host_index: link.index,
            host_mac: link.mac.unwrap_or(self.host.settings.host_mac),
            pod_index: link.peer_index(),
            pod_mac: self.plan.pod_mac(),
            mtu: self.plan.mtu,
            repeated,
        }
    }

    /// A link is ours if its alias says so, or if it has our name and group but no alias: an interrupted setup.
    fn must_be_ours(&self, found: &Link) -> Result<(), SetupError> {
        let Settings { pod_group, trash_group, .. } = self.host.settings;
        let ours = match &found.alias {
            Some(alias) => {
                Identity::of_alias(alias).is_some_and(|(owner, _)| owner.is_same_holder(&self.plan.identity))
            }
            None => found.group == pod_group || found.group == trash_group,
        };
        if ours { Ok(()) } else { Err(self.name_taken(found)) }
    }

    fn holder(&self) -> String {
        self.plan.identity.to_string()
    }

    fn name_taken(&self, found: &Link) -> SetupError {
        let owner = found.alias.clone().unwrap_or_else(|| "someone else".to_owned());
        SetupError::NameTaken { holder: self.holder(), name: found.name.clone(), owner }
    }

    fn interface_taken(&self) -> SetupError {
        SetupError::InterfaceTaken { holder: self.holder(), namespace: self.namespace.to_string() }
    }

    fn step(&self, step: &'static str, source: socket::Error) -> SetupError {
        SetupError::Step { holder: self.holder(), step, source }
    }

    fn in_namespace(&self, source: netns::Error) -> SetupError {
        SetupError::Namespace { holder: self.holder(), source }
    }
}

const MAKE: &str = "make the link";

/// Applies `requests`, which can be repeated, to the link `name`.
///
/// Some hosts and runtimes disable IPv6 on every new link. A plan with an IPv6 address needs it on this one, so a refused
/// request is retried once with IPv6 enabled.
fn apply(
    socket: &mut Socket,
    namespace: &NetNs,
    name: &str,
    plan: &PodPlan,
    requests: &[Request],
) -> Result<(), socket::Error> {
    match socket.apply(requests) {
        Err(error) if plan.has_v6() && error.kind() == Kind::Denied => {
            match namespace.run(|| sysctl::set_of_link("ipv6", name, "disable_ipv6", "0")) {
                Ok(Ok(true)) => socket.apply(requests),
                // IPv6 was not the cause, or cannot be enabled: return the first error.
                _ => Err(error),
            }
        }
        result => result,
    }
}
