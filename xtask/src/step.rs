//! One step of a command: announced, run, timed, and named when it fails.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The root of the workspace, wherever cargo was called from.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |given| root().join(given))
}

/// Writes a line to the terminal. A closed terminal is no error.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Runs `work`, and prints before what it is and after how long it took.
#[expect(clippy::disallowed_methods, reason = "the duration of a step is only shown and decides nothing")]
pub(crate) fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    say(&format!("▶ {what}"));
    let start = Instant::now();
    let outcome = work();
    let took = start.elapsed().as_secs_f64();
    match &outcome {
        Ok(_) => say(&format!("✔ {what} ({took:.1} s)")),
        Err(_) => say(&format!("✘ {what} (after {took:.1} s)")),
    }
    outcome
}

/// Cargo, without the variables by which it describes this program to it. Build scripts read such variables: they would
/// run again, and everything that depends on them would be built again, whenever somebody calls cargo directly in between.
pub(crate) fn cargo_command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Variables of cargo's environment.
pub(crate) type Variables = Vec<(String, String)>;

/// Lets clippy compile the crates of a workspace, with `-D warnings` as `cargo clippy` passes it to its driver. What it compiles can be
/// run: `cargo clippy` would check every dependency that is built for the tests anyway. All builds that are to share files need
/// the same variables.
pub(crate) fn clippy() -> Variables {
    let variables = [
        ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"),
        ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Does both at the same time, and fails if one of them does.
pub(crate) fn both(
    aside: impl FnOnce() -> Result<()> + Send,
    here: impl FnOnce() -> Result<()>,
) -> Result<()> {
    thread::scope(|scope| {
        let aside = scope.spawn(aside);
        let outcome = here();
        let other = aside.join().unwrap_or_else(|_| bail!("a step panicked"));
        outcome.and(other)
    })
}

/// Runs cargo with `arguments` in the workspace's root as one timed step.
pub(crate) fn cargo(what: &str, arguments: &[&str], passed_on: &[String]) -> Result<()> {
    cargo_with(what, arguments, passed_on, &[])
}

/// The same with further `variables` in its environment.
pub(crate) fn cargo_with(
    what: &str,
    arguments: &[&str],
    passed_on: &[String],
    variables: &[(String, String)],
) -> Result<()> {
    cargo_at(root(), what, arguments, passed_on, variables)
}

/// The same in another directory.
pub(crate) fn cargo_at(
    directory: &Path,
    what: &str,
    arguments: &[&str],
    passed_on: &[String],
    variables: &[(String, String)],
) -> Result<()> {
    timed(what, || {
        let status = cargo_command()
            .args(arguments)
            .args(passed_on)
            .envs(variables.iter().map(|(key, value)| (key, value)))
            .current_dir(directory)
            .status()
            .with_context(|| format!("cannot start cargo to {what}"))?;
        if !status.success() {
            let line = arguments.iter().copied().chain(passed_on.iter().map(String::as_str));
            bail!("could not {what}: `cargo {}` ended with {status}", line.collect::<Vec<_>>().join(" "));
        }
        Ok(())
    })
}
