//! The gRPC service `tenure.cni.v1.CNI` on a unix socket that only root may open.
//!
//! A call goes to the [`Dialect`] that its configuration belongs to. The answer becomes a CNI result in the
//! version that the configuration asks for. A refusal is a normal answer; a gRPC status other than OK means
//! that the request was not a valid call.

mod call;
mod connection;
mod dialect;
mod failure;
mod postponed;
mod result;
mod service;
mod socket;

use std::io;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use tenure_handles::Clock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use connection::{BufferPool, serve_connection};

pub use call::{Call, Held, PodName};
pub use dialect::{Answered, Deleted, Dialect};
pub use postponed::PostponedDels;
pub use service::Service;
pub use socket::ListenError;

/// A socket with a listener.
#[derive(Debug)]
pub struct Listening {
    listener: UnixListener,
}

/// Listens on a socket of mode 0600. Creates the directory with mode 0700 if needed, and removes an earlier
/// agent's socket of the same name.
pub fn listen(socket: &Path) -> Result<Listening, ListenError> {
    Ok(Listening { listener: socket::bind(socket)? })
}

impl Listening {
    /// Serves until `ended`, and then finishes calls in progress.
    pub async fn serve<C: Clock + Clone>(
        self,
        service: Service<C>,
        ended: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listener = watched(self.listener.into_std()?)?;
        let accept = async || -> io::Result<UnixStream> {
            let (stream, _) = listener.async_io(Interest::READABLE, StdUnixListener::accept).await?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let (connections, ending, buffers) =
            (TaskTracker::new(), CancellationToken::new(), BufferPool::default());
        let told = ending.clone().drop_guard();
        let mut ended = std::pin::pin!(ended);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut ended => break,
                accepted = accept() => accepted,
            };
            match accepted {
                Ok(stream) => {
                    connections.spawn(serve_connection(
                        stream,
                        service.clone(),
                        buffers.clone(),
                        ending.clone(),
                    ));
                }
                // Most likely too many open files: an immediate retry would not help.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        // The listener goes first, so that a runtime that comes too late is refused at once.
        drop(listener);
        drop(told);
        connections.close();
        connections.wait().await;
        Ok(())
    }
}

/// Not tokio's own listener: that registers every accepted connection at once, which most do not need.
#[expect(
    deprecated,
    reason = "the replacement needs unsafe code to promise that the file stays open, which a listener does by itself"
)]
fn watched(listener: StdUnixListener) -> io::Result<AsyncFd<StdUnixListener>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}

#[cfg(test)]
mod tests;
