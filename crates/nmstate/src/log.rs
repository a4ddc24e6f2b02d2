//! What nmstate logs goes to standard error, from warnings up. Below that it would write whole profiles, with secrets.
//! Of its kernel library only errors: it warns several times a change that it finds no wireless devices.

use std::io::Write as _;

use ::log::{Level, LevelFilter, Log, Metadata, Record};

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() == Level::Error || !metadata.target().starts_with("nispor")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "{}: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// From now on.
pub(crate) fn start() {
    if ::log::set_logger(&StandardError).is_ok() {
        ::log::set_max_level(LevelFilter::Warn);
    }
}
