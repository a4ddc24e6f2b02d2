//! What a node remembers across restarts of its agent: its blocks, who holds which address, and what cools.
//!
//! An append-only file under `/run`. It survives a crash, a restart and an upgrade of the agent, and
//! disappears at a reboot together with the pods that it describes.
//!
//! | module | owns |
//! |---|---|
//! | [`Record`] | one change |
//! | [`Image`] | the state that all records add up to |
//! | [`codec`] | records as bytes and back, for any bytes |
//! | [`file`] | the file: group commit, compaction, and handling of unusable files |
//!
//! What it promises:
//!
//! - A committed record exists after a crash at any moment. An uncommitted one may exist, and then so do all
//!   before it.
//! - If a crash left a torn tail, it is cut off. Nothing else is ever dropped silently. A journal that is
//!   damaged, or of another boot, another node or a newer version is renamed and reported. Damage, or a
//!   missing journal although an agent ran on this boot, makes the image incomplete. A journal that this
//!   machine wrote on this boot under another node name is used.

pub mod codec;
pub mod file;
mod image;
mod message;
mod record;

pub use file::{Commit, Journal, Missing, Note, OpenError, Opened, Origin, Reason};
pub use image::{Freed, Image, ImageBlock, ImageEntry};
pub use record::{BlockFacts, ClaimUseRecord, Held, Known, Record, Released};
