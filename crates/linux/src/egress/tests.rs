//! Plans without a kernel, and programs in the kernel's verifier and on packets without a device. The latter needs
//! the right to load programs.

mod devices;
mod packets;
mod plans;
mod programs;
