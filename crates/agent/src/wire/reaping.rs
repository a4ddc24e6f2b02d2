//! The thread for what must not keep pods waiting: it deletes links which are out of service, for which the kernel takes
//! tens of milliseconds, and answers questions about the others.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;

use tenure_handles::Clock;
use tenure_linux::inventory::Inventory;
use tenure_linux::reaper::{Next, Policy, Reaper, reap};
use tenure_linux::{Host, socket};
use tokio::sync::oneshot;
use tracing::warn;

use super::eyes::{key_of, pod_of};
use super::{LinkTraffic, chain};

/// The way to the thread. It ends when the last of these is dropped; what is in the trash then is found by the next one.
#[derive(Clone, Debug)]
pub(super) struct Reaping {
    messages: Sender<Message>,
}

#[derive(Debug)]
enum Message {
    /// A link went to the trash.
    Trashed,
    /// What went through pods' links?
    Traffic(oneshot::Sender<Vec<LinkTraffic>>),
}

impl Reaping {
    pub(super) fn start(host: Host, clock: impl Clock) -> io::Result<Self> {
        let (messages, received) = mpsc::channel();
        thread::Builder::new().name("reaper".into()).spawn(move || run(host, &clock, &received))?;
        Ok(Self { messages })
    }

    /// A link went to the trash.
    pub(super) fn trashed(&self) {
        let _ = self.messages.send(Message::Trashed);
    }

    /// Asks what went through pods' links.
    pub(super) fn traffic(&self) -> oneshot::Receiver<Vec<LinkTraffic>> {
        let (answer, answered) = oneshot::channel();
        let _ = self.messages.send(Message::Traffic(answer));
        answered
    }
}

fn run(mut host: Host, clock: &impl Clock, messages: &Receiver<Message>) {
    let mut reaper = Reaper::new(Policy::default(), clock.now());
    loop {
        let now = clock.now();
        let received = match reaper.next(now) {
            Next::Idle => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Next::WaitUntil(at) => messages.recv_timeout(at.since(now)),
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
            Ok(Message::Trashed) => reaper.trashed(clock.now()),
            Ok(Message::Traffic(answer)) => match traffic(&mut host) {
                // Who does not wait any more asks again.
                Ok(traffic) => drop(answer.send(traffic)),
                Err(error) => warn!(error = chain(&error), "cannot count what went through pods' links"),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn traffic(host: &mut Host) -> Result<Vec<LinkTraffic>, socket::Error> {
    let inventory = Inventory::take(host)?;
    let traffic = inventory.pods.into_iter().filter_map(|pod| {
        let key = key_of(&pod.owner)?;
        let (host_name, counters) = (pod.link.name, pod.link.counters);
        Some(LinkTraffic { key, pod: pod_of(pod.owner), host_name, counters })
    });
    Ok(traffic.collect())
}
