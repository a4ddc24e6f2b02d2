//! What a node remembers over a restart of its agent: which blocks are its own, who holds which address, what cools.
//!
//! An append-only file under `/run`, which survives a crash, a restart and an upgrade of the agent, and is gone after a
//! reboot together with the pods that it describes.
//!
//! | module | owns |
//! |---|---|
//! | [`Record`] | one thing that happened |
//! | [`Image`] | what all records together say |
//! | [`codec`] | records as bytes, and back, whatever the bytes are |
//! | [`file`] | the file: group commit, compaction, and what is done with one that cannot be used |
//!
//! What it promises:
//!
//! - A record that was reported as committed is there after a crash at any moment. One that was not may be; and if it
//!   is, so are all before it.
//! - A tail that was torn by a crash is cut, and nothing else is ever dropped silently. What is damaged, of another boot,
//!   of another node or of a newer version is set aside under a new name, and said. What was damaged, or is missing although an
//!   agent ran on this boot, makes the image incomplete; what another name of this node wrote on this boot counts.

mod checksum;
pub mod codec;
pub mod file;
mod image;
mod message;
mod record;

pub use file::{Commit, Journal, Missing, Note, OpenError, Opened, Origin, Reason};
pub use image::{Freed, Image, ImageBlock, ImageEntry};
pub use record::{BlockFacts, ClaimUseRecord, Held, Known, Record, Released};
