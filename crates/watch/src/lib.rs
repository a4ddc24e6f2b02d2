//! Access to the API server. Agent and controller watch objects, make calls and publish events through this crate.
//!
//! | module | owns |
//! |---|---|
//! | `connection` | a client, its health, and the randomness of its waits |
//! | `watch` | a watch of one kind that survives restarts of the API server |
//! | `cache` | the objects of one kind, from a watch and from the answers to writes |
//! | `changes` | which objects changed since a reader last looked |
//! | `calls` | calls, their error type, and how they are repeated |
//! | `backoff` | the one retry policy |
//! | `health` | the state of each watch, and when the API server last answered |
//! | `events` | publishes Kubernetes events |

mod backoff;
mod cache;
mod calls;
mod changes;
mod connection;
mod events;
mod health;
mod watch;

pub use backoff::{Backoff, Retry, jitter};
pub use cache::{Cache, Change, Epoch, Heard, Identity, Known, Seen, place};
pub use calls::{CallError, ErrorKind, Every, every, exactly, json_patch, unread};
pub use changes::{ChangeLog, Changed, Cursor, Cursors};
pub use connection::Connection;
pub use events::{Note, Publisher, about_node};
pub use health::{ApiHealth, Health, WatchHealth};
pub use watch::{LOOK_FOR_KIND, Listener};
