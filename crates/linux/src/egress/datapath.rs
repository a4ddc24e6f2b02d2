//! Which of the two datapaths a kernel supports.

use std::net::IpAddr;

use nix::errno::Errno;

use super::devices::Tunnel;
use super::fou::{self, Ports};
use super::modules;
use super::places::Places;
use super::programs::{ProbeError, Programs};
use super::{Family, SourcePort};
use crate::causes::chain;
use crate::link::{self, LOOPBACK, Link};
use crate::netns::{self, NetNs};
use crate::socket;

/// The datapath of this machine, ready for use.
#[derive(Debug)]
pub struct Datapath {
    pub(super) means: Means,
    reason: String,
}

#[derive(Debug)]
pub(super) enum Means {
    /// The kernel's own Foo-over-UDP.
    Kernel,
    /// BPF programs.
    Bpf(Programs),
}

/// Why a kernel does not support a datapath.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// No namespace for the test.
    #[error("try Foo-over-UDP")]
    Namespace(#[from] netns::Error),
    /// No ports.
    #[error("try Foo-over-UDP")]
    Ports(#[from] fou::Error),
    /// No tunnels.
    #[error("try a tunnel of {family:?} with Foo-over-UDP (modules ipip, ip6_tunnel, fou6)")]
    Tunnel {
        /// The tunnel's family.
        family: Family,
        /// The cause.
        source: socket::Error,
    },
    /// No programs.
    #[error("try BPF programs on packets")]
    Programs(#[from] ProbeError),
    /// Neither.
    #[error("this kernel can do neither datapath of egress: {}; {}", chain(kernel), chain(bpf))]
    Both {
        /// Why not the kernel's own Foo-over-UDP.
        kernel: Box<Missing>,
        /// Why not BPF programs.
        bpf: Box<Missing>,
    },
}

impl Datapath {
    /// Prefers the kernel's own Foo-over-UDP, which handles more (path MTU and fragments of outer packets); otherwise
    /// BPF programs.
    pub fn detect() -> Result<Self, Missing> {
        let kernel = match Self::kernel() {
            Ok(datapath) => return Ok(datapath),
            Err(missing) => missing,
        };
        match Self::bpf() {
            Ok(datapath) => Ok(Self { reason: chain(&kernel), ..datapath }),
            Err(bpf) => Err(Missing::Both { kernel: Box::new(kernel), bpf: Box::new(bpf) }),
        }
    }

    /// The kernel's own Foo-over-UDP, tested in a temporary namespace. Loads modules that exist and are not loaded.
    ///
    /// Without the right to create a namespace, it tests in the current one, and removes what it created.
    pub fn kernel() -> Result<Self, Missing> {
        let (namespace, own) = match NetNs::make() {
            Err(netns::Error::Make(Errno::EPERM)) => (NetNs::current()?, true),
            made => (made?, false),
        };
        let mut ports = match Ports::of(&namespace) {
            Err(fou::Error::NoModule) => {
                modules::load();
                Ports::of(&namespace)?
            }
            ports => ports?,
        };
        let open = ports.difference(&Family::ALL);
        ports.apply(&open).map_err(fou::Error::from)?;
        let tried = Self::try_tunnels(&namespace);
        if own && !open.is_empty() {
            let mut ports = Ports::of(&namespace)?;
            let close = ports.difference(&[]);
            ports.apply(&close).map_err(fou::Error::from)?;
        }
        tried.map(|()| Self { means: Means::Kernel, reason: "the kernel has Foo-over-UDP".to_owned() })
    }

    /// Creates a tunnel of each family, and removes it.
    fn try_tunnels(namespace: &NetNs) -> Result<(), Missing> {
        let mut socket = namespace.socket()?;
        let interface = Link { index: LOOPBACK, mtu: 1500, ..Link::default() };
        let ends: [(IpAddr, IpAddr); 2] = [
            ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
            ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into()),
        ];
        let mut places = Places::default();
        for (local, remote) in ends {
            let tunnel = Tunnel { local, remote: Some(remote), port: SourcePort::Fixed };
            let device = tunnel.device(&interface, &mut places);
            let made = socket.apply(&device.difference(None));
            let removed = socket.apply(&[link::delete(device.index)]);
            made.and(removed).map_err(|source| Missing::Tunnel { family: Family::of(local), source })?;
        }
        Ok(())
    }

    /// BPF programs, tested on a packet.
    pub fn bpf() -> Result<Self, Missing> {
        let programs = Programs::probe()?;
        Ok(Self { means: Means::Bpf(programs), reason: "asked for".to_owned() })
    }

    /// `kernel` or `bpf`.
    pub fn name(&self) -> &'static str {
        match self.means {
            Means::Kernel => "kernel",
            Means::Bpf(_) => "bpf",
        }
    }

    /// Why this one, in words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}
