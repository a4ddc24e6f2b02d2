//! Claims at the agent's service, on an embedded API server, with a stand-in for what the controller writes, and with the real one.

mod bed;
mod finding;
mod kinds;
mod multus;
mod networks;
mod proving;
mod using;
mod verbs;
mod waiting;
mod whole;
