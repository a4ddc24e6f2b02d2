//! The DELs that came while no agent answered.
//!
//! Each is performed like any other DEL, and its file is removed afterwards: a crash between the two only
//! repeats the DEL, which is harmless. A DEL that fails now is retried later; one that can never succeed is
//! renamed and reported.
//!
//! The age of a tombstone does not matter, and no clock is used: an ADD removes the tombstone of its own key
//! ([`PostponedDels`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures::{StreamExt, stream};
use tenure_cni::{Code, rpc, tombstone};
use tenure_handles::Clock;
use tracing::{info, warn};

use crate::serve::{PostponedDels, Service};

/// How many are performed at once.
const AT_ONCE: usize = 64;
/// The suffix for the name of one that can never succeed.
const ASIDE: &str = "refused";

/// The tombstones, and the service that performs their DELs.
#[derive(Debug)]
pub(crate) struct Tombstones<C> {
    postponed: PostponedDels,
    service: Service<C>,
}

impl<C: Clock> Tombstones<C> {
    /// The tombstones that the service's ADDs remove.
    pub(crate) fn new(postponed: PostponedDels, service: Service<C>) -> Self {
        Self { postponed, service }
    }

    /// Performs the DELs that were left while no agent ran, or since: by a DEL that found no socket a moment
    /// before there was one, or whose answer was lost.
    pub(crate) async fn replay(&self) {
        self.each(|path, call| async move {
            if let Some(_under_way) = self.postponed.begin(&path) {
                self.replay_one(&path, call).await;
            }
        })
        .await;
    }

    async fn each<F: Future<Output = ()>>(&self, act: impl Fn(PathBuf, rpc::Call) -> F) {
        let found = match tombstone::read_all(self.postponed.directory()) {
            Ok(found) => found,
            Err(error) => {
                warn!(directory = %self.postponed.directory().display(), %error, "cannot look for tombstones");
                return;
            }
        };
        let mut readable = Vec::new();
        for (path, call) in found {
            match call {
                Ok(call) => readable.push((path, call)),
                Err(problem) => set_aside(&path, &problem),
            }
        }
        stream::iter(readable).for_each_concurrent(AT_ONCE, |(path, call)| act(path, call)).await;
    }

    async fn replay_one(&self, path: &Path, call: rpc::Call) {
        let container = call.container_id.clone();
        match self.service.replay_del(call).await.failure {
            None => {
                info!(container, "performed a DEL that came while no agent answered");
                remove(path);
            }
            Some(failure) if is_final(failure.code) => set_aside(path, &failure.message),
            Some(failure) => {
                warn!(
                    container,
                    problem = failure.message,
                    "cannot perform a DEL that came while no agent answered"
                );
            }
        }
    }
}

/// Whether a retry cannot help.
fn is_final(code: u32) -> bool {
    [
        Code::IncompatibleVersion,
        Code::UnsupportedField,
        Code::InvalidEnvironment,
        Code::Decoding,
        Code::InvalidConfig,
    ]
    .map(Code::number)
    .contains(&code)
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!(tombstone = %path.display(), %error, "cannot remove a tombstone");
        }
        _ => {}
    }
}

fn set_aside(path: &Path, problem: &str) {
    let aside = path.with_extension(ASIDE);
    match fs::rename(path, &aside) {
        Ok(()) => warn!(tombstone = %aside.display(), problem, "set a tombstone aside that cannot be used"),
        Err(error) => warn!(tombstone = %path.display(), problem, %error, "cannot use a tombstone"),
    }
}
