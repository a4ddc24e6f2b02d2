//! Node addresses without I/O: what agent and controller decide alike about policies, and must decide alike.
//!
//! A policy has captures and a desired state with references to them. From one to the other:
//!
//! | module | owns |
//! |---|---|
//! | [`Captures`] | what a policy captures: an address of a pool (`ippool.NAME.allocate`), or a part of the node's state |
//! | [`expression`] | the expressions of nmpolicy: paths, `==`, `:=`, `\|`, `capture.NAME` |
//! | [`evaluate`] | from captures, the node's state and the allocated addresses to what each capture holds |
//! | [`template`] | `{{ capture.NAME.PATH }}` in the desired state |
//! | [`desired`] | the desired state as the kernel mode understands it; anything else is refused with its path |
//! | [`Refusal`] | why something is not done: where, what, and what would be accepted |
//!
//! Nothing that people write is ignored: what is not understood is refused by name.

#![forbid(unsafe_code)]

mod capture;
pub mod desired;
pub mod evaluate;
pub mod expression;
mod path;
mod refusal;
pub mod template;

pub use capture::{Capture, Captures, is_pool_name};
pub use desired::DesiredState;
pub use evaluate::{Allocated, evaluate};
pub use refusal::{Kind, Refusal};
pub use template::fill;
