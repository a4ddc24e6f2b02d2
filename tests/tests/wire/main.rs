//! The agent's kernel side on the real kernel: what a node's plans become, what is put right, what is put away. Every
//! test makes its own hosts out of namespaces. Needs root and iproute2 (to look at the kernel with other eyes than ours).

mod bed;
mod crowds;
mod kills;
mod leaks;
mod pods;
mod reach;
mod tables;
