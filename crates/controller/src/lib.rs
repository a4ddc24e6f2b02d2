//! The controller: one level-triggered loop.
//!
//! ```text
//!    watch events ──▶ World ──▶ plan ──▶ writes ──▶ API server
//!                       ▲                              │
//!                       └────────── responses ─────────┘
//! ```
//!
//! [`World`] is the known state, and [`Planner::plan`] decides what to write next; both do no I/O.
//! [`Controller::run`] observes, plans, writes, and applies the answers to the world, while the [`Elector`] leads. A
//! restart loses only how long a suspicion has lasted.
//!
//! A deposed leader does no harm: every write is a compare-and-swap on the object that the decision was based on, or
//! idempotently completes such a decision. See [`Write`].

mod attachment;
/// Caches of objects.
mod cache {
    pub use tenure_watch::{Cache, Known, Seen};
}
/// Logs of changed objects.
mod changes {
    pub(crate) use tenure_watch::ChangeLog;
    pub(crate) use tenure_watch::Cursors;
    pub use tenure_watch::{Changed, Cursor};
}
mod claims;
mod cloud;
mod coil;
mod control_loop;
mod egress;
mod election;
mod events;
mod executor;
pub mod flags;
mod health;
mod index;
mod kind;
mod lead;
mod live;
mod metrics;
mod node_addresses;
mod nodes;
mod pace;
mod part;
mod plan;
mod pods;
mod release;
mod run;
mod shared;
mod sightings;
mod suspicions;
#[cfg(test)]
mod testing;
mod unreadable;
mod watch;
mod whereabouts;
mod world;
mod write;

pub use attachment::Attachment;
pub use cache::{Cache, Known, Seen};
pub use changes::{Changed, Cursor};
pub use claims::{
    Claim, ClaimId, ClaimSettings, ClaimWrite, Claims, ClaimsPart, Gone, MachineSeen, MoveWrite,
    NamespaceFacts, NamespaceSeen, Owner, OwnerWrite, Owners, PodId, Renamed, StatefulSeen, VirtualMachine,
    VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineSpec, WebhookFacts, WebhookSeen,
};
pub use cloud::{
    Aliases, CloudPart, CloudSettings, CloudWrite, Clouds, Machine, MachineError, MachineView, Wanted,
};
pub use coil::{Because, BlockWrite, Coil, CoilObjects};
pub use egress::{
    Child, ChildKind, ClientsFacts, DeploymentFacts, EgressFacts, EgressPart, EgressWrite, Egresses,
    GatewayFacts, GatewayPod, ImageError, Of, Refusal, image_of_pod,
};
pub use election::{Elector, Role, Step, Term, Timing, TimingError};
pub use events::Note;
pub use executor::{Answer, Every, Outcome, create, delete, every, exactly, finalize, json_patch, settle};
pub use health::Health;
pub use kind::{Kind, Observation};
pub use live::{is_in_use_out_of_service, node_is_in_use};
pub use metrics::Metrics;
pub use node_addresses::{
    EnactmentFacts, Mode, NodeAddressWrite, NodeAddresses, NodeAddressesPart, PolicyFacts, PoolFacts,
};
pub use part::{Board, Count, Part, Perform, Plan};
pub use plan::Planner;
pub use pods::{PodBrief, PodSeen, Pods};
pub use release::{MISSING_NODE_REST, MissingNodeRest};
pub use run::{Controller, RunError, Settings};
pub use unreadable::Stub;
pub use watch::{Lead, Needed, Watch, Watches};
pub use whereabouts::{Ledger, LedgerWrite, Ledgers, Rest, Whereabouts};
pub use world::{State, World};
pub use write::{At, Operation, Rank, Write, of};
