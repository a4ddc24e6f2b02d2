//! What every long-running program needs.
//!
//! | module | owns |
//! |---|---|
//! | [`flags`] | values of flags: durations, the host's name |
//! | [`logs`] | the format of log lines |
//! | [`connect`] | connecting to the API server, by a kubeconfig or a service account |
//! | `channel` | the way to the API server: one HTTP/2 connection for everything |
//! | [`unix`] | the same, and reading an agent's pages, over a unix socket |
//! | [`listen`] | TCP on all addresses or one; unix sockets for root alone |
//! | [`pages`] | HTTP pages: `/healthz`, `/readyz`, `/metrics`, and JSON |
//! | [`query`](mod@query) | the query of an address |
//! | [`guard`] | access control for pages that are not public |
//! | [`serve`] | serving pages, within limits |
//! | [`stop`] | ending at SIGTERM and Ctrl-C |
//!
//! A program's `main` combines them; nothing here knows what the program does.

mod channel;
pub mod connect;
pub mod flags;
pub mod guard;
pub mod listen;
pub mod logs;
pub mod pages;
pub mod query;
pub mod serve;
pub mod stop;
mod turns;
pub mod unix;

pub use connect::{ConnectError, connect};
pub use flags::{age, duration, hostname, size};
pub use guard::{Denied, Guard, Right};
pub use listen::{ListenError, listen, listen_unix};
pub use logs::{LogFormat, start_logging};
pub use pages::{Pages, Refused};
pub use serve::serve;
pub use stop::stop_on_signals;
pub use unix::{AskError, ask, connect_unix};
