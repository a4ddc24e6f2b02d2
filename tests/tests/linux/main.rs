//! Pods' interfaces, routes and rules on the real kernel, in namespaces made for each test. Needs root and iproute2 (to
//! look at the kernel with other eyes than ours).

mod bed;
mod crowds;
mod failures;
mod interfaces;
mod pods;
mod reach;
mod removal;
mod tables;
