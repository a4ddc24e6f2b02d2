//! A stock kernel with its modules, for a virtual machine: Debian's for clouds, downloaded and unpacked, never installed.

use std::fs;
use std::path::{Path, PathBuf};

use super::cache::{Cache, failed};
use super::packages::unpack;
use super::progress::Progress;
use super::{BinariesError, Origin};

/// The package that depends on the newest one.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel that is not this machine's.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What boots.
    pub image: PathBuf,
    /// Its modules, with their dependencies: `lib/modules/VERSION`.
    pub modules: PathBuf,
    /// Its version, as `uname -r` says it.
    pub version: String,
}

impl Kernel {
    /// Finds it in the cache, or downloads it there. `busybox` has the `depmod` that is run on it.
    pub fn locate(busybox: &Path) -> Result<Self, BinariesError> {
        let (directory, _): (PathBuf, Origin) =
            Cache::from_environment()?.ensure(META_PACKAGE, |building| download(building, busybox))?;
        let modules = only_entry(&directory.join("lib/modules"))?;
        let version = modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { image: directory.join(format!("boot/vmlinuz-{version}")), modules, version })
    }
}

fn download(directory: &Path, busybox: &Path) -> Result<(), BinariesError> {
    let progress = Progress::begin(format!("downloading {META_PACKAGE}"), "about 10 s");
    let script = r#"
        set -eu
        name() { apt-cache depends "$0" | sed -n 's/^ *Depends: *\(linux-image-[^ ]*\)$/\1/p' | head -n 1; }
        package=$(name)
        if [ -z "$package" ]; then apt-get update -q; package=$(name); fi
        apt-get download -q "$package" || { apt-get update -q; apt-get download -q "$package"; }
        dpkg-deb -x ./*.deb .
        rm ./*.deb
        "$1" depmod -b "$PWD" "$(ls lib/modules)"
    "#;
    unpack(script, META_PACKAGE, &[busybox], directory)?;
    progress.done();
    Ok(())
}

fn only_entry(directory: &Path) -> Result<PathBuf, BinariesError> {
    let read = failed("reading", directory);
    let mut entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return Err(read(error)),
    };
    match entries.next() {
        Some(Ok(entry)) => Ok(entry.path()),
        Some(Err(error)) => Err(read(error)),
        None => Err(read(std::io::ErrorKind::NotFound.into())),
    }
}
