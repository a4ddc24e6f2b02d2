//! The possible paths of the flat file.

use super::keys::Keys;
use super::{Object, Refusal};

/// The usual paths, in the order in which they are tried.
pub const USUAL: [&str; 3] = [
    "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
    "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
    "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
];

/// The paths to try for the flat file, in order: `configuration_path` if the network's `ipam` object has it,
/// then the [`USUAL`] ones. The first one that exists is used.
pub fn flat_files(ipam: &Object) -> Result<Vec<String>, Refusal> {
    let own = path(&Keys::new("ipam", ipam), "configuration_path")?;
    let own = Some(own).filter(|path| !path.is_empty());
    Ok(own.into_iter().chain(USUAL.map(str::to_owned)).collect())
}

/// A path that cannot lead elsewhere.
pub(super) fn path(keys: &Keys<'_>, key: &str) -> Result<String, Refusal> {
    let path = keys.text(key)?;
    if path.is_empty() || (path.starts_with('/') && path.split('/').all(|part| part != "..")) {
        return Ok(path);
    }
    Err(keys.refuse(key, &path, "it is no absolute path", "a path that starts with / and has no .. in it"))
}
