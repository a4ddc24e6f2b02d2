//! Listening: on TCP, and on unix sockets for root alone.

use std::fs::Permissions;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// On an address.
    #[error("listening on {address}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// On a path.
    #[error("listening on {path}")]
    Unix {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Listens on the address, or on `port` of all addresses, even without IPv6.
pub async fn listen(address: Option<SocketAddr>, port: u16) -> Result<TcpListener, ListenError> {
    let bind = async |address| {
        TcpListener::bind(address).await.map_err(|source| ListenError::Tcp { address, source })
    };
    match address {
        Some(address) => bind(address).await,
        None => match bind((Ipv6Addr::UNSPECIFIED, port).into()).await {
            Ok(listener) => Ok(listener),
            Err(_) => bind((Ipv4Addr::UNSPECIFIED, port).into()).await,
        },
    }
}

/// Listens on a unix socket that only its owner may open (0600), and replaces one that an earlier process
/// left. The caller makes sure that no other process serves there.
///
/// The socket is renamed into place, so that nobody sees it with other permissions, or finds none while one
/// is replaced.
pub fn listen_unix(path: &Path) -> Result<UnixListener, ListenError> {
    let bind = || {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&fresh)?;
        std::fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
        std::fs::rename(&fresh, path)?;
        Ok(listener)
    };
    bind().map_err(|source| ListenError::Unix { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_unix_socket_is_for_its_owner_and_takes_the_place_of_one_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.sock");
        drop(listen_unix(&path).unwrap());
        let listener = listen_unix(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (accepted, connected) = tokio::join!(listener.accept(), tokio::net::UnixStream::connect(&path));
        assert!(accepted.is_ok() && connected.is_ok());
        let error = listen_unix(&directory.path().join("nowhere/state.sock")).unwrap_err();
        assert!(error.to_string().ends_with("nowhere/state.sock"), "{error}");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let first = listen(Some(([127, 0, 0, 1], 0).into()), 0).await.unwrap();
        let taken = first.local_addr().unwrap();
        let error = listen(Some(taken), 0).await.unwrap_err();
        assert_eq!(error.to_string(), format!("listening on {taken}"));
        assert!(listen(None, 0).await.is_ok());
    }
}
