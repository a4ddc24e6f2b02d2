//! The controller, as one level-triggered loop:
//!
//! ```text
//!    watch events ──▶ World ──▶ plan ──▶ writes ──▶ API server
//!                       ▲                              │
//!                       └────────── responses ─────────┘
//! ```
//!
//! [`World`] is what is known, [`Planner::plan`] says what to write next, both without I/O; [`Controller::run`] hears,
//! plans, writes, tells the world what came of it, and plans again, for as long as the [`Elector`] says that it leads. Nothing is remembered that a restart could lose but how long a
//! suspicion has lasted.
//!
//! A deposed leader does no harm: every write is a compare-and-swap on the object that the decision was based on, or
//! completes, idempotently, what such a write has decided. See [`Write`].

mod act;
mod attachment;
mod cache;
mod claims;
mod election;
mod events;
mod flight;
mod health;
mod lead;
mod ledgers;
mod makers;
mod metrics;
mod plan;
mod pods;
mod records;
mod release;
mod retry;
mod run;
mod unreadable;
mod users;
mod watch;
mod world;
mod write;

pub use attachment::Attachment;
pub use cache::{Cache, Known, Seen};
pub use claims::{Claim, Claims, NamespaceFacts, NamespaceSeen};
pub use election::{Elector, Role, Step, Term, Timing, TimingError};
pub use health::Health;
pub use ledgers::{Ledger, Ledgers};
pub use makers::{
    MachineSeen, Makers, StatefulSeen, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec,
    VirtualMachineSpec, WebhookFacts, WebhookSeen,
};
pub use metrics::Metrics;
pub use plan::{ClaimSettings, Planner, Whereabouts};
pub use pods::{PodBrief, PodSeen, Pods};
pub use release::{MISSING_NODE_REST, MissingNodeRest};
pub use run::{Controller, RunError, Settings};
pub use world::World;
pub use write::{
    At, Because, ClaimId, ClaimWrite, Gone, LedgerWrite, MadeFor, MakeWrite, MoveWrite, PodId, Renamed, Rest,
    Write,
};
