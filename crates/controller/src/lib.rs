//! What the controller decides, as one level-triggered loop without I/O:
//!
//! ```text
//!    watch events ──▶ World ──▶ plan ──▶ writes ──▶ API server
//!                       ▲                              │
//!                       └────────── responses ─────────┘
//! ```
//!
//! [`World`] is what is known, [`Planner::plan`] says what to write next, and whoever runs it writes, tells the
//! world what came of it, and plans again. Nothing is remembered that a restart could lose but how long a
//! suspicion has lasted.
//!
//! A deposed leader does no harm: every write is a compare-and-swap on the object that the decision was based on, or
//! completes, idempotently, what such a write has decided. See [`Write`].

mod cache;
mod election;
mod plan;
mod world;
mod write;

pub use cache::Cache;
pub use election::{Elector, Role, Step, Term, Timing, TimingError};
pub use plan::Planner;
pub use world::World;
pub use write::{At, Because, Write};
