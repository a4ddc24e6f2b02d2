//! Makes pools equal to their files: checks when the directory changes, and periodically.
//!
//! Before anything of a file is written, all of it is tried as a dry run, so that a file that the API refuses
//! changes nothing. A pool that is in no file any more is deleted after two checks, not one: editors and
//! tools remove a file before they write it again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::coil::AddressPool;
use tenure_handles::{Clock, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::directory::{self, FileState, SETTLED};
use super::manifest::{Mistake, Wanted};
use super::plan::{self, POOL_FILE};
use crate::watching::DirectoryWatch;

/// How often to check without a change.
const LOOK: Duration = Duration::from_secs(10);
/// How often to check for a missing directory, which cannot be watched.
const MISSING: Duration = Duration::from_secs(1);
/// How long a pool stays after the first check that found it in no file.
const UNWANTED: Duration = Duration::from_secs(1);

/// The directory of pool files, and the API that they are applied to.
pub(super) struct PoolFiles<C> {
    client: Client,
    directory: PathBuf,
    /// Watches from before the first check, so that no change is missed.
    changes: DirectoryWatch,
    clock: C,
    /// Since when each pool is in no file.
    unwanted: BTreeMap<String, Timestamp>,
    /// Whether the last check found something that another check will settle.
    soon: bool,
    /// Whether the directory itself is missing, which is logged once.
    missing: bool,
    mistakes: watch::Sender<Vec<Mistake>>,
}

impl<C: Clock> PoolFiles<C> {
    pub(super) fn new(client: Client, directory: PathBuf, clock: C) -> Self {
        let (mistakes, _) = watch::channel(Vec::new());
        Self {
            changes: DirectoryWatch::new(&directory),
            client,
            directory,
            clock,
            unwanted: BTreeMap::new(),
            soon: false,
            missing: false,
            mistakes,
        }
    }

    /// The problems of files.
    pub(super) fn mistakes(&self) -> watch::Receiver<Vec<Mistake>> {
        self.mistakes.subscribe()
    }

    /// Checks again and again until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let rest = match (self.soon, self.missing) {
                (true, _) => SETTLED,
                (_, true) => MISSING,
                _ => LOOK,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changes.changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
            // The directory may have been recreated.
            self.changes.renew();
            self.look().await;
        }
    }

    /// Checks once.
    pub(super) async fn look(&mut self) {
        let now = self.clock.now();
        let (directory, read) = (self.directory.clone(), directory::read);
        let read = tokio::task::spawn_blocking(move || read(&directory, now)).await;
        let files = match read.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Ok(files) => files,
            Err(error) => {
                // A missing directory says nothing about the pools.
                if !self.missing {
                    error!(directory = %self.directory.display(), %error, "pool files cannot be read; all pools stay");
                }
                self.missing = true;
                return;
            }
        };
        self.missing = false;
        let unsettled = files.iter().filter(|(_, state)| matches!(state, FileState::Unsettled));
        let unsettled: BTreeSet<String> = unsettled.map(|(name, _)| name.clone()).collect();
        self.soon = !unsettled.is_empty();
        let pools: Api<AddressPool> = Api::all(self.client.clone());
        let pools = match pools.list(&ListParams::default()).await {
            Ok(pools) => pools.items,
            Err(error) => return warn!(%error, "pools cannot be listed; trying again"),
        };
        let plan = plan::plan(files, &pools);
        let mut mistakes = plan.mistakes;
        // A mistake in a file that is being written is not fixed yet.
        mistakes.extend(self.mistakes.borrow().iter().filter(|it| unsettled.contains(&it.file)).cloned());
        for (file, wanted) in plan.apply {
            if let Err(mistake) = self.apply(&file, &wanted, &pools).await {
                mistakes.push(mistake);
            }
        }
        self.unwanted.retain(|name, _| plan.superfluous.contains(name));
        for name in plan.superfluous {
            let since = *self.unwanted.entry(name.clone()).or_insert(now);
            if now.since(since) < UNWANTED {
                self.soon = true;
            } else if let Some(pool) = pools.iter().find(|pool| pool.name_any() == name) {
                self.delete(pool).await;
            }
        }
        self.say(mistakes);
    }

    /// Makes the pools of one file equal to it.
    async fn apply(&self, file: &str, wanted: &[Wanted], pools: &[AddressPool]) -> Result<(), Mistake> {
        let mut changes = Vec::new();
        for want in wanted {
            let known = pools.iter().find(|pool| pool.name_any() == want.name);
            if known.is_some_and(|pool| pool.metadata.deletion_timestamp.is_some()) {
                let problem = format!(
                    "metadata.name is {:?}, a pool that is being deleted; it is made anew when none of its addresses is in use",
                    want.name
                );
                return Err(Mistake { file: file.to_owned(), document: Some(want.document), problem });
            }
            let tried = self.write(file, want, known, true).await?;
            if known.is_none_or(|known| !is_as(known, &tried)) {
                changes.push((want, known));
            }
        }
        for (want, known) in changes {
            self.write(file, want, known, false).await?;
            let done = if known.is_some() { "changed" } else { "made" };
            info!(pool = want.name, file, "{done} a pool");
        }
        Ok(())
    }

    /// Writes one pool, or tries to as a dry run.
    async fn write(
        &self,
        file: &str,
        want: &Wanted,
        known: Option<&AddressPool>,
        dry_run: bool,
    ) -> Result<DynamicObject, Mistake> {
        let kind = ApiResource::erase::<AddressPool>(&());
        let mut object = DynamicObject::new(&want.name, &kind).data(json!({"spec": want.spec}));
        if let Some(known) = known {
            object.metadata = known.metadata.clone();
        }
        object.metadata.labels = Some(want.labels.clone());
        let mut annotations = want.annotations.clone();
        annotations.insert(POOL_FILE.to_owned(), file.to_owned());
        object.metadata.annotations = Some(annotations);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let post = PostParams { dry_run, ..PostParams::default() };
        let written = match known {
            Some(_) => api.replace(&want.name, &post, &object).await,
            None => api.create(&post, &object).await,
        };
        written.map_err(|error| {
            let problem = match error {
                kube::Error::Api(status) => status.message.clone(),
                error => error.to_string(),
            };
            Mistake { file: file.to_owned(), document: Some(want.document), problem }
        })
    }

    /// Deletes a pool that is in no file: exactly the one that was checked.
    async fn delete(&mut self, pool: &AddressPool) {
        let name = pool.name_any();
        let file = plan::file_of(pool).unwrap_or_default();
        let same = Preconditions { uid: pool.uid(), resource_version: pool.resource_version() };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let api: Api<AddressPool> = Api::all(self.client.clone());
        match api.delete(&name, &params).await {
            Ok(_) => info!(
                pool = name,
                file, "deleted a pool that no file wants; it goes when none of its blocks is in use"
            ),
            // Its status was written meanwhile, or it is gone: the next check will tell.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => self.soon = true,
            Err(error) => warn!(pool = name, file, %error, "a pool cannot be deleted; trying again"),
        }
    }

    /// Logs mistakes, each once.
    fn say(&mut self, mistakes: Vec<Mistake>) {
        self.mistakes.send_if_modified(|known| {
            for mistake in mistakes.iter().filter(|mistake| !known.contains(mistake)) {
                error!("{mistake}; nothing of this file is applied, what was there before stays");
            }
            for mistake in known.iter().filter(|mistake| !mistakes.contains(mistake)) {
                info!(file = mistake.file, "no longer: {mistake}");
            }
            let changed = *known != mistakes;
            *known = mistakes;
            changed
        });
    }
}

/// Whether a pool is as a dry run would leave it.
fn is_as(known: &AddressPool, tried: &DynamicObject) -> bool {
    let spec = tried.data.get("spec").cloned().unwrap_or_default();
    known.labels() == tried.labels()
        && known.annotations() == tried.annotations()
        && serde_json::from_value(spec)
            .is_ok_and(|spec: tenure_api::coil::AddressPoolSpec| spec == known.spec)
}
