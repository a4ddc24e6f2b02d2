//! The agent and an API server: the embedded one, with faults in between.

mod asking;
mod bed;
mod remote;
mod resolving;
mod returning;
mod watching;
mod whole;
