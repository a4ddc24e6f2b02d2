//! The agent as a whole: journal, kernel, API server and the plugin's socket around one node.
//!
//! A start has these steps, and each reports what it found:
//!
//! 1. It reads the journal, and begins to tell the history what is in it. A torn one is cut, a foreign or damaged one is renamed. If holds may be missing,
//!    blocks are withheld until other sources were asked ([`crate::evidence`]).
//! 2. It lists the kernel's links.
//! 3. It reads pools and blocks from the API server, however long that takes.
//! 4. It performs the DELs that came while no agent ran.
//! 5. It opens the socket.
//!
//! A stop leaves everything in place for the next start: the agent accepts no new calls, finishes calls in
//! progress or tells them to try again, and writes the journal to its end.

mod boot;
mod error;
mod executor;
mod life;
mod options;
mod parts;
mod remote;
mod stage;
pub(crate) mod tombstones;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::join_all;
use kube::Client;
use tenure_handles::{Clock, Entropy};
use tenure_linux::Host;
use tenure_linux::netns::NetNs;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(crate) use boot::ran_on;
pub(crate) use error::BOOT_ID;
pub use error::{RunError, StartError};
pub use options::{AgentOptions, Paths};
pub use stage::{Progress, Stage};

use crate::drive::{Handle, NodeChannel};
use crate::evidence::EvidenceCollector;
use crate::history::{HistoryInspector, NodeHistory};
use crate::inspect::{ApiCalls, Inspected, Inspector};
use crate::journal::{Commit, Image, Journal, Known, Opened, Origin};
use crate::node::{self, Event, Node};
use crate::objects::{self, Objects};
use crate::part::Core;
use crate::pods::Pods;
use crate::serve::{PostponedDels, Service};
use crate::sources::Sources;
use crate::wire::{Interfaces, Wirer};
use executor::NodeExecutor;
use life::{Life, on_own_thread};
use remote::route_blocks;
use stage::Stages;

/// A running agent. It continues when this is dropped; the token that it was started with ends it.
#[derive(Debug)]
pub struct Agent {
    node: Handle,
    objects: Objects,
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
        let Found { journal, history, claim_uses, kernel, host: reader } = {
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
        let pods = Pods::new(client.clone(), &options.node.node, clock.clone(), life.clone());
        let core = Core {
            client: client.clone(),
            node: node.clone(),
            name: options.node.node.clone(),
            clock: Arc::new(clock.clone()),
            pods: pods.clone(),
            objects: objects.clone(),
            namespace: options.namespace.clone(),
            run: options.paths.run.clone(),
            state: options.state.clone(),
            stop: life.clone(),
        };
        let parts = parts::start(&core, &options, claim_uses > 0)?;
        let kernel = Arc::new(kernel);
        if options.route_blocks {
            tokio::spawn(route_blocks(objects.remote_routes(), Arc::downgrade(&kernel)));
        }
        let evidence = EvidenceCollector {
            node: node.clone(),
            sources: options.evidence.clone(),
            host: options.namespace.clone(),
            pods: (!options.outside_kubernetes).then(|| pods.clone()),
            runtime: tokio::runtime::Handle::current(),
            stop: life.clone(),
        };
        let (mut dialects, mut some, mut inspected, mut ready) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            dialects.extend(part.dialects);
            some.extend(part.source);
            inspected.extend(part.inspect);
            ready.extend(part.ready);
        }
        if let Some(history) = &history {
            inspected.push(Arc::new(HistoryInspector::new(Arc::clone(history))));
        }
        let sources = Sources { some, rest: Arc::new(objects.clone()) };
        let settings = node::Settings { sources: sources.read_at_start(), ..options.node.clone() };
        let executor = NodeExecutor {
            node: node.clone(),
            evidence,
            journal,
            history: history.clone(),
            kernel,
            sources,
            stages: stages.clone(),
            mtu: options.mtu,
        };
        let driver = channel.driver(Node::new(settings), clock.clone(), executor);
        let postponed = PostponedDels::of(options.paths.tombstones());
        let service = Service::new(node.clone(), clock.clone(), dialects, Some(postponed.clone()));
        let progress = stages.progress();
        let inspector = Inspector::new(Inspected {
            node: node.clone(),
            name: options.node.node.clone(),
            clock: Arc::new(clock),
            calls: service.calls(),
            api_calls,
            objects: {
                let objects = objects.clone();
                Box::new(move || objects.health())
            },
            stage: {
                let progress = progress.clone();
                Box::new(move || progress.stage())
            },
            parts: inspected,
            history: history.as_ref().map(|history| history.handle()),
            kernel: reader,
        });
        let life = Life { options, service, postponed, history, stages, stop, life };
        let ended =
            on_own_thread(life.live(driver, join_all(ready).map(drop))).map_err(StartError::Thread)?;
        Ok(Self { node, objects, progress, inspector, ended })
    }

    /// The handle to the node.
    pub fn node(&self) -> Handle {
        self.node.clone()
    }

    /// The API server's side.
    pub fn objects(&self) -> Objects {
        self.objects.clone()
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

/// What a start finds on the machine.
struct Found {
    journal: Journal,
    history: Option<Arc<NodeHistory>>,
    /// How many claim users the journal has.
    claim_uses: usize,
    kernel: Interfaces,
    host: Option<Host>,
}

/// Opens the journal and the kernel, and reports their contents to the node and to the history.
fn open(options: &AgentOptions, clock: impl Clock + Clone, node: &Handle) -> Result<Found, StartError> {
    let boot = fs::read_to_string(BOOT_ID).map_err(StartError::Boot)?;
    let origin = Origin { boot: boot.trim().to_owned(), node: options.node.node.clone() };
    let history = Arc::<OnceLock<Arc<NodeHistory>>>::default();
    let told = {
        let (node, history) = (node.clone(), Arc::clone(&history));
        move |commit| match commit {
            Commit::UpTo(up_to) => {
                if let Some(history) = history.get() {
                    history.committed(up_to);
                }
                node.tell(Event::Committed { up_to });
            }
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
    let started = start_history(options, &origin, &image, Arc::new(clock.clone()));
    if let Some(started) = &started {
        _ = history.set(Arc::clone(started));
    }
    let history = started;
    node.tell(Event::Journal(image));
    if let Some(stand_in) = &options.stand_in {
        node.tell(Event::Kernel(Vec::new()));
        let kernel = Interfaces::StandIn(stand_in.clone(), node.clone());
        return Ok(Found { journal, history, claim_uses, kernel, host: None });
    }
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
    Ok(Found { journal, history, claim_uses, kernel: Interfaces::Kernel(kernel), host: Some(host()?) })
}

/// Begins to write the history, if there is a place for it. Without one, everything else goes on.
fn start_history(
    options: &AgentOptions,
    origin: &Origin,
    image: &Image,
    clock: Arc<dyn Clock>,
) -> Option<Arc<NodeHistory>> {
    let (state, limits) = (options.state.as_deref()?, options.history?);
    match NodeHistory::start(state, limits, (&origin.node, &origin.boot), image, clock) {
        Ok(history) => Some(Arc::new(history)),
        Err(error) => {
            warn!(%error, "cannot start the thread of this node's history: nothing of it is recorded");
            None
        }
    }
}

/// Only root may look into the directory, whoever created it.
fn restrict(directory: &Path) -> Result<(), StartError> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))
        .map_err(|source| StartError::Restrict { directory: directory.to_owned(), source })
}
