//! `tenure ui`: pages for a browser on this machine that show what the other verbs show, and a map of every pool, live. It changes
//! nothing, and opens nothing in the cluster: it reads with the rights of whoever runs it.
//!
//! ```text
//!  watches ──▶ feed ──┐                      ┌──▶ pages, search, who (the model of the other verbs)
//!                     ├──▶ state ── changes ─┤
//!  agents ◀──▶ poll ──┘      │               └──▶ stream ──▶ server ◀── gate ◀── browser
//!                            └─ pieces ──▶ index ──▶ map, cell ─────┘
//! ```
//!
//! An update costs what changed: a source's pieces of the map, the cells that they are in, and the rows that are different.

mod assets;
mod cell;
mod feed;
mod gate;
mod index;
mod map;
mod pages;
mod pieces;
mod poll;
mod search;
mod server;
pub(crate) mod state;
mod stream;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use tenure_daemon::serve::{Limits, serve_within};
use tenure_handles::{Entropy, SystemClock, SystemEntropy};
use tenure_watch::Connection;
use tokio::task::JoinSet;

use crate::query::{QueryOptions, Source};
use crate::table::{Format, Output};
use gate::Gate;
use server::Server;
use state::Shared;

/// Open pages, and requests beside them.
const LIMITS: Limits = Limits {
    connections: 64,
    head_within: Duration::from_secs(5),
    largest_head: 16 << 10,
    // A page that is told of changes; afterwards it asks again.
    all_within: Duration::from_hours(1),
};

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct UiOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// The loopback address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::LOCALHOST.into())]
    address: IpAddr,
    /// The port to listen on; by default a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Runs the verb, until Ctrl-C.
pub(crate) async fn run(options: UiOptions) -> Result<Output> {
    ensure!(
        options.address.is_loopback(),
        "{} is reachable from other machines; accepted is a loopback address, such as 127.0.0.1 or ::1",
        options.address
    );
    let source = options.query.source().await?;
    let entropy = SystemEntropy::new().context("cannot get random numbers")?;
    let listener = tenure_daemon::listen(Some((options.address, options.port).into()), 0).await?;
    let gate = Gate::new(listener.local_addr()?, &entropy);
    let Live { shared, mut tasks } = live(source, entropy)?;
    say(&gate.link(), options.query.output)?;
    let server = Server { gate: Arc::new(gate), shared: Arc::clone(&shared) };
    tasks.spawn(serve_within(listener, server, LIMITS));
    tokio::select! {
        ended = tokio::signal::ctrl_c() => ended.context("cannot wait for Ctrl-C")?,
        Some(ended) = tasks.join_next() => ended.context("a part of the program ended")?,
    }
    Ok(Output::nothing())
}

/// What is known, and the tasks that keep it up to date.
pub(crate) struct Live {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tasks: JoinSet<()>,
}

/// Watches everything, and asks agents while somebody looks. Each is a task of its own, so that none waits for the work of another; they
/// end with the set.
pub(crate) fn live(source: Source, entropy: impl Entropy) -> Result<Live> {
    let connection = Connection::new(source.client()?.clone(), Arc::new(SystemClock), Arc::new(entropy));
    let shared = Arc::new(Shared::new(Arc::clone(connection.health())));
    let mut tasks = JoinSet::new();
    tasks.spawn(feed::watch(Arc::clone(&shared), connection, source.cluster));
    tasks.spawn(poll::poll(Arc::clone(&shared), source));
    Ok(Live { shared, tasks })
}

/// Prints where the pages are; the address has the token.
fn say(link: &str, format: Format) -> Result<()> {
    let text = match format {
        Format::Json => json!({"url": link}).to_string(),
        Format::Table => format!(
            "{link}\nOpen this address on this machine; whoever has it can read what you can. It changes nothing. Ctrl-C ends it."
        ),
    };
    let mut out = io::stdout();
    writeln!(out, "{text}")?;
    out.flush().context("cannot write the address")
}
