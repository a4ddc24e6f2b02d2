//! What a node does, one situation a test.

mod calls;
mod claim_uses;
mod defects;
mod doubt;
mod fences;
mod kept;
mod leaks;
mod reach;
mod returns;
mod rig;
mod slices;
mod start;
mod stock;
mod strays;
mod views;
