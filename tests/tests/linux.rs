//! Pods' interfaces, routes and rules on the real kernel, in namespaces made for each test. Needs root and iproute2 (to
//! look at the kernel with other eyes than ours).

#[path = "linux/bed.rs"]
mod bed;
#[path = "linux/crowds.rs"]
mod crowds;
#[path = "linux/failures.rs"]
mod failures;
#[path = "linux/pods.rs"]
mod pods;
#[path = "linux/reach.rs"]
mod reach;
#[path = "linux/tables.rs"]
mod tables;
