//! Hosts made of namespaces, on which programs are measured: what all measurements with whole programs share.
//!
//! | module | owns |
//! |---|---|
//! | `machine` | a host, with a container runtime on it |
//! | `runtime` | that runtime: executes plugins and takes the time |
//! | `way` | the way from a host to an API server of the machine |
//! | `objects` | what is prepared on that API server |
//! | `programs` | our own programs, as they are installed |
//! | `process` | what a process, and an agent, tell of themselves |
//! | `sampled` | rounds of calls, and their middle |
//! | `log` | what an agent's log says |
//! | `stripped` | how large programs are |

pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod objects;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod runtime;
pub(crate) mod sampled;
pub(crate) mod stripped;
pub(crate) mod way;

use std::io::Write as _;

/// Says what is being done, for whoever waits.
pub(crate) fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "  {what}");
}
