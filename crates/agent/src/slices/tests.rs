//! Slices against the embedded API server.

mod adopting;
mod bed;
mod claiming;
mod giving;
mod unused;
mod writing;
