//! The gRPC service `tenure.cni.v1.CNI` on a unix socket that only root may open.
//!
//! A call is read strictly into what the node is asked, and the node's answer becomes a CNI result in the version that the
//! configuration asks for. A refusal is an answer like any other; a gRPC status other than OK is for what is no call.

mod codec;
mod guests;
mod network;
mod place;
mod reply;
mod request;
mod service;
mod terse;
mod whereabouts;

use std::path::Path;
use std::time::Duration;

use futures::stream;
use tenure_handles::Clock;
use tokio::net::UnixListener;

pub use place::ListenError;
pub use request::{Asked, PodName, Resolve};
pub use service::{Dialects, Service};
use terse::Terse;
pub use whereabouts::Whereabouts;

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
    pub async fn serve<R: Resolve, C: Clock + Clone>(
        self,
        service: Service<R, C>,
        ended: impl Future<Output = ()>,
    ) -> Result<(), tonic::transport::Error> {
        let incoming = stream::unfold(self.listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| Terse::new(stream));
            if accepted.is_err() {
                // Too many open files, most likely: asking again at once would not help.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Some((accepted, listener))
        });
        // The listener ends the moment that `ended` does, so that a runtime that comes too late meets a closed door and
        // not silence.
        let incoming = Box::pin(incoming);
        tonic::transport::Server::builder().serve_with_incoming_shutdown(service, incoming, ended).await
    }
}

#[cfg(test)]
mod tests;
