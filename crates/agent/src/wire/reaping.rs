//! The thread that deletes removed links: the kernel takes tens of milliseconds for that, and no pod should
//! wait for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;

use tenure_handles::Clock;
use tenure_linux::Host;
use tenure_linux::chain;
use tenure_linux::reaper::{Next, Policy, Reaper, reap};
use tracing::warn;

/// The handle to the thread. The thread ends when the last handle is dropped; the next one finds what is
/// still in the trash.
#[derive(Clone, Debug)]
pub(super) struct Reaping {
    trash: Arc<TrashCount>,
    wake: Sender<()>,
}

impl Reaping {
    pub(super) fn start(host: Host, clock: impl Clock) -> io::Result<Self> {
        let trash = Arc::<TrashCount>::default();
        let (wake, woken) = mpsc::channel();
        let shared = Arc::clone(&trash);
        thread::Builder::new().name("reaper".into()).spawn(move || run(host, &clock, &shared, &woken))?;
        Ok(Self { trash, wake })
    }

    /// Reports that a link went to the trash.
    pub(super) fn trashed(&self) {
        if self.trash.add() {
            let _ = self.wake.send(());
        }
    }
}

/// Counts the links in the trash that the thread has not begun to delete. Waking the thread for each would
/// delay a pod longer than moving its link to the trash.
#[derive(Debug, Default)]
struct TrashCount(AtomicUsize);

impl TrashCount {
    /// Adds one. True if the thread must be woken: it is the first.
    fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// The current count.
    fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Subtracts links that are being deleted. Returns how many remain: the thread is not woken for those.
    fn remove(&self, links: usize) -> usize {
        self.0.fetch_sub(links, Ordering::AcqRel) - links
    }
}

fn run(mut host: Host, clock: &impl Clock, trash: &TrashCount, woken: &Receiver<()>) {
    let mut reaper = Reaper::new(Policy::default(), clock.now());
    // How many of them the reaper was told of.
    let mut told = 0;
    loop {
        let now = clock.now();
        let received = match reaper.next(now) {
            Next::Idle => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Next::WaitUntil(at) => woken.recv_timeout(at.since(now)),
            Next::Reap => {
                reaper.begin();
                told = trash.remove(told);
                (0..told).for_each(|_| reaper.trashed(now));
                if let Err(error) = reap(&mut host) {
                    warn!(error = chain(&error), "cannot delete links that are out of service");
                    reaper.failed(clock.now());
                }
                continue;
            }
        };
        if matches!(received, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        let now = clock.now();
        let count = trash.count();
        (told..count).for_each(|_| reaper.trashed(now));
        told = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_woken_for_the_first_link() {
        let trash = TrashCount::default();
        let woken: Vec<bool> = (0..3).map(|_| trash.add()).collect();
        assert_eq!(woken, [true, false, false]);
    }

    #[test]
    fn who_is_left_while_others_are_deleted_is_known_without_waking() {
        let trash = TrashCount::default();
        assert!(trash.add());
        let told = trash.count();
        assert!(!trash.add(), "the thread is at it already");
        assert_eq!(trash.remove(told), 1);
        assert!(!trash.add(), "and has not forgotten the second one");
        assert_eq!(trash.remove(2), 0);
        assert!(trash.add(), "from here on it sleeps");
    }
}
