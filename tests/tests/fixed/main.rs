//! A dialect that is added from outside, through the seams alone: `agent.rs` is its half in the agent, `controller.rs` its half in
//! the controller. Needs root.

mod agent;
mod agent_tests;
mod bed;
mod controller;
mod controller_tests;
