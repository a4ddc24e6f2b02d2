//! The programs that the test bed runs, and their sources.

use std::fmt;

use super::go::GoModule;

/// A program that the test bed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the program of that name")]
pub enum Program {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubectl,
    Kubelet,
    KubeProxy,
    Containerd,
    ContainerdShim,
    Ctr,
    Runc,
    Busybox,
    Nft,
    Ip,
    Bird,
    Birdc,
    Ptp,
    Bridge,
    Macvlan,
    HostLocal,
    Loopback,
    Cnitool,
    Qemu,
    Chromium,
    Prometheus,
    Promtool,
    Zsh,
    Fish,
    Mandoc,
    Helm,
}

/// The source of a missing program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A Go module beside this crate's sources.
    Go(GoModule),
    /// The Debian package of this name.
    Debian(&'static str),
}

impl Program {
    /// The programs of a control plane, and its command line.
    pub const CONTROL_PLANE: [Self; 4] =
        [Self::Etcd, Self::KubeApiserver, Self::KubeControllerManager, Self::Kubectl];

    /// The programs of a cluster beyond a control plane.
    pub const CLUSTER: [Self; 10] = [
        Self::KubeScheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Ctr,
        Self::Runc,
        Self::Busybox,
        Self::Nft,
        Self::Ip,
    ];

    /// The reference CNI plugins, and the tool that calls a plugin by hand.
    pub const CNI: [Self; 6] =
        [Self::Ptp, Self::Bridge, Self::Macvlan, Self::HostLocal, Self::Loopback, Self::Cnitool];

    /// A routing daemon, and its command line.
    pub const ROUTING: [Self; 2] = [Self::Bird, Self::Birdc];

    /// What a virtual machine with another kernel runs in.
    pub const MACHINE: [Self; 1] = [Self::Qemu];

    /// What pages are tested in.
    pub const BROWSER: [Self; 1] = [Self::Chromium];

    /// What scrapes metrics, and what tests its rules.
    pub const MONITORING: [Self; 2] = [Self::Prometheus, Self::Promtool];
    /// The shells whose completions are tested, besides bash.
    pub const SHELLS: [Self; 2] = [Self::Zsh, Self::Fish];

    /// What manual pages are checked by.
    pub const MANUAL: [Self; 1] = [Self::Mandoc];
    /// What installs a chart.
    pub const CHART: [Self; 1] = [Self::Helm];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let parts =
            Self::CONTROL_PLANE.into_iter().chain(Self::CLUSTER).chain(Self::CNI).chain(Self::ROUTING);
        let tools = Self::MONITORING.into_iter().chain(Self::SHELLS).chain(Self::MANUAL);
        parts.chain(Self::MACHINE).chain(Self::BROWSER).chain(Self::CHART).chain(tools)
    }

    /// Its file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::Busybox => "busybox",
            Self::Nft => "nft",
            Self::Ip => "ip",
            Self::Bird => "bird",
            Self::Birdc => "birdc",
            Self::Ptp => "ptp",
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::HostLocal => "host-local",
            Self::Loopback => "loopback",
            Self::Cnitool => "cnitool",
            Self::Qemu => "qemu-system-x86_64",
            Self::Chromium => "chromium",
            Self::Prometheus => "prometheus",
            Self::Promtool => "promtool",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
            Self::Mandoc => "mandoc",
            Self::Helm => "helm",
        }
    }

    pub(super) fn source(self) -> Source {
        match self {
            Self::Etcd => Source::Debian("etcd-server"),
            Self::Runc => Source::Debian("runc"),
            Self::Busybox => Source::Debian("busybox-static"),
            // kube-proxy runs nft, and the test bed connects hosts with iproute2.
            Self::Nft => Source::Debian("nftables"),
            Self::Ip => Source::Debian("iproute2"),
            Self::Qemu => Source::Debian("qemu-system-x86"),
            Self::Chromium => Source::Debian("chromium"),
            Self::Prometheus | Self::Promtool => Source::Debian("prometheus"),
            Self::Zsh => Source::Debian("zsh"),
            Self::Fish => Source::Debian("fish"),
            Self::Mandoc => Source::Debian("mandoc"),
            Self::Bird | Self::Birdc => Source::Debian("bird2"),
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubectl
            | Self::Kubelet
            | Self::KubeProxy => Source::Go(GoModule::Kube),
            Self::Containerd | Self::ContainerdShim | Self::Ctr => Source::Go(GoModule::Containerd),
            Self::Ptp | Self::Bridge | Self::Macvlan | Self::HostLocal | Self::Loopback | Self::Cnitool => {
                Source::Go(GoModule::Cni)
            }
            Self::Helm => Source::Go(GoModule::Helm),
        }
    }

    pub(super) fn is_cni_plugin(self) -> bool {
        self.source() == Source::Go(GoModule::Cni) && self != Self::Cnitool
    }

    /// The arguments that print its version and the required prefix of that, for programs of which not every
    /// version on `PATH` works: 1.35 is the last line of kubelets that supports cgroup v1, and a kubelet may
    /// not be newer than its API server; kubectl works one minor version apart; containerd 2 and BIRD 2 have
    /// other configuration formats than 1.
    pub(super) fn version_on_path(self) -> Option<(&'static [&'static str], &'static str)> {
        match self {
            Self::Kubelet | Self::KubeProxy => Some((&["--version"], "1.35.")),
            Self::Kubectl => Some((&["version", "--client"], "1.35.")),
            Self::Containerd | Self::Bird => Some((&["--version"], "2.")),
            Self::ContainerdShim => Some((&["-v"], "2.")),
            Self::Helm => Some((&["version", "--short"], "4.")),
            _ => None,
        }
    }

    /// Whether it must be a static binary, because images contain nothing else.
    pub(super) fn must_be_static(self) -> bool {
        self == Self::Busybox
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
