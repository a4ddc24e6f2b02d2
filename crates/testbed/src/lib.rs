//! The real thing, for tests: control planes, clusters, hosts and faults.
//!
//! - [`binaries`] finds, builds or installs the programs.
//! - [`control_plane`] runs etcd, kube-apiserver and kube-controller-manager on loopback ports.
//! - [`browser`] is a real browser, without a screen.
//! - [`clock`] is the clock of tests whose time is paused.
//! - [`compute`] is a fake of Google's cloud.
//! - [`cluster`] adds a scheduler and nodes with containerd, kubelet and kube-proxy.
//! - [`hosts`] makes machines out of network namespaces.
//! - [`network_manager`] is a host that NetworkManager manages.
//! - [`prometheus`] scrapes metrics and answers queries.
//! - [`traffic`] shows what happens to an address while it moves.
//! - [`faults`] is the layer between a client and a server that delays, loses, repeats or refuses.
//! - [`vm`] is a virtual machine with a stock kernel.
//! - [`wait`] waits for what must come.
//! - [`suite`] is the one suite that runs on the embedded API server and on the real one.
//!
//! Whatever is started here ends with the test process, however that ends: see [`process`].

pub mod binaries;
pub mod browser;
pub mod clock;
pub mod cluster;
pub mod control_plane;
pub mod faults;
pub mod hosts;
pub mod network_manager;
mod ports;
pub mod process;
pub mod prometheus;
mod run_directory;
pub mod suite;
pub mod traffic;
pub mod vm;
pub mod wait;

pub use tenure_fake_cloud as compute;
