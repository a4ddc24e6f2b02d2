//! Claims at the agent's door, on an embedded API server, with a stand-in for what the controller writes.

mod bed;
mod finding;
mod networks;
mod using;
mod waiting;
