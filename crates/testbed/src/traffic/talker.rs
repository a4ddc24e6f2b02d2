//! One end of a connection that sends what the other end expects, and expects what the other end sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tenure_handles::{Clock, SystemClock};

use super::{Bytes, Frozen, TrafficError};
use crate::hosts::NetworkNamespace;

/// One end of a connection, idle.
#[derive(Debug)]
pub struct Talker {
    stream: TcpStream,
    peer: SocketAddr,
    pace: Pace,
    says: Bytes,
    hears: Bytes,
    /// The longest time between two moments at which something was received, at this end and while it was
    /// active.
    pub longest_silence: Duration,
    /// How many bytes had arrived before it was thawed.
    came_before: u64,
}

/// How much is sent, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The most bytes at once.
    pub bytes: usize,
    /// The pause afterwards.
    pub rest: Duration,
}

/// One end of an active connection, on a thread of its own.
#[derive(Debug)]
pub struct Talking {
    peer: SocketAddr,
    stop: Arc<AtomicBool>,
    first_heard: Arc<OnceLock<Duration>>,
    thread: JoinHandle<Result<Talker, TrafficError>>,
}

impl Pace {
    /// As much as a small machine carries beside other work: queues are never empty for long.
    pub const STREAM: Self = Self { bytes: 32 << 10, rest: Duration::from_millis(2) };
    /// A short message from time to time: a late one shows how long the connection was interrupted.
    pub const TICKS: Self = Self { bytes: 64, rest: Duration::from_millis(5) };
}

impl Talker {
    /// Connects a namespace to an address of another one; the second talker is the one that listens.
    pub fn connected(
        client: &NetworkNamespace,
        server: &NetworkNamespace,
        address: SocketAddr,
        pace: Pace,
    ) -> Result<(Self, Self), TrafficError> {
        let fail = TrafficError::refused::<std::io::Error>;
        let listener = server.run(|| TcpListener::bind(address))?.map_err(fail("listening", address))?;
        let there = listener.local_addr().map_err(fail("asking for the port", address))?;
        let calling = client.run(|| TcpStream::connect_timeout(&there, Duration::from_secs(30)))?;
        let calling = calling.map_err(fail("connecting", there))?;
        let (called, _) = listener.accept().map_err(fail("accepting", there))?;
        Ok((Self::new(calling, 1, 2, pace)?, Self::new(called, 2, 1, pace)?))
    }

    fn new(stream: TcpStream, says: u64, hears: u64, pace: Pace) -> Result<Self, TrafficError> {
        let peer =
            stream.peer_addr().map_err(TrafficError::refused("asking for the other end", "a connection"))?;
        let (says, hears) = (Bytes::new(says << 48), Bytes::new(hears << 48));
        Ok(Self { stream, peer, pace, says, hears, longest_silence: Duration::ZERO, came_before: 0 })
    }

    /// Sends and receives until it is stopped.
    pub fn start(mut self) -> Result<Talking, TrafficError> {
        let (peer, stop) = (self.peer, Arc::new(AtomicBool::new(false)));
        let first_heard = Arc::new(OnceLock::new());
        let (stopped, heard) = (Arc::clone(&stop), Arc::clone(&first_heard));
        let thread = thread::Builder::new().name(format!("talk to {peer}")).spawn(move || {
            self.talk(&stopped, &heard)?;
            Ok(self)
        });
        let thread = thread.map_err(TrafficError::refused("starting to talk", peer))?;
        Ok(Talking { peer, stop, first_heard, thread })
    }

    /// Stops the connection where it is, to be thawed elsewhere. This end is inactive until then.
    pub fn freeze(&self) -> Result<Frozen, TrafficError> {
        let stream = self.stream.try_clone();
        Frozen::freeze(stream.map_err(TrafficError::refused("sharing the connection", self.peer))?)
    }

    /// Continues its own frozen connection, in a namespace that has its address.
    pub fn thaw(&mut self, frozen: &Frozen, namespace: &NetworkNamespace) -> Result<(), TrafficError> {
        self.stream = frozen.image().thaw(namespace)?;
        self.came_before = self.hears.place() + frozen.image().queued().0 as u64;
        Ok(())
    }

    /// How many bytes it has sent and received.
    pub fn counts(&self) -> (u64, u64) {
        (self.says.place(), self.hears.place())
    }

    /// Both ends stop sending anything new, and receive what was sent until then: all of it, and nothing
    /// else.
    pub fn finish(mut one: Self, mut other: Self, within: Duration) -> Result<(), TrafficError> {
        let said = [one.says.place(), other.says.place()];
        for end in [&one, &other] {
            end.stream.shutdown(Shutdown::Write).map_err(TrafficError::refused("ending", end.peer))?;
        }
        for (end, said) in [(&mut one, said[1]), (&mut other, said[0])] {
            end.hear_the_end(within)?;
            if end.hears.place() != said {
                return Err(TrafficError::Ended { peer: end.peer, received: end.hears.place() });
            }
        }
        Ok(())
    }

    fn talk(&mut self, stopped: &AtomicBool, first_heard: &OnceLock<Duration>) -> Result<(), TrafficError> {
        let fail = TrafficError::refused;
        self.stream.set_nonblocking(true).map_err(fail("setting up", self.peer))?;
        self.stream.set_nodelay(true).map_err(fail("setting up", self.peer))?;
        let (mut heard_at, mut said_at) = (SystemClock.elapsed(), Duration::ZERO);
        while !stopped.load(Ordering::SeqCst) {
            let now = SystemClock.elapsed();
            if now.saturating_sub(said_at) >= self.pace.rest {
                said_at = now;
                self.say()?;
            }
            if self.hear()? {
                let now = SystemClock.elapsed();
                self.longest_silence = self.longest_silence.max(now.saturating_sub(heard_at));
                heard_at = now;
                if self.hears.place() > self.came_before {
                    first_heard.get_or_init(|| now);
                }
            }
            let mut ready = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
            let rest = u8::try_from(self.pace.rest.as_millis()).unwrap_or(u8::MAX);
            // Interrupted or not, it is checked again.
            let _ = poll(&mut ready, PollTimeout::from(rest));
        }
        Ok(())
    }

    fn say(&mut self) -> Result<(), TrafficError> {
        match self.stream.write(&self.says.next(self.pace.bytes)) {
            Ok(count) => self.says.advance(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(TrafficError::refused("writing", self.peer)(error)),
        }
        Ok(())
    }

    /// Whether anything was received.
    fn hear(&mut self) -> Result<bool, TrafficError> {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(TrafficError::Ended { peer: self.peer, received: self.hears.place() }),
            Ok(count) => self.expect(&buffer[..count]).map(|()| true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(TrafficError::refused("reading", self.peer)(error)),
        }
    }

    fn hear_the_end(&mut self, within: Duration) -> Result<(), TrafficError> {
        let fail = TrafficError::refused;
        self.stream.set_nonblocking(false).map_err(fail("setting up", self.peer))?;
        self.stream.set_read_timeout(Some(within)).map_err(fail("setting up", self.peer))?;
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.expect(&buffer[..count])?,
                Err(error) => return Err(TrafficError::refused("reading to the end", self.peer)(error)),
            }
        }
    }

    fn expect(&mut self, found: &[u8]) -> Result<(), TrafficError> {
        self.hears.expect(found).map_err(|strange| TrafficError::Strange { peer: self.peer, strange })
    }
}

impl Talking {
    /// When something was received first since it became active, as [`Clock::elapsed`] counts; waits at most
    /// this long, and not for one that has failed. Bytes that had arrived before it was thawed do not count.
    pub fn first_heard(&self, within: Duration) -> Option<Duration> {
        let began = SystemClock.elapsed();
        while self.first_heard.get().is_none()
            && !self.has_ended()
            && SystemClock.elapsed().saturating_sub(began) < within
        {
            thread::sleep(Duration::from_millis(2));
        }
        self.first_heard.get().copied()
    }

    /// Whether it talks no longer, although nobody has stopped it: [`Self::stop`] says why.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it between two messages; an error if something was wrong.
    pub fn stop(self) -> Result<Talker, TrafficError> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or(Err(TrafficError::Panicked(self.peer)))
    }
}
