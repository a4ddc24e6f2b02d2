//! `crates/sdk`, a workspace of its own: Google's own SDK as a client of the fake of Google's cloud. Not a part of `cargo xtask test`, because
//! its dependencies take longer to build than all tests to run.

use anyhow::Result;

use crate::step::{cargo, cargo_with, clippy, root, target_directory};

/// Checks format and lints, and runs the tests.
pub(crate) fn test() -> Result<()> {
    let manifest = root().join("crates/sdk/Cargo.toml").display().to_string();
    // A directory of its own: nothing is shared with other builds, and none waits for another.
    let directory = target_directory().join("sdk").display().to_string();
    let of = ["--quiet", "--locked", "--manifest-path", &manifest, "--target-dir", &directory];
    cargo("check the format", &["fmt", "--manifest-path", &manifest, "--check"], &[])?;
    cargo_with("check the lints", &[&["build", "--tests"], &of[..]].concat(), &[], &clippy())?;
    cargo("test the fake with Google's SDK", &[&["test"], &of[..]].concat(), &[])
}
