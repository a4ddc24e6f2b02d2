//! Tombstones: files that DELs leave when the agent is down, and that the agent replays at its next start.
//!
//! There is one file per (network, container, interface), named after these, so that a repeated DEL leaves
//! one tombstone. It is written under another name and renamed: a reader sees a complete one or none.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use prost::Message;

use crate::rpc::Call;

/// The directory of tombstones.
pub const DIRECTORY: &str = "/run/tenure/tombstones";
const ENDING: &str = "tombstone";

/// Writes a tombstone for a DEL. Only root may read it.
pub fn leave(directory: &Path, network: &str, call: &Call) -> io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let name = name(network, call);
    let (path, beside) = (directory.join(&name), directory.join(format!(".{name}.{}", std::process::id())));
    let mut file =
        fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(&call.encode_to_vec())?;
    drop(file);
    fs::rename(&beside, &path)?;
    Ok(path)
}

/// The path of a call's tombstone, whether it exists or not. An ADD of the same key removes it.
pub fn path(directory: &Path, network: &str, call: &Call) -> PathBuf {
    directory.join(name(network, call))
}

/// All tombstones, each with its file, which the reader removes when the DEL is done. A file that is not a
/// tombstone is returned with the reason.
pub fn read_all(directory: &Path) -> io::Result<Vec<(PathBuf, Result<Call, String>)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut tombstones = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            let read = fs::read(&path).map_err(|error| error.to_string());
            tombstones.push((
                path,
                read.and_then(|bytes| Call::decode(&*bytes).map_err(|error| error.to_string())),
            ));
        }
    }
    tombstones.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(tombstones)
}

/// The file's name: container and interface for people, and a hash of everything to make it unique, because
/// file names must be shorter than container IDs may be.
fn name(network: &str, call: &Call) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    // FNV-1a. Neither container nor interface contains a NUL, so no two keys give the same bytes.
    let parts = [network, "\0", &call.container_id, "\0", &call.ifname];
    let bytes = parts.into_iter().flat_map(str::bytes);
    let hash = bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    let container: String = call.container_id.chars().take(64).collect();
    format!("{container}-{}-{hash:032x}.{ENDING}", call.ifname)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(container: &str) -> Call {
        Call { container_id: container.into(), ifname: "eth0".into(), ..Call::default() }
    }

    #[test]
    fn what_is_left_is_read_back_once_however_often_it_was_left() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("tombstones");
        for container in ["a", "b", "a"] {
            leave(&at, "net/1", &call(container)).unwrap();
        }
        let read: Vec<_> =
            read_all(&at).unwrap().into_iter().map(|(_, call)| call.unwrap().container_id).collect();
        assert_eq!(read, ["a", "b"]);
    }

    #[test]
    fn long_names_that_begin_alike_leave_a_tombstone_each() {
        let directory = tempfile::tempdir().unwrap();
        let (long, network) = ("a".repeat(255), "n".repeat(300));
        for (network, container) in [
            (network.clone(), format!("{long}1")),
            (network.clone(), format!("{long}2")),
            (network + "x", format!("{long}1")),
        ] {
            leave(directory.path(), &network, &call(&container)).unwrap();
        }
        assert_eq!(read_all(directory.path()).unwrap().len(), 3);
    }

    #[test]
    fn a_foreign_file_is_reported_and_the_others_are_read() {
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "n", &call("a")).unwrap();
        fs::write(directory.path().join("0-broken.tombstone"), [0xff, 0xff]).unwrap();
        let read = read_all(directory.path()).unwrap();
        assert_eq!((read[0].1.is_err(), read[1].1.is_ok()), (true, true));
    }

    #[test]
    fn no_directory_is_no_tombstone() {
        assert!(read_all(Path::new("/nonexistent/tombstones")).unwrap().is_empty());
    }
}
