//! An address that moves from one host to another while it is in use: what connections, questions and captures see of it.
//! Real API server, controller, agents and plugin on three hosts made of namespaces, without a routing daemon. Needs root,
//! iproute2, etcd, kube-apiserver and the reference plugins.

mod answers;
mod connections;
mod route_log;
mod segment;
mod stage;
