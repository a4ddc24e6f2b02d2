//! `cargo xtask image`: the programs as static binaries, in one image, without a container engine.
//!
//! It needs cargo and a C compiler (for the cryptography of TLS), and no C library other than the one that
//! Rust has for musl.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::architecture::Architecture;
use crate::nmstate;
use crate::step::{Variables, cargo_at, cargo_with, root, target_directory, timed};

/// Long-running programs, and the command line.
const DAEMONS: [&str; 4] = ["tenured", "tenure-controller", "tenure-egress", "tenure"];
/// The plugin runs for a millisecond, and has a profile of its own.
const PLUGIN: &str = "tenure-cni";
/// A program at a fixed address has no relocations at its start: that saves an eighth of its running time.
const FIXED: &str = "-Crelocation-model=static";
/// Long-running programs stay relocatable, with compact relocations: that saves a megabyte of memory.
const TERSE: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";
/// The form to which the kubelet completes `tenure:VERSION`.
pub(crate) const NAME: &str = concat!("docker.io/library/tenure:", env!("CARGO_PKG_VERSION"));

/// The paths of the programs for the image.
pub(crate) struct Built {
    /// The directory of the daemons.
    pub(crate) daemons: PathBuf,
    /// The file of the plugin.
    pub(crate) plugin: PathBuf,
}

/// What is built, from which sources, and where to.
pub(crate) struct Build {
    /// The root of the sources.
    pub(crate) root: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// The profile of the daemons.
    pub(crate) profile: String,
    /// For which machines.
    pub(crate) architecture: Architecture,
}

/// Makes the image, with daemons built with this profile.
pub(crate) fn image(profile: &str) -> Result<()> {
    timed("make the image", || {
        let programs = Build::here(profile)?.all()?;
        let output = target_directory().join(format!("image/tenure-{}.tar", env!("CARGO_PKG_VERSION")));
        let mut arguments: Vec<String> =
            ["--name", NAME, "--entrypoint", DAEMONS[0], "--output"].map(str::to_owned).into();
        arguments.extend(std::iter::once(output).chain(programs).map(|path| path.display().to_string()));
        let run = ["run", "--quiet", "--package", "tenure-image", "--"];
        cargo_with("write the image", &run, &arguments, &[])
    })
}

impl Build {
    /// These sources, for this machine.
    pub(crate) fn here(profile: &str) -> Result<Self> {
        Ok(Self::these(profile, Architecture::here()?))
    }

    /// These sources.
    pub(crate) fn these(profile: &str, architecture: Architecture) -> Self {
        let (root, target) = (root().to_owned(), target_directory());
        Self { root, target, profile: profile.to_owned(), architecture }
    }

    /// Builds all programs of the image; returns their paths.
    pub(crate) fn all(&self) -> Result<Vec<PathBuf>> {
        let Built { daemons, plugin } = self.programs()?;
        let helper = nmstate::build(self)?;
        Ok(DAEMONS.iter().map(|daemon| daemons.join(daemon)).chain([plugin, helper]).collect())
    }

    /// Builds our own programs.
    pub(crate) fn programs(&self) -> Result<Built> {
        Ok(Built { daemons: self.daemons(&DAEMONS)?, plugin: self.plugin()? })
    }

    /// Builds the programs of these names; returns their paths.
    pub(crate) fn named(&self, names: &[String]) -> Result<Vec<PathBuf>> {
        let daemons: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != PLUGIN).collect();
        if let Some(unknown) = daemons.iter().find(|name| !DAEMONS.contains(name)) {
            bail!("there is no program {unknown}; there are {}, {PLUGIN}", DAEMONS.join(", "));
        }
        let mut paths = Vec::new();
        if !daemons.is_empty() {
            let directory = self.daemons(&daemons)?;
            paths.extend(daemons.iter().map(|daemon| directory.join(daemon)));
        }
        if daemons.len() < names.len() {
            paths.push(self.plugin()?);
        }
        Ok(paths)
    }

    /// Builds some of the daemons; returns their directory.
    fn daemons(&self, names: &[&str]) -> Result<PathBuf> {
        let selected: Vec<&str> =
            names.iter().flat_map(|name| ["--bin", *name, "--package", *name]).collect();
        self.cargo("build the daemons", &self.profile, &selected, &self.terse()?)?;
        Ok(self.built(&self.profile))
    }

    /// Builds the plugin; returns its path.
    fn plugin(&self) -> Result<PathBuf> {
        self.cargo("build the plugin", "plugin", &["--package", PLUGIN], &self.variables(FIXED)?)?;
        Ok(self.built("plugin").join(PLUGIN))
    }

    /// The variables of long-running programs.
    pub(crate) fn terse(&self) -> Result<Variables> {
        self.variables(TERSE)
    }

    /// The directory of what is built with this profile.
    pub(crate) fn built(&self, profile: &str) -> PathBuf {
        self.target.join(self.architecture.target()).join(profile)
    }

    /// Runs `cargo build`, with selected packages.
    fn cargo(&self, what: &str, profile: &str, selected: &[&str], variables: &Variables) -> Result<()> {
        self.architecture.have_target()?;
        let (triple, target) = (self.architecture.target(), self.target.display().to_string());
        let mut build = vec!["build", "--quiet", "--locked", "--profile", profile];
        build.extend(["--target", &triple, "--target-dir", &target]);
        build.extend(selected);
        cargo_at(&self.root, what, &build, &[], variables)
    }

    /// The compiler, paths that do not depend on the machine, and one more flag of the compiler.
    fn variables(&self, flag: &str) -> Result<Variables> {
        let mut variables = self.architecture.compiler()?;
        // Panic messages contain the paths of sources.
        let home = std::env::var("CARGO_HOME")
            .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
            .ok();
        let shown = |path: &Path| Some(path.display().to_string());
        // Of several that match, the compiler takes the last.
        let paths =
            [(home, "/cargo"), (shown(&self.root), "/tenure"), (shown(&self.target), "/tenure/target")];
        let flags: Vec<String> = paths
            .into_iter()
            .filter_map(|(from, to)| Some(format!("--remap-path-prefix={}={to}", from?)))
            .chain([flag.to_owned()])
            .collect();
        variables.push(("CARGO_ENCODED_RUSTFLAGS".to_owned(), flags.join("\x1f")));
        Ok(variables)
    }
}
