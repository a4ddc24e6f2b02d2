//! The command line's flags and their defaults.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use tenure_agent::alias::{AliasOptions, PoolChoice};
use tenure_agent::egress::{DatapathChoice, EgressOptions};
use tenure_agent::history::Limits;
use tenure_agent::node;
use tenure_agent::node_addresses::NodeAddressesOptions;
use tenure_agent::run::{AgentOptions, Paths};
use tenure_daemon::{LogFormat, age, duration, hostname, size};

/// Gives pods their addresses: answers the CNI plugin, and keeps interfaces, routes and blocks of this node.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenured", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub struct Flags {
    /// The node's name in Kubernetes; the hostname if not given.
    #[arg(long, env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// Kubeconfig file; without it the usual places, then the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Unix socket of the Kubernetes API, in place of a kubeconfig.
    #[arg(long, value_name = "PATH", conflicts_with = "standalone")]
    pub api_socket: Option<PathBuf>,
    /// Where sockets, journal and tombstones are: a directory that is empty after a reboot.
    #[arg(long, default_value = "/run/tenure")]
    pub run_dir: PathBuf,
    /// Where /metrics, /healthz and /readyz are served, and /v1/node to whom the API server allows it; on port 9384 of all
    /// addresses if not given.
    #[arg(long)]
    pub metrics_address: Option<SocketAddr>,

    /// Table of the routes to this node's pods.
    #[arg(long, default_value_t = 116)]
    pub pod_table: u32,
    /// Priority of the rule that leads to the pod table.
    #[arg(long, default_value_t = 2000)]
    pub pod_rule_priority: u32,
    /// Table of what a routing daemon exports.
    #[arg(long, default_value_t = 119)]
    pub export_table: u32,
    /// Protocol number of the routes in both tables.
    #[arg(long, default_value_t = 30)]
    pub protocol: u8,
    /// The address that pods use as IPv4 gateway.
    #[arg(long, default_value = "169.254.1.1")]
    pub gateway_v4: Ipv4Addr,
    /// The link-local address that pods use as IPv6 gateway.
    #[arg(long, default_value = "fe80::1")]
    pub gateway_v6: Ipv6Addr,
    /// The largest packet of pods' interfaces, where the network's configuration does not say; the uplink's if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub mtu: Option<u32>,
    /// Writes routes to other nodes' blocks by way of these nodes' addresses: for nodes on one Ethernet and no routing
    /// daemon.
    #[arg(long)]
    pub route_blocks: bool,

    /// Where Whereabouts' IPPools, reservations and NodeSlicePools are.
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    pub whereabouts_namespace: String,
    /// Makes a reservation for every address of a shared Whereabouts range: as long as Whereabouts' own plugin still runs on
    /// other nodes, which knows of our addresses by these alone.
    #[arg(long)]
    pub whereabouts_reserve_always: bool,

    /// Gives pods alias addresses of this machine, of the IPPool (ipam.gcp-cni.cast.ai) of this name; with `auto`, of the only one there is.
    /// Networks name it as `"ipam": {"type": "gcp-ipam"}`. Off if not given.
    #[arg(long, value_name = "NAME|auto", conflicts_with = "standalone")]
    pub alias_pool: Option<String>,
    /// With --alias-pool: the host of the machine's metadata server, which says which alias addresses have arrived.
    #[arg(long, value_name = "HOST", env = "GCE_METADATA_HOST", default_value = "metadata.google.internal")]
    pub metadata_host: String,

    /// Whether this node gives pods their addresses. If not, it adds egress to pods of another plugin: chain it after that one.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub enable_ipam: bool,
    /// Whether pods may use Egresses.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub enable_egress: bool,
    /// What carries egress: the kernel's Foo-over-UDP where it is there (modules fou, ipip, ip6_tunnel) and BPF where not, or the
    /// one of the two that is named.
    #[arg(long, value_enum, default_value = "auto", value_name = "DATAPATH")]
    pub egress_datapath: EgressDatapath,

    /// Whether policies (NodeNetworkConfigurationPolicy) give this node's own interfaces addresses.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub enable_node_addresses: bool,
    /// After a change of the node's own interfaces: how long the API server may be out of reach before it is taken back.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub node_probe: Duration,
    /// The program that configures interfaces which NetworkManager manages; tenure-nmstate beside this one if not given.
    #[arg(long, value_name = "PATH")]
    pub nmstate_helper: Option<PathBuf>,
    /// The socket of D-Bus, by which NetworkManager is asked whether it manages an interface.
    #[arg(long, value_name = "PATH", default_value = "/run/dbus/system_bus_socket")]
    pub dbus_socket: PathBuf,

    /// How long a freed address is not assigned again, where its pool does not say.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub cooling: Duration,
    /// How long an empty block rests before it is given back.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub rest: Duration,
    /// How log lines look; `RUST_LOG` says which there are.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,

    /// Works without Kubernetes: agent, controller and API in this one process.
    #[arg(long)]
    pub standalone: bool,
    /// In standalone mode: the directory of the pools' YAML files, which is watched.
    #[arg(long, default_value = "/etc/tenure/pools")]
    pub pools_dir: PathBuf,
    /// What is kept over a reboot: on which boot the agent last ran, and the node's own addresses; in standalone mode also pools
    /// and blocks.
    #[arg(long, default_value = "/var/lib/tenure")]
    pub state_dir: PathBuf,
    /// How much disk space the history of this node may take, in --state-dir: who had which address when. With 0 none is kept.
    #[arg(long, default_value = "64MiB", value_parser = size, value_name = "SIZE")]
    pub history_size: u64,
    /// How long that history goes back, at most.
    #[arg(long, default_value = "30d", value_parser = age, value_name = "AGE")]
    pub history_age: Duration,

    /// Only prepares the host, and ends: forwarding, the rule to the pod table, with --install-plugin-to the plugin, and with
    /// --egress-datapath=kernel its modules. An agent that finds this done needs fewer rights.
    #[arg(long, conflicts_with = "standalone")]
    pub prepare: bool,
    /// Takes everything of Tenure off this node: plugin, configuration, links, routes, rule, kernel parameters that --prepare changed,
    /// and state. Refuses while an agent runs or pods have addresses. `once` ends then; `stay` waits until nothing keeps it from it,
    /// and runs on until it is stopped, as a DaemonSet needs it (deploy/optional/remove.yaml).
    #[arg(
        long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "once",
        conflicts_with_all = ["standalone", "prepare", "install_plugin_to", "install_config_to", "cni_rewrite"]
    )]
    pub remove_from_node: Option<Removal>,
    /// With --remove-from-node: also while pods have addresses, which then have no network any more.
    #[arg(long, requires = "remove_from_node")]
    pub force: bool,
    /// With --remove-from-node: where the CNI plugin is.
    #[arg(long, default_value = "/opt/cni/bin", value_name = "DIRECTORY")]
    pub cni_bin_dir: PathBuf,
    /// Puts the CNI plugin into this directory before it starts, such as /opt/cni/bin.
    #[arg(long)]
    pub install_plugin_to: Option<PathBuf>,
    /// With --install-plugin-to: also where Whereabouts' own plugin is, whose networks are served by this from then on.
    #[arg(long, requires = "install_plugin_to")]
    pub replace_whereabouts: bool,
    /// Puts the network's configuration into this directory when it is ready, such as /etc/cni/net.d.
    #[arg(long)]
    pub install_config_to: Option<PathBuf>,
    /// The cluster's own network lets claims keep addresses: the one that --install-config-to installs, or else that of
    /// --cluster-network. The controller needs the same name as `--cluster-network` then.
    #[arg(long)]
    pub persistent_ips: bool,
    /// Has the network of the cloud's own agents use alias addresses: keeps a configuration before theirs that differs in the IPAM
    /// plugin alone. `undo` takes it away, and ends; `none` keeps it away until the program is stopped.
    #[arg(long, value_enum, value_name = "WHOSE", conflicts_with_all = ["standalone", "install_config_to"])]
    pub cni_rewrite: Option<CniRewrite>,
    /// With --cni-rewrite or --remove-from-node: where the configurations are.
    #[arg(long, default_value = "/etc/cni/net.d", value_name = "DIRECTORY")]
    pub cni_config_dir: PathBuf,
    /// The name of the cluster's own network, where its configuration on the nodes was not installed by this program.
    #[arg(long, default_value = "tenure")]
    pub cluster_network: String,
}

/// The smallest history: each of its files must have room for a few records.
const SMALLEST_HISTORY: u64 = 64 << 10;

/// How often to take Tenure off a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Removal {
    /// Once; the exit code says whether nothing is left.
    Once,
    /// Until it is done, and then no more, but without ending.
    Stay,
}

/// Whose network uses alias addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CniRewrite {
    /// That of Google Kubernetes Engine.
    Gke,
    /// None any more.
    Undo,
    /// None, for as long as this runs.
    None,
}

/// What carries egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EgressDatapath {
    /// The kernel's own where it is there, and BPF where not.
    Auto,
    /// The kernel's own.
    Kernel,
    /// BPF.
    Bpf,
}

impl Flags {
    /// The node's name, if it was given.
    pub fn given_name(&self) -> Option<String> {
        let coils = || std::env::var("COIL_NODE_NAME").ok();
        self.node_name.clone().or_else(coils).filter(|name| !name.is_empty())
    }

    /// The node's name: the given one, or else the hostname.
    pub fn node_name(&self) -> Result<String> {
        match self.given_name().or_else(hostname) {
            Some(name) => Ok(name),
            None => {
                bail!("this host has no name; accepted is --node-name NAME, the node's name in Kubernetes")
            }
        }
    }

    fn history(&self) -> Result<Option<Limits>> {
        let (bytes, age) = (self.history_size, self.history_age);
        if (1..SMALLEST_HISTORY).contains(&bytes) {
            bail!("--history-size is {bytes} bytes; accepted are 0, for none, and 64KiB or more");
        }
        Ok((bytes > 0).then_some(Limits { bytes, age }))
    }

    /// The numbers and names in the kernel.
    pub fn kernel(&self) -> Result<tenure_linux::Settings> {
        let kernel = tenure_linux::Settings {
            pod_table: self.pod_table,
            pod_rule_priority: self.pod_rule_priority,
            export_table: self.export_table,
            protocol: self.protocol,
            gateway_v4: self.gateway_v4,
            gateway_v6: self.gateway_v6,
            ..tenure_linux::Settings::default()
        };
        kernel.validate()?;
        Ok(kernel)
    }

    /// The options of the agent.
    pub fn options(&self) -> Result<AgentOptions> {
        self.options_as(self.node_name()?)
    }

    /// The options of the agent of the node of this name.
    pub fn options_as(&self, node: String) -> Result<AgentOptions> {
        let kernel = self.kernel()?;
        if !self.enable_ipam && !self.enable_egress {
            bail!(
                "--enable-ipam=false and --enable-egress=false leave nothing to do; accepted is one of them"
            );
        }
        if !self.enable_ipam && self.install_config_to.is_some() {
            bail!(
                "--enable-ipam=false and --install-config-to would put a network without addresses before that of the other \
                 plugin; accepted is one of them: chain the plugin by hand (docs/egress.md)"
            );
        }
        let datapath = match self.egress_datapath {
            EgressDatapath::Auto => DatapathChoice::Auto,
            EgressDatapath::Kernel => DatapathChoice::Kernel,
            EgressDatapath::Bpf => DatapathChoice::Bpf,
        };
        Ok(AgentOptions {
            node: node::Settings {
                cooling: self.cooling,
                rest: self.rest,
                ..node::Settings::new(node.clone())
            },
            kernel,
            paths: Paths::in_directory(&self.run_dir),
            state: Some(self.state_dir.clone()),
            history: self.history()?,
            mtu: self.mtu,
            route_blocks: self.route_blocks,
            persistent_network: self.persistent_ips.then(|| match self.install_config_to {
                Some(_) => crate::install::NETWORK.to_owned(),
                None => self.cluster_network.clone(),
            }),
            whereabouts_namespace: self.whereabouts_namespace.clone(),
            whereabouts_reserves_always: self.whereabouts_reserve_always,
            default_network: self.cluster_network.clone(),
            alias: self.alias_pool.as_deref().map(|pool| AliasOptions {
                pool: match pool {
                    "auto" => PoolChoice::Only,
                    name => PoolChoice::Named(name.to_owned()),
                },
                metadata: self.metadata_host.clone(),
                ..AliasOptions::default()
            }),
            egress: self.enable_egress.then(|| EgressOptions {
                datapath,
                chained: !self.enable_ipam,
                ..EgressOptions::default()
            }),
            node_addresses: self.enable_node_addresses.then(|| {
                let usual = NodeAddressesOptions::default();
                NodeAddressesOptions {
                    probe: self.node_probe,
                    helper: self.nmstate_helper.clone().unwrap_or(usual.helper),
                    bus: self.dbus_socket.clone(),
                    verify: usual.verify,
                }
            }),
            ..AgentOptions::new(node)
        })
    }
}
