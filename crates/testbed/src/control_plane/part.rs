//! The parts of a control plane, and how each is started.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tenure_handles::{Entropy as _, SystemEntropy};

use super::certificates::{Authority, write};
use super::credentials::{Access, Credentials};
use super::{ControlPlaneError, ControlPlaneOptions};
use crate::binaries::{Binaries, Program};
use crate::ports::Port;
use crate::process::Program as Launch;
use crate::run_directory::RunDirectory;

/// A part of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
}

impl Part {
    /// All of them, in the order in which they are started.
    pub const ALL: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    pub(super) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn program(self) -> Program {
        match self {
            Self::Etcd => Program::Etcd,
            Self::ApiServer => Program::KubeApiserver,
            Self::ControllerManager => Program::KubeControllerManager,
            Self::Scheduler => Program::KubeScheduler,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program().fmt(formatter)
    }
}

/// Everything that determines the parts' arguments, decided once, so that a restarted part is the same again.
#[derive(Debug)]
pub(super) struct Layout {
    options: ControlPlaneOptions,
    binaries: Binaries,
    directory: PathBuf,
    logs: PathBuf,
    token: String,
    /// One per part, and one for etcd's peers, of which there are none.
    ports: [Port; Part::ALL.len()],
    peers: Port,
    authority: PathBuf,
    authority_key: PathBuf,
    serving: [(PathBuf, PathBuf); Part::ALL.len()],
    kubelet_client: (PathBuf, PathBuf),
    service_accounts: (PathBuf, PathBuf),
    kubeconfigs: [PathBuf; Part::ALL.len()],
}

impl Layout {
    pub(super) fn prepare(
        options: ControlPlaneOptions,
        binaries: Binaries,
        run: &RunDirectory,
        authority: &Authority,
    ) -> Result<Self, ControlPlaneError> {
        let no_port = |source| ControlPlaneError::File { act: "reserving", path: "a port".into(), source };
        let reserve = || Port::reserve().map_err(no_port);
        let ports = [reserve()?, reserve()?, reserve()?, reserve()?];
        let directory = run.path().to_owned();
        let port = ports[Part::ApiServer.index()].number();
        let url = format!("https://{}", SocketAddr::new(listens_at(&options, Part::ApiServer), port));

        let mut names: Vec<String> =
            ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(str::to_owned)
                .to_vec();
        names.extend(options.names.iter().cloned());
        names.extend(first_addresses(&options.service_range)?);
        let serving = |part: Part| authority.write_server(part.program().name(), &names);
        let serving = [
            serving(Part::Etcd)?,
            serving(Part::ApiServer)?,
            serving(Part::ControllerManager)?,
            serving(Part::Scheduler)?,
        ];

        let kubeconfig = |part: Part| {
            let path = directory.join(format!("{part}.kubeconfig"));
            let credentials = Credentials::Certificate(authority.client(&format!("system:{part}"), &[])?);
            Access { server: url.clone(), authority: authority.root(), credentials }.write(&path)
        };
        let kubeconfigs = [
            PathBuf::new(),
            PathBuf::new(),
            kubeconfig(Part::ControllerManager)?,
            kubeconfig(Part::Scheduler)?,
        ];

        let token = SystemEntropy::new()
            .map_err(|source| ControlPlaneError::File {
                act: "reading",
                path: "the source of randomness".into(),
                source,
            })?
            .uuid();
        write(&directory.join("tokens.csv"), &format!("{token},admin,admin,system:masters\n"))?;
        Ok(Self {
            kubelet_client: authority.write_client(
                "kubelet-client",
                "kube-apiserver-kubelet-client",
                &["system:masters"],
            )?,
            service_accounts: authority.write_key("service-accounts")?,
            authority: authority.certificate(),
            authority_key: authority.key(),
            logs: run.logs(),
            peers: reserve()?,
            options,
            binaries,
            directory,
            token,
            ports,
            serving,
            kubeconfigs,
        })
    }

    pub(super) fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn admin(&self) -> Credentials {
        Credentials::Token(self.token.clone())
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address(Part::ApiServer))
    }

    pub(super) fn address(&self, part: Part) -> String {
        SocketAddr::new(listens_at(&self.options, part), self.ports[part.index()].number()).to_string()
    }

    /// How to start `part`.
    pub(super) fn launch(&self, part: Part) -> Result<Launch, ControlPlaneError> {
        let path = self.binaries.path(part.program())?;
        let launch = Launch::new(part.to_string(), path, self.logs.join(format!("{part}.log")));
        let launch = match part {
            Part::Etcd => self.etcd(launch),
            Part::ApiServer => self.api_server(launch),
            Part::ControllerManager => self.controller_manager(launch),
            Part::Scheduler => self.scheduler(launch),
        };
        let further =
            self.options.arguments.iter().filter(|(of, _)| *of == part).map(|(_, argument)| argument);
        Ok(launch.args(further))
    }

    fn etcd(&self, launch: Launch) -> Launch {
        let clients = format!("http://{}", self.address(Part::Etcd));
        let peers = format!("http://{}:{}", Ipv4Addr::LOCALHOST, self.peers.number());
        let launch = launch
            .flag("--name", "default")
            .flag("--data-dir", self.directory.join("etcd"))
            .flag("--listen-client-urls", &clients)
            .flag("--advertise-client-urls", &clients)
            .flag("--listen-peer-urls", &peers)
            .flag("--initial-advertise-peer-urls", &peers)
            .flag("--initial-cluster", format!("default={peers}"))
            .flag("--logger", "zap")
            // Large tests and benchmarks write more than the default limit of 2 GiB.
            .flag("--quota-backend-bytes", "8589934592");
        if self.options.durable { launch } else { launch.arg("--unsafe-no-fsync") }
    }

    fn api_server(&self, launch: Launch) -> Launch {
        let (certificate, key) = &self.serving[Part::ApiServer.index()];
        let launch = launch
            .flag("--etcd-servers", format!("http://{}", self.address(Part::Etcd)))
            .flag("--bind-address", listens_at(&self.options, Part::ApiServer).to_string())
            .flag("--secure-port", self.ports[Part::ApiServer.index()].number().to_string())
            .flag("--cert-dir", self.directory.join("certificates"))
            .flag("--tls-cert-file", certificate)
            .flag("--tls-private-key-file", key)
            .flag("--client-ca-file", &self.authority)
            .flag("--token-auth-file", self.directory.join("tokens.csv"))
            .flag("--authorization-mode", "Node,RBAC")
            .flag("--enable-admission-plugins", "NodeRestriction")
            .flag("--service-account-issuer", "https://kubernetes.default.svc")
            .flag("--service-account-key-file", &self.service_accounts.0)
            .flag("--service-account-signing-key-file", &self.service_accounts.1)
            .flag("--service-cluster-ip-range", &self.options.service_range)
            .flag("--kubelet-client-certificate", &self.kubelet_client.0)
            .flag("--kubelet-client-key", &self.kubelet_client.1)
            // Otherwise it would look up the nodes' names in DNS.
            .flag("--kubelet-preferred-address-types", "InternalIP")
            .arg("--allow-privileged");
        let launch = match self.options.advertised {
            Some(address) => launch.flag("--advertise-address", address.to_string()),
            // An endpoint must not be a loopback address, and there is no other.
            None => launch
                .flag("--advertise-address", Ipv4Addr::LOCALHOST.to_string())
                .flag("--endpoint-reconciler-type", "none"),
        };
        if self.options.controller_manager {
            launch
        } else {
            launch.flag("--disable-admission-plugins", "ServiceAccount")
        }
    }

    fn controller_manager(&self, launch: Launch) -> Launch {
        self.served(launch, Part::ControllerManager)
            .flag("--service-account-private-key-file", &self.service_accounts.1)
            .flag("--root-ca-file", &self.authority)
            .flag("--cluster-signing-cert-file", &self.authority)
            .flag("--cluster-signing-key-file", &self.authority_key)
            .arg("--use-service-account-credentials")
    }

    fn scheduler(&self, launch: Launch) -> Launch {
        self.served(launch, Part::Scheduler)
    }

    /// The common arguments of the API server's clients.
    fn served(&self, launch: Launch, part: Part) -> Launch {
        let (certificate, key) = &self.serving[part.index()];
        let kubeconfig = &self.kubeconfigs[part.index()];
        launch
            .flag("--kubeconfig", kubeconfig)
            .flag("--authentication-kubeconfig", kubeconfig)
            .flag("--authorization-kubeconfig", kubeconfig)
            .flag("--bind-address", Ipv4Addr::LOCALHOST.to_string())
            .flag("--secure-port", self.ports[part.index()].number().to_string())
            .flag("--tls-cert-file", certificate)
            .flag("--tls-private-key-file", key)
            .flag("--leader-elect", "false")
    }
}

/// The listen address of a part: loopback, except for an API server that pods must reach.
fn listens_at(options: &ControlPlaneOptions, part: Part) -> IpAddr {
    match (part, options.advertised) {
        (Part::ApiServer, Some(address)) => address,
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

/// The first address of each range: the Service `kubernetes`.
fn first_addresses(ranges: &str) -> Result<Vec<String>, ControlPlaneError> {
    let first = |range: &str| match range.split_once('/')?.0.parse().ok()? {
        IpAddr::V4(address) => Some(Ipv4Addr::from_bits(u32::from(address).checked_add(1)?).to_string()),
        IpAddr::V6(address) => {
            Some(std::net::Ipv6Addr::from_bits(u128::from(address).checked_add(1)?).to_string())
        }
    };
    let wrong = |range: &str| ControlPlaneError::ServiceRange { range: range.to_owned() };
    ranges.split(',').map(|range| first(range).ok_or_else(|| wrong(range))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_of_each_service_range_is_in_the_certificate() {
        assert_eq!(first_addresses("10.96.0.0/16,fd00::/112").unwrap(), ["10.96.0.1", "fd00::1"]);
        let error = first_addresses("10.96.0.0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the Services' range \"10.96.0.0\" is not ADDRESS/LENGTH, or two of them with a comma between"
        );
    }
}
