//! Debian's NetworkManager and dbus-daemon: downloaded and unpacked, never installed. An installed NetworkManager would
//! take over the machine's own interfaces at the next boot.

use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::packages::unpack;
use super::progress::Progress;
use super::{BinariesError, Origin};

const PACKAGES: &str = "network-manager dbus";

/// The files of the packages, for a root of their own above the machine's `/usr`.
#[derive(Clone, Debug)]
pub struct NetworkManagerFiles {
    /// The directory with their `usr`.
    pub root: PathBuf,
}

impl NetworkManagerFiles {
    /// Finds them in the cache, or downloads them there, with what they need that the machine does not have.
    pub fn locate() -> Result<Self, BinariesError> {
        let (root, _): (PathBuf, Origin) =
            Cache::from_environment()?.ensure("network-manager-1", download)?;
        Ok(Self { root })
    }
}

fn download(directory: &Path) -> Result<(), BinariesError> {
    let progress = Progress::begin(format!("downloading {PACKAGES}"), "about 5 s");
    // A line `Inst NAME (VERSION` is a package that is missing; `Inst NAME [OLD] (NEW` one that is merely older.
    let script = r#"
        set -eu
        missing() { apt-get install -s -q --no-install-recommends $0 | sed -n 's/^Inst \([^ ]*\) (.*/\1/p'; }
        packages=$(missing) || { apt-get update -q; packages=$(missing); }
        packages=$(printf '%s\n' $0 dbus-daemon $packages | sort -u)
        apt-get download -q $packages || { apt-get update -q; apt-get download -q $packages; }
        for package in ./*.deb; do dpkg-deb -x "$package" .; done
        rm ./*.deb
        test -x usr/sbin/NetworkManager -a -x usr/bin/dbus-daemon
        lacks=$(LD_LIBRARY_PATH=$(echo "$PWD"/usr/lib/*-linux-gnu) ldd usr/sbin/NetworkManager usr/bin/dbus-daemon | grep 'not found' || true)
        if [ -n "$lacks" ]; then echo "libraries are missing: $lacks" >&2; exit 1; fi
    "#;
    unpack(script, PACKAGES, &[], directory)?;
    progress.done();
    Ok(())
}
