//! The programs under test, as this package builds them.

use std::path::{Path, PathBuf};

/// The agent.
pub fn tenured() -> PathBuf {
    program("bed-tenured")
}

/// The CNI plugin.
pub fn plugin() -> PathBuf {
    program("bed-cni")
}

/// The controller.
pub fn controller() -> PathBuf {
    program("bed-controller")
}

/// A program beside the one that runs: tests are one directory below.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own path");
    let found = own.ancestors().skip(1).take(2).map(|it| it.join(name)).find(|it| it.is_file());
    found.unwrap_or_else(|| Path::new("/nonexistent").join(name))
}
