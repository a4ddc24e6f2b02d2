//! BPF programs for tc, without a compiler or object files: assembled here, checked by the kernel's verifier.
//!
//! - [`Assembler`] encodes typed instructions; jumps go to labels.
//! - [`Program`] is a program that the kernel accepted. It can run on a packet without any device.
//!
//! A program exists as long as something holds it: this process, or the filter that attaches it.

mod assembler;
mod call;
mod program;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::assembler::{Assembler, Condition, Helper, Label, Operation, Register, Width};
pub use self::program::LoadError;
pub(crate) use self::program::Program;
