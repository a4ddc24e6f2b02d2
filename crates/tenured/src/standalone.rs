//! One host without Kubernetes: API, controller and pools in this process, for the agent beside them.
//!
//! ```text
//!   /etc/tenure/pools/*.yaml ──▶ PoolFiles ──▶ embedded API ◀──▶ controller
//!                                               ▲      ▲
//!                                    api.sock ──┘      └── the agent's client
//! ```
//!
//! What it promises:
//!
//! - Pools and who owns which block are on disk under the state directory. After a reboot, when `/run` is empty, the
//!   blocks are still this host's and are assigned from again.
//! - One process at a time uses a state directory; a second one says so and ends.
//! - After a restart it leads at once: only the process that has locked the directory can have the lease.
//! - A pool file that cannot be used changes nothing; see [`Mistake`].

mod definitions;
mod directory;
mod host;
mod manifest;
mod pages;
mod plan;
mod pools;
mod program;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Client;
use tenure_controller::{Controller, Health, Metrics, Settings, Whereabouts};
use tenure_handles::{Clock, Entropy};
use tenure_localapi::{LocalApi, OpenError, ServeError, Server};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use manifest::Mistake;
pub use plan::POOL_FILE;
pub use program::run;

use pools::PoolFiles;

/// The paths and the name of a standalone host.
#[derive(Clone, Debug)]
pub struct StandaloneOptions {
    /// The directory that survives a reboot, such as `/var/lib/tenure`.
    pub state_dir: PathBuf,
    /// The directory of the pools' files, such as `/etc/tenure/pools`. Created if missing.
    pub pools_dir: PathBuf,
    /// The directory of `api.sock`, such as `/run/tenure`.
    pub run_dir: PathBuf,
    /// This host's name, if it was given. Otherwise the host keeps its first name: a new hostname does not
    /// make it another host.
    pub node: Option<String>,
    /// The hostname.
    pub hostname: String,
    /// The namespace of Whereabouts' objects.
    pub whereabouts_namespace: String,
}

/// Why a standalone host cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory cannot be created or used.
    #[error("starting on one host: cannot {act} {}", .path.display())]
    Directory {
        /// The operation.
        act: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error(
        "starting on one host: the state directory {} is in use by another tenured; stop that one, or name another directory with --state-dir", .0.display()
    )]
    InUse(PathBuf),
    /// The database cannot be opened.
    #[error("starting on one host")]
    Open(#[source] OpenError),
    /// The API's socket cannot be opened.
    #[error("starting on one host")]
    Serve(#[from] ServeError),
    /// The API refused something that it must accept.
    #[error("starting on one host: cannot {act}")]
    Api {
        /// The operation.
        act: String,
        /// The API's error.
        source: Box<kube::Error>,
    },
    /// The hostname is not a valid node name.
    #[error(
        "starting on one host: the hostname is {0:?}; accepted as a node's name are lower-case letters, digits, '-' and '.': give one with --node-name"
    )]
    Hostname(String),
    /// The state belongs to another host.
    #[error(
        "starting on one host: --node-name is {given:?}, and the state directory {} is that of {kept:?}; accepted is {kept:?}, or a directory of its own with --state-dir", .state_dir.display()
    )]
    OtherNode {
        /// The given name.
        given: String,
        /// The name in the state directory.
        kept: String,
        /// The state directory.
        state_dir: PathBuf,
    },
    /// A part ended without being told to.
    #[error("running on one host: a part ended: {0}")]
    Ended(String),
}

/// The running API, controller and pool files of one host.
#[derive(Debug)]
pub struct Standalone {
    api: LocalApi,
    node: String,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    mistakes: watch::Receiver<Vec<Mistake>>,
    server: Server,
    parts: JoinSet<Result<(), String>>,
    stop: CancellationToken,
}

impl Standalone {
    /// Starts them; they run until `stop`. When this returns, the kinds, the Node and the pools of all valid
    /// files exist.
    pub async fn start(
        options: StandaloneOptions,
        clock: impl Clock + Clone,
        entropy: impl Entropy,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        for own in [&options.state_dir, &options.run_dir] {
            make(own, 0o700)?;
            // It may have existed before, with other permissions.
            restrict(own, 0o700)?;
        }
        make(&options.pools_dir, 0o755)?;
        let file = options.state_dir.join("api.redb");
        let api = LocalApi::open(file, clock.clone(), entropy).map_err(|error| match error {
            OpenError::AlreadyOpen { .. } => Error::InUse(options.state_dir.clone()),
            error => Error::Open(error),
        })?;
        let client = api.client();
        definitions::install(&client).await?;
        let node = host::register(&client, &options).await?;
        let mut files = PoolFiles::new(client.clone(), options.pools_dir, clock.clone());
        files.look().await;
        let server = serve(&api, &options.run_dir).await?;
        // The same lease holder on every start: the state directory is locked, so nobody else can have the
        // name. Pods of this host are not in this API, so nobody can tell which addresses are unused.
        let whereabouts = Whereabouts { release_after: None, ..Whereabouts::default() };
        let settings = Settings { whereabouts, ..Settings::new(&format!("{node}_standalone")) };
        let controller = Controller::new(client, clock, settings);
        let (health, metrics, mistakes) = (controller.health(), controller.metrics(), files.mistakes());
        let mut parts = JoinSet::new();
        let stopping = stop.clone();
        parts.spawn(async move { controller.run(stopping).await.map_err(|error| error.to_string()) });
        let stopping = stop.clone();
        parts.spawn(async move {
            files.run(stopping).await;
            Ok(())
        });
        Ok(Self { api, node, health, metrics, mistakes, server, parts, stop })
    }

    /// A client of the embedded API.
    pub fn client(&self) -> Client {
        self.api.client()
    }

    /// This host's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The controller's health.
    pub fn controller_health(&self) -> Arc<Health> {
        Arc::clone(&self.health)
    }

    /// The controller's metrics.
    pub fn controller_metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// The current problems of pool files.
    pub fn mistakes(&self) -> watch::Receiver<Vec<Mistake>> {
        self.mistakes.clone()
    }

    /// Waits for the end: after `stop`, until all is finished and on disk; an error if a part ends earlier.
    pub async fn wait(mut self) -> Result<(), Error> {
        let mut ended = Ok(());
        while let Some(part) = self.parts.join_next().await {
            let part = part.unwrap_or_else(|error| Err(error.to_string()));
            if ended.is_ok() && !self.stop.is_cancelled() {
                ended = Err(Error::Ended(part.err().unwrap_or_else(|| "without a word".to_owned())));
                self.stop.cancel();
            }
        }
        self.server.stop().await;
        self.api.close();
        ended
    }
}

/// Creates a directory if it is missing.
fn make(path: &Path, mode: u32) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(|source| Error::Directory {
        act: "make the directory",
        path: path.to_owned(),
        source,
    })
}

/// Serves the API to root.
async fn serve(api: &LocalApi, run_dir: &Path) -> Result<Server, Error> {
    let socket = run_dir.join("api.sock");
    let server = Server::unix(api.clone(), &socket).await?;
    restrict(&socket, 0o600)?;
    Ok(server)
}

fn restrict(path: &Path, mode: u32) -> Result<(), Error> {
    let restricted = fs::set_permissions(path, Permissions::from_mode(mode));
    restricted.map_err(|source| Error::Directory { act: "restrict to root", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
