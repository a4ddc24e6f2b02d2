//! A TCP connection that stops in one namespace and continues in another, without the other end noticing.
//!
//! The steps are those of CRIU. CRIU uses a netfilter rule (nothing may come in while the connection is read
//! or written); here a filter on the socket does that: one call enables it, for this connection alone, and it
//! disappears with the connection.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReuseAddr, SndBuf, SndBufForce, TcpMaxSeg, TcpRepair};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, getsockopt,
    recv, setsockopt, socket,
};

use super::TrafficError;
use super::repair::{
    AgreedOption, AttachFilter, DetachFilter, Info, MAXIMUM_SEGMENT, MaximumRate, OFF, ON, QueueSequence,
    RECEIVE_QUEUE, RepairQueue, SELECTIVE_ACKNOWLEDGEMENT, SEND_QUEUE, TIMESTAMPS, TimestampClock,
    WINDOW_SCALE, Windows,
};
use crate::hosts::NetworkNamespace;

/// A stopped connection: it accepts no more input.
///
/// It stays where it is as long as this is held, and is silent, like a paused machine. When this is dropped,
/// the connection is closed without notifying the other end; packets that arrive for it after that are
/// answered with a reset, so hold this until none arrive.
#[derive(Debug)]
pub struct Frozen {
    image: Image,
    _source: TcpStream,
}

/// Everything that is needed to continue a connection.
#[derive(Clone, Debug)]
pub struct Image {
    local: SocketAddr,
    peer: SocketAddr,
    receive: Queue,
    send: Queue,
    /// How many bytes at the end of the send queue were never sent.
    unsent: usize,
    maximum_segment: u32,
    window_scales: Option<(u32, u32)>,
    selective_acknowledgements: bool,
    timestamps: Option<u32>,
    windows: [u32; 5],
    /// The sizes of the receive and the send buffer, as the kernel counts them.
    buffers: [usize; 2],
}

/// Bytes in transit inside the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queue {
    /// The number of the first byte.
    first: u32,
    bytes: Vec<u8>,
}

impl Frozen {
    /// Stops a connection and reads its state. Nobody else may use it any more.
    pub fn freeze(stream: TcpStream) -> Result<Self, TrafficError> {
        let peer =
            stream.peer_addr().map_err(TrafficError::refused("asking for the other end", "a connection"))?;
        let local = stream.local_addr().map_err(TrafficError::refused("asking for the address", peer))?;
        let fail = TrafficError::refused::<nix::Error>;
        // First nothing may come in: bytes that were acknowledged after the queues were read would be lost.
        shut(&stream).map_err(fail("shutting the way in", peer))?;
        setsockopt(&stream, TcpRepair, &ON).map_err(fail("starting the repair", peer))?;
        let state = Info::of(&stream).map_err(fail("asking for the state", peer))?.state();
        if state != 1 {
            return Err(TrafficError::State { peer, state });
        }
        let mut image = Image::read(&stream, local, peer)?;
        // A packet that another processor had let in before the way was shut may still change the connection.
        loop {
            let again = Image::read(&stream, local, peer)?;
            if again.has_queues_of(&image) {
                break;
            }
            image = again;
        }
        Ok(Self { image, _source: stream })
    }

    /// Its state.
    pub fn image(&self) -> &Image {
        &self.image
    }
}

impl Image {
    /// Reads the state of a connection in repair mode.
    fn read(stream: &TcpStream, local: SocketAddr, peer: SocketAddr) -> Result<Self, TrafficError> {
        let fail = TrafficError::refused::<nix::Error>;
        let buffers = [getsockopt(stream, RcvBuf), getsockopt(stream, SndBuf)];
        let [receive_buffer, send_buffer] =
            buffers.map(|size| size.map_err(fail("asking for the buffers", peer)));
        let buffers = [receive_buffer?, send_buffer?];
        let receive = Queue::read(stream, RECEIVE_QUEUE, buffers[0]);
        let send = Queue::read(stream, SEND_QUEUE, buffers[1]);
        // Only now: from here on the kernel sends nothing new of the send queue. What it sends after this was read would
        // be acknowledged, and the continued connection drops whoever acknowledges what it has not sent.
        let info = Info::of(stream).map_err(fail("asking for the state", peer))?;
        let timestamps = getsockopt(stream, TimestampClock).map_err(fail("reading the clock", peer))?;
        Ok(Self {
            local,
            peer,
            receive: receive.map_err(fail("reading the receive queue", peer))?,
            send: send.map_err(fail("reading the send queue", peer))?,
            unsent: info.unsent(),
            // In repair mode this is the negotiated value, and not what fits now.
            maximum_segment: getsockopt(stream, TcpMaxSeg).map_err(fail("reading the segment size", peer))?,
            window_scales: info.window_scales(),
            selective_acknowledgements: info.has_selective_acknowledgements(),
            timestamps: info.has_timestamps().then_some(timestamps),
            windows: getsockopt(stream, Windows).map_err(fail("reading the windows", peer))?,
            buffers,
        })
    }

    /// Whether nothing came or was acknowledged between this and another image. Clocks go on.
    fn has_queues_of(&self, other: &Self) -> bool {
        (&self.receive, &self.send, self.unsent) == (&other.receive, &other.send, other.unsent)
    }

    /// How many bytes arrived and were not read yet, and how many were written and not acknowledged.
    pub fn queued(&self) -> (usize, usize) {
        (self.receive.bytes.len(), self.send.bytes.len())
    }

    /// How many of the written bytes were never sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Continues the connection in a namespace that has its address.
    pub fn thaw(&self, namespace: &NetworkNamespace) -> Result<TcpStream, TrafficError> {
        // A socket belongs to the namespace in which it was created, whichever thread uses it.
        namespace.run(|| self.thaw_here())?
    }

    fn thaw_here(&self) -> Result<TcpStream, TrafficError> {
        let peer = self.peer;
        let fail = TrafficError::refused::<nix::Error>;
        let family = if peer.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let made = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp);
        let made = made.map_err(fail("making the socket", peer))?;
        // Nothing may come in before everything is restored.
        shut(&made).map_err(fail("shutting the way in", peer))?;
        // In repair mode before anything else: from here on it sends nothing.
        setsockopt(&made, TcpRepair, &ON).map_err(fail("starting the repair", peer))?;
        // The queues may need more room than before: they are packed differently.
        let [receive, send] = self.buffers;
        setsockopt(&made, RcvBufForce, &receive).map_err(fail("setting the receive buffer", peer))?;
        setsockopt(&made, SndBufForce, &send).map_err(fail("setting the send buffer", peer))?;
        // Sequence numbers can only be chosen before there is a connection.
        self.receive.choose_first(&made, RECEIVE_QUEUE).map_err(fail("numbering the receive queue", peer))?;
        self.send.choose_first(&made, SEND_QUEUE).map_err(fail("numbering the send queue", peer))?;
        // Somebody may listen on the same port here.
        setsockopt(&made, ReuseAddr, &true).map_err(fail("sharing the port", peer))?;
        bind(made.as_raw_fd(), &SockaddrStorage::from(self.local))
            .map_err(fail("taking the address", peer))?;
        // Established at once, without a packet.
        connect(made.as_raw_fd(), &SockaddrStorage::from(peer)).map_err(fail("connecting", peer))?;
        self.agree(&made).map_err(fail("setting what was agreed about", peer))?;
        let stream = TcpStream::from(made);
        self.fill(&stream).map_err(TrafficError::refused("filling the queues", peer))?;
        // Only now, because filling the queues moves them.
        setsockopt(&stream, Windows, &self.windows).map_err(fail("setting the windows", peer))?;
        setsockopt(&stream, DetachFilter, &0).map_err(fail("opening the way in", peer))?;
        // From here on it is a connection: the kernel asks the other end for its window.
        setsockopt(&stream, TcpRepair, &OFF).map_err(fail("ending the repair", peer))?;
        self.write_unsent(&stream).map_err(TrafficError::refused("writing what was not sent yet", peer))?;
        Ok(stream)
    }

    fn agree(&self, socket: &OwnedFd) -> nix::Result<()> {
        setsockopt(socket, AgreedOption, &[MAXIMUM_SEGMENT, self.maximum_segment])?;
        if let Some((theirs, ours)) = self.window_scales {
            setsockopt(socket, AgreedOption, &[WINDOW_SCALE, theirs | (ours << 16)])?;
        }
        if self.selective_acknowledgements {
            setsockopt(socket, AgreedOption, &[SELECTIVE_ACKNOWLEDGEMENT, 0])?;
        }
        if let Some(clock) = self.timestamps {
            setsockopt(socket, AgreedOption, &[TIMESTAMPS, 0])?;
            // Another host's clock differs; the other end drops segments that seem older than the last one.
            setsockopt(socket, TimestampClock, &clock)?;
        }
        Ok(())
    }

    fn fill(&self, stream: &TcpStream) -> io::Result<()> {
        setsockopt(stream, RepairQueue, &RECEIVE_QUEUE)?;
        write_parts(stream, &self.receive.bytes)?;
        setsockopt(stream, RepairQueue, &SEND_QUEUE)?;
        write_parts(stream, &self.send.bytes[..self.sent()])
    }

    /// Bytes that were never sent are written normally: the kernel decides when to send them.
    fn write_unsent(&self, stream: &TcpStream) -> io::Result<()> {
        write_parts(stream, &self.send.bytes[self.sent()..])
    }

    /// How many bytes of the send queue the other end may already have.
    fn sent(&self) -> usize {
        self.send.bytes.len().saturating_sub(self.unsent)
    }
}

impl Queue {
    fn read(stream: &TcpStream, queue: u32, buffer: usize) -> nix::Result<Self> {
        setsockopt(stream, RepairQueue, &queue)?;
        let behind = getsockopt(stream, QueueSequence)?;
        // A queue is never larger than its buffer, which also counts overhead.
        let mut bytes = vec![0; 2 * buffer];
        let length = match recv(stream.as_raw_fd(), &mut bytes, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Err(nix::Error::EAGAIN) => 0,
            length => length?,
        };
        bytes.truncate(length);
        // Numbers of bytes are modulo 2^32.
        let first = behind.wrapping_sub(u32::try_from(length).map_err(|_| nix::Error::EOVERFLOW)?);
        Ok(Self { first, bytes })
    }

    fn choose_first(&self, socket: &OwnedFd, queue: u32) -> nix::Result<()> {
        setsockopt(socket, RepairQueue, &queue)?;
        setsockopt(socket, QueueSequence, &self.first)
    }
}

/// Has a connection send at most this many bytes a second: the kernel then sends what was written before little by little,
/// whatever the connection's owner does.
pub fn limit_rate(stream: &TcpStream, bytes_per_second: u32) -> Result<(), TrafficError> {
    let limited = setsockopt(stream, MaximumRate, &bytes_per_second);
    limited.map_err(TrafficError::refused("limiting the rate", "a connection"))
}

/// Writes in parts for which the kernel finds contiguous memory.
fn write_parts(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    bytes.chunks(16 << 10).try_for_each(|part| stream.write_all(part))
}

/// Stops all packets from reaching this socket.
fn shut(socket: &impl std::os::fd::AsFd) -> nix::Result<()> {
    // BPF_RET | BPF_K: keep no byte of it.
    let mut nothing = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    setsockopt(socket, AttachFilter, &program)
}
