//! The planner and the driver without I/O: an API server in memory, a naive cloud, and agents.

mod claims;
mod deletion;
mod gathering;
mod machines;
mod moves;
mod naive;
mod overlaps;
mod pools;
mod refusals;
mod reports;
mod rig;
mod simulation;
