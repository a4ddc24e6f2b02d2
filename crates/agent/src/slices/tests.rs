//! Slices against the embedded API server.

mod adopting;
mod bed;
mod giving;
mod unused;
mod writing;
