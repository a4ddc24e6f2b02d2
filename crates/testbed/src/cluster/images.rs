//! The images in every cluster: made from a static busybox, without a registry.

use std::path::Path;
use std::process::Command;

use tenure_image::Image;

use super::ClusterError;

/// The image for the pods of tests: a shell and the usual tools.
pub const BUSYBOX: &str = "tenure.test/busybox:1";
/// The image that holds each pod's namespaces.
pub const PAUSE: &str = "tenure.test/pause:1";

/// [`BUSYBOX`], from a static busybox.
pub(super) fn busybox(busybox: &Path) -> Result<Image, ClusterError> {
    let mut image = Image::named(BUSYBOX).program("/bin/busybox", busybox)?;
    let list = Command::new(busybox).arg("--list").output();
    let list =
        list.map_err(|source| ClusterError::File { act: "running", path: busybox.to_owned(), source })?;
    for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|applet| *applet != "busybox") {
        image = image.link(&format!("/bin/{applet}"), "busybox")?;
    }
    let image = image
        .file("/etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")?
        .file("/etc/group", b"root:x:0:\n")?
        .directory("/tmp", 0o1777)?;
    Ok(image.variable("PATH", "/bin").entrypoint(&["/bin/sh"]))
}

/// [`PAUSE`], from a static busybox.
pub(super) fn pause(busybox: &Path) -> Result<Image, ClusterError> {
    let image = Image::named(PAUSE).program("/bin/busybox", busybox)?;
    Ok(image.entrypoint(&["/bin/busybox", "sleep", "2147483647"]))
}
