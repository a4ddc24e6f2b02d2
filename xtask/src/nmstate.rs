//! `crates/nmstate`, a workspace of its own: how it is built for the image, checked and tested. The image of tests and
//! its own tests share one build of its hundred dependencies.

use std::env::consts::ARCH;
use std::path::PathBuf;

use anyhow::Result;

use crate::image::{TERSE, have_target, variables};
use crate::step::{Variables, cargo, cargo_with, clippy, root, target_directory};

/// The program.
pub(crate) const NAME: &str = "tenure-nmstate";
/// The profile in which tests use it.
const QUICK: &str = "quick";

/// Builds the static program; returns its path.
pub(crate) fn build(profile: &str) -> Result<PathBuf> {
    let target = target()?;
    run("build the helper of NetworkManager", &["build"], profile, &target, Vec::new())?;
    Ok(target_directory().join(target).join(profile).join(NAME))
}

/// Builds nmstate's own kernel mode as a program, to measure ours beside it; returns its path.
pub(crate) fn build_peer() -> Result<PathBuf> {
    const PROFILE: &str = "release";
    let target = target()?;
    run("build the peer of node addresses", &["build", "--example", "kernel"], PROFILE, &target, Vec::new())?;
    Ok(target_directory().join(target).join(PROFILE).join("examples/kernel"))
}

/// Checks format and lints, in the build that the image of tests uses.
pub(crate) fn check() -> Result<()> {
    let manifest = manifest();
    cargo("check the helper's format", &["fmt", "--manifest-path", &manifest, "--check"], &[])?;
    run("check the helper's lints", &["build", "--all-targets"], QUICK, &target()?, clippy())
}

/// Runs its own tests.
pub(crate) fn test() -> Result<()> {
    run("test the helper", &["test"], QUICK, &target()?, Vec::new())
}

fn run(what: &str, verb: &[&str], profile: &str, target: &str, more: Variables) -> Result<()> {
    let (manifest, directory) = (manifest(), target_directory().display().to_string());
    let mut arguments = verb.to_vec();
    arguments.extend(["--quiet", "--locked", "--manifest-path", &manifest, "--target-dir", &directory]);
    arguments.extend(["--profile", profile, "--target", target]);
    // The same flags as for the daemons: with others, the two builds would invalidate each other in the directory they share.
    let mut variables = variables(target, &[TERSE]);
    variables.extend(more);
    cargo_with(what, &arguments, &[], &variables)
}

fn manifest() -> String {
    root().join("crates/nmstate/Cargo.toml").display().to_string()
}

fn target() -> Result<String> {
    let target = format!("{ARCH}-unknown-linux-musl");
    have_target(&target)?;
    Ok(target)
}
