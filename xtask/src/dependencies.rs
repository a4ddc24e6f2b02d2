//! `cargo xtask deny`: whether our dependencies are what `deny.toml` allows, and whether the oldest compiler that `Cargo.toml` promises works.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::step::{Variables, cargo_with, root, say, timed};
use crate::verbs::tool;

/// The workspaces with programs that ship.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "crates/nmstate/Cargo.toml"];
/// The oldest compiler that the workspace promises to work with.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Checks licences, sources, duplicates and compilers of dependencies; with `advisories` also by what is known of their defects.
pub(crate) fn deny(advisories: bool, variables: &Variables) -> Result<()> {
    let arguments: Vec<String> = std::iter::once("deny").chain(MANIFESTS).map(str::to_owned).collect();
    tool("check the dependencies", "tenure-release", &arguments, variables)?;
    if advisories {
        for manifest in MANIFESTS {
            known_defects(manifest)?;
        }
    }
    Ok(())
}

/// Compiles everything with the oldest compiler. If the compiler of this run is that one, every build has shown it.
pub(crate) fn oldest_compiler() -> Result<()> {
    let said = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("--version")
        .current_dir(root())
        .output()
        .context("cannot ask rustc for its version")?;
    let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    if is_release(&version, OLDEST) {
        say(&format!(
            "✔ the compiler of this run ({version}) is the oldest that Cargo.toml promises, {OLDEST}"
        ));
        return Ok(());
    }
    // rustup's cargo, which selects a compiler by this variable; what it compiles is not mixed with the rest.
    timed(&format!("compile with Rust {OLDEST}, the oldest that Cargo.toml promises"), || {
        let check = [
            "run",
            OLDEST,
            "cargo",
            "check",
            "--quiet",
            "--locked",
            "--workspace",
            "--target-dir",
            "target/oldest",
        ];
        let status = Command::new("rustup").args(check).current_dir(root()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => bail!(
                "`rustup {}` ended with {status}; if the compiler is missing, run rustup toolchain install {OLDEST}",
                check.join(" ")
            ),
            Err(error) => bail!("rustup, which finds Rust {OLDEST}, does not start: {error}"),
        }
    })
}

/// Whether `rustc 1.95.0 (…)` is a release of `1.95`.
fn is_release(said: &str, promised: &str) -> bool {
    let number = said.split(' ').nth(1).unwrap_or_default();
    number == promised || number.strip_prefix(promised).is_some_and(|rest| rest.starts_with('.'))
}

/// Asks cargo-deny, which fetches what is known.
fn known_defects(manifest: &str) -> Result<()> {
    let arguments = ["deny", "--manifest-path", manifest, "check", "--config", "deny.toml", "advisories"];
    cargo_with(&format!("look for known defects of the dependencies of {manifest}"), &arguments, &[], &[]).context(
        "this check needs cargo-deny (cargo install --locked cargo-deny), and the network for RustSec's advisories",
    )
}

#[cfg(test)]
mod tests {
    use super::is_release;

    #[test]
    fn a_release_of_the_promised_compiler_is_told_from_others() {
        assert!(is_release("rustc 1.95.0 (59807616e 2026-04-14)", "1.95"));
        assert!(is_release("rustc 1.95.2", "1.95.2"));
        assert!(!is_release("rustc 1.96.0 (59807616e 2026-04-14)", "1.95"));
        assert!(!is_release("rustc 1.950.0", "1.95"));
        assert!(!is_release("", "1.95"));
    }
}
