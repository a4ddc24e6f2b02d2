//! The controller: its settings, its parts, start and end.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tenure_daemon::Pages;
use tenure_handles::Clock;
use tenure_watch::{Connection, Publisher};
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::claims::{ClaimSettings, ClaimsPart};
use crate::cloud::{CloudPart, CloudSettings};
use crate::coil::Coil;
use crate::control_loop::ControlLoop;
use crate::egress::EgressPart;
use crate::election::{Role, Timing};
use crate::health::Health;
use crate::lead::Campaign;
use crate::metrics::Metrics;
use crate::node_addresses::NodeAddressesPart;
use crate::part::Part;
use crate::release::MissingNodeRest;
use crate::watch::Watches;
use crate::whereabouts::Whereabouts;
use crate::world::World;

/// How a controller runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its unique name in the election.
    pub identity: String,
    /// The namespace of the lease.
    pub lease_namespace: String,
    /// The name of the lease.
    pub lease_name: String,
    /// The times of the election.
    pub timing: Timing,
    /// How many writes are in flight at once, unless they are slow.
    pub workers: usize,
    /// How many writes are planned at once.
    pub round: usize,
    /// What is observed and answered is planned for at once, unless the last plan is younger than this: then what arrives
    /// meanwhile is included.
    pub debounce: Duration,
    /// How long a write may take. It is always abandoned at the end of the term.
    pub patience: Duration,
    /// How often to plan without observations.
    pub tick: Duration,
    /// How long a node has to be missing, without a pod bound to it, before what it had is released.
    pub missing_node_rest: Duration,
    /// How to manage Whereabouts' ranges.
    pub whereabouts: Whereabouts,
    /// How to manage claims.
    pub claims: ClaimSettings,
    /// The name of the cluster's default network, as in its configuration, if its addresses may outlive pods.
    pub cluster_network: Option<String>,
    /// The image of egress gateways. Without one, egress is not managed.
    pub egress_image: Option<String>,
    /// The cloud whose alias addresses are attached. Without it, alias pools are not managed.
    pub cloud: Option<CloudSettings>,
    /// Further dialects.
    pub parts: Vec<Arc<dyn Part>>,
}

impl Settings {
    /// The defaults. The lease is that of Coil's controller, so that only one of the two systems leads.
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_namespace: "kube-system".to_owned(),
            lease_name: "coil-ipam-leader".to_owned(),
            timing: Timing::default(),
            workers: 32,
            round: 256,
            debounce: Duration::from_millis(1),
            patience: Duration::from_secs(30),
            tick: Duration::from_secs(10),
            missing_node_rest: crate::MISSING_NODE_REST,
            whereabouts: Whereabouts::default(),
            claims: ClaimSettings::default(),
            cluster_network: None,
            egress_image: None,
            cloud: None,
            parts: Vec::new(),
        }
    }

    /// All dialects, in planning order: each may read what an earlier one decided.
    pub(crate) fn all_parts(&self) -> Vec<Arc<dyn Part>> {
        let coil = Coil { missing_node_rest: self.missing_node_rest };
        let claims = ClaimsPart {
            settings: self.claims.clone(),
            namespace: self.whereabouts.namespace.clone(),
            pods_are_known: self.whereabouts.release_after.is_some(),
            cluster_network: self.cluster_network.clone(),
            missing_node_rest: MissingNodeRest(self.missing_node_rest),
        };
        let whereabouts = Whereabouts { cooling: self.claims.cooling, ..self.whereabouts.clone() };
        let egress = self.egress_image.clone().map(|image| -> Arc<dyn Part> {
            Arc::new(EgressPart { image, missing_node_rest: self.missing_node_rest })
        });
        let nodes =
            NodeAddressesPart { cooling: self.claims.cooling, missing_node_rest: self.missing_node_rest };
        let cloud = self
            .cloud
            .clone()
            .map(|cloud| -> Arc<dyn Part> { Arc::new(CloudPart::new(cloud, self.missing_node_rest)) });
        let own: [Arc<dyn Part>; 4] =
            [Arc::new(coil), Arc::new(claims), Arc::new(whereabouts), Arc::new(nodes)];
        egress.into_iter().chain(own).chain(cloud).chain(self.parts.iter().cloned()).collect()
    }
}

/// Why a controller ended without being told to.
#[derive(Debug, thiserror::Error)]
#[error("running the controller: a part of it ended: {0}")]
pub struct RunError(String);

/// A controller that is ready to run.
pub struct Controller {
    connection: Connection,
    clock: Arc<dyn Clock>,
    settings: Settings,
    parts: Vec<Arc<dyn Part>>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Controller").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Controller {
    /// A controller for the API of `client`.
    pub fn new(client: Client, clock: impl Clock, settings: Settings) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let connection = Connection::named(client, clock.clone(), &settings.identity);
        let health = Arc::new(Health::new(clock.clone(), connection.health().clone()));
        let parts = settings.all_parts();
        let metrics = Arc::new(Metrics::of(parts.iter().map(AsRef::as_ref)));
        Self { connection, clock, settings, parts, health, metrics }
    }

    /// Its health.
    pub fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// Its metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Its HTTP pages: `/healthz`, `/readyz`, `/metrics`.
    pub fn pages(&self) -> Pages {
        let (live, ready, metrics) = (self.health(), self.health(), self.metrics());
        Pages::default()
            .verdict("/healthz", move || std::future::ready(live.live()))
            .verdict("/readyz", move || std::future::ready(ready.ready()))
            .metrics(move || std::future::ready(metrics.text()))
    }

    /// Runs until `stop`, then finishes what is in flight and releases the lease. Dropping the future ends it at
    /// once, like a crash.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let mut tasks = JoinSet::new();
        let (sender, observations) = mpsc::unbounded_channel();
        let (role, heard_role) = watch::channel(Role::Standby);
        let lead = (heard_role.clone(), self.clock.clone());
        let mut watches = Watches::new(&self.connection, lead, &sender, &mut tasks);
        self.parts.iter().for_each(|part| part.watch(&mut watches));
        let needs = watches.into_needs();
        // Watches keep their own; it ends with the last of them.
        drop(sender);
        let (notes, noted) = mpsc::channel(256);
        let publisher = Publisher {
            component: "tenure-controller",
            instance: self.settings.identity.clone(),
            host: None,
            at_most: usize::MAX,
        };
        tasks.spawn(publisher.publish(self.connection.clone(), self.clock.clone(), noted));
        let campaign = Campaign {
            leases: Campaign::leases(&self.connection.client(), &self.settings.lease_namespace),
            name: self.settings.lease_name.clone(),
            clock: self.clock.clone(),
            timing: self.settings.timing,
            role,
            health: self.health.clone(),
        };
        let resign = CancellationToken::new();
        let mut campaign = JoinSet::from_iter([campaign.run(self.settings.identity.clone(), resign.clone())]);
        let mut world = World::default();
        self.parts.iter().for_each(|part| part.prepare(&mut world));
        let mut control_loop = ControlLoop::new(
            &self.connection,
            self.clock.clone(),
            self.settings,
            self.parts,
            (self.health, self.metrics),
            world,
            (heard_role, needs, notes),
        );
        let ended = tokio::select! {
            () = control_loop.run(observations, stop) => None,
            ended = tasks.join_next() => Some(format!("{ended:?}")),
            ended = campaign.join_next() => Some(format!("{ended:?}")),
        };
        resign.cancel();
        match ended {
            None => {
                _ = campaign.join_next().await;
                Ok(())
            }
            Some(what) => Err(RunError(what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_an_api_server_that_takes_ten_seconds_for_a_write_goes_on_leading_and_writing() {
        let (settings, slow) = (Settings::new("a"), Duration::from_secs(10));
        assert!(settings.patience > slow, "a write is given up before it is answered");
        assert!(settings.timing.check().is_ok());
        assert!(settings.timing.renew_deadline > slow * 2, "the next renewal is answered after the term");
        assert!(settings.timing.renew_deadline / 2 > slow, "a renewal is given up before it is answered");
    }
}
