//! The fuzz targets: every place that input enters a program by, and what must hold whatever the input is.
//!
//! A [`Target`] takes any bytes and says which promise Tenure broke on them, if any; that it does not panic goes without
//! saying. The promises:
//!
//! - a refusal names what it refuses and what would be accepted;
//! - whatever the plugin prints is JSON in the shape of the specification;
//! - what is damaged is said, and what is not damaged is kept.
//!
//! The same targets serve two kinds of runs. Plain `cargo test` replays the corpus of the repository (`fuzz/corpus`, a
//! directory a target) and a fixed number of changes to it that follow from a seed. `cargo xtask fuzz` looks for new input
//! with coverage as its guide (`fuzz/`, which needs a nightly compiler and cargo-fuzz, and is no part of the workspace).
//! What it finds is added to the corpus.

mod agent;
mod answer;
mod change;
mod claims;
mod connection;
mod egress;
mod journal;
mod message;
mod node_addresses;
mod objects;
mod plugin;
mod records;
mod whereabouts;
mod words;

pub use change::Changes;

/// A place that input enters by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The plugin's environment and standard input, with no agent to ask.
    Plugin,
    /// The same, with an agent.
    Agent,
    /// The agent's socket, byte by byte.
    Connection,
    /// A call's message on the agent's socket.
    Message,
    /// What the plugin reads from the agent's socket.
    Answer,
    /// A journal's file.
    Journal,
    /// The records of a journal whose checksums are right.
    Records,
    /// Objects of the API: pools, blocks, requests, and the annotation that names a pool.
    Objects,
    /// A network of Whereabouts' dialect: its configuration, the flat file, `CNI_ARGS`, and what is on record.
    Whereabouts,
    /// Claims: the annotations of pods and claims, statuses, networks that opt in, virtual machines.
    Claims,
    /// What people write about egress: a pod's annotations, and an Egress's destinations.
    Egress,
    /// A policy for node addresses: its captures, and its desired state with references.
    NodeAddresses,
}

/// Which promise was broken, and how.
pub type Violation = String;

impl Target {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Plugin,
        Self::Agent,
        Self::Connection,
        Self::Message,
        Self::Answer,
        Self::Journal,
        Self::Records,
        Self::Objects,
        Self::Whereabouts,
        Self::Claims,
        Self::Egress,
        Self::NodeAddresses,
    ];

    /// Its name: of its fuzz target, and of the directory with its corpus.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Agent => "agent",
            Self::Connection => "connection",
            Self::Message => "message",
            Self::Answer => "answer",
            Self::Journal => "journal",
            Self::Records => "records",
            Self::Objects => "objects",
            Self::Whereabouts => "whereabouts",
            Self::Claims => "claims",
            Self::Egress => "egress",
            Self::NodeAddresses => "node_addresses",
        }
    }

    /// Feeds input to the program, and says which promise was broken on it.
    pub fn run(self, input: &[u8]) -> Result<(), Violation> {
        match self {
            Self::Plugin => plugin::run(input),
            Self::Agent => agent::run(input),
            Self::Connection => connection::run(input),
            Self::Message => message::run(input),
            Self::Answer => answer::run(input),
            Self::Journal => journal::run(input),
            Self::Records => records::run(input),
            Self::Objects => objects::run(input),
            Self::Whereabouts => whereabouts::run(input),
            Self::Claims => claims::run(input),
            Self::Egress => egress::run(input),
            Self::NodeAddresses => node_addresses::run(input),
        }
    }
}

/// Fails with these words unless it holds.
fn hold(holds: bool, otherwise: impl FnOnce() -> Violation) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
