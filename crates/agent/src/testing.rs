//! Shared by the test beds of this crate: waiting, and an executor that commits at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::drive::{Executor, Handle};
use crate::journal::{Image, Record};
use crate::node::{Action, Event};
use crate::sources::BlockSource as _;
use crate::whereabouts::slices::Slices;

/// Much longer than anything takes, even on a busy machine.
pub(crate) const SOON: Duration = tenure_testbed::wait::PATIENCE;

/// Waits long enough for something wrong to happen.
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// Waits for a value, with a limit.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, looking).await.unwrap_or_else(|_| panic!("waited {SOON:?} for {what}"))
}

/// The executor of a node that has only slices: commits everything at once and reports what changed.
pub(crate) struct Obedient {
    pub(crate) node: Handle,
    pub(crate) slices: Slices,
    pub(crate) journal: Arc<Mutex<Image>>,
    pub(crate) position: u64,
}

impl Executor for Obedient {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        for record in records {
            let uid = record.block().to_owned();
            self.journal.lock().unwrap().apply(record);
            self.slices.recorded(&uid);
        }
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, action: Action) {
        assert!(
            !matches!(
                action,
                Action::AskForBlock { .. } | Action::ReturnBlock { .. } | Action::KeepBlock { .. }
            ),
            "nobody is asked for slices: {action:?}"
        );
    }
}
