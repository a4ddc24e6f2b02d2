//! `tenured`, the program, on hosts made of namespaces: the real plugin, the real kernel, the real API server and the
//! controller. Needs root, iproute2, etcd and kube-apiserver.

#[path = "agent/bed.rs"]
mod bed;
#[path = "agent/calls.rs"]
mod calls;
#[path = "agent/fences.rs"]
mod fences;
#[path = "agent/gate.rs"]
mod gate;
#[path = "agent/outages.rs"]
mod outages;
#[path = "agent/restarts.rs"]
mod restarts;
#[path = "agent/routes.rs"]
mod routes;
#[path = "agent/stock.rs"]
mod stock;
