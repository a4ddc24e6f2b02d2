//! The socket in the file system.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Why the agent cannot listen on a socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {}", .path.display())]
pub struct ListenError {
    /// The operation.
    pub act: &'static str,
    /// The path.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// Binds the socket. At no moment can anybody but root reach it: it is created under another name, in a
/// directory that only root can open.
pub(super) fn bind(socket: &Path) -> Result<UnixListener, ListenError> {
    let fail = |act, path: &Path| {
        let path = path.to_owned();
        move |source| ListenError { act, path, source }
    };
    let directory = socket.parent().unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(fail("make the directory", directory))?;
    let beside = socket.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(fail("remove", &beside)(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&beside).map_err(fail("listen on", &beside))?;
    fs::set_permissions(&beside, Permissions::from_mode(0o600)).map_err(fail("restrict", &beside))?;
    fs::rename(&beside, socket).map_err(fail("put into place", socket))?;
    Ok(listener)
}
