//! Evidence of who uses which addresses on this machine when the journal cannot tell: from network
//! namespaces, the runtime, and the API server. It decides nothing; the node says when to ask
//! ([`Action::Consult`], [`Action::AskAboutPods`]).
//!
//! | module | asks |
//! |---|---|
//! | `results` | the results that container runtimes keep of their CNI calls |
//! | `status` | the statuses of this node's pods |
//!
//! Each answer may add evidence that an address is in use. If one source could not be asked, the whole answer
//! is incomplete, and absence means nothing.

mod results;
mod status;

use std::path::PathBuf;

use tenure_linux::netns::{NetNs, NetNsId};
use tenure_linux::survey;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::drive::Handle;
use crate::key::{HoldKey, Pod as PodOf};
use crate::node::{Action, Consulted, Event, Job, Use};
use crate::pods::Pods;
use crate::serve::PodName;

/// Where to find evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Network namespaces.
    pub namespaces: survey::Places,
    /// Results that runtimes keep of their CNI calls: libcni's cache.
    pub results: PathBuf,
}

impl Default for Sources {
    fn default() -> Self {
        Self { namespaces: survey::Places::default(), results: "/var/lib/cni".into() }
    }
}

/// Collects evidence. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EvidenceCollector {
    pub(crate) node: Handle,
    pub(crate) sources: Sources,
    /// The namespace of the host, which belongs to no pod.
    pub(crate) host: Option<PathBuf>,
    /// Access to pods; `None` outside Kubernetes.
    pub(crate) pods: Option<Pods>,
    /// The runtime on which it runs, whoever asks.
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) stop: CancellationToken,
}

impl EvidenceCollector {
    /// Performs [`Action::Consult`] and [`Action::AskAboutPods`]. Returns at once.
    pub(crate) fn carry_out(&self, action: Action) {
        let (collector, stop) = (self.clone(), self.stop.clone());
        let asking = async move {
            match action {
                Action::Consult { job } => collector.consult(job).await,
                Action::AskAboutPods(holders) => collector.ask_about_pods(holders).await,
                other => warn!(?other, "unexpected action for the evidence collector"),
            }
        };
        self.runtime.spawn(async move { stop.run_until_cancelled(asking).await });
    }

    async fn consult(&self, job: Job) {
        let mut consulted = self.survey_machine().await;
        match self.pods().await {
            Ok(uses) => consulted.uses.extend(uses),
            Err(problem) => {
                warn!(problem, "cannot list this node's pods; addresses that may be in use stay withheld");
                consulted.complete = false;
            }
        }
        info!(
            uses = consulted.uses.len(),
            complete = consulted.complete,
            "asked who uses addresses of this node"
        );
        self.node.tell(Event::Consulted { job, consulted });
    }

    /// Evidence from namespaces and the runtime.
    async fn survey_machine(&self) -> Consulted {
        let (sources, host) = (self.sources.clone(), self.host.clone());
        let looking = tokio::task::spawn_blocking(move || survey_machine(&sources, host));
        looking.await.unwrap_or_default()
    }

    /// Evidence from the statuses of this node's pods.
    async fn pods(&self) -> Result<Vec<Use>, String> {
        let Some(pods) = &self.pods else { return Ok(Vec::new()) };
        Ok(pods.list_now().await?.iter().filter_map(status::of_pod).collect())
    }

    async fn ask_about_pods(&self, holders: Vec<(HoldKey, PodOf)>) {
        let Some(pods) = &self.pods else { return };
        let (mut asked, mut missing) = (Vec::new(), std::collections::BTreeSet::new());
        for (key, pod) in holders {
            let PodOf { namespace, name, uid } = pod;
            let pod = PodName { namespace, name, uid };
            // A pod that cannot be asked about now is asked about at the next observation.
            let Ok(found) = pods.find_now(&pod).await else { continue };
            if !found.is_some_and(|found| found.is(&pod)) {
                missing.insert(key.clone());
            }
            asked.push(key);
        }
        self.node.tell(Event::PodsAsked { asked, missing });
    }
}

fn survey_machine(sources: &Sources, host: Option<PathBuf>) -> Consulted {
    let open = |path: PathBuf| NetNs::open(path).map(|namespace| namespace.id());
    let hosts = [host.map(open), Some(NetNs::current().map(|namespace| namespace.id()))];
    let hosts: Vec<NetNsId> = hosts.into_iter().flatten().flatten().collect();
    let found = sources.namespaces.survey(&hosts);
    let mut complete = !hosts.is_empty() && found.failures.is_empty();
    for failure in &found.failures {
        warn!(failure, "cannot look into a network namespace; addresses that may be in use stay withheld");
    }
    let mut uses: Vec<Use> = Vec::new();
    for it in found.namespaces {
        uses.push(Use {
            addresses: it.addresses.into_iter().map(Into::into).collect(),
            netns: it.path.display().to_string(),
            ..Use::default()
        });
    }
    match results::read(&sources.results) {
        Ok(remembered) => uses.extend(remembered),
        Err(error) => {
            warn!(directory = %sources.results.display(), %error, "cannot read the runtime's cached results");
            complete = false;
        }
    }
    Consulted { complete, uses }
}
