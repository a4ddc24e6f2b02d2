//! Plans for Egresses, and their effect on the embedded API server.

mod clients;
mod gateways;
pub(super) mod rig;
mod said;
