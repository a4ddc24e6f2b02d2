//! The format of log lines. They go to stderr; `RUST_LOG` selects them.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one object per line.
    Json,
}

/// Starts logging, once per process. A later call changes nothing.
pub fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Colours are for terminals; in a file they are noise.
    let logging = logging.with_ansi(std::io::stderr().is_terminal());
    let begun = match format {
        LogFormat::Text => logging.try_init(),
        LogFormat::Json => logging.json().try_init(),
    };
    if let Err(error) = begun {
        tracing::debug!(%error, "logging was already started");
    }
}
