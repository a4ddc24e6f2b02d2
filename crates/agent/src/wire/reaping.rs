//! The thread that deletes links which are out of service: the kernel takes tens of milliseconds for it, and no pod is to
//! wait for that.

use std::io;
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
    trashed: Sender<()>,
}

impl Reaping {
    pub(super) fn start(host: Host, clock: impl Clock) -> io::Result<Self> {
        let (trashed, received) = mpsc::channel();
        thread::Builder::new().name("reaper".into()).spawn(move || run(host, &clock, &received))?;
        Ok(Self { trashed })
    }

    /// A link went to the trash.
    pub(super) fn trashed(&self) {
        let _ = self.trashed.send(());
    }
}

fn run(mut host: Host, clock: &impl Clock, trashed: &Receiver<()>) {
    let mut reaper = Reaper::new(Policy::default(), clock.now());
    loop {
        let now = clock.now();
        let received = match reaper.next(now) {
            Next::Idle => trashed.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Next::WaitUntil(at) => trashed.recv_timeout(at.since(now)),
            Next::Reap => {
                reaper.begin();
                if let Err(error) = reap(&mut host) {
                    warn!(error = chain(&error), "cannot delete links that are out of service");
                    reaper.failed(clock.now());
                }
                continue;
            }
        };
        match received {
            Ok(()) => reaper.trashed(clock.now()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
