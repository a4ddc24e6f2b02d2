//! Runs the test files that need real servers, some in parallel: most of their time they wait for clusters,
//! and each has its own ports, directories and namespaces.
//!
//! A file that fails beside others is run once more, alone and with the seed that it printed. If that fails, too, the
//! run fails. If it passes, the first failure was a matter of timing: its output is shown, and the end of the run
//! names the file, so that somebody makes it steady.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::step::{cargo_command, root, say, timed};

/// How many run at once.
const LANES: usize = 3;
/// The longest ones start first, so that the end is not a wait for one of them; whole clusters do not all
/// start at once.
const LONG: [&str; 27] = [
    "egress",
    "cloud_cluster",
    "claims_cluster",
    "egress_cluster",
    "install",
    "chart",
    "api_parity",
    "claims_controller",
    "whereabouts_cluster",
    "repair",
    "whereabouts_crowd",
    "scale",
    "network_manager",
    "node_addresses_cluster",
    "node_addresses_together",
    "chaos",
    "whereabouts_controller",
    "claims_moves",
    "cloud_moves",
    "controller",
    "claims_chaos",
    "egress_chaos",
    "cloud_chaos",
    "node_addresses_chaos",
    "cluster",
    "crds",
    "recorded_answers",
];

/// A test file, built.
struct Program {
    name: String,
    executable: PathBuf,
}

impl Program {
    /// The file with what it printed.
    fn output(&self) -> PathBuf {
        self.executable.with_extension("said")
    }
}

/// Where a randomized test says how to replay it.
const SEED: &str = "TENURE_SEED";

/// Builds the tests of a package, with these variables in cargo's environment, and runs them, file by file, with these
/// arguments. All are run, even after a failure.
pub(crate) fn test(
    what: &str,
    package: &str,
    arguments: &[String],
    variables: &[(String, String)],
) -> Result<()> {
    timed(what, || {
        let mut programs = timed(&format!("build {package}"), || build(package, variables))?;
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
                        if timed(&program.name, || run(&program, arguments, None)).is_err() {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).push(program);
                        }
                    }
                });
            }
        });
        again(failed.into_inner().unwrap_or_else(PoisonError::into_inner), arguments)
            .with_context(|| format!("could not {what}"))
    })
}

/// Runs what failed once more, one after the other.
fn again(failed: Vec<Program>, arguments: &[String]) -> Result<()> {
    let (mut unsteady, mut broken) = (Vec::new(), Vec::new());
    for program in failed {
        let seed = std::fs::read_to_string(program.output()).ok().and_then(|text| printed_seed(&text));
        let what = format!("{}, once more and alone", program.name);
        match timed(&what, || run(&program, arguments, seed.as_deref())) {
            Ok(()) => unsteady.push(program.name),
            Err(error) => broken.push(format!("{}: {error}", program.name)),
        }
    }
    if !unsteady.is_empty() {
        say(&format!("‼ failed beside others and passed alone: {}; make them steady", unsteady.join(", ")));
    }
    ensure!(broken.is_empty(), "{}", broken.join("; "));
    Ok(())
}

/// The seed in `TENURE_SEED=number`.
fn printed_seed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("{SEED}="))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

/// Builds the tests, and reads the results from cargo's messages. All packages are built, because dependencies of one package
/// alone have fewer features: half of the workspace would be built again.
fn build(package: &str, variables: &[(String, String)]) -> Result<Vec<Program>> {
    let built = cargo_command()
        .args(["test", "--quiet", "--no-run", "--message-format", "json-render-diagnostics"])
        .arg("--workspace")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo to build the tests")?;
    ensure!(built.status.success(), "the tests of {package} cannot be built");
    let messages = String::from_utf8(built.stdout).context("cargo says something that is no text")?;
    let programs = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"].as_bool()?;
        // `path+file:///…/tests#tenure-tests@0.1.0`
        let id = message["package_id"].as_str()?;
        let is_test = is_test && id.rsplit('#').next()?.split('@').next() == Some(package);
        let name = message["target"]["name"].as_str()?.to_owned();
        let executable = message["executable"].as_str().filter(|_| is_test)?.into();
        Some(Program { name, executable })
    });
    Ok(programs.collect())
}

/// Runs one, with a seed to replay if there is one. Its output is shown if it failed.
fn run(program: &Program, arguments: &[String], seed: Option<&str>) -> Result<()> {
    let mut said =
        File::options().create(true).truncate(true).read(true).write(true).open(program.output())?;
    let ended = Command::new(&program.executable)
        .envs(seed.map(|seed| (SEED, seed)))
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

#[cfg(test)]
mod tests {
    use super::printed_seed;

    #[test]
    fn the_seed_of_a_failed_run_is_found_in_its_output() {
        let said = "running 1 test\nTENURE_SEED=11048972136895094275\nkilled tenured";
        assert_eq!(printed_seed(said).as_deref(), Some("11048972136895094275"));
        assert_eq!(printed_seed("to see it again: TENURE_SEED=n cargo test"), None);
        assert_eq!(printed_seed("test result: FAILED"), None);
    }
}
