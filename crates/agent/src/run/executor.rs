//! Performs the actions of a node.

use std::sync::Arc;

use tracing::error;

use super::stage::Stages;
use crate::drive::{Executor, Handle};
use crate::evidence::EvidenceCollector;
use crate::history::{Copied, NodeHistory};
use crate::journal::{Commit, Journal, Record};
use crate::node::{Action, Event, Report};
use crate::sources::Sources;
use crate::wire::Interfaces;

/// The journal's thread, the kernel's thread and the API server's tasks.
pub(super) struct NodeExecutor {
    pub(super) node: Handle,
    pub(super) journal: Journal,
    /// Is told what the journal commits.
    pub(super) history: Option<Arc<NodeHistory>>,
    pub(super) kernel: Arc<Interfaces>,
    pub(super) sources: Sources,
    pub(super) evidence: EvidenceCollector,
    pub(super) stages: Stages,
    /// The MTU of interfaces whose configuration has none.
    pub(super) mtu: Option<u32>,
}

impl NodeExecutor {
    /// Tells those who write holds elsewhere, too.
    fn note(&self, records: &[Record]) {
        for record in records {
            self.sources.recorded(record);
        }
    }

    /// What the history needs of records, which the journal takes.
    fn copy(&self, records: &[Record]) -> Copied {
        self.history.as_ref().map(|history| history.copy(records)).unwrap_or_default()
    }
}

impl Executor for NodeExecutor {
    fn record_at_once(&mut self, records: Vec<Record>) -> Result<Event, Vec<Record>> {
        self.note(&records);
        let copied = self.copy(&records);
        let commit = self.journal.append_now(records)?;
        if let Some(history) = &self.history {
            history.taken(copied);
        }
        Ok(match commit {
            Commit::UpTo(up_to) => {
                if let Some(history) = &self.history {
                    history.committed(up_to);
                }
                Event::Committed { up_to }
            }
            Commit::Failed(message) => Event::JournalFailed { message },
        })
    }

    fn record(&mut self, records: Vec<Record>) {
        self.note(&records);
        // Before the journal can tell that it has them.
        if let Some(history) = &self.history {
            history.taken(history.copy(&records));
        }
        if let Err(error) = self.journal.append(records) {
            // The thread ends only with the agent, unless it panicked. Then nothing may be assigned any more.
            error!(%error, "cannot append to the journal");
            self.node.tell(Event::JournalFailed { message: error.to_string() });
        }
    }

    fn at_once(&mut self, mut action: Action) -> Result<Event, Action> {
        if let Action::Wire(job) | Action::Inspect(job) = &mut action {
            job.wiring.mtu = job.wiring.mtu.or(self.mtu);
        }
        self.kernel.at_once(action)
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::AskForBlock { .. } | Action::ReturnBlock { .. } | Action::KeepBlock { .. } => {
                self.sources.carry_out(action);
            }
            Action::Consult { .. } | Action::AskAboutPods(_) => self.evidence.carry_out(action),
            Action::Report(ref report) => {
                if matches!(report, Report::Replayed { .. }) {
                    self.stages.replayed();
                }
                self.sources.carry_out(action);
            }
            // The driver handles these itself.
            Action::Record { .. } | Action::Answer { .. } => {}
            job => self.kernel.carry_out(job),
        }
    }
}
