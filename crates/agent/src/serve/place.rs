//! The socket's place in the file system.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {}", .path.display())]
pub struct ListenError {
    /// What was tried.
    pub act: &'static str,
    /// With what.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

/// Binds the socket. Nobody but root can reach it at any moment: it is made under another name, in a directory of root's.
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
