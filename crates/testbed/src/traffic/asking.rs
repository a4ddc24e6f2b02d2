//! Continuous questions, and answers that name their sender.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure_handles::{Clock, SystemClock};

use super::TrafficError;
use crate::hosts::{Ip, NetworkNamespace, Packet};

/// How long a thread waits for a packet before it checks whether to end.
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait for an address that does not exist yet.
const PATIENCE: Duration = Duration::from_secs(3);

/// Answers every question with its own name, until it is dropped.
#[derive(Debug)]
pub struct Answerer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Asks a question every few milliseconds, until it is stopped.
#[derive(Debug)]
pub struct Asker {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    asked: Arc<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    questions: Mutex<Vec<Question>>,
    answered: Condvar,
}

/// A question, and all answers to it.
#[derive(Clone, Debug)]
pub struct Question {
    /// When it was asked, as [`Clock::elapsed`] counts.
    pub at: Duration,
    /// In the order of arrival.
    pub answers: Vec<Answer>,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The name of the answerer.
    pub by: String,
    /// When it came, as [`Clock::elapsed`] counts.
    pub at: Duration,
}

impl Answerer {
    /// Answers at this address of this namespace under this name.
    pub fn start(
        namespace: &NetworkNamespace,
        address: SocketAddr,
        name: &str,
    ) -> Result<Self, TrafficError> {
        let socket = bound(namespace, address)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, name) = (Arc::clone(&stop), name.to_owned());
        let thread = thread::Builder::new().name(format!("{name} answers")).spawn(move || {
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::SeqCst) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let answer = [buffer.get(..length).unwrap_or_default(), name.as_bytes()].concat();
                // A client that cannot be reached asks again.
                let _ = socket.send_to(&answer, from);
            }
        });
        let thread = thread.map_err(TrafficError::refused("starting to answer", address))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // It does not panic; if it did, it has ended.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Asker {
    /// Asks at `target` from this address of this namespace.
    pub fn start(
        namespace: &NetworkNamespace,
        from: SocketAddr,
        target: SocketAddr,
        every: Duration,
    ) -> Result<Self, TrafficError> {
        let fail = TrafficError::refused;
        let socket = Arc::new(bound(namespace, from)?);
        let (asked, stop) = (Arc::new(Asked::default()), Arc::new(AtomicBool::new(false)));
        let (sending, sent, stopped) = (Arc::clone(&socket), Arc::clone(&asked), Arc::clone(&stop));
        let speaker = thread::Builder::new().name(format!("ask {target}")).spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let number = sent.ask();
                // A missing answerer counts as no answer.
                let _ = sending.send_to(&number.to_be_bytes(), target);
                thread::sleep(every);
            }
        });
        let (heard, stopped) = (Arc::clone(&asked), Arc::clone(&stop));
        let listener = thread::Builder::new().name(format!("hear {target}")).spawn(move || {
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::SeqCst) {
                if let Ok(length) = socket.recv(&mut buffer) {
                    heard.hear(buffer.get(..length).unwrap_or_default());
                }
            }
        });
        let threads = [speaker, listener].map(|thread| thread.map_err(fail("starting to ask", target)));
        let threads = threads.into_iter().collect::<Result<_, _>>()?;
        Ok(Self { stop, threads, asked })
    }

    /// Waits until a question that was asked after `since` is answered by `name`. Returns when that answer came.
    pub fn wait_for(&self, name: &str, since: Duration, within: Duration) -> Option<Duration> {
        let mut found = None;
        let questions = self.asked.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.asked.answered.wait_timeout_while(questions, within, |questions| {
            let late = questions.iter().rev().take_while(|question| question.at >= since);
            let by_name =
                late.filter_map(|question| question.answers.iter().find(|answer| answer.by == name));
            found = by_name.map(|answer| answer.at).min();
            found.is_none()
        });
        drop(waited);
        found
    }

    /// Waits until the last `answers` answers to questions after `since` are all by `name`. Returns when that was seen.
    pub fn wait_for_only(
        &self,
        name: &str,
        since: Duration,
        answers: usize,
        within: Duration,
    ) -> Option<Duration> {
        let mut settled = false;
        let questions = self.asked.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.asked.answered.wait_timeout_while(questions, within, |questions| {
            let late = questions.iter().rev().take_while(|question| question.at >= since);
            let last: Vec<_> = late.flat_map(|question| &question.answers).take(answers).collect();
            settled = last.len() == answers && last.iter().all(|answer| answer.by == name);
            !settled
        });
        drop(waited);
        settled.then(|| SystemClock.elapsed())
    }

    /// How many questions were asked so far.
    pub fn count(&self) -> usize {
        self.asked.questions.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Ends it, a moment after the last question, and returns all questions.
    pub fn stop(mut self) -> Vec<Question> {
        self.end();
        std::mem::take(&mut *self.asked.questions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // It does not panic; if it did, it has ended.
            let _ = thread.join();
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.end();
    }
}

impl Asked {
    fn ask(&self) -> u64 {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        questions.push(Question { at: SystemClock.elapsed(), answers: Vec::new() });
        questions.len() as u64 - 1
    }

    fn hear(&self, message: &[u8]) {
        let Some((number, by)) = read(message) else { return };
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let question = usize::try_from(number).ok().and_then(|number| questions.get_mut(number));
        if let Some(question) = question {
            question.answers.push(Answer { by, at: SystemClock.elapsed() });
            self.answered.notify_all();
        }
    }
}

/// The number of the question and the name of who answers, if the packet is an answer from this address.
pub fn answered(packet: &Packet, from: SocketAddr) -> Option<(u64, String)> {
    let Ip { source, protocol: 17, ports: Some((port, _)), .. } = packet.ip()? else { return None };
    let headers = if from.is_ipv4() { 14 + 20 + 8 } else { 14 + 40 + 8 };
    let ours = *source == from.ip() && *port == from.port();
    ours.then(|| read(packet.bytes.get(headers..)?)).flatten().filter(|(_, name)| !name.is_empty())
}

fn read(message: &[u8]) -> Option<(u64, String)> {
    let (number, name) = message.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), String::from_utf8_lossy(name).into_owned()))
}

fn bound(namespace: &NetworkNamespace, address: SocketAddr) -> Result<UdpSocket, TrafficError> {
    let bind = || -> io::Result<UdpSocket> {
        let began = SystemClock.elapsed();
        let socket = loop {
            match UdpSocket::bind(address) {
                // An IPv6 address is usable a moment after it was assigned to an interface.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrNotAvailable
                        && SystemClock.elapsed().saturating_sub(began) < PATIENCE =>
                {
                    thread::sleep(Duration::from_millis(5));
                }
                bound => break bound?,
            }
        };
        socket.set_read_timeout(Some(LOOK))?;
        Ok(socket)
    };
    namespace.run(bind)?.map_err(TrafficError::refused("taking the address", address))
}
