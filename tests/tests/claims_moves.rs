//! An address that moves from one host to another while it is in use: what connections, questions and captures see of it.
//! Real API server, controller, agents and plugin on three hosts made of namespaces, without a routing daemon. Needs root,
//! iproute2, etcd, kube-apiserver and the reference plugins.

#[path = "claims_moves/answers.rs"]
mod answers;
#[path = "agent/bed.rs"]
mod bed;
#[path = "claims_moves/connections.rs"]
mod connections;
#[path = "agent/gate.rs"]
mod gate;
#[path = "claims_moves/route_log.rs"]
mod route_log;
#[path = "claims_moves/segment.rs"]
mod segment;
#[path = "claims_moves/stage.rs"]
mod stage;
