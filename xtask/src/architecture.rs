//! The architectures that static programs are built for, and what building for another one than this machine's needs.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::step::{Variables, root, timed};

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Architecture {
    /// x86-64, which images call amd64.
    #[value(name = "x86-64", alias = "amd64")]
    X86,
    /// ARM64.
    #[value(name = "arm64", alias = "aarch64")]
    Arm,
}

impl Architecture {
    /// All that a release is built for.
    pub(crate) const ALL: [Self; 2] = [Self::X86, Self::Arm];

    /// This machine's.
    pub(crate) fn here() -> Result<Self> {
        let own = std::env::consts::ARCH;
        let found = Self::ALL.into_iter().find(|it| it.name() == own);
        found.with_context(|| format!("static programs are for x86-64 and ARM64; this machine is {own}"))
    }

    /// What Rust calls it.
    fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// Rust's name for the target of static programs.
    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }

    /// Cargo's variables with the C compiler and the linker: this machine's own, or those that are installed for another architecture.
    /// Variables that are set already stay.
    pub(crate) fn compiler(self) -> Result<Variables> {
        let target = self.target().replace('-', "_");
        let compiler = format!("CC_{target}");
        let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase());
        let unset = |name: &String| std::env::var_os(name).is_none();
        let mut variables = Vec::new();
        if Self::here()? == self {
            if unset(&compiler) && !starts("musl-gcc") {
                // The compiled code calls only functions such as memcpy, which are the same in every C library.
                variables.push((compiler, "gcc".to_owned()));
            }
            return Ok(variables);
        }
        let package = format!("gcc-{}-linux-gnu", self.name().replace('_', "-"));
        let debian = if self == Self::Arm { "arm64" } else { "amd64" };
        let program = format!("{}-linux-gnu-gcc", self.name());
        for name in [compiler, linker].into_iter().filter(unset) {
            if !starts(&program) {
                bail!(
                    "building for {} needs a C compiler and linker for it, and {program} does not start: install it (on Debian: \
                     packages {package} and libc6-dev-{debian}-cross), or set {name}; --arch chooses what to build for",
                    self.name()
                );
            }
            variables.push((name, program.clone()));
        }
        Ok(variables)
    }

    /// Makes sure that Rust's own libraries are there; rustup installs them if they are missing.
    pub(crate) fn have_target(self) -> Result<()> {
        let target = self.target();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let asked = Command::new(rustc)
            .args(["--print", "target-libdir", "--target", &target])
            .current_dir(root())
            .output()
            .context("cannot ask rustc where its libraries are")?;
        let libraries = String::from_utf8_lossy(&asked.stdout);
        if asked.status.success() && Path::new(libraries.trim()).is_dir() {
            return Ok(());
        }
        timed(&format!("get Rust's libraries for {target}"), || {
            let status = Command::new("rustup").args(["target", "add", &target]).current_dir(root()).status();
            let remedy = "install them (rustup target add, or your distribution's package); --arch chooses what to build for";
            match status {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => bail!("`rustup target add {target}` ended with {status}; {remedy}"),
                Err(error) => {
                    bail!(
                        "Rust's libraries for {target} are missing, and rustup does not start ({error}); {remedy}"
                    )
                }
            }
        })
    }
}

/// Whether there is a program of this name that says its version.
fn starts(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}
