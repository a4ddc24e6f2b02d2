//! Which host answers at an address that several have: each answers with its own name, and a client asks
//! continuously.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure_handles::{Clock, SystemClock};
use tenure_linux::netns::NetNs;

/// The port of the answerers.
const PORT: u16 = 7;
/// How often the client asks.
const EVERY: Duration = Duration::from_millis(2);
/// How often to check for the end.
const LOOK: Duration = Duration::from_millis(20);
/// How long the last answers may take.
const LAST: Duration = Duration::from_millis(200);

/// Answers with a name at an address as long as this lives.
pub(crate) struct Answerer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A continuous stream of questions.
pub(crate) struct Asking {
    stop: Arc<AtomicBool>,
    heard: Arc<Mutex<Heard>>,
    flows: Vec<JoinHandle<io::Result<()>>>,
}

/// The results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) sent: u64,
    /// By the answering name.
    pub(crate) answers: BTreeMap<String, u64>,
    /// The longest time between two answers from one address.
    pub(crate) longest_gap: Duration,
    /// When each name answered for the first time.
    first: BTreeMap<String, Duration>,
}

impl Answerer {
    pub(crate) fn start(namespace: &NetNs, address: IpAddr, name: &str) -> Result<Self> {
        let socket = open(namespace, SocketAddr::new(address, PORT), LOOK).context("cannot answer")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, name) = (Arc::clone(&stop), name.to_owned());
        let answer = move || {
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                // A client that cannot be reached asks again.
                let _ = socket.send_to(&[&buffer[..length], name.as_bytes()].concat(), from);
            }
        };
        let thread = std::thread::Builder::new().name("answers".to_owned()).spawn(answer);
        Ok(Self { stop, thread: Some(thread.context("cannot start a thread")?) })
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // If it panicked, it has ended.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Asking {
    /// Begins to ask at all of these addresses.
    pub(crate) fn begin(namespace: &NetNs, addresses: &[IpAddr]) -> Result<Self> {
        let mut asking = Self { stop: Arc::default(), heard: Arc::default(), flows: Vec::new() };
        for address in addresses {
            let own = match address {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            let socket = open(namespace, SocketAddr::new(own, 0), EVERY).context("cannot ask")?;
            let (stop, heard) = (Arc::clone(&asking.stop), Arc::clone(&asking.heard));
            let target = SocketAddr::new(*address, PORT);
            let flow = std::thread::Builder::new().name("asks".to_owned());
            let flow = flow.spawn(move || ask_until(&stop, &heard, &socket, target));
            asking.flows.push(flow.context("cannot start a thread")?);
        }
        Ok(asking)
    }

    /// How often a name has answered so far.
    pub(crate) fn answers_of(&self, name: &str) -> u64 {
        lock(&self.heard).answers.get(name).copied().unwrap_or_default()
    }

    /// When a name answered for the first time.
    pub(crate) fn first_of(&self, name: &str) -> Option<Duration> {
        lock(&self.heard).first.get(name).copied()
    }

    /// Ends the stream.
    pub(crate) fn end(self) -> Result<Heard> {
        self.stop.store(true, Ordering::Relaxed);
        for flow in self.flows {
            let flow = flow.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            flow.context("cannot ask")?;
        }
        Ok(lock(&self.heard).clone())
    }
}

impl Heard {
    /// How many were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answers.values().sum()
    }

    /// Records an answer and the gap before it.
    fn note(&mut self, name: &str, at: Duration, last: Option<Duration>) {
        *self.answers.entry(name.to_owned()).or_default() += 1;
        self.first.entry(name.to_owned()).or_insert(at);
        let gap = last.map_or(Duration::ZERO, |last| at.saturating_sub(last));
        self.longest_gap = self.longest_gap.max(gap);
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(namespace: &NetNs, address: SocketAddr, look: Duration) -> Result<UdpSocket> {
    let socket = namespace.run(|| UdpSocket::bind(address))?.context("cannot open a socket")?;
    socket.set_read_timeout(Some(look)).context("cannot set a socket's timeout")?;
    Ok(socket)
}

fn ask_until(
    stop: &AtomicBool,
    heard: &Mutex<Heard>,
    socket: &UdpSocket,
    target: SocketAddr,
) -> io::Result<()> {
    let (mut buffer, mut number, mut missing) = ([0; 64], 0_u64, 0_u64);
    let (mut last, mut ended) = (None, None);
    loop {
        let now = SystemClock.elapsed();
        if stop.load(Ordering::Relaxed) {
            let since = *ended.get_or_insert(now);
            if missing == 0 || now.saturating_sub(since) > LAST {
                return Ok(());
            }
        } else {
            number += 1;
            missing += 1;
            lock(heard).sent += 1;
            match socket.send_to(&number.to_be_bytes(), target) {
                // Counts as not answered.
                Err(error)
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::HostUnreachable
                            | io::ErrorKind::NetworkUnreachable
                            | io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    return Err(error);
                }
                _ => {}
            }
        }
        let next = now + EVERY;
        while SystemClock.elapsed() < next {
            let Ok(length) = socket.recv(&mut buffer) else { continue };
            let Some(name) = buffer.get(8..length) else { continue };
            let at = SystemClock.elapsed();
            lock(heard).note(&String::from_utf8_lossy(name), at, last.replace(at));
            missing = missing.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_that_between_two_answers_whoever_gave_them() {
        let mut heard = Heard { sent: 4, ..Heard::default() };
        let at = |millis| Duration::from_millis(millis);
        heard.note("node-a", at(1_000), None);
        heard.note("node-a", at(1_002), Some(at(1_000)));
        heard.note("node-b", at(1_030), Some(at(1_002)));
        assert_eq!((heard.answered(), heard.longest_gap), (3, at(28)));
        assert_eq!(heard.first.get("node-b"), Some(&at(1_030)));
    }
}
