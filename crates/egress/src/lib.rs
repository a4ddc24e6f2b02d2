//! `tenure-egress`: the program in an Egress's gateways. It learns who the clients are, and has the kernel serve them.
//!
//! ```text
//!  EgressClients of this Egress ──▶ watch ──▶ clients.rs: who is served ──▶ serve.rs ──▶ the kernel (crates/linux)
//!   one object for each node                   no I/O, takes `now`             one transaction for all changes
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`clients`] | who is a client when, without I/O |
//! | [`flags`] | flags and variables |
//! | [`serve`] | the loop: kernel state follows the clients; readiness |
//! | [`drain`] | when a gateway that was told to stop may end, without I/O |
//! | [`connections`] | how many connections there are, looked at within limits |
//! | [`metrics`] | metrics, with Coil's names too |
//!
//! It promises: it serves nobody who is not a client; a client that any node lists is served; it is ready when the first
//! list is complete and every client of it is in the kernel; a lost API server changes nothing; what it leaves in the kernel
//! when it ends serves on until its successor takes over.
//!
//! It needs the right to change its own network (`NET_ADMIN`) and to watch one kind in one namespace, and nothing else. What
//! needs more was prepared by the node's agent ([`tenure_linux::egress::gateway`]).

pub mod clients;
pub mod connections;
pub mod drain;
pub mod flags;
pub mod metrics;
pub mod serve;
mod watch;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use tenure_daemon::{
    Pages, connect, connect_unix, listen, serve as serve_pages, start_logging, stop_on_signals,
};
use tenure_handles::{Clock, SystemClock};
use tenure_watch::Connection;

use flags::{Flags, Settings};
use serve::Server;

/// The port of Coil's metrics.
const METRICS: u16 = 8080;
/// The port of Coil's health.
const HEALTH: u16 = 8081;

/// The program.
pub fn main() -> Result<()> {
    let flags = Flags::parse();
    start_logging(flags.log_format);
    let settings = flags.settings()?;
    // One thread for everything that waits; what the kernel is asked is asked on threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .context("starting the runtime")?;
    runtime.block_on(run(&flags, settings))
}

async fn run(flags: &Flags, settings: Settings) -> Result<()> {
    let client = match &flags.api_socket {
        Some(socket) => connect_unix(socket),
        None => connect(flags.kubeconfig.as_deref(), None).await?,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let connection = Connection::named(client, Arc::clone(&clock), &settings.pod);
    let server = Arc::new(Server::new(settings, connection, clock));
    let stop = stop_on_signals().context("listening for signals")?;
    let health = listen(flags.health_address, HEALTH).await?;
    let metrics = listen(flags.metrics_address, METRICS).await?;
    let pages = [
        tokio::spawn(serve_pages(health, health_pages(&server))),
        tokio::spawn(serve_pages(metrics, metrics_pages(&server))),
    ];
    server.run(stop).await;
    for page in pages {
        page.abort();
    }
    Ok(())
}

fn health_pages(server: &Arc<Server>) -> Pages {
    let server = Arc::clone(server);
    Pages::default().verdict("/healthz", || async { (true, "ok\n".to_owned()) }).verdict(
        "/readyz",
        move || {
            let readiness = server.readiness();
            async move { (readiness.is_ready(), format!("{readiness}\n")) }
        },
    )
}

fn metrics_pages(server: &Arc<Server>) -> Pages {
    let server = Arc::clone(server);
    Pages::default().metrics(move || {
        let server = Arc::clone(&server);
        async move { server.metrics().await }
    })
}
