//! Pods with alias addresses: the dialect, an API server, and a stand-in for controller and cloud.

mod adding;
mod bed;
mod moving;
