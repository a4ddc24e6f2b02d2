//! Traffic that shows what happens to an address while it moves from one host to another.
//!
//! - A [`Talker`] is one end of a TCP connection whose bytes are all known in advance, so that a lost,
//!   changed or duplicate byte is detected, with its position.
//! - A [`Frozen`] connection is taken out of one namespace and continues in another one, as when a container
//!   or a virtual machine is moved.
//! - An [`Answerer`] answers questions with its own name, and an [`Asker`] asks continuously: they show who
//!   was reached when, and for how long nobody was.

mod asking;
mod bytes;
mod error;
mod frozen;
mod repair;
mod talker;

pub use asking::{Answer, Answerer, Asker, Question, answered};
pub use bytes::{Bytes, Strange};
pub use error::TrafficError;
pub use frozen::{Frozen, Image, limit_rate};
pub use talker::{Pace, Talker, Talking};
