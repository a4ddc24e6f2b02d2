//! Where the programs come from: etcd, Kubernetes, containerd, CNI plugins.
//!
//! Each program is taken from the first place that has it:
//!
//! 1. the directory `KUBEBUILDER_ASSETS`, if that is set;
//! 2. `PATH` (for CNI plugins `CNI_PATH`, because iproute2 has a `bridge`, too);
//! 3. for Go programs, a cache; what is not there yet is built once from published modules, pinned by the
//!    `go.mod` files beside this crate's sources; for others, the Debian package, installed by apt-get.
//!
//! Nothing prebuilt is downloaded except Debian packages, and no service is left running by their installation.

mod cache;
mod emulator;
mod error;
mod go;
mod kernel;
mod network_manager;
mod packages;
mod program;
mod progress;
mod search;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use cache::Cache;
use go::GoModule;
use search::Search;

pub use emulator::Emulator;
pub use error::BinariesError;
pub use kernel::Kernel;
pub use network_manager::NetworkManagerFiles;
pub use program::Program;

use program::Source;

/// The files of the requested programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    found: BTreeMap<Program, Found>,
}

/// The path of a program, and its origin.
#[derive(Clone, Debug)]
pub struct Found {
    /// The program's file.
    pub path: PathBuf,
    /// Its origin.
    pub origin: Origin,
}

/// The origin of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is in the directory that `KUBEBUILDER_ASSETS` names.
    Assets,
    /// It is on `PATH`, or for a CNI plugin on `CNI_PATH`.
    Path,
    /// It was built by an earlier call.
    Cache,
    /// It was built just now.
    Built,
    /// Its Debian package was installed just now.
    Installed,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Assets => "from KUBEBUILDER_ASSETS",
            Self::Path => "was on PATH",
            Self::Cache => "was in the cache",
            Self::Built => "built from Go modules",
            Self::Installed => "installed by apt-get",
        })
    }
}

impl Binaries {
    /// Finds `needed`; builds or installs what is missing.
    ///
    /// Blocks, for up to about ten minutes if everything has to be built. Reports long steps on standard
    /// error. Any number of processes may call it at once: one builds, the others wait.
    pub fn locate(needed: impl IntoIterator<Item = Program>) -> Result<Self, BinariesError> {
        let search = Search::from_environment();
        let needed: Vec<Program> = needed.into_iter().collect();
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        for &program in &needed {
            match search.find(program) {
                Some(place) => drop(found.insert(program, place)),
                None => missing.push(program),
            }
        }
        let packaged: Vec<Program> =
            missing.iter().copied().filter(|program| matches!(program.source(), Source::Debian(_))).collect();
        if !packaged.is_empty() {
            packages::install(&packaged)?;
            for program in packaged {
                let place = search.find(program).ok_or(BinariesError::NotInPackage { program })?;
                found.insert(program, Found { origin: Origin::Installed, ..place });
            }
        }
        let of =
            |module| missing.iter().copied().filter(move |program| program.source() == Source::Go(module));
        let modules: Vec<GoModule> =
            GoModule::ALL.into_iter().filter(|module| of(*module).next().is_some()).collect();
        if let Some((first, others)) = modules.split_first() {
            let cache = Cache::from_environment()?;
            // Downloads wait for the network and builds for the processor, so later modules are fetched
            // meanwhile.
            for module in others {
                cache.fetch_aside(*module);
            }
            for &module in std::iter::once(first).chain(others) {
                let (directory, origin) = cache.built(module)?;
                let place = |program: Program| Found { path: directory.join(program.name()), origin };
                found.extend(of(module).map(|program| (program, place(program))));
            }
        }
        Ok(Self { found })
    }

    /// The file of `program`.
    ///
    /// # Errors
    ///
    /// If it was not among those asked for.
    pub fn path(&self, program: Program) -> Result<&Path, BinariesError> {
        let found = self.found.get(&program).ok_or(BinariesError::NotAskedFor { program })?;
        Ok(&found.path)
    }

    /// All requested programs.
    pub fn iter(&self) -> impl Iterator<Item = (Program, &Found)> {
        self.found.iter().map(|(program, found)| (*program, found))
    }
}
