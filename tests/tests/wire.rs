//! The agent's kernel side on the real kernel: what a node's plans become, what is put right, what is put away. Every
//! test makes its own hosts out of namespaces. Needs root and iproute2 (to look at the kernel with other eyes than ours).

#[path = "wire/bed.rs"]
mod bed;
#[path = "wire/crowds.rs"]
mod crowds;
#[path = "wire/kills.rs"]
mod kills;
#[path = "wire/leaks.rs"]
mod leaks;
#[path = "wire/pods.rs"]
mod pods;
#[path = "wire/reach.rs"]
mod reach;
#[path = "wire/tables.rs"]
mod tables;
