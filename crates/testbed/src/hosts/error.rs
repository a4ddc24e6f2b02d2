//! Errors of a test host.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A failed operation on a test host: which operation, on which host, and why.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Making, opening or entering a namespace.
    #[error("{act} of host {host}: {source} (root is needed)")]
    Namespace {
        /// The operation, as a noun phrase.
        act: &'static str,
        /// The host's name.
        host: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A mount inside a host.
    #[error("mounting {target} in host {host}: {source}")]
    Mount {
        /// The host's name.
        host: String,
        /// The target of the mount.
        target: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The first process of a host ended before it was ready.
    #[error("the first process of host {host} did not start: {message}")]
    Init {
        /// The host's name.
        host: String,
        /// What it wrote.
        message: String,
    },
    /// `ip` refused a batch.
    #[error("`ip -batch` in host {host} refused: {message}\n{batch}")]
    Ip {
        /// The host's name.
        host: String,
        /// The given lines.
        batch: String,
        /// What `ip` wrote, with the number of the line.
        message: String,
    },
    /// A sysctl could not be written.
    #[error("setting {key}={value} in host {host}: {source}")]
    Sysctl {
        /// The host's name.
        host: String,
        /// The key, with dots.
        key: String,
        /// The value that was to be written.
        value: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program could not be started or waited for.
    #[error("running {program} in host {host}: {source}")]
    Command {
        /// The host's name.
        host: String,
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} in host {host} ended with {status}: {message}")]
    Failed {
        /// The host's name.
        host: String,
        /// The program and its arguments.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it wrote to its standard error.
        message: String,
    },
    /// Capturing packets.
    #[error("{act} for a capture in host {host}: {source}")]
    Capture {
        /// The operation.
        act: &'static str,
        /// The host's name.
        host: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No matching packet was seen in time.
    #[error("no such packet in host {host} within {within:?}; {seen} others:\n{summary}")]
    NotSeen {
        /// The host's name.
        host: String,
        /// How long the capture waited.
        within: Duration,
        /// How many packets there were.
        seen: usize,
        /// The latest of them, one per line.
        summary: String,
    },
    /// Sending or receiving an echo request failed.
    #[error("pinging {target} from host {host}: {source}")]
    Ping {
        /// The host's name.
        host: String,
        /// Who was to answer.
        target: IpAddr,
        /// The kernel's answer; a timeout if nobody answered.
        source: io::Error,
    },
}
