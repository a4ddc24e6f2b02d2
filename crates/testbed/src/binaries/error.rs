//! Why a program is not available.

use std::io;
use std::path::PathBuf;

use super::Program;
use crate::process::ProcessError;

/// Why a program is not available.
#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    /// Debian packages are missing and cannot be installed from here.
    #[error(
        "{programs} not found, and {reason}: install {packages} (apt-get install {packages}), or put {programs} on PATH"
    )]
    Install {
        /// The programs.
        programs: String,
        /// The Debian packages that have them.
        packages: String,
        /// Why this process cannot install them.
        reason: &'static str,
    },
    /// apt-get ran and failed.
    #[error("installing {packages} by apt-get failed: {log}")]
    Apt {
        /// The Debian packages.
        packages: String,
        /// The end of apt-get's output.
        log: String,
    },
    /// A package was installed and the program is still missing.
    #[error("{program} is not on PATH although its Debian package is installed")]
    NotInPackage {
        /// The program.
        program: Program,
    },
    /// There is no Go, or one that is too old.
    #[error(
        "building {module} needs Go {needed} or newer, {found}: install it from https://go.dev/dl, or set KUBEBUILDER_ASSETS to a directory that has the programs"
    )]
    Go {
        /// The module.
        module: &'static str,
        /// The oldest sufficient version.
        needed: String,
        /// The version found.
        found: String,
    },
    /// The build failed.
    #[error("building {module} from Go modules failed, see {log}: {end}", log = log.display())]
    Build {
        /// The module.
        module: &'static str,
        /// The log of the build.
        log: PathBuf,
        /// The end of it.
        end: String,
    },
    /// A file of the cache could not be read, written or locked.
    #[error("{act} {path} failed", path = path.display())]
    File {
        /// The operation.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no directory for the cache.
    #[error(
        "neither XDG_CACHE_HOME nor HOME is set to an absolute path: one of them says where the cache is"
    )]
    NoCache,
    /// A helper process could not be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The caller uses a program that it did not request.
    #[error("{program} is used, but was not among the programs asked for")]
    NotAskedFor {
        /// The program.
        program: Program,
    },
}
