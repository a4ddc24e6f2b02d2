//! Debian's emulator of ARM64 programs: downloaded, and the one program of it unpacked, never installed. Installed, it would run every
//! program of another architecture on this machine, and so hide that one was built for the wrong one.

use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::packages::unpack;
use super::progress::Progress;
use super::{BinariesError, Origin};

const PACKAGE: &str = "qemu-user-static";
const PROGRAM: &str = "usr/bin/qemu-aarch64-static";

/// Runs programs for ARM64 on this machine.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// The program: its argument is the program to run.
    pub program: PathBuf,
}

impl Emulator {
    /// Finds it in the cache, or downloads it there.
    pub fn locate() -> Result<Self, BinariesError> {
        let (root, _): (PathBuf, Origin) = Cache::from_environment()?.ensure("qemu-user-1", download)?;
        Ok(Self { program: root.join(PROGRAM) })
    }
}

fn download(directory: &Path) -> Result<(), BinariesError> {
    let progress = Progress::begin(format!("downloading {PACKAGE}"), "about 10 s");
    // One of the thirty programs of the package, which together have 380 MB.
    let script = r#"
        set -eu
        apt-get download -q "$0" || { apt-get update -q; apt-get download -q "$0"; }
        dpkg-deb --fsys-tarfile ./*.deb | tar -x "./$1"
        rm ./*.deb
        "./$1" --version
    "#;
    unpack(script, PACKAGE, &[Path::new(PROGRAM)], directory)?;
    progress.done();
    Ok(())
}
