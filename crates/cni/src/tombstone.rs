//! Tombstones: what a DEL leaves behind when the agent is down, and the agent replays at its next start.
//!
//! One file a (network, container, interface), named by what it is about, so that a repeated DEL leaves one
//! tombstone. It is written beside and renamed into place: a reader sees a whole one or none.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use prost::Message;

use crate::rpc::Call;

/// Where tombstones are.
pub const DIRECTORY: &str = "/run/tenure/tombstones";
const ENDING: &str = "tombstone";

/// Leaves a tombstone for a DEL. Only root may read it.
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

/// All tombstones, each with its file, which the reader removes when the DEL is done. What is none is skipped and
/// returned with the reason.
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

/// Container ids and interface names are safe in file names; a network's name may be anything and is spelled in hex.
fn name(network: &str, call: &Call) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in network.bytes().take(32) {
        let _ = write!(name, "{byte:02x}");
    }
    let container: String = call.container_id.chars().take(100).collect();
    format!("{name}-{container}-{}.{ENDING}", call.ifname)
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
