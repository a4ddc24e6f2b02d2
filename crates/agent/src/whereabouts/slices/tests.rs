//! Slices against the embedded API server.

mod adopting;
mod aside;
mod bed;
mod claiming;
mod giving;
mod unused;
mod writing;
