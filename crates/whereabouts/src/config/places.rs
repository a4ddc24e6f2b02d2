//! Where the flat file may be.

use super::keys::Keys;
use super::{Object, Refusal};

/// The usual places, in the order in which they are looked at.
pub const USUAL: [&str; 3] = [
    "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
    "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
    "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
];

/// The places to look for the flat file, first one first: `configuration_path` where the network's `ipam` object has
/// it, then the [`USUAL`] ones. The first that exists is the one.
pub fn flat_files(ipam: &Object) -> Result<Vec<String>, Refusal> {
    let own = path(&Keys::new("ipam", ipam), "configuration_path")?;
    let own = Some(own).filter(|path| !path.is_empty());
    Ok(own.into_iter().chain(USUAL.map(str::to_owned)).collect())
}

/// A path that cannot lead elsewhere than it says.
pub(super) fn path(keys: &Keys<'_>, key: &str) -> Result<String, Refusal> {
    let path = keys.text(key)?;
    if path.is_empty() || (path.starts_with('/') && path.split('/').all(|part| part != "..")) {
        return Ok(path);
    }
    Err(keys.refuse(key, &path, "it is no absolute path", "a path that starts with / and has no .. in it"))
}
