//! The history of a node: who had which address when, in a bounded log that survives restarts and reboots.
//!
//! | module | owns |
//! |---|---|
//! | [`line`](mod@line) | entries as checksummed lines of text, and back, for any bytes |
//! | [`recorder`] | **what is logged**: which holds are open, and what each change means for them |
//! | [`segments`] | which file is written, and which ones go |
//! | [`gaps`] | the times of which the log cannot know all |
//! | [`query`] | which periods and gaps answer a question |
//! | [`storage`] | the files, behind a trait |
//! | [`log`](mod@log) | all of these together: what is read at a start, and what is written |
//! | [`writer`] | the log on a thread of its own, and the handle to it |
//! | [`checksum`] | CRC-32, also of the agent's journal |
//!
//! `recorder`, `segments`, `gaps` and `query` do no I/O.
//!
//! What it promises:
//!
//! - Nobody waits for it. Whoever tells it of a change hands the change over and goes on; if too much waits to be written, or a
//!   write fails, changes are dropped, counted, and the log says so as soon as it can be written again.
//! - The log never takes more than its limit, and forgets what is older than its age.
//! - A period is written as a whole when it ends. So a file that is gone, or a line that is damaged, takes nothing else with it.
//! - What was open when an agent ended, and is not when the next one starts, is closed with what is known: the last moment at
//!   which it certainly lasted, and the moment at which it was found to be over.
//! - An answer never says less than it knows not: it names the times before the log, without an agent, and with lost or damaged
//!   records.

pub mod checksum;
pub mod gaps;
pub mod line;
pub mod log;
pub mod query;
pub mod recorder;
pub mod segments;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod writer;

pub use checksum::crc32;
pub use line::{Entry, What};
pub use query::{MOST_PERIODS, Query, Who};
pub use recorder::{Change, Recorder};
pub use segments::Limits;
pub use storage::{Directory, Storage};
pub use writer::{AskError, Counts, History, Origin};
