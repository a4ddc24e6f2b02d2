//! Test beds that several test programs share. The tests themselves are in `tests/`; run them with `cargo xtask test`.

pub mod agent;
pub mod alone;
pub mod caller;
pub mod chaos;
pub mod chart;
pub mod claim_records;
pub mod cloud;
pub mod cri;
pub mod definitions;
pub mod egress;
pub mod installed;
pub mod monitoring;
pub mod moves;
pub mod networks;
pub mod node_addresses;
pub mod pages;
pub mod pod_traffic;
pub mod programs;
pub mod reference;
pub mod steps;
pub mod whereabouts;
