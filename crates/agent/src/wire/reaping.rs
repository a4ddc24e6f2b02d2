//! The thread that deletes links which are out of service: the kernel takes tens of milliseconds for it, and no pod is to
//! wait for that.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;

use tenure_handles::Clock;
use tenure_linux::Host;
use tenure_linux::reaper::{Next, Policy, Reaper, reap};
use tracing::warn;

use super::chain;

/// The way to the thread. It ends when the last of these is dropped; what is in the trash then is found by the next one.
#[derive(Clone, Debug)]
pub(super) struct Reaping {
    pile: Arc<Pile>,
    wake: Sender<()>,
}

impl Reaping {
    pub(super) fn start(host: Host, clock: impl Clock) -> io::Result<Self> {
        let pile = Arc::new(Pile { links: AtomicUsize::new(0), enough: Policy::default().enough });
        let (wake, woken) = mpsc::channel();
        let shared = Arc::clone(&pile);
        thread::Builder::new().name("reaper".into()).spawn(move || run(host, &clock, &shared, &woken))?;
        Ok(Self { pile, wake })
    }

    /// A link went to the trash.
    pub(super) fn trashed(&self) {
        if self.pile.add() {
            let _ = self.wake.send(());
        }
    }
}

/// The links in the trash that the thread has not begun to delete. Waking it for each would take a pod longer than putting
/// its link there.
#[derive(Debug)]
struct Pile {
    links: AtomicUsize,
    enough: usize,
}

impl Pile {
    /// One more. True if the thread has to know now: it is the first, or one too many to wait any longer.
    fn add(&self) -> bool {
        let before = self.links.fetch_add(1, Ordering::AcqRel);
        before == 0 || (before + 1).is_multiple_of(self.enough)
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.links.load(Ordering::Acquire)
    }

    /// So many of them are being deleted. Says how many are left: nobody is told of those.
    fn remove(&self, links: usize) -> usize {
        self.links.fetch_sub(links, Ordering::AcqRel) - links
    }
}

fn run(mut host: Host, clock: &impl Clock, pile: &Pile, woken: &Receiver<()>) {
    let mut reaper = Reaper::new(Policy::default(), clock.now());
    // Of the pile, those that the reaper was told of.
    let mut told = 0;
    loop {
        let now = clock.now();
        let received = match reaper.next(now) {
            Next::Idle => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Next::WaitUntil(at) => woken.recv_timeout(at.since(now)),
            Next::Reap => {
                reaper.begin();
                told = pile.remove(told);
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
        let count = pile.count();
        (told..count).for_each(|_| reaper.trashed(now));
        told = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_woken_for_the_first_link_and_for_enough_of_them() {
        let pile = Pile { links: AtomicUsize::new(0), enough: 4 };
        let woken: Vec<bool> = (0..9).map(|_| pile.add()).collect();
        assert_eq!(woken, [true, false, false, true, false, false, false, true, false]);
    }

    #[test]
    fn who_is_left_while_others_are_deleted_is_known_without_waking() {
        let pile = Pile { links: AtomicUsize::new(0), enough: 4 };
        assert!(pile.add());
        let told = pile.count();
        assert!(!pile.add(), "the thread is at it already");
        assert_eq!(pile.remove(told), 1);
        assert!(!pile.add(), "and has not forgotten the second one");
        assert_eq!(pile.remove(2), 0);
        assert!(pile.add(), "from here on it sleeps");
    }
}
