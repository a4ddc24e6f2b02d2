//! The API server as a client sees it. Agent and controller watch, call and tell in this one way.
//!
//! | module | owns |
//! |---|---|
//! | `connection` | a client, what is known of how it is, and the chance in its waits |
//! | `watch` | a watch of one kind, over all its restarts |
//! | `cache` | what a watch and the answers to writes have shown, and what has changed since |
//! | `changes` | which objects changed, for readers that each remember how far they have read |
//! | `calls` | one call, its error, and how long it is repeated |
//! | `backoff` | the one retry policy |
//! | `health` | how each watch is, and when the API server last answered |
//! | `events` | Kubernetes events on the objects that people look at |

mod backoff;
mod cache;
mod calls;
mod changes;
mod connection;
mod events;
mod health;
mod watch;

pub use backoff::{Backoff, Retry};
pub use cache::{Cache, Change, Heard, Identity, Known, Seen, place};
pub use calls::{CallError, ErrorKind, Every, every, exactly, json_patch, unread};
pub use changes::{ChangeLog, Changed, Cursor};
pub use connection::Connection;
pub use events::{Note, Publisher, about_node};
pub use health::{ApiHealth, Health, WatchHealth};
pub use watch::{LOOK_FOR_KIND, Listener};
