//! What is known of Egresses, and of the Services by which their gateways are reached.
//!
//! Few clusters use egress, and on most of their nodes no pod does. So Egresses are watched from the first pod on that names one.
//! An ADD asks the API server only where the watches do not know the Egress.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use tenure_api::coil::egress::{Destinations, GATEWAYS};
use tenure_api::coil::{Egress, EgressId};
use tenure_api::read::Read;
use tenure_cni::{Code, Failure};
use tenure_linux::egress::{Egress as WayOut, SourcePort};
use tenure_watch::{Cache, Connection, Heard, Seen};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::one_of_each;
use super::plan::KnownEgress;
use crate::objects::lock;
use crate::objects::watch::{Watching, watch};

/// All Egresses.
const EGRESSES: &str = "Egresses";
/// The Services of their gateways.
const EGRESS_SERVICES: &str = "Services of Egresses";

/// How long one read may take.
const LIVE_READ: Duration = Duration::from_secs(1);

/// What is kept of an Egress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EgressFacts {
    /// Its UID.
    pub(super) uid: String,
    destinations: Result<Vec<IpNet>, String>,
    source_port: SourcePort,
    originating_only: bool,
}

impl EgressFacts {
    fn of(egress: &Egress) -> Self {
        let destinations = Destinations::of(&egress.spec.destinations).map_err(|error| error.to_string());
        let network = |cidr: tenure_ipam::Cidr| IpNet::new(cidr.first().to_ip(), cidr.prefix()).ok();
        let auto = egress.spec.fou_source_port_auto;
        Self {
            uid: egress.uid().unwrap_or_default(),
            destinations: destinations.map(|all| all.all().filter_map(network).collect()),
            source_port: if auto { SourcePort::PerFlow } else { SourcePort::Fixed },
            originating_only: egress.spec.originating_only,
        }
    }
}

/// The addresses of a Service, at most one of each family.
type Addresses = Vec<IpAddr>;

fn addresses_of(service: &Service) -> Addresses {
    let spec = service.spec.clone().unwrap_or_default();
    let all = spec.cluster_ips.unwrap_or_default().into_iter().chain(spec.cluster_ip);
    one_of_each(all.filter_map(|text| text.parse().ok()))
}

/// Why a pod cannot use an Egress that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// It is not there.
    #[error("there is no Egress {0}")]
    NoEgress(EgressId),
    /// It has no Service, or one without an address.
    #[error("Egress {0} has no Service of its name with a ClusterIP yet")]
    NoService(EgressId),
    /// Its destinations cannot be read.
    #[error("Egress {id} has a destination that is no network: {problem}")]
    Destinations { id: EgressId, problem: String },
    /// The API server cannot be asked.
    #[error("it is not known whether there is an Egress {id}: {problem}")]
    Unknown { id: EgressId, problem: String },
}

impl From<Unusable> for Failure {
    fn from(error: Unusable) -> Self {
        let remedy = match &error {
            Unusable::NoEgress(id) => {
                format!(
                    "create it in namespace {:?}, or correct the pod's annotation egress.coil.cybozu.com/{}",
                    id.namespace, id.namespace
                )
            }
            Unusable::NoService(_) => {
                "the controller creates it; kubectl describe egress says what keeps it from that".to_owned()
            }
            Unusable::Destinations { .. } => {
                "accepted are networks such as 0.0.0.0/0 or fd02::/120".to_owned()
            }
            Unusable::Unknown { .. } => "can this node reach the API server?".to_owned(),
        };
        Self::new(Code::TryAgainLater, error.to_string()).detail(remedy)
    }
}

/// Egresses and their Services. Cheap to clone.
#[derive(Clone)]
pub(super) struct Gateways {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Connection,
    /// Told of every change.
    changed: Arc<Notify>,
    /// Where watches run, whoever asks first.
    runtime: Handle,
    stop: CancellationToken,
    begun: OnceLock<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    egresses: Cache<Seen<EgressFacts>>,
    services: Cache<Seen<Addresses>>,
    /// Whether absence means something, of each.
    listed: (bool, bool),
}

impl Gateways {
    pub(super) fn new(connection: Connection, changed: Arc<Notify>, stop: CancellationToken) -> Self {
        let (runtime, begun, state) = (Handle::current(), OnceLock::new(), Mutex::default());
        Self { shared: Arc::new(Shared { connection, changed, runtime, stop, begun, state }) }
    }

    /// The ways out of these Egresses, in order. Asks the API server for what the watches do not know.
    pub(super) async fn find(&self, ids: &BTreeSet<EgressId>) -> Result<Vec<WayOut>, Failure> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.push(match self.known(id) {
                Some(KnownEgress { way_out: Ok(way_out), .. }) => way_out,
                _ => self.read(id).await?,
            });
        }
        Ok(found)
    }

    /// An Egress as the watches know it. Nothing if the watches know nothing yet.
    pub(super) fn known(&self, id: &EgressId) -> Option<KnownEgress> {
        self.shared.begun.get_or_init(|| self.shared.begin());
        let state = lock(&self.shared.state);
        let key = id.to_string();
        let (egress, service) = (state.egresses.facts(&key), state.services.facts(&key));
        let way_out = match (egress, service) {
            (Some(egress), Some(service)) => way_out(id, egress, service),
            (None, _) if state.listed.0 => Err(Unusable::NoEgress(id.clone())),
            (Some(_), None) if state.listed.1 => Err(Unusable::NoService(id.clone())),
            _ => return None,
        };
        Some(KnownEgress { uid: egress.map(|egress| egress.uid.clone()), way_out })
    }

    async fn read(&self, id: &EgressId) -> Result<WayOut, Unusable> {
        let (client, connection) = (self.shared.connection.client(), &self.shared.connection);
        let unknown =
            |error: tenure_watch::CallError| Unusable::Unknown { id: id.clone(), problem: error.to_string() };
        let egresses: Api<Egress> = Api::namespaced(client.clone(), &id.namespace);
        let act = || format!("reading Egress {id}");
        let egress = connection.once(LIVE_READ, act, egresses.get_opt(&id.name)).await.map_err(unknown)?;
        let egress = egress.ok_or_else(|| Unusable::NoEgress(id.clone()))?;
        let services: Api<Service> = Api::namespaced(client, &id.namespace);
        let act = || format!("reading Service {id}");
        let service = connection.once(LIVE_READ, act, services.get_opt(&id.name)).await.map_err(unknown)?;
        let service = service.ok_or_else(|| Unusable::NoService(id.clone()))?;
        way_out(id, &EgressFacts::of(&egress), &addresses_of(&service))
    }
}

fn way_out(id: &EgressId, egress: &EgressFacts, service: &Addresses) -> Result<WayOut, Unusable> {
    if service.is_empty() {
        return Err(Unusable::NoService(id.clone()));
    }
    let destinations = egress.destinations.clone();
    let destinations = destinations.map_err(|problem| Unusable::Destinations { id: id.clone(), problem })?;
    Ok(WayOut {
        services: service.clone(),
        destinations,
        source_port: egress.source_port,
        originating_only: egress.originating_only,
    })
}

impl Shared {
    fn begin(self: &Arc<Self>) {
        info!("a pod names an Egress: watching Egresses from now on");
        let client = self.connection.client();
        for watched in [EGRESSES, EGRESS_SERVICES] {
            self.connection.health().expect(watched);
        }
        let egresses: Api<Read<Egress>> = Api::all(client.clone());
        let keep = |egress: &Egress| Some(EgressFacts::of(egress));
        let hear = |shared: &Arc<Self>, heard: Heard<EgressFacts>| {
            let mut state = lock(&shared.state);
            state.listed.0 |= matches!(heard, Heard::Finish);
            drop(state.egresses.hear(heard));
            shared.changed.notify_one();
        };
        let all = watcher::Config::default();
        self.spawn(watch(Arc::clone(self), EGRESSES, egresses, all, keep, hear));

        let services: Api<Read<Service>> = Api::all(client);
        let keep = |service: &Service| Some(addresses_of(service));
        let hear = |shared: &Arc<Self>, heard: Heard<Addresses>| {
            let mut state = lock(&shared.state);
            state.listed.1 |= matches!(heard, Heard::Finish);
            drop(state.services.hear(heard));
            shared.changed.notify_one();
        };
        let ours = watcher::Config::default().labels(GATEWAYS);
        self.spawn(watch(Arc::clone(self), EGRESS_SERVICES, services, ours, keep, hear));
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.runtime.spawn(async move { stop.run_until_cancelled(task).await });
    }
}

impl Watching for Shared {
    const MAY_BE_MISSING: Option<Duration> = Some(Duration::from_secs(10));
    const ALL_NAMESPACES: bool = true;

    fn connection(&self) -> &Connection {
        &self.connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(destinations: &[&str], auto: bool) -> EgressFacts {
        let spec = serde_json::json!({"destinations": destinations, "fouSourcePortAuto": auto});
        EgressFacts::of(&Egress::new("e", serde_json::from_value(spec).unwrap()))
    }

    fn service(addresses: &[&str]) -> Addresses {
        let service = serde_json::json!({"spec": {"clusterIP": addresses[0], "clusterIPs": addresses}});
        addresses_of(&serde_json::from_value(service).unwrap())
    }

    #[test]
    fn a_way_out_has_the_services_addresses_and_the_egresss_destinations() {
        let id = EgressId::new("internet", "e");
        let found =
            way_out(&id, &egress(&["0.0.0.0/0", "fd02::1/64"], true), &service(&["10.96.0.7", "fd96::7"]));
        let found = found.unwrap();
        assert_eq!(found.services, ["10.96.0.7", "fd96::7"].map(|it| it.parse::<IpAddr>().unwrap()));
        let destinations: Vec<String> = found.destinations.iter().map(ToString::to_string).collect();
        assert_eq!(destinations, ["0.0.0.0/0", "fd02::/64"]);
        assert_eq!(found.source_port, SourcePort::PerFlow);
    }

    #[test]
    fn what_is_missing_is_named_and_may_be_tried_again() {
        let id = EgressId::new("internet", "e");
        let headless = way_out(&id, &egress(&["0.0.0.0/0"], false), &service(&["None"])).unwrap_err();
        assert_eq!(headless, Unusable::NoService(id.clone()));
        let wrong = way_out(&id, &egress(&["nowhere"], false), &service(&["10.96.0.7"])).unwrap_err();
        for (error, words) in [
            (Unusable::NoEgress(id.clone()), "there is no Egress internet/e"),
            (headless, "Egress internet/e has no Service"),
            (wrong, "nowhere"),
        ] {
            let failure = Failure::from(error);
            assert_eq!(failure.code, Code::TryAgainLater.number());
            assert!(failure.message.contains(words), "{failure}");
        }
    }
}
