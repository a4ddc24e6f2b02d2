//! Which one is later: an ADD, or the DEL of a tombstone. No clock decides this, because clocks can be set
//! back.
//!
//! An ADD first removes the tombstone of its own key. So every remaining tombstone is of a DEL that came
//! after the last ADD of its key, and can be performed, whatever its age by the clock. While that happens, an
//! ADD of the same key waits.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tenure_cni::{Code, Failure, rpc, tombstone};
use tokio::sync::Notify;

use crate::objects::lock;

/// The tombstones of a directory, for the code that performs them and the code that removes them. Cheap to
/// clone.
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

/// A DEL of a tombstone is in progress as long as this exists.
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

    /// Their directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Begins to perform a tombstone's DEL; `None` if the tombstone was removed meanwhile, or is in progress.
    pub(crate) fn begin(&self, path: &Path) -> Option<DelUnderWay<'_>> {
        let mut under_way = lock(&self.shared.under_way);
        let begins = path.exists() && under_way.insert(path.to_owned());
        begins.then(|| DelUnderWay { postponed: self, path: path.to_owned() })
    }

    /// Leaves a tombstone.
    pub(super) fn leave(&self, network: &str, call: &rpc::Call) -> io::Result<PathBuf> {
        tombstone::leave(&self.directory, network, call)
    }

    /// Removes the tombstone of a key that is being added.
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
