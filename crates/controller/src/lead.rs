//! Runs for leader: performs the steps of the [`Elector`] on the real Lease.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tenure_handles::{Clock, Timestamp};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::election::{Elector, Role, Step, Timing};
use crate::health::Health;

/// A candidate's access to the API.
pub(crate) struct Campaign {
    pub(crate) leases: Api<Lease>,
    pub(crate) name: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timing: Timing,
    pub(crate) role: watch::Sender<Role>,
    pub(crate) health: Arc<Health>,
}

impl Campaign {
    /// The lease's API in a namespace.
    pub(crate) fn leases(client: &Client, namespace: &str) -> Api<Lease> {
        Api::namespaced(client.clone(), namespace)
    }

    /// Runs for leader until told to resign; then releases the lease.
    pub(crate) async fn run(self, identity: String, resign: CancellationToken) {
        let mut elector = Elector::new(&identity, self.timing);
        while !resign.is_cancelled() {
            let now = self.clock.now();
            match elector.step(now) {
                Step::Read => self.read(&mut elector).await,
                Step::Write(lease) => self.write(&mut elector, *lease).await,
                Step::Wait(until) => {
                    // Also wakes in time to notice that a term has run out.
                    let wait = until.since(now).min(self.timing.retry).max(Duration::from_millis(1));
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = resign.cancelled() => {}
                    }
                }
            }
            self.publish(&mut elector);
        }
        let released = elector.release(self.clock.now());
        self.publish(&mut elector);
        if let Some(lease) = released {
            let name = lease.name_any();
            let post = PostParams::default();
            let written = self.leases.replace(&name, &post, &lease);
            match timeout(self.timing.retry, written).await {
                Ok(Ok(_)) => tracing::info!(lease = name, "released the lease"),
                Ok(Err(error)) => tracing::warn!(lease = name, %error, "releasing the lease failed"),
                Err(_) => tracing::warn!(lease = name, "releasing the lease took too long"),
            }
        }
    }

    async fn read(&self, elector: &mut Elector) {
        match timeout(self.patience(), self.leases.get_opt(&self.name)).await {
            Ok(Ok(lease)) => {
                self.health.answered();
                elector.saw(lease, self.clock.now());
            }
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, %error, "reading the lease failed");
                elector.failed(self.clock.now());
            }
            Err(_) => elector.failed(self.clock.now()),
        }
    }

    async fn write(&self, elector: &mut Elector, mut lease: Lease) {
        let sent: Timestamp = self.clock.now();
        let stored = if lease.resource_version().is_some() {
            timeout(self.patience(), self.leases.replace(&self.name, &PostParams::default(), &lease)).await
        } else {
            lease.metadata.name = Some(self.name.clone());
            timeout(self.patience(), self.leases.create(&PostParams::default(), &lease)).await
        };
        let stored = match stored {
            Ok(Ok(lease)) => {
                self.health.answered();
                Some(lease)
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => None,
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, %error, "writing the lease failed");
                None
            }
            Err(_) => None,
        };
        elector.wrote(stored, sent, self.clock.now());
    }

    /// How long one attempt may take: two fit into a term.
    fn patience(&self) -> Duration {
        self.timing.renew_deadline / 2
    }

    fn publish(&self, elector: &mut Elector) {
        let role = elector.role(self.clock.now());
        let before = *self.role.borrow();
        if before == role {
            return;
        }
        let text = match (&role, elector.holder()) {
            (Role::Leader(term), _) => format!("leader, term {}", term.number),
            (Role::Standby, Some(holder)) => format!("standby; {holder} leads"),
            (Role::Standby, None) => "standby; nobody leads".to_owned(),
        };
        if matches!(before, Role::Leader(_)) != matches!(role, Role::Leader(_)) {
            tracing::info!(role = text, "the role changed");
        }
        self.health.role(text);
        self.role.send_replace(role);
    }
}
