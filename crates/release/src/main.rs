//! `tenure-release`: makes of built programs the files of a release, and checks dependencies. `cargo xtask dist` and
//! `cargo xtask deny` call it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use tenure_release::graph::Graph;
use tenure_release::pack::{Pack, day};
use tenure_release::policy::Policy;
use tenure_release::{bill, manual};

/// Files of releases, and checks of dependencies.
#[derive(Parser)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make archives, image, bill of materials and checksums of built programs
    Pack(Pack),
    /// Write manual pages and completions
    Manual {
        /// Where to
        directory: PathBuf,
        /// The date on the pages, in seconds since 1970
        #[arg(long, default_value_t = 0)]
        seconds: u64,
    },
    /// Write the bill of materials
    Bill {
        /// The file
        file: PathBuf,
        /// The date in it, in seconds since 1970
        #[arg(long, default_value_t = 0)]
        seconds: u64,
    },
    /// Check the dependencies of these workspaces by deny.toml
    Deny {
        /// The manifests
        #[arg(required = true)]
        manifests: Vec<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Command::parse().verb {
        Verb::Pack(pack) => pack.run(),
        Verb::Manual { directory, seconds } => {
            for file in manual::files(&day(seconds)?)? {
                let path = directory.join(&file.path);
                write(&path, &file.bytes)?;
                if file.executable {
                    let mode = fs::Permissions::from_mode(0o755);
                    fs::set_permissions(&path, mode)
                        .with_context(|| format!("cannot make {} executable", path.display()))?;
                }
            }
            Ok(())
        }
        Verb::Bill { file, seconds } => write(&file, bill::of_release(seconds)?.as_bytes()),
        Verb::Deny { manifests } => deny(&manifests),
    }
}

fn deny(manifests: &[PathBuf]) -> Result<()> {
    let text = fs::read_to_string("deny.toml").context("cannot read deny.toml")?;
    let policy = Policy::parse(&text)?;
    let graphs = manifests.iter().map(|manifest| Graph::read(manifest, policy.targets()));
    let graphs = graphs.collect::<Result<Vec<_>>>()?;
    let objections = policy.objections(&graphs, env!("CARGO_PKG_RUST_VERSION"))?;
    for objection in &objections {
        writeln!(std::io::stderr(), "{objection}")?;
    }
    anyhow::ensure!(objections.is_empty(), "{} objections to dependencies", objections.len());
    let count: usize = graphs.iter().map(|graph| graph.packages.len()).sum();
    writeln!(std::io::stderr(), "{count} packages are as deny.toml and rust-version demand")?;
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
