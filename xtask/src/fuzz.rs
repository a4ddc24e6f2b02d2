//! `cargo xtask fuzz`: searches for input that breaks something. The targets are a workspace of their own,
//! `fuzz/`; their code is `crates/fuzz-harness`, which `cargo test` runs on the corpus.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{root, timed};

/// Runs each target for this many seconds. Findings are kept below `fuzz/artifacts`; new interesting input
/// below `fuzz/target`, and not in the corpus, which is written by hand.
pub(crate) fn fuzz(targets: &[String], seconds: u32) -> Result<()> {
    let known = known(&root().join("fuzz/corpus"))?;
    let targets = if targets.is_empty() { &known } else { targets };
    if let Some(unknown) = targets.iter().find(|target| !known.contains(target)) {
        bail!("there is no fuzz target {unknown}; there are {}", known.join(", "));
    }
    for target in targets {
        timed(&format!("try {target} for {seconds} s"), || run(target, seconds))?;
    }
    Ok(())
}

/// The targets: each has a corpus.
fn known(corpus: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(corpus).with_context(|| format!("cannot read {}", corpus.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn run(target: &str, seconds: u32) -> Result<()> {
    let found = root().join("fuzz/target/found").join(target);
    std::fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let corpus = root().join("fuzz/corpus");
    let mut known = vec![corpus.join(target)];
    if target == "agent" {
        // It gets the same input as the plugin.
        known.push(corpus.join("plugin"));
    }
    // By name and not by `CARGO`, so that it is rustup's, which can select another compiler.
    let status = Command::new("cargo")
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .args(["fuzz", "run", "--fuzz-dir", "fuzz", target])
        .arg(found)
        .args(known)
        .args(["--", &format!("-max_total_time={seconds}"), "-max_len=4096", "-rss_limit_mb=2048"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!(
            "`cargo fuzz run {target}` ended with {status}; what it found, if anything, is in fuzz/artifacts/{target}. It needs \
             a nightly compiler (rustup toolchain install nightly) and cargo-fuzz (cargo install cargo-fuzz)"
        );
    }
    Ok(())
}
