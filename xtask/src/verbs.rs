//! The steps of each command.

use std::io::Write as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::architecture::Architecture;
use crate::dependencies;
use crate::image::{Build, Built, image};
use crate::lanes;
use crate::nmstate;
use crate::step::{both, cargo, cargo_with, clippy, root, target_directory, timed};

/// The recorded answers of peers that every test run compares with.
const CASES: &str = "crates/conformance/cases";

/// Steps that more than one command has.
const SETUP: &str = "install and build what the tests need";
const CRDS: &str = "check that deploy/crds is up to date";
const CHECK_CRDS: [&str; 2] = ["--check", "deploy/crds"];

/// The programs of the demo: the first finds the others beside it.
const PROGRAMS: [&str; 5] = ["tenure", "tenured", "tenure-controller", "tenure-cni", "tenure-egress"];

pub(crate) fn demo(arguments: &[String]) -> Result<()> {
    let mut build = vec!["build", "--quiet"];
    build.extend(PROGRAMS.iter().flat_map(|program| ["--package", *program]));
    cargo("build the programs", &build, &[])?;
    let arguments: Vec<String> =
        std::iter::once("demo").map(str::to_owned).chain(arguments.to_vec()).collect();
    run("show the demo", "tenure", &arguments)
}

/// Builds one of our tools with the features of the whole workspace, like the tests, so that nothing is built twice, and
/// runs it.
pub(crate) fn tool(
    what: &str,
    program: &str,
    arguments: &[String],
    variables: &[(String, String)],
) -> Result<()> {
    build(program, variables)?;
    run(what, program, arguments)
}

fn build(program: &str, variables: &[(String, String)]) -> Result<()> {
    let arguments = ["build", "--quiet", "--workspace", "--bin", program];
    cargo_with(&format!("build {program}"), &arguments, &[], variables)
}

/// Runs a program that cargo has built.
fn run(what: &str, program: &str, arguments: &[String]) -> Result<()> {
    let path = target_directory().join("debug").join(program);
    timed(what, || {
        let ended = Command::new(&path).args(arguments).current_dir(root()).status();
        let ended = ended.with_context(|| format!("cannot start {}", path.display()))?;
        ensure!(ended.success(), "could not {what}: {program} ended with {ended}");
        Ok(())
    })
}

pub(crate) fn test(filter: &[String]) -> Result<()> {
    timed("install, build and run every test", || all_tests(filter, &[], || Ok(())))
}

/// Runs every test, after what has to happen `before` them. What the real servers need is built meanwhile, with low
/// priority: a part of that time is downloads, and a part of ours is a single compiler.
fn all_tests(
    filter: &[String],
    variables: &[(String, String)],
    before: impl FnOnce() -> Result<()>,
) -> Result<()> {
    build("setup", variables)?;
    both(
        || run(SETUP, "setup", &[]),
        || {
            before()?;
            cargo_with("test all that needs no other program", &["test", "--quiet"], &[], variables)?;
            image("quick")?;
            nmstate::test()
        },
    )?;
    lanes::test("test on the real API server and cluster", "tenure-tests", filter, variables)
}

pub(crate) fn ci() -> Result<()> {
    timed("check everything that has to hold before a change lands", || {
        cargo("check the format", &["fmt", "--all", "--check"], &[])?;
        let clippy = clippy();
        all_tests(&[], &clippy, || {
            let all = ["build", "--quiet", "--workspace", "--all-targets"];
            cargo_with("build everything and check the lints", &all, &[], &clippy)?;
            nmstate::check()?;
            tool(CRDS, "crds", &CHECK_CRDS.map(str::to_owned), &clippy)?;
            dependencies::deny(false, &clippy)?;
            dependencies::oldest_compiler()
        })
    })
}

/// Checks the dependencies, and by which compiler everything can be built.
pub(crate) fn deny(advisories: bool) -> Result<()> {
    dependencies::deny(advisories, &Vec::new())?;
    dependencies::oldest_compiler()
}

/// Builds static programs, and writes their paths to standard output.
pub(crate) fn static_programs(
    architecture: Option<Architecture>,
    profile: &str,
    programs: &[String],
) -> Result<()> {
    let architecture = architecture.map_or_else(Architecture::here, Ok)?;
    for path in Build::these(profile, architecture).named(programs)? {
        writeln!(std::io::stdout(), "{}", path.display()).context("cannot say where the programs are")?;
    }
    Ok(())
}

/// Runs what is built for ARM64; the test builds it.
pub(crate) fn emulate() -> Result<()> {
    let test =
        ["test", "--quiet", "--package", "tenure-tests", "--features", "emulated", "--test", "emulated"];
    cargo("run the agent and the plugin for ARM64", &test, &[])
}

/// Builds the helper of NetworkManager, and writes its path to standard output.
pub(crate) fn nmstate(profile: &str) -> Result<()> {
    let path = nmstate::build(&Build::here(profile)?)?;
    writeln!(std::io::stdout(), "{}", path.display()).context("cannot say where the helper is")
}

pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let has = |words: &[&str]| arguments.iter().any(|argument| words.contains(&argument.as_str()));
    let mut variables = Vec::new();
    // The measured programs are the installed ones.
    if has(&["pods", "whereabouts", "claims", "egress"])
        || !has(&["engine", "server", "plan", "nodes", "cloud", "--help", "-h"])
    {
        let Built { daemons, plugin } = Build::here("daemons")?.programs()?;
        let places = [("TENURE_DAEMONS", daemons), ("TENURE_PLUGIN", plugin)];
        variables.extend(places.map(|(name, place)| (name.to_owned(), place.display().to_string())));
    }
    if has(&["nodes"])
        || !has(&[
            "engine",
            "server",
            "plan",
            "pods",
            "whereabouts",
            "claims",
            "egress",
            "cloud",
            "--help",
            "-h",
        ])
    {
        let peer = nmstate::build_peer()?;
        variables.push(("TENURE_NMSTATE_KERNEL".to_owned(), peer.display().to_string()));
    }
    let run = ["run", "--quiet", "--release", "--package", "tenure-bench", "--"];
    cargo_with("measure", &run, arguments, &variables)
}

pub(crate) fn scale(arguments: &[String]) -> Result<()> {
    let run = ["run", "--quiet", "--release", "--package", "tenure-bench", "--", "scale"];
    cargo_with("run many nodes", &run, arguments, &[])
}

pub(crate) fn conformance(files: &[String]) -> Result<()> {
    let mut files = files.to_vec();
    if files.is_empty() {
        for entry in std::fs::read_dir(root().join(CASES))? {
            files.push(entry?.path().display().to_string());
        }
        files.sort();
    }
    tool("compare our answers with the peers'", "tenure-conformance", &files, &[])
}

pub(crate) fn crds(check: bool) -> Result<()> {
    if check {
        return tool(CRDS, "crds", &CHECK_CRDS.map(str::to_owned), &[]);
    }
    tool("write deploy/crds", "crds", &["--write", "deploy/crds"].map(str::to_owned), &[])
}

pub(crate) fn reference() -> Result<()> {
    tool("write docs/reference", "reference", &[], &[])
}

pub(crate) fn cluster() -> Result<()> {
    setup()?;
    image("quick")?;
    tool("run a cluster until Ctrl-C", "cluster", &[], &[])
}

pub(crate) fn setup() -> Result<()> {
    tool(SETUP, "setup", &[], &[])
}
