//! Passes routes to other nodes to the kernel.

use std::sync::Weak;
use std::time::Duration;

use tokio::sync::watch;

use crate::objects::{self, RemoteRoutes};
use crate::wire::Interfaces;

/// How long a route to another node stays that has no new destination.
const REMOTE_LINGERS: Duration = Duration::from_millis(30);

/// Passes other nodes' blocks and claims to the kernel's thread until either end closes.
///
/// A route without a new destination is removed a moment later than one that changes: a claim that moved to
/// this node has the route to its pod here by then, so there is always one of the two.
pub(super) async fn route_blocks(
    mut routes: watch::Receiver<Option<RemoteRoutes>>,
    kernel: Weak<Interfaces>,
) {
    let tell = |routes: RemoteRoutes| kernel.upgrade().map(|kernel| kernel.remote(routes));
    let mut told = RemoteRoutes::new();
    loop {
        let next = routes.borrow_and_update().clone();
        if let Some(next) = next {
            let lingering = objects::with_lingering(&next, &told);
            if lingering != next {
                if tell(lingering).is_none() {
                    return;
                }
                tokio::time::sleep(REMOTE_LINGERS).await;
            }
            if tell(next.clone()).is_none() {
                return;
            }
            told = next;
        }
        if routes.changed().await.is_err() {
            return;
        }
    }
}
