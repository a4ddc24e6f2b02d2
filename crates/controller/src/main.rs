//! `tenure-controller`: flags, signals, and the loop of the library.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tenure_controller::{Controller, Settings, Timing, serve};
use tenure_handles::{Entropy, SystemClock, SystemEntropy};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// The port of Coil's metrics.
const PORT: u16 = 9386;

/// Carves blocks for nodes, keeps pools' status, and collects what nobody uses any more.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// Kubeconfig file; without it the usual places, then the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the lease by which replicas elect their leader.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    lease_namespace: String,
    /// Name of the lease. The default is Coil's, so that of the two systems only one leads.
    #[arg(long, default_value = "coil-ipam-leader")]
    lease_name: String,
    /// How long the others wait for a leader that says nothing: whole seconds, such as `15s`.
    #[arg(long, default_value = "15s", value_parser = duration)]
    lease_duration: Duration,
    /// How long a leader leads without a renewal; shorter than the lease.
    #[arg(long, default_value = "10s", value_parser = duration)]
    renew_deadline: Duration,
    /// How often a leader renews and the others look; at most half the deadline.
    #[arg(long, default_value = "2s", value_parser = duration)]
    retry_period: Duration,
    /// How often everything is looked at even if nothing was heard.
    #[arg(long, default_value = "10s", value_parser = duration)]
    check_interval: Duration,
    /// How many writes are under way at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Where /metrics, /healthz and /readyz are served; on port 9386 of all addresses if not given.
    #[arg(long)]
    metrics_address: Option<SocketAddr>,
    /// How log lines look; RUST_LOG says which there are.
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    let positive =
        parsed.and_then(|duration| Duration::try_from(duration).ok()).filter(|duration| !duration.is_zero());
    positive.ok_or_else(|| format!("\"{text}\" is no duration; accepted are such as 500ms, 10s and 1m30s"))
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
    let client = connect(flags.kubeconfig.as_deref()).await?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let entropy = SystemEntropy::new().context("asking the system for randomness")?;
    let settings = Settings {
        lease_namespace: flags.lease_namespace,
        lease_name: flags.lease_name,
        timing,
        workers: flags.workers.into(),
        tick: flags.check_interval,
        ..Settings::new(&format!("{}_{}", host.trim(), entropy.uuid()))
    };
    let listener = listen(flags.metrics_address).await?;
    let controller = Controller::new(client, SystemClock, settings);
    let serving = tokio::spawn(serve(listener, controller.health(), controller.metrics()));
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        tracing::info!("told to stop");
        stopping.cancel();
    });
    let ended = controller.run(stop).await;
    serving.abort();
    Ok(ended?)
}

/// Listens at the address, or at all of them, also where there is no IPv6.
async fn listen(address: Option<SocketAddr>) -> Result<TcpListener> {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    match (address, TcpListener::bind(address.unwrap_or(any)).await) {
        (_, Ok(listener)) => Ok(listener),
        (Some(address), Err(error)) => Err(error).with_context(|| format!("listening on {address}")),
        (None, Err(_)) => {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
            TcpListener::bind(any).await.with_context(|| format!("listening on {any}"))
        }
    }
}

fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logging.init(),
        LogFormat::Json => logging.json().init(),
    }
}

async fn connect(kubeconfig: Option<&std::path::Path>) -> Result<Client> {
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            let read = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            read.with_context(|| format!("understanding {}", path.display()))?
        }
        None => Config::infer().await.context("finding the API server")?,
    };
    Client::try_from(config).context("connecting to the API server")
}
