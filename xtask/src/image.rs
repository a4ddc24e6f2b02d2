//! `cargo xtask image`: the programs as static binaries, in one image, without a container engine.
//!
//! It needs cargo and a C compiler (for the cryptography of TLS), and no C library other than the one that
//! Rust has for musl.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::nmstate;
use crate::step::{cargo_with, root, target_directory, timed};

/// Long-running programs, and the command line.
const DAEMONS: [&str; 4] = ["tenured", "tenure-controller", "tenure-egress", "tenure"];
/// The plugin runs for a millisecond, and has a profile of its own.
const PLUGIN: &str = "tenure-cni";
/// A program at a fixed address has no relocations at its start: that saves an eighth of its running time.
const FIXED: &str = "-Crelocation-model=static";
/// Long-running programs stay relocatable, with compact relocations: that saves a megabyte of memory.
pub(crate) const TERSE: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";
/// The form to which the kubelet completes `tenure:VERSION`.
const NAME: &str = concat!("docker.io/library/tenure:", env!("CARGO_PKG_VERSION"));

/// The paths of the programs for the image.
pub(crate) struct Built {
    /// The directory of the daemons.
    pub(crate) daemons: PathBuf,
    /// The file of the plugin.
    pub(crate) plugin: PathBuf,
}

/// Makes the image, with daemons built with this profile.
pub(crate) fn image(profile: &str) -> Result<()> {
    timed("make the image", || {
        let built = programs(profile)?;
        let helper = nmstate::build(profile)?;
        let daemons = DAEMONS.iter().map(|daemon| built.daemons.join(daemon));
        let output = target_directory().join(format!("image/tenure-{}.tar", env!("CARGO_PKG_VERSION")));
        let mut arguments: Vec<String> =
            ["--name", NAME, "--entrypoint", DAEMONS[0], "--output"].map(str::to_owned).into();
        let files = std::iter::once(output).chain(daemons).chain([built.plugin, helper]);
        arguments.extend(files.map(|path| path.display().to_string()));
        let run = ["run", "--quiet", "--package", "tenure-image", "--"];
        cargo_with("write the image", &run, &arguments, &[])
    })
}

/// Builds the programs for the image, the daemons with this profile.
pub(crate) fn programs(profile: &str) -> Result<Built> {
    let target = format!("{ARCH}-unknown-linux-musl");
    have_target(&target)?;
    let mut build = vec!["build", "--quiet", "--locked", "--profile", profile, "--target", &target];
    build.extend(DAEMONS.iter().flat_map(|daemon| ["--bin", *daemon]));
    build.extend(DAEMONS.iter().flat_map(|daemon| ["--package", *daemon]));
    cargo_with("build the daemons", &build, &[], &variables(&target, &[TERSE]))?;
    let build =
        ["build", "--quiet", "--locked", "--profile", "plugin", "--target", &target, "--package", PLUGIN];
    cargo_with("build the plugin", &build, &[], &variables(&target, &[FIXED]))?;
    let built = target_directory().join(&target);
    Ok(Built { daemons: built.join(profile), plugin: built.join("plugin").join(PLUGIN) })
}

/// Makes sure that Rust's own libraries for the target are there; rustup installs them if they are missing.
pub(crate) fn have_target(target: &str) -> Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root())
        .output()
        .context("cannot ask rustc where its libraries are")?;
    let libraries = String::from_utf8_lossy(&asked.stdout);
    if asked.status.success() && Path::new(libraries.trim()).is_dir() {
        return Ok(());
    }
    timed(&format!("get Rust's libraries for {target}"), || {
        let status = Command::new("rustup").args(["target", "add", target]).current_dir(root()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => bail!("`rustup target add {target}` ended with {status}"),
            Err(error) => {
                bail!("Rust's libraries for {target} are missing, and rustup does not start: {error}")
            }
        }
    })
}

/// The C compiler for musl, paths that do not depend on the machine, and further compiler flags.
pub(crate) fn variables(target: &str, more: &[&str]) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let compiler = format!("CC_{}", target.replace('-', "_"));
    let has_musl_gcc =
        Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if std::env::var_os(&compiler).is_none() && has_musl_gcc.is_err() {
        // The compiled code calls only functions such as memcpy, which are the same in every C library.
        variables.push((compiler, "gcc".to_owned()));
    }
    // Panic messages contain the paths of sources.
    let home =
        std::env::var("CARGO_HOME").ok().or_else(|| Some(format!("{}/.cargo", std::env::var("HOME").ok()?)));
    let flags: Vec<String> = [(home, "/cargo"), (Some(root().display().to_string()), "/tenure")]
        .into_iter()
        .filter_map(|(from, to)| Some(format!("--remap-path-prefix={}={to}", from?)))
        .chain(more.iter().map(|flag| (*flag).to_owned()))
        .collect();
    variables.push(("CARGO_ENCODED_RUSTFLAGS".to_owned(), flags.join("\x1f")));
    variables
}
