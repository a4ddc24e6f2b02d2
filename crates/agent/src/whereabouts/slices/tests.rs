//! Slices against the embedded API server.

mod adopting;
mod aside;
mod bed;
mod claiming;
mod giving;
mod joining;
mod unused;
mod writing;
