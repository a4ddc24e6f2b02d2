//! Every door that input comes in by, and what must hold whatever the input is.
//!
//! A [`Door`] takes any bytes and says how Tenure broke its word on them, if it did; that it does not panic goes without
//! saying. The words:
//!
//! - a refusal names what it refuses and what would be accepted;
//! - whatever the plugin prints is JSON in the shape of the specification;
//! - what is damaged is said, and what is not damaged is kept.
//!
//! The same doors serve two kinds of runs. Plain `cargo test` replays the corpus of the repository (`fuzz/corpus`, a
//! directory a door) and a fixed number of changes to it that follow from a seed. `cargo xtask fuzz` looks for new input
//! with coverage as its guide (`fuzz/`, which needs a nightly compiler and cargo-fuzz, and is no part of the workspace).
//! What it finds is added to the corpus.

mod agent;
mod answer;
mod change;
mod claims;
mod connection;
mod journal;
mod message;
mod objects;
mod plugin;
mod records;
mod whereabouts;
mod words;

pub use change::Changes;

/// A door that input comes in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
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
}

/// How Tenure broke its word.
pub type Broken = String;

impl Door {
    /// All of them.
    pub const ALL: [Self; 10] = [
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
        }
    }

    /// Lets input in, and says how Tenure broke its word on it.
    pub fn enter(self, input: &[u8]) -> Result<(), Broken> {
        match self {
            Self::Plugin => plugin::enter(input),
            Self::Agent => agent::enter(input),
            Self::Connection => connection::enter(input),
            Self::Message => message::enter(input),
            Self::Answer => answer::enter(input),
            Self::Journal => journal::enter(input),
            Self::Records => records::enter(input),
            Self::Objects => objects::enter(input),
            Self::Whereabouts => whereabouts::enter(input),
            Self::Claims => claims::enter(input),
        }
    }
}

/// Fails with these words unless it holds.
fn hold(holds: bool, otherwise: impl FnOnce() -> Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
