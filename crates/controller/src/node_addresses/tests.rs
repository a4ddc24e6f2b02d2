//! Plans and writes on an embedded API server, with agents that behave like agents.

mod pools;
mod resets;
pub(super) mod rig;
mod rollout;
