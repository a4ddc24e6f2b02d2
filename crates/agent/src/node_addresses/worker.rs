//! Does one task at a time: reads the policy, works out the desired state, changes interfaces, looks at them, asks the API
//! server whether the node is still connected, and writes the status.

mod apply;
mod hold;
mod state;
mod take_off;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use kube::Api;
use kube::api::{Patch, PatchParams};
use tenure_api::nmstate::{NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy};
use tenure_handles::Clock;
use tenure_watch::{Connection, Epoch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::facts::Facts;
use super::kernel::{Kernel, failure};
use super::machine::{Again, Done, Failure, Task};
use super::manager::Manager;
use super::record::{Record, Store};
use super::report::Report;

/// How long one call to the API server may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one question of the probe may take, and the time between two.
const QUESTION: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(250);
/// How long duplicate address detection may take.
const SETTLING: Duration = Duration::from_secs(10);

/// Takes in the answer to a write of an epoch.
type Written = Box<dyn Fn(Epoch, &NodeNetworkConfigurationEnactment) + Send + Sync>;

/// Does tasks.
pub(super) struct Worker {
    pub(super) connection: Connection,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) kernel: Kernel,
    pub(super) manager: Option<Manager>,
    pub(super) store: Store,
    /// What the file says.
    pub(super) records: BTreeMap<String, Record>,
    /// How long the API server may be out of reach after a change.
    pub(super) probe: Duration,
    /// The policies of enactments, as they were read last.
    pub(super) policies: BTreeMap<String, NodeNetworkConfigurationPolicy>,
    /// What was logged last about an enactment: what lasts is said once.
    pub(super) logged: BTreeMap<String, String>,
    /// When a write begins, with regard to lists.
    pub(super) epoch: Box<dyn Fn() -> Epoch + Send + Sync>,
    /// Told of the answers to writes of an epoch.
    pub(super) written: Written,
}

impl Worker {
    /// Does a task, and says what came of it.
    pub(super) async fn perform(&mut self, task: Task) -> Done {
        match task {
            Task::Hold(record) => self.hold(record).await,
            Task::Forget(record) => {
                let uid = record.uid.clone();
                let problem = self.take_off(None, Some(&record)).await.err();
                info!(
                    policy = record.policy,
                    ?problem,
                    "an enactment is gone; its addresses are taken off the interfaces"
                );
                Done::Forgotten { uid, problem: problem.map(|it| it.message) }
            }
            Task::Release(facts, record) => {
                let problem = self.take_off(Some(&facts), record.as_ref()).await.err();
                info!(policy = facts.policy, ?problem, "addresses are given back");
                Done::Released { uid: facts.uid, problem: problem.map(|it| it.message) }
            }
            Task::Apply { facts, record, taken } => self.apply(facts, record, taken).await,
            Task::Report(facts, report) => self.report(facts, &report).await,
        }
    }

    fn is_news(&mut self, uid: &str, message: &str) -> bool {
        self.logged.insert(uid.to_owned(), message.to_owned()).as_deref() != Some(message)
    }

    /// Asks until the API server answers, or the time is over.
    async fn ask_api_server(&self) -> Result<(), Failure> {
        let end = self.clock.now().plus(self.probe);
        loop {
            let act = || "asking whether the API server is within reach".to_owned();
            let client = self.connection.client();
            let call = client.apiserver_version();
            let Err(error) = self.connection.once(QUESTION, act, Box::pin(call)).await else { return Ok(()) };
            if error.code().is_some() {
                // A refusal is an answer.
                return Ok(());
            }
            if self.clock.now() >= end {
                let message = format!(
                    "after the change the API server was out of reach for {} s, so it was taken back: {error}",
                    self.probe.as_secs()
                );
                return Err(failure(message, Again::Later));
            }
            sleep(BETWEEN).await;
        }
    }

    /// The failure of an attempt, after it was taken back or not.
    fn after(&mut self, before: &Record, undone: Result<(), Failure>, failed: Failure) -> Failure {
        let Err(also) = undone else {
            return self.keep(before).err().unwrap_or(failed);
        };
        // The record still says what was tried, so that it is taken back later.
        failure(format!("{}; and it could not be taken back: {}", failed.message, also.message), failed.again)
    }

    async fn report(&self, facts: Facts, report: &Report) -> Done {
        let api: Api<NodeNetworkConfigurationEnactment> = Api::all(self.connection.client());
        let act = || format!("writing the status of NodeNetworkConfigurationEnactment {}", facts.name);
        let patch = Patch::Merge(report.patch(&facts, self.clock.now()));
        let plain = PatchParams::default();
        let epoch = (self.epoch)();
        let call = api.patch_status(&facts.name, &plain, &patch);
        let written = self.connection.once(PATIENCE, act, Box::pin(call)).await;
        match &written {
            Ok(object) => (self.written)(epoch, object),
            // The watch will say what is there.
            Err(error) if error.is_stale() => {}
            Err(error) => warn!(%error, "cannot report what a policy did; trying again"),
        }
        Done::Reported { uid: facts.uid, written: written.is_ok() }
    }

    fn put(&mut self, record: Record) -> Result<(), Failure> {
        if self.records.get(&record.uid) == Some(&record) {
            return Ok(());
        }
        self.records.insert(record.uid.clone(), record);
        self.save()
    }

    /// Keeps a record as long as it says something.
    fn keep(&mut self, record: &Record) -> Result<(), Failure> {
        if record.confirmed.is_some() || record.trying.is_some() {
            self.put(record.clone())
        } else {
            self.drop_record(&record.uid)
        }
    }

    fn drop_record(&mut self, uid: &str) -> Result<(), Failure> {
        if self.records.remove(uid).is_none() {
            return Ok(());
        }
        self.save()
    }

    fn save(&self) -> Result<(), Failure> {
        let saved = self.store.save(self.records.values().cloned().collect());
        saved.map_err(|error| {
            failure(format!("cannot write the file with the node's addresses: {error}"), Again::Later)
        })
    }
}

fn owned((name, address): (&str, IpNet)) -> (String, IpNet) {
    (name.to_owned(), address)
}
