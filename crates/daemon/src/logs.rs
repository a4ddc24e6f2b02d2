//! How log lines look. They go to stderr; `RUST_LOG` says which there are.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one object a line.
    Json,
}

/// Begins to log; once a process. What was begun before stays.
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
        tracing::debug!(%error, "logging had begun before");
    }
}
