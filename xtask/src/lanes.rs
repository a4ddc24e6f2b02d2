//! Runs the test files that need real servers, some in parallel: most of their time they wait for clusters,
//! and each has its own ports, directories and namespaces.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::step::{root, say, timed};

/// How many run at once.
const LANES: usize = 3;
/// The longest ones start first, so that the end is not a wait for one of them; whole clusters do not all
/// start at once.
const LONG: [&str; 14] = [
    "claims_cluster",
    "install",
    "api_parity",
    "claims_controller",
    "whereabouts_cluster",
    "whereabouts_crowd",
    "chaos",
    "whereabouts_controller",
    "claims_moves",
    "controller",
    "claims_chaos",
    "cluster",
    "crds",
    "recorded_answers",
];

/// A test file, built.
struct Program {
    name: String,
    executable: PathBuf,
}

/// Builds the tests of a package and runs them, file by file, with these arguments. All are run, even after a
/// failure.
pub(crate) fn test(what: &str, package: &str, arguments: &[String]) -> Result<()> {
    timed(what, || {
        let mut programs = build(package)?;
        programs.sort_by_key(|program| {
            let long = LONG.iter().position(|name| *name == program.name);
            (long.unwrap_or(LONG.len()), program.name.clone())
        });
        let (waiting, failed) = (Mutex::new(VecDeque::from(programs)), Mutex::new(Vec::new()));
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(|| {
                    while let Some(program) = next() {
                        if let Err(error) = timed(&program.name, || run(&program, arguments)) {
                            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                            failed.push(format!("{}: {error}", program.name));
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(failed.is_empty(), "could not {what}: {}", failed.join("; "));
        Ok(())
    })
}

/// Builds the tests, and reads the results from cargo's messages.
fn build(package: &str) -> Result<Vec<Program>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["test", "--quiet", "--no-run", "--message-format", "json-render-diagnostics"])
        .args(["--package", package])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo to build the tests")?;
    ensure!(built.status.success(), "the tests of {package} cannot be built");
    let messages = String::from_utf8(built.stdout).context("cargo says something that is no text")?;
    let programs = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"].as_bool()?;
        let name = message["target"]["name"].as_str()?.to_owned();
        let executable = message["executable"].as_str().filter(|_| is_test)?.into();
        Some(Program { name, executable })
    });
    Ok(programs.collect())
}

/// Runs one. Its output is shown if it failed.
fn run(program: &Program, arguments: &[String]) -> Result<()> {
    let path = program.executable.with_extension("said");
    let mut said = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
    let ended = Command::new(&program.executable)
        .args(arguments)
        .current_dir(root().join("tests"))
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?)
        .status()
        .with_context(|| format!("cannot start {}", program.executable.display()))?;
    said.seek(SeekFrom::Start(0))?;
    let text = std::io::read_to_string(&said)?;
    let counts = text.lines().filter(|line| line.starts_with("test result:"));
    say(if ended.success() { counts.collect::<Vec<_>>().join("\n") } else { text.clone() }.as_str());
    ensure!(ended.success(), "it ended with {ended}");
    Ok(())
}
