//! The command line's flags and their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tenure_daemon::{LogFormat, duration};

/// Carves blocks and slices for nodes, keeps pools' status, and collects what nobody uses any more.
#[derive(Debug, Parser)]
#[command(name = "tenure-controller", version)]
pub struct Flags {
    /// Kubeconfig file; without it the usual places, then the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Unix socket of the Kubernetes API, in place of a kubeconfig.
    #[arg(long, value_name = "PATH")]
    pub api_socket: Option<PathBuf>,
    /// Namespace of the lease by which replicas elect their leader.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    pub lease_namespace: String,
    /// Name of the lease. The default is Coil's, so that of the two systems only one leads.
    #[arg(long, default_value = "coil-ipam-leader")]
    pub lease_name: String,
    /// How long the others wait for a leader that says nothing: whole seconds, such as `30s`.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub lease_duration: Duration,
    /// How long a leader leads without a renewal; shorter than the lease.
    #[arg(long, default_value = "25s", value_parser = duration)]
    pub renew_deadline: Duration,
    /// How often a leader renews and the others look; at most half the deadline.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub retry_period: Duration,
    /// How often everything is looked at even if nothing was heard.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub check_interval: Duration,
    /// How many writes are under way at once, unless they are slow.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
    /// Namespace of Whereabouts' objects.
    #[arg(long, default_value = "kube-system")]
    pub whereabouts_namespace: String,
    /// Name of the cluster's default network as in its CNI configuration, if that has `"allowPersistentIPs": true`: then pods
    /// keep addresses of it by claims, too. Empty if it does not.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub cluster_network: String,
    /// How long an address that belonged to a claim is not given to another, where its pool does not say.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub cooling: Duration,
    /// How long a block or slice for claims rests empty before it is given back.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub rest: Duration,
    /// How long a node has to be missing, and no pod bound to it, before its blocks are given to others: longer than a kubelet
    /// takes to end the containers of pods that are gone.
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub missing_node_rest: Duration,
    /// Look after egress gateways, if their image is known; `--enable-egress=false` for addresses alone.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_egress: bool,
    /// Image of egress gateways; that of this controller's own pod if not given.
    #[arg(long, value_name = "IMAGE")]
    pub egress_image: Option<String>,
    /// Attach alias addresses of this cloud to the machines of nodes, as `IPPool`s (ipam.gcp-cni.cast.ai) say; off if not given.
    #[arg(long, value_enum, value_name = "CLOUD")]
    pub cloud: Option<CloudName>,
    /// Address of the cloud's Compute API, if it is not Google's own.
    #[arg(long, value_name = "URL", requires = "cloud")]
    pub cloud_endpoint: Option<String>,
    /// File with a token for the cloud, which somebody else keeps fresh; without it tokens come from the metadata server.
    #[arg(long, value_name = "PATH", requires = "cloud")]
    pub cloud_token_file: Option<PathBuf>,
    /// Host of the metadata server.
    #[arg(long, env = "GCE_METADATA_HOST", value_name = "HOST", default_value = "metadata.google.internal")]
    pub metadata_host: String,
    /// Name of this controller's own pod, in the namespace of the lease: by this it finds its image.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// Where /metrics, /healthz and /readyz are served; on port 9386 of all addresses if not given.
    #[arg(long)]
    pub metrics_address: Option<SocketAddr>,
    /// How log lines look; `RUST_LOG` says which there are.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// A cloud whose machines can have alias addresses.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum CloudName {
    /// Google's.
    Gcp,
}
