//! `tenure-controller`: signals, and the loop of the library.

use anyhow::{Context, Result};
use clap::Parser;
use kube::Client;
use tenure_controller::flags::{CloudName, Flags};
use tenure_controller::{
    ClaimSettings, CloudSettings, Controller, Settings, Timing, Whereabouts, image_of_pod,
};
use tenure_daemon::{connect, connect_unix, hostname, listen, serve, start_logging, stop_on_signals};
use tenure_handles::{Entropy, SystemClock, SystemEntropy};

/// The port of Coil's metrics.
const PORT: u16 = 9386;

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
