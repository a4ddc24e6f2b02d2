//! The agent as a whole: journal, kernel, API server and the plugin's socket around one node.
//!
//! A start has these steps, and each reports what it found:
//!
//! 1. It reads the journal. A torn one is cut, a foreign or damaged one is renamed. If holds may be missing,
//!    blocks are withheld until other sources were asked ([`crate::evidence`]).
//! 2. It lists the kernel's links.
//! 3. It reads pools and blocks from the API server, however long that takes.
//! 4. It performs the DELs that came while no agent ran.
//! 5. It opens the socket.
//!
//! A stop leaves everything in place for the next start: the agent accepts no new calls, finishes calls in
//! progress or tells them to try again, and writes the journal to its end.

mod boot;
mod executor;
mod options;
mod stage;
pub(crate) mod tombstones;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Client;
use tenure_handles::{Clock, Entropy};
use tenure_linux::Host;
use tenure_linux::host::HostError;
use tenure_linux::netns::{self, NetNs};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinError;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use options::{AgentOptions, Paths};
pub use stage::{Progress, Stage};

use crate::claims::{self, Claims, Reason};
use crate::coil::Coil;
use crate::drive::{Driver, Handle, NodeChannel};
use crate::evidence::{ClientOf, EvidenceCollector};
use crate::inspect::{ApiCalls, Inspector, Parts};
use crate::journal::{Commit, Journal, Known, OpenError, Opened, Origin};
use crate::node::{self, Event, Node};
use crate::objects::{self, Objects, RemoteRoutes};
use crate::pods::Pods;
use crate::serve::{self, Dialect, ListenError, PostponedDels, Service};
use crate::whereabouts::Whereabouts;
use crate::whereabouts::ledgers::{self, Ledgers};
use crate::whereabouts::slices::{self, Slices};
use crate::wire::{self, Wirer};
use executor::NodeExecutor;
use stage::Stages;
use tombstones::Tombstones;

/// Longer than any agent runs.
const NEVER: Duration = Duration::from_hours(100 * 365 * 24);
/// How long a route to another node stays that has no new destination.
const REMOTE_LINGERS: Duration = Duration::from_millis(30);
/// Identifies this boot of the kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The journal cannot be used.
    #[error("cannot open the journal")]
    Journal(#[from] OpenError),
    /// The boot is unknown, and so is which journal belongs to it.
    #[error("cannot read {BOOT_ID}")]
    Boot(#[source] io::Error),
    /// The directory's permissions cannot be restricted.
    #[error("cannot restrict {} to root", .directory.display())]
    Restrict {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The host's namespace cannot be opened.
    #[error("cannot open the host's network namespace")]
    Namespace(#[from] netns::Error),
    /// The host's network cannot be used.
    #[error("cannot use the host's network")]
    Host(#[from] HostError),
    /// The kernel's thread cannot start.
    #[error("cannot start the kernel's thread")]
    Kernel(#[from] wire::StartError),
    /// The thread for calls cannot start.
    #[error("cannot start the thread that answers calls")]
    Thread(#[source] io::Error),
    /// A task ended unexpectedly.
    #[error("a task of the start ended early")]
    Task(#[from] JoinError),
}

/// Why an agent ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The socket cannot be opened.
    #[error("cannot open the plugin's socket")]
    Listen(#[from] ListenError),
    /// The socket cannot be served.
    #[error("cannot serve the plugin's socket")]
    Serve(#[source] io::Error),
    /// A task ended unexpectedly.
    #[error("a task ended early")]
    Task(#[from] JoinError),
    /// The node's loop ended.
    #[error("the node's loop ended early")]
    Driver,
}

/// A running agent. It continues when this is dropped; the token that it was started with ends it.
#[derive(Debug)]
pub struct Agent {
    node: Handle,
    objects: Objects,
    slices: Slices,
    ledgers: Ledgers,
    progress: Progress,
    inspector: Inspector,
    ended: oneshot::Receiver<Result<(), RunError>>,
}

impl Agent {
    /// Reads the journal, prepares the host, lists the kernel's links, and begins to read the API server. The
    /// rest of the start runs in the background; [`Agent::progress`] shows its stage.
    ///
    /// `stop` ends the agent.
    pub async fn start<C: Clock + Clone, E: Entropy>(
        client: Client,
        options: AgentOptions,
        clock: C,
        entropy: E,
        stop: CancellationToken,
    ) -> Result<Self, StartError> {
        let channel = NodeChannel::new();
        let (node, stages) = (channel.handle(), Stages::begin());
        let (journal, claim_uses, kernel, reader) = {
            let (options, clock, node) = (options.clone(), clock.clone(), node.clone());
            tokio::task::spawn_blocking(move || open(&options, clock, &node)).await??
        };
        // Ends only after the last call was answered: calls in progress may still need the API server.
        let life = CancellationToken::new();
        let tell = {
            let node = node.clone();
            move |event| node.tell(event)
        };
        let wanted = objects::ObjectsOptions {
            remote_blocks: options.route_blocks,
            remote_claims: options.route_blocks && !options.outside_kubernetes,
            outside_kubernetes: options.outside_kubernetes,
            ..objects::ObjectsOptions::new(options.node.node.clone())
        };
        let api_calls = ApiCalls::default();
        let client = api_calls.counting(client);
        let objects = Objects::start(client.clone(), wanted, clock.clone(), entropy, tell, life.clone());
        let slices = {
            let mut wanted = slices::SlicesOptions::new(&options.node.node, &options.whereabouts_namespace);
            if options.outside_kubernetes {
                // Such an API has no pods, so a missing pod means nothing.
                wanted.look_at_pods = NEVER;
            }
            Slices::start(client.clone(), wanted, clock.clone(), node.clone(), life.clone())
        };
        let ledgers = {
            let wanted = ledgers::LedgersOptions {
                namespace: options.whereabouts_namespace.clone(),
                reserving_always: options.whereabouts_reserves_always,
                cooling: options.node.cooling,
                ..ledgers::LedgersOptions::new(&options.node.node, options.paths.ledgers())
            };
            Ledgers::new(client.clone(), wanted, clock.clone(), life.clone())
        };
        let pods = Pods::new(client.clone(), &options.node.node, clock.clone(), life.clone());
        // Outside Kubernetes neither pods nor networks can refer to a claim.
        let claims = (!options.outside_kubernetes).then(|| {
            let routes = options.route_blocks.then(|| objects.clone());
            let around = (node.clone(), pods.clone(), routes);
            let wanted = claims::ClaimsOptions {
                cluster_network: options.persistent_network.clone(),
                default_network: options.default_network.clone(),
                namespace: options.whereabouts_namespace.clone(),
                ..claims::ClaimsOptions::default()
            };
            Claims::start(client.clone(), wanted, clock.clone(), around, life.clone())
        });
        if let Some(claims) = claims.as_ref().filter(|_| claim_uses > 0) {
            claims.watch(Reason::ClaimUses);
        }
        let kernel = Arc::new(kernel);
        if options.route_blocks {
            tokio::spawn(route_blocks(objects.remote_routes(), Arc::downgrade(&kernel)));
        }
        let evidence = EvidenceCollector {
            node: node.clone(),
            name: options.node.node.clone(),
            sources: options.evidence.clone(),
            host: options.namespace.clone(),
            api: (!options.outside_kubernetes).then(|| (ClientOf(client.clone()), pods.clone())),
            runtime: tokio::runtime::Handle::current(),
            stop: life.clone(),
        };
        let executor = NodeExecutor {
            node: node.clone(),
            evidence,
            journal,
            kernel,
            objects: objects.clone(),
            slices: slices.clone(),
            stages: stages.clone(),
            mtu: options.mtu,
        };
        let settings = node::Settings { slices: true, ..options.node.clone() };
        let driver = channel.driver(Node::new(settings), clock.clone(), executor);
        let postponed = PostponedDels::of(options.paths.tombstones());
        let own: [Arc<dyn Dialect>; 2] = [
            Arc::new(
                Whereabouts::new(
                    ledgers.clone(),
                    slices.clone(),
                    pods,
                    &options.paths.run,
                    options.outside_kubernetes,
                )
                .with_claims(claims.clone()),
            ),
            Arc::new(
                Coil::new(objects.resolver(), (options.kernel.gateway_v4, options.kernel.gateway_v6))
                    .with_claims(claims.clone()),
            ),
        ];
        // Added dialects come first: our plugin may be asked for addresses of theirs.
        let dialects = options.dialects.iter().cloned().chain(own).collect();
        let service = Service::new(node.clone(), clock.clone(), dialects, Some(postponed.clone()));
        let progress = stages.progress();
        let inspector = Inspector::new(Parts {
            node: node.clone(),
            name: options.node.node.clone(),
            clock: Arc::new(clock),
            calls: service.calls(),
            api_calls,
            objects: {
                let (objects, slices, claims) = (objects.clone(), slices.clone(), claims.clone());
                Box::new(move || {
                    let health = objects.health().and(slices.health());
                    claims.as_ref().map_or(health.clone(), |claims| health.and(claims.health()))
                })
            },
            stage: {
                let progress = progress.clone();
                Box::new(move || progress.stage())
            },
            kernel: Some(reader),
        });
        let life = Life { options, service, postponed, claims, stages, stop, life };
        let ended = on_own_thread(life.live(driver)).map_err(StartError::Thread)?;
        Ok(Self { node, objects, slices, ledgers, progress, inspector, ended })
    }

    /// The handle to the node.
    pub fn node(&self) -> Handle {
        self.node.clone()
    }

    /// The API server's side.
    pub fn objects(&self) -> Objects {
        self.objects.clone()
    }

    /// This node's slices of Whereabouts' ranges.
    pub fn slices(&self) -> Slices {
        self.slices.clone()
    }

    /// Whereabouts' ranges that all nodes share.
    pub fn ledgers(&self) -> Ledgers {
        self.ledgers.clone()
    }

    /// Its stage.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// What people and programs see of it.
    pub fn inspector(&self) -> Inspector {
        self.inspector.clone()
    }

    /// Waits until it has ended.
    pub async fn wait(self) -> Result<(), RunError> {
        self.ended.await.unwrap_or(Err(RunError::Driver))
    }
}

/// Runs calls on one thread from reading to answering. With several threads, each would have to be woken up
/// for a call, which takes the kernel as long as the decision itself.
///
/// The thread ends with the runtime that it was started on, at whatever point: without the watches that run
/// there, it would answer for an agent that no longer exists.
fn on_own_thread<T: Send + 'static>(
    life: impl Future<Output = T> + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel();
    let (mut around, gone) = oneshot::channel::<()>();
    tokio::spawn(async move { around.closed().await });
    std::thread::Builder::new().name("calls".into()).spawn(move || {
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = life => Some(outcome),
                _ = gone => None,
            }
        });
        // Work still in progress here ends with the runtime, before anybody learns of the end.
        drop(runtime);
        if let Some(outcome) = outcome {
            // The receiver is gone only when the process is ending.
            let _ = end.send(outcome);
        }
    })?;
    Ok(ended)
}

/// Opens the journal and the kernel, reports their contents to the node, and returns how many claim users the
/// journal has.
fn open(
    options: &AgentOptions,
    clock: impl Clock + Clone,
    node: &Handle,
) -> Result<(Journal, usize, Wirer, Host), StartError> {
    let boot = fs::read_to_string(BOOT_ID).map_err(StartError::Boot)?;
    let origin = Origin { boot: boot.trim().to_owned(), node: options.node.node.clone() };
    let told = {
        let node = node.clone();
        move |commit| match commit {
            Commit::UpTo(up_to) => node.tell(Event::Committed { up_to }),
            Commit::Failed(message) => node.tell(Event::JournalFailed { message }),
        }
    };
    let missing = boot::mark(options.state.as_deref(), &origin.boot);
    let Opened { journal, image, notes } =
        Journal::open_or_doubt(options.paths.journal(), &origin, missing, told)?;
    for note in notes {
        warn!("{note}");
    }
    restrict(options.paths.journal())?;
    // The claims of claim users that the journal may have lost must be known, too.
    let claim_uses = image.claim_uses().count() + usize::from(image.known() == Known::Lost);
    info!(path = %journal.path().display(), holds = image.holds().count(), claim_uses, "read the journal");
    node.tell(Event::Journal(image));
    let host = || -> Result<Host, StartError> {
        let namespace = match &options.namespace {
            Some(path) => NetNs::open(path)?,
            None => NetNs::current()?,
        };
        Ok(Host::of(namespace, options.kernel.clone())?)
    };
    let tell = {
        let node = node.clone();
        move |event| node.tell(event)
    };
    let kernel = Wirer::start(host()?, host()?, clock, tell)?;
    Ok((journal, claim_uses, kernel, host()?))
}

/// Passes other nodes' blocks and claims to the kernel's thread until either end closes.
///
/// A route without a new destination is removed a moment later than one that changes: a claim that moved to
/// this node has the route to its pod here by then, so there is always one of the two.
async fn route_blocks(mut routes: watch::Receiver<Option<RemoteRoutes>>, kernel: Weak<Wirer>) {
    let tell = |routes: RemoteRoutes| kernel.upgrade().map(|kernel| kernel.remote(routes));
    let mut told = RemoteRoutes::new();
    loop {
        let next = routes.borrow_and_update().clone();
        if let Some(next) = next {
            let lingering = objects::with_lingering(&next, &told);
            if lingering != next {
                if tell(lingering).is_none() {
                    return;
                }
                tokio::time::sleep(REMOTE_LINGERS).await;
            }
            if tell(next.clone()).is_none() {
                return;
            }
            told = next;
        }
        if routes.changed().await.is_err() {
            return;
        }
    }
}

/// Only root may look into the directory, whoever created it.
fn restrict(directory: &Path) -> Result<(), StartError> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))
        .map_err(|source| StartError::Restrict { directory: directory.to_owned(), source })
}

/// From the start of the node's loop to its end.
struct Life<C> {
    options: AgentOptions,
    service: Service<C>,
    postponed: PostponedDels,
    claims: Option<Claims>,
    stages: Stages,
    /// Cancelling this stops the agent.
    stop: CancellationToken,
    /// Cancelled once it has stopped; then loops and watches end.
    life: CancellationToken,
}

impl<C: Clock + Clone> Life<C> {
    async fn live(self, driver: Driver<C, NodeExecutor>) -> Result<(), RunError> {
        let mut driving = tokio::spawn(driver.run(self.life.clone().cancelled_owned()));
        let ended = tokio::select! {
            ended = self.serve() => ended,
            ended = &mut driving => Err(ended.err().map_or(RunError::Driver, RunError::Task)),
        };
        self.life.cancel();
        if !driving.is_finished() {
            driving.await?;
        }
        self.stages.enter(Stage::Ended);
        info!("ended; everything stays in place for the next start");
        ended
    }

    /// Waits until all is known, and serves until told to stop.
    async fn serve(&self) -> Result<(), RunError> {
        let mut progress = self.stages.progress();
        tokio::select! {
            _ = progress.reach(Stage::Replaying) => {}
            () = self.stop.cancelled() => return Ok(()),
        }
        if let Some(claims) = &self.claims {
            tokio::select! {
                () = claims.ready() => {}
                () = self.stop.cancelled() => return Ok(()),
            }
        }
        let tombstones = Tombstones::new(self.postponed.clone(), self.service.clone());
        tombstones.replay().await;
        let socket = self.options.paths.socket();
        let listening = serve::listen(&socket)?;
        // The socket exists and serves nobody yet: postponed DELs come first.
        tombstones.replay().await;
        self.stages.enter(Stage::Serving);
        info!(socket = %socket.display(), "answering the plugin");
        let mut serving =
            std::pin::pin!(listening.serve(self.service.clone(), self.stop.clone().cancelled_owned()));
        tokio::select! {
            ended = &mut serving => return ended.map_err(RunError::Serve),
            () = replay_periodically(&tombstones, self.options.tombstone_interval) => {}
            () = self.stop.cancelled() => {}
        }
        self.stages.enter(Stage::Stopping);
        if let Ok(ended) = tokio::time::timeout(self.options.stop_patience, serving).await {
            return ended.map_err(RunError::Serve);
        }
        warn!(waited = ?self.options.stop_patience, "calls are still in progress; they are told to try again");
        Ok(())
    }
}

/// Replays tombstones periodically, forever.
async fn replay_periodically<C: Clock + Clone>(tombstones: &Tombstones<C>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        tombstones.replay().await;
    }
}
