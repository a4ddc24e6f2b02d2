//! The node's own network namespace, with the settings and the socket for it.

use crate::netns::{self, NetNs};
use crate::rule;
use crate::settings::{Invalid, Settings};
use crate::socket::{self, Memory, Socket};
use crate::sysctl;
use crate::uplink;

/// A host's network namespace, the settings that apply in it, and a socket to it.
///
/// One thread uses it at a time. More threads would not be faster: the kernel changes links one after the other.
#[derive(Debug)]
pub struct Host {
    pub(crate) namespace: NetNs,
    pub(crate) settings: Settings,
    pub(crate) socket: Socket,
    /// Reused by sockets to pods' namespaces, one after the other.
    pub(crate) memory: Memory,
}

/// Why the host cannot be used or prepared.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The settings cannot be used.
    #[error("settings")]
    Settings(#[from] Invalid),
    /// The host's namespace cannot be opened.
    #[error("open the host's namespace")]
    Namespace(#[from] netns::Error),
    /// A kernel parameter cannot be set.
    #[error("switch on forwarding")]
    Forwarding(#[from] sysctl::Error),
    /// The kernel refused a request.
    #[error("{act}")]
    Kernel {
        /// The step that failed.
        act: &'static str,
        /// The cause.
        source: socket::Error,
    },
}

/// What `prepare` changed; empty if the host was ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Kernel parameters that were set.
    pub parameters: Vec<sysctl::Changed>,
    /// Whether the IPv4 rule was added.
    pub rule_v4: bool,
    /// Whether the IPv6 rule was added.
    pub rule_v6: bool,
}

impl Host {
    /// The host whose network namespace the calling thread is in.
    pub fn open(settings: Settings) -> Result<Self, HostError> {
        Self::of(NetNs::current()?, settings)
    }

    /// The host with this network namespace.
    pub fn of(namespace: NetNs, settings: Settings) -> Result<Self, HostError> {
        settings.validate()?;
        let socket = namespace.socket()?;
        Ok(Self { namespace, settings, socket, memory: Memory::default() })
    }

    /// Prepares the host for pods' traffic: turns on forwarding and adds the rule to the pod table. Changes only what differs.
    pub fn prepare(&mut self) -> Result<Prepared, HostError> {
        let uplink = uplink::find(self)
            .map_err(|source| HostError::Kernel { act: "find the default route", source })?;
        let name = uplink.as_ref().map(|uplink| uplink.name.as_str());
        let parameters = self.namespace.run(|| sysctl::enable_forwarding(name))??;
        let rules = rule::ensure(self)
            .map_err(|source| HostError::Kernel { act: "make the rule to the pod table", source })?;
        Ok(Prepared { parameters, rule_v4: !rules.v4, rule_v6: !rules.v6 })
    }

    /// The settings that apply.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The host's namespace.
    pub fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// The socket to the host's namespace.
    pub fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }
}
