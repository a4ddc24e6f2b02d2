//! The programs under test, as this package builds them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The agent.
pub fn tenured() -> PathBuf {
    program("bed-tenured")
}

/// The CNI plugin.
pub fn plugin() -> PathBuf {
    program("bed-cni")
}

/// The command line.
pub fn tenure() -> PathBuf {
    program("bed-tenure")
}

/// The controller.
pub fn controller() -> PathBuf {
    program("bed-controller")
}

/// The helper for `NetworkManager`, built as for the image. It is no program of this package: its dependencies would change
/// how all others are built. `TENURE_NMSTATE` names another one to try instead.
pub fn nmstate() -> PathBuf {
    if let Some(given) = std::env::var_os("TENURE_NMSTATE") {
        return given.into();
    }
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["xtask", "nmstate", "--profile", "quick"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let built = command.output().expect("cargo starts");
    assert!(built.status.success(), "cargo xtask nmstate: {}", String::from_utf8_lossy(&built.stderr));
    String::from_utf8(built.stdout).expect("a path").trim().into()
}

/// A program beside the one that runs: tests are one directory below.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own path");
    let found = own.ancestors().skip(1).take(2).map(|it| it.join(name)).find(|it| it.is_file());
    found.unwrap_or_else(|| Path::new("/nonexistent").join(name))
}
