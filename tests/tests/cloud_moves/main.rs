//! Addresses of a cloud that move with their pods between machines, on the real API server with controller, agents and plugins as programs,
//! in a fake cloud that carries real packets: connections live through it, updates are counted, and nobody takes another's address.
//! Needs root, iproute2, etcd, kube-apiserver and the reference plugins.

mod claims;
mod connections;
mod crowds;
mod refusals;
mod stage;
