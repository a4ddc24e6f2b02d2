//! Writes which pods of this node use which Egress: one object for each Egress, which its gateways read.
//!
//! The objects are watched, so one that somebody else deleted or changed is written again. Nobody else may write them
//! (`deploy/agent/admission.yaml`), but the controller, which removes those of nodes that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::coil::egress::EgressClient;
use tenure_api::coil::{Egress, EgressClients, EgressId};
use tenure_api::read::Read;
use tenure_api::release::{RELEASING, mark_of};
use tenure_watch::{Cache, CallError, Connection, Epoch, Heard, Identity, Seen, exactly};
use tokio::sync::{Notify, watch as channel};
use tokio::time::sleep;
use tracing::warn;

use super::plan::{Clients, ClientsOf};
use crate::objects::lock;
use crate::objects::watch::{Watching, watch};

/// Which pods of this node use which Egress.
const OWN_EGRESS_CLIENTS: &str = "EgressClients of this node";

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes the clients of this node.
#[derive(Clone)]
pub(super) struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Connection,
    node: String,
    written: Mutex<Cache<Seen<Written>>>,
    listed: Mutex<bool>,
    changed: Notify,
}

/// What an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    namespace: String,
    name: String,
    egress: String,
    uid: String,
    version: String,
    /// The UIDs of its owners.
    owners: Vec<String>,
    clients: Vec<EgressClient>,
    marked: bool,
}

impl Written {
    fn of(object: &EgressClients) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            egress: object.egress().unwrap_or_default().to_owned(),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
            owners: object.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
            clients: object.spec.clients.clone(),
            marked: mark_of(object).is_some(),
        }
    }
}

impl Watching for Shared {
    const MAY_BE_MISSING: Option<Duration> = Some(Duration::from_secs(10));
    const ALL_NAMESPACES: bool = true;

    fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Writer {
    pub(super) fn new(connection: Connection, node: &str) -> Self {
        let (node, written, listed, changed) =
            (node.to_owned(), Mutex::default(), Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { connection, node, written, listed, changed }) }
    }

    /// Writes what is desired, whenever that or what is written changes. Nothing is written before something is desired.
    pub(super) async fn run(self, mut desired: channel::Receiver<Option<Clients>>) {
        if desired.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let watching = self.shared.clone().watch();
        let mut backoff = self.shared.connection.backoff();
        let writing = async {
            loop {
                let wanted = desired.borrow_and_update().clone().unwrap_or_default();
                let failed = *lock(&self.shared.listed) && !self.write(&wanted).await;
                let again = if failed { backoff.fail() } else { Duration::ZERO };
                if !failed {
                    backoff.reset();
                }
                tokio::select! {
                    () = sleep(again), if failed => {}
                    changed = desired.changed() => if changed.is_err() { return },
                    () = self.shared.changed.notified() => {}
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = writing => {}
        }
    }

    /// Writes everything that differs. True if nothing failed.
    async fn write(&self, desired: &Clients) -> bool {
        let written: Vec<Written> =
            lock(&self.shared.written).all_facts().map(|(_, it)| it.clone()).collect();
        let by_egress: BTreeMap<EgressId, &Written> =
            written.iter().map(|it| (EgressId::new(&it.namespace, &it.egress), it)).collect();
        let mut well = true;
        let all: BTreeSet<&EgressId> = desired.of.keys().chain(by_egress.keys()).collect();
        for id in all {
            let there = by_egress.get(id).copied();
            let clients = desired.with_kept(id, there.map_or(&[], |there| &there.clients));
            // Where all are kept, the object goes on to be of the Egress that it is of.
            let of = desired.of.get(id);
            let is_of_another = |there: &Written| of.is_some_and(|of| !there.owners.contains(&of.egress_uid));
            let done = match (of, there) {
                (_, Some(there)) if clients.is_empty() || is_of_another(there) => self.delete(there).await,
                (_, Some(there)) if there.clients != clients || there.marked => {
                    self.change(there, &clients).await
                }
                (Some(of), None) if !clients.is_empty() => self.create(id, of).await,
                _ => Ok(()),
            };
            match done {
                Ok(()) => {}
                // The watch will say what is there, if it knows the object or there is none.
                Err(error) if error.is_stale() && (there.is_some() || error.code() == Some(404)) => {}
                Err(error) => {
                    warn!(%error, "cannot write which pods use an Egress; trying again");
                    well = false;
                }
            }
        }
        well
    }

    async fn create(&self, id: &EgressId, of: &ClientsOf) -> Result<(), CallError> {
        let mut egress = Egress::new(&id.name, tenure_api::coil::egress::EgressSpec::default());
        egress.metadata.namespace = Some(id.namespace.clone());
        egress.metadata.uid = Some(of.egress_uid.clone());
        let act = || format!("creating EgressClients for Egress {id}");
        let object = EgressClients::of(&egress, &self.shared.node, of.clients.clone())
            .map_err(|error| CallError::refused(act(), error.to_string()))?;
        let api = self.api(&id.namespace);
        let call = lock(&self.shared.written).epoch();
        match self.once(act, api.create(&PostParams::default(), &object)).await {
            Ok(made) => self.hear(call, &made),
            Err(error) if error.code() == Some(409) => self.recover(&object).await?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes over an object that is there and that the watch does not tell of, because somebody took its labels away.
    async fn recover(&self, object: &EgressClients) -> Result<(), CallError> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let (api, act) =
            (self.api(&namespace), |verb: &str| format!("{verb} EgressClients {namespace}/{name}"));
        let call = lock(&self.shared.written).epoch();
        let Some(there) = self.once(|| act("reading"), api.get_opt(&name)).await? else { return Ok(()) };
        let found = Written::of(&there);
        let has_owner = object.owner_references().iter().all(|owner| found.owners.contains(&owner.uid));
        if !has_owner {
            // It is of an Egress of the name that is gone.
            return self.delete(&found).await;
        }
        warn!(namespace, name, "somebody took the labels of an object of ours away: writing them again");
        let patch = json!({
            "metadata": {
                "resourceVersion": found.version,
                "labels": object.labels(),
                "annotations": {RELEASING: null},
            },
            "spec": {"clients": object.spec.clients},
        });
        let plain = PatchParams::default();
        let made = self.once(|| act("writing"), api.patch(&name, &plain, &Patch::Merge(patch))).await?;
        self.hear(call, &made);
        Ok(())
    }

    async fn change(&self, there: &Written, clients: &[EgressClient]) -> Result<(), CallError> {
        let patch = json!({
            "metadata": {"resourceVersion": there.version, "annotations": {RELEASING: null}},
            "spec": {"clients": clients},
        });
        let (api, act) = (self.api(&there.namespace), || {
            format!("writing EgressClients {}/{}", there.namespace, there.name)
        });
        let plain = PatchParams::default();
        let call = lock(&self.shared.written).epoch();
        let made = self.once(act, api.patch(&there.name, &plain, &Patch::Merge(patch))).await?;
        self.hear(call, &made);
        Ok(())
    }

    async fn delete(&self, there: &Written) -> Result<(), CallError> {
        let (api, act) = (self.api(&there.namespace), || {
            format!("deleting EgressClients {}/{}", there.namespace, there.name)
        });
        let exactly = exactly(Some(there.uid.clone()), Some(there.version.clone()));
        self.once(act, api.delete(&there.name, &exactly)).await.map(drop)
    }

    async fn once<T>(
        &self,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        self.shared.connection.once(PATIENCE, act, call).await
    }

    /// Takes in the answer to a write of this epoch.
    fn hear(&self, call: Epoch, object: &EgressClients) {
        let heard = Heard::Answered(call, Identity::placed(&object.metadata), Some(Written::of(object)));
        drop(lock(&self.shared.written).hear(heard));
    }

    fn api(&self, namespace: &str) -> Api<EgressClients> {
        Api::namespaced(self.shared.connection.client(), namespace)
    }
}

impl Shared {
    async fn watch(self: Arc<Self>) {
        self.connection.health().expect(OWN_EGRESS_CLIENTS);
        let objects: Api<Read<EgressClients>> = Api::all(self.connection.client());
        let own = watcher::Config::default().labels(&EgressClients::of_node(&self.node));
        let node = self.node.clone();
        let keep = move |object: &EgressClients| (object.spec.node_name == node).then(|| Written::of(object));
        let hear = |shared: &Arc<Self>, heard: Heard<Written>| {
            let finished = matches!(heard, Heard::Finish);
            let changes = lock(&shared.written).hear(heard);
            *lock(&shared.listed) |= finished;
            if finished || !changes.is_empty() {
                shared.changed.notify_one();
            }
        };
        watch(Arc::clone(&self), OWN_EGRESS_CLIENTS, objects, own, keep, hear).await;
    }
}
