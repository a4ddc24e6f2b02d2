//! A watch of claims, which tells when the first and the last of them had its addresses.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use tenure_api::claims::{IPAMClaim, condition};
use tokio::task::JoinHandle;

use super::cluster::{Cluster, runs};
use crate::host::machine::until;
use tenure_testbed::process::Process;

/// Hears of claims, as long as this lives.
pub(super) struct Heard {
    known: Arc<Mutex<Known>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Known {
    listening: bool,
    with_addresses: HashSet<String>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Heard {
    /// Begins to listen; what is there already counts, too.
    pub(super) fn begin(cluster: &Cluster) -> Result<Self> {
        let known = Arc::<Mutex<Known>>::default();
        let (told, claims) = (Arc::clone(&known), cluster.claims());
        let task = cluster.runtime.spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(claims, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let mut known = told.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Ok(Event::InitApply(claim) | Event::Apply(claim)) => known.see(&claim),
                    Ok(Event::InitDone) => known.listening = true,
                    // What was deleted had its addresses; a watch that breaks begins again.
                    Ok(Event::Init | Event::Delete(_)) | Err(_) => {}
                }
            }
        });
        let heard = Self { known, task };
        until("a watch of claims", || Ok(heard.ask(|known| known.listening).then_some(())))?;
        Ok(heard)
    }

    /// Waits until so many have had addresses; when the first of them had, and the last.
    pub(super) fn wait(&self, claims: usize, controller: &Process) -> Result<(Instant, Instant)> {
        until("claims to have their addresses", || {
            runs(controller)?;
            Ok(self.ask(|known| known.with_addresses.len() >= claims).then_some(()))
        })?;
        let (first, last) = self.ask(|known| (known.first, known.last));
        first.zip(last).ok_or_else(|| anyhow::anyhow!("no claim has addresses"))
    }

    fn ask<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Known {
    fn see(&mut self, claim: &IPAMClaim) {
        let Some(status) = &claim.status else { return };
        let held = status.conditions.iter().any(|it| it.type_ == condition::HELD && it.status == "True");
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if held && !status.ips.is_empty() && self.with_addresses.insert(uid) {
            let now = Instant::now();
            self.first.get_or_insert(now);
            self.last = Some(now);
        }
    }
}
