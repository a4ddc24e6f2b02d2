//! `tenure-controller`: flags, signals, and the loop of the library.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use kube::Client;
use tenure_controller::{
    ClaimSettings, CloudSettings, Controller, Settings, Timing, Whereabouts, image_of_pod,
};
use tenure_daemon::{
    LogFormat, connect, connect_unix, duration, hostname, listen, serve, start_logging, stop_on_signals,
};
use tenure_handles::{Entropy, SystemClock, SystemEntropy};

/// The port of Coil's metrics.
const PORT: u16 = 9386;

/// Carves blocks and slices for nodes, keeps pools' status, and collects what nobody uses any more.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// Kubeconfig file; without it the usual places, then the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Unix socket of the Kubernetes API, in place of a kubeconfig.
    #[arg(long, value_name = "PATH")]
    api_socket: Option<PathBuf>,
    /// Namespace of the lease by which replicas elect their leader.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    lease_namespace: String,
    /// Name of the lease. The default is Coil's, so that of the two systems only one leads.
    #[arg(long, default_value = "coil-ipam-leader")]
    lease_name: String,
    /// How long the others wait for a leader that says nothing: whole seconds, such as `30s`.
    #[arg(long, default_value = "30s", value_parser = duration)]
    lease_duration: Duration,
    /// How long a leader leads without a renewal; shorter than the lease.
    #[arg(long, default_value = "25s", value_parser = duration)]
    renew_deadline: Duration,
    /// How often a leader renews and the others look; at most half the deadline.
    #[arg(long, default_value = "2s", value_parser = duration)]
    retry_period: Duration,
    /// How often everything is looked at even if nothing was heard.
    #[arg(long, default_value = "10s", value_parser = duration)]
    check_interval: Duration,
    /// How many writes are under way at once, unless they are slow.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Namespace of Whereabouts' objects.
    #[arg(long, default_value = "kube-system")]
    whereabouts_namespace: String,
    /// Name of the cluster's default network as in its CNI configuration, if that has `"allowPersistentIPs": true`: then pods
    /// keep addresses of it by claims, too. Empty if it does not.
    #[arg(long, value_name = "NAME", default_value = "")]
    cluster_network: String,
    /// How long an address that belonged to a claim is not given to another, where its pool does not say.
    #[arg(long, default_value = "30s", value_parser = duration)]
    cooling: Duration,
    /// How long a block or slice for claims rests empty before it is given back.
    #[arg(long, default_value = "5m", value_parser = duration)]
    rest: Duration,
    /// How long a node has to be missing, and no pod bound to it, before its blocks are given to others: longer than a kubelet
    /// takes to end the containers of pods that are gone.
    #[arg(long, default_value = "2m", value_parser = duration)]
    missing_node_rest: Duration,
    /// Look after egress gateways, if their image is known; `--enable-egress=false` for addresses alone.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    enable_egress: bool,
    /// Image of egress gateways; that of this controller's own pod if not given.
    #[arg(long, value_name = "IMAGE")]
    egress_image: Option<String>,
    /// Attach alias addresses of this cloud to the machines of nodes, as `IPPool`s (ipam.gcp-cni.cast.ai) say; off if not given.
    #[arg(long, value_enum, value_name = "CLOUD")]
    cloud: Option<CloudName>,
    /// Address of the cloud's Compute API, if it is not Google's own.
    #[arg(long, value_name = "URL", requires = "cloud")]
    cloud_endpoint: Option<String>,
    /// File with a token for the cloud, which somebody else keeps fresh; without it tokens come from the metadata server.
    #[arg(long, value_name = "PATH", requires = "cloud")]
    cloud_token_file: Option<PathBuf>,
    /// Host of the metadata server.
    #[arg(long, env = "GCE_METADATA_HOST", value_name = "HOST", default_value = "metadata.google.internal")]
    metadata_host: String,
    /// Name of this controller's own pod, in the namespace of the lease: by this it finds its image.
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
    /// Where /metrics, /healthz and /readyz are served; on port 9386 of all addresses if not given.
    #[arg(long)]
    metrics_address: Option<SocketAddr>,
    /// How log lines look; `RUST_LOG` says which there are.
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

/// A cloud whose machines can have alias addresses.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CloudName {
    /// Google's.
    Gcp,
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    start_logging(flags.log_format);
    let timing = Timing {
        duration: flags.lease_duration,
        renew_deadline: flags.renew_deadline,
        retry: flags.retry_period,
    };
    let timing = timing.check()?;
    let client = match &flags.api_socket {
        Some(socket) => connect_unix(socket),
        None => connect(flags.kubeconfig.as_deref(), None).await?,
    };
    let entropy = SystemEntropy::new().context("asking the system for randomness")?;
    let egress_image = egress_image(&flags, &client).await?;
    let cloud = flags.cloud.map(|CloudName::Gcp| {
        let endpoint = flags.cloud_endpoint.as_deref();
        CloudSettings::google(endpoint, flags.cloud_token_file.clone(), &flags.metadata_host)
    });
    let settings = Settings {
        cloud,
        egress_image,
        lease_namespace: flags.lease_namespace,
        lease_name: flags.lease_name,
        timing,
        workers: flags.workers.into(),
        tick: flags.check_interval,
        cluster_network: Some(flags.cluster_network).filter(|name| !name.is_empty()),
        claims: ClaimSettings { empty_after: flags.rest, cooling: flags.cooling },
        missing_node_rest: flags.missing_node_rest,
        whereabouts: Whereabouts {
            namespace: flags.whereabouts_namespace,
            node_gone_after: flags.missing_node_rest,
            ..Whereabouts::default()
        },
        ..Settings::new(&format!("{}_{}", hostname().unwrap_or_default(), entropy.uuid()))
    };
    let listener = listen(flags.metrics_address, PORT).await?;
    let controller = Controller::new(client, SystemClock, settings);
    let serving = tokio::spawn(serve(listener, controller.pages()));
    let stop = stop_on_signals().context("listening for signals")?;
    let ended = controller.run(stop).await;
    serving.abort();
    Ok(ended?)
}

/// The image of egress gateways, if they are looked after.
async fn egress_image(flags: &Flags, client: &Client) -> Result<Option<String>> {
    match (&flags.egress_image, &flags.pod_name) {
        _ if !flags.enable_egress => Ok(None),
        (Some(image), _) => Ok(Some(image.clone())),
        (None, Some(pod)) => Ok(Some(image_of_pod(client, SystemClock, &flags.lease_namespace, pod).await?)),
        (None, None) => Ok(None),
    }
}
