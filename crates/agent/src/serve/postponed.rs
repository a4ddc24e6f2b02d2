//! Which of the two is later: an ADD, or the DEL that a tombstone says. No clock decides it, because clocks are set back.
//!
//! An ADD removes the tombstone of its own key before anything else. So every tombstone that is there is of a DEL that came after
//! the last ADD of its key, and can be done, however old or young the clock says that it is. While one is being done, the ADD of
//! the same key waits.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tenure_cni::{Code, Failure, rpc, tombstone};
use tokio::sync::Notify;

use crate::objects::lock;

/// The tombstones of a directory, for those who do what they say and for those who take them back. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PostponedDels {
    directory: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    under_way: Mutex<BTreeSet<PathBuf>>,
    ended: Notify,
}

/// A tombstone is being done for as long as this is there.
#[derive(Debug)]
pub(crate) struct DelUnderWay<'b> {
    postponed: &'b PostponedDels,
    path: PathBuf,
}

impl PostponedDels {
    /// The tombstones of this directory.
    pub fn of(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), shared: Arc::default() }
    }

    /// Where they are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Begins to do what a tombstone says; nothing if it was taken back meanwhile, or is being done.
    pub(crate) fn begin(&self, path: &Path) -> Option<DelUnderWay<'_>> {
        let mut under_way = lock(&self.shared.under_way);
        let begins = path.exists() && under_way.insert(path.to_owned());
        begins.then(|| DelUnderWay { postponed: self, path: path.to_owned() })
    }

    /// Leaves a tombstone.
    pub(super) fn leave(&self, network: &str, call: &rpc::Call) -> io::Result<PathBuf> {
        tombstone::leave(&self.directory, network, call)
    }

    /// Takes back the tombstone of what is added now.
    pub(crate) async fn take_back(&self, network: &str, call: &rpc::Call) -> Result<(), Failure> {
        let path = tombstone::path(&self.directory, network, call);
        loop {
            let ended = self.shared.ended.notified();
            {
                let under_way = lock(&self.shared.under_way);
                if !under_way.contains(&path) {
                    return remove(&path);
                }
            }
            ended.await;
        }
    }
}

impl Drop for DelUnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.postponed.shared.under_way).remove(&self.path);
        self.postponed.shared.ended.notify_waiters();
    }
}

fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let message =
                format!("cannot remove the tombstone {} of an earlier DEL: {error}", path.display());
            Err(Failure::new(Code::TryAgainLater, message).detail("make its directory writable for tenured"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> rpc::Call {
        rpc::Call { container_id: "c1".into(), ifname: "eth0".into(), ..rpc::Call::default() }
    }

    #[tokio::test]
    async fn an_add_waits_for_the_postponed_del_of_its_own_key_and_one_that_came_first_ends_it() {
        let directory = tempfile::tempdir().unwrap();
        let postponed = PostponedDels::of(directory.path());
        let left = tombstone::leave(directory.path(), "net", &call()).unwrap();
        let under_way = postponed.begin(&left).unwrap();
        assert!(postponed.begin(&left).is_none(), "it is being done");
        let call = call();
        let mut adding = std::pin::pin!(postponed.take_back("net", &call));
        assert!(futures::poll!(&mut adding).is_pending());
        postponed.take_back("other", &call).await.unwrap();
        drop(under_way);
        adding.await.unwrap();
        assert!(!left.exists());
        assert!(postponed.begin(&left).is_none(), "the ADD came later, and what it says is over");
    }
}
