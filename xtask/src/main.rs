//! `cargo xtask`: the commands for developers. Each says what it does and how long it took, and fails with
//! one sentence. It stays small so that the first command starts at once: whatever needs the product's crates
//! is a program of its own that is built and run from here.

mod architecture;
mod book;
mod dependencies;
mod dist;
mod fuzz;
mod image;
mod lanes;
mod nmstate;
mod sdk;
mod step;
mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use architecture::Architecture;

/// Build, prove and show Tenure.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the main job on three hosts made of namespaces; needs nothing but cargo
    Demo {
        /// Passed on to `tenure demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install what the tests need, then run all of them, on the embedded and on the real API server
    Test {
        /// Passed on to the tests of `tests/`, for example a name to filter by
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filter: Vec<String>,
    },
    /// What has to pass before a change lands: format, lints, generated files, tests
    Ci,
    /// Measure, each figure beside a peer in the same run
    Bench {
        /// Passed on to the measurements; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run many nodes' agents and the controller against one API server, and say what everything costs
    Scale {
        /// Passed on to the run; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run case files of peers' answers (default: the copy in the repository)
    Conformance {
        /// Case files in the format of `crates/conformance/README.md`
        files: Vec<String>,
    },
    /// Look for input that breaks something, with coverage as the guide (needs a nightly compiler and cargo-fuzz)
    Fuzz {
        /// Which target to run; all of them, one after the other, if none is named
        targets: Vec<String>,
        /// For how long each
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Write the CustomResourceDefinitions to `deploy/crds`
    Crds {
        /// Write nothing; fail when what is there is stale
        #[arg(long)]
        check: bool,
    },
    /// Write the pages of `docs/reference` that are generated, after flags or kinds have changed
    Reference,
    /// Write the documentation as a book of HTML; the first time this builds mdBook
    Book,
    /// Build the programs as static binaries and put them into a container image
    Image {
        /// The profile that the daemons are built with: `quick` is built in a fraction of the time, and slower to run
        #[arg(long, default_value = "daemons")]
        profile: String,
    },
    /// Make the files of a release: archives, image, bill of materials, checksums
    Dist(dist::DistOptions),
    /// Check licences, sources, versions and compilers of dependencies by deny.toml
    Deny {
        /// Look for known defects and yanked versions, too (needs cargo-deny and the network)
        #[arg(long)]
        advisories: bool,
    },
    /// Build static programs and say where they are, a path a line
    Static {
        /// What to build for; this machine if not given
        #[arg(long, value_enum)]
        arch: Option<Architecture>,
        /// The profile, as of `image`
        #[arg(long, default_value = "daemons")]
        profile: String,
        /// Which ones
        #[arg(required = true)]
        programs: Vec<String>,
    },
    /// Run the agent and the plugin for ARM64 under emulation (needs root)
    Emulate,
    /// Build the helper of NetworkManager as the image has it, and say where it is
    Nmstate {
        /// The profile, as of `image`
        #[arg(long, default_value = "daemons")]
        profile: String,
    },
    /// Test the fake of Google's cloud with Google's own SDK, which takes long to build
    Sdk,
    /// Start a real cluster of three nodes with Tenure installed, to try things on; Ctrl-C ends it (needs root)
    Cluster,
    /// Install and build what the real API server and cluster of the tests are made of
    Setup,
}

fn main() -> ExitCode {
    let outcome = match Command::parse().verb {
        Verb::Demo { arguments } => verbs::demo(&arguments),
        Verb::Test { filter } => verbs::test(&filter),
        Verb::Ci => verbs::ci(),
        Verb::Bench { arguments } => verbs::bench(&arguments),
        Verb::Scale { arguments } => verbs::scale(&arguments),
        Verb::Conformance { files } => verbs::conformance(&files),
        Verb::Fuzz { targets, seconds } => fuzz::fuzz(&targets, seconds),
        Verb::Crds { check } => verbs::crds(check),
        Verb::Reference => verbs::reference(),
        Verb::Book => book::book(),
        Verb::Image { profile } => image::image(&profile),
        Verb::Dist(options) => dist::dist(&options),
        Verb::Deny { advisories } => verbs::deny(advisories),
        Verb::Static { arch, profile, programs } => verbs::static_programs(arch, &profile, &programs),
        Verb::Emulate => verbs::emulate(),
        Verb::Nmstate { profile } => verbs::nmstate(&profile),
        Verb::Sdk => sdk::test(),
        Verb::Cluster => verbs::cluster(),
        Verb::Setup => verbs::setup(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            step::say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
