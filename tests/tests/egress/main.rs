//! Egress on the real kernel, in namespaces made for each test. Needs root, iproute2 and nftables (to look at the kernel
//! with other eyes than ours, and to stand for kube-proxy).

mod client;
mod gateway;
mod machine;
mod program;
mod scenarios;
