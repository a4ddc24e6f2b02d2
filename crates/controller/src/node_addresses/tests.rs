//! Plans and writes on an embedded API server, with agents that do what agents do.

mod pools;
mod resets;
pub(super) mod rig;
mod rollout;
