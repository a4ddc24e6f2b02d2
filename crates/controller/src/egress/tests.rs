//! What is planned for Egresses, and what comes of it on the embedded API server.

mod clients;
mod gateways;
pub(super) mod rig;
mod said;
