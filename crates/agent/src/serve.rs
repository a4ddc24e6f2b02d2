//! The gRPC service `tenure.cni.v1.CNI` on a unix socket that only root may open.
//!
//! A call goes to the [`Dialect`] that its configuration is of, whose answer becomes a CNI result in the version that the
//! configuration asks for. A refusal is an answer like any other; a gRPC status other than OK is for what is no call.

mod call;
mod conversation;
mod dialect;
mod failure;
mod place;
mod postponed;
mod result;
mod service;

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

use conversation::{Kept, converse};

pub use call::{Call, Held, PodName};
pub use dialect::{Answered, Deleted, Dialect};
pub use place::ListenError;
pub use postponed::PostponedDels;
pub use service::Service;

/// A socket that is being listened on.
#[derive(Debug)]
pub struct Listening {
    listener: UnixListener,
}

/// Listens on a socket of mode 0600. The directory is made with mode 0700 if it is not there, and what an agent before
/// left under the socket's name goes.
pub fn listen(socket: &Path) -> Result<Listening, ListenError> {
    Ok(Listening { listener: place::bind(socket)? })
}

impl Listening {
    /// Serves until `ended`; calls that are under way then are finished.
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
        let (conversations, ending, kept) = (TaskTracker::new(), CancellationToken::new(), Kept::default());
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
                    conversations.spawn(converse(stream, service.clone(), kept.clone(), ending.clone()));
                }
                // Too many open files, most likely: asking again at once would not help.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        // The listener goes first, so that a runtime that comes too late is refused at once.
        drop(listener);
        drop(told);
        conversations.close();
        conversations.wait().await;
        Ok(())
    }
}

/// Not tokio's own listener: what that accepts is watched from the beginning, and most callers need not be.
#[expect(
    deprecated,
    reason = "what took its place asks in unsafe code that the file stays open, as a listener does by itself"
)]
fn watched(listener: StdUnixListener) -> io::Result<AsyncFd<StdUnixListener>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}

#[cfg(test)]
mod tests;
