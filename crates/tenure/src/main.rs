//! `tenure`: the command line. A `main()` and flags; each verb is a module.

mod demo;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One IP address engine for Kubernetes.
#[derive(Parser)]
#[command(name = "tenure", version)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the main job on an embedded control plane, without a cluster
    Demo(demo::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Command::parse().verb {
        Verb::Demo(options) => demo::run(options, &mut std::io::stdout()).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "tenure: {error:#}");
            ExitCode::FAILURE
        }
    }
}
