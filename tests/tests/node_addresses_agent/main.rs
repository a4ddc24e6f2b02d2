//! A node's own addresses by a real agent on a real API server; the test plays the controller. Needs root.

mod apply;
mod leaving;
mod machine;
mod managed;
mod restarts;
