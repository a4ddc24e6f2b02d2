//! `tenured`, the program, on hosts made of namespaces: the real plugin, the real kernel, the real API server and the
//! controller. Needs root, iproute2, etcd and kube-apiserver.

mod calls;
mod fences;
mod outages;
mod restarts;
mod routes;
mod stock;
mod takeover;
