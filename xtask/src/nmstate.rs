//! `crates/nmstate`, a workspace of its own: how it is built for the image, checked and tested. The image of tests and
//! its own tests share one build of its hundred dependencies.

use std::path::PathBuf;

use anyhow::Result;

use crate::image::Build;
use crate::step::{Variables, cargo, cargo_at, clippy};

/// The program.
pub(crate) const NAME: &str = "tenure-nmstate";
/// The profile in which tests use it.
const QUICK: &str = "quick";
/// Where it is.
const MANIFEST: &str = "crates/nmstate/Cargo.toml";

/// Builds the static program; returns its path.
pub(crate) fn build(build: &Build) -> Result<PathBuf> {
    run("build the helper of NetworkManager", &["build"], build, Vec::new())?;
    Ok(build.built(&build.profile).join(NAME))
}

/// Builds nmstate's own kernel mode as a program, to measure ours beside it; returns its path.
pub(crate) fn build_peer() -> Result<PathBuf> {
    let build = Build::here("release")?;
    run("build the peer of node addresses", &["build", "--example", "kernel"], &build, Vec::new())?;
    Ok(build.built(&build.profile).join("examples/kernel"))
}

/// Checks format and lints, in the build that the image of tests uses.
pub(crate) fn check() -> Result<()> {
    cargo("check the helper's format", &["fmt", "--manifest-path", MANIFEST, "--check"], &[])?;
    run("check the helper's lints", &["build", "--all-targets"], &Build::here(QUICK)?, clippy())
}

/// Runs its own tests.
pub(crate) fn test() -> Result<()> {
    run("test the helper", &["test"], &Build::here(QUICK)?, Vec::new())
}

fn run(what: &str, verb: &[&str], build: &Build, more: Variables) -> Result<()> {
    build.architecture.have_target()?;
    let (triple, directory) = (build.architecture.target(), build.target.display().to_string());
    let mut arguments = verb.to_vec();
    arguments.extend(["--quiet", "--locked", "--manifest-path", MANIFEST, "--target-dir", &directory]);
    arguments.extend(["--profile", &build.profile, "--target", &triple]);
    // The same flags as for the daemons: with others, the two builds would invalidate each other in the directory they share.
    let mut variables = build.terse()?;
    variables.extend(more);
    cargo_at(&build.root, what, &arguments, &[], &variables)
}
