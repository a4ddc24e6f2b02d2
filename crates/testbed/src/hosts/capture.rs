//! Packets as a host sees them.

use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{RcvBuf, ReceiveTimestampns};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket,
};
use nix::sys::time::TimeSpec;

use super::{Direction, HostError, NetworkNamespace, Packet};

/// How many of the latest packets the error of a failed wait shows.
const SHOWN: usize = 20;

/// A running record of all packets of a namespace, from the moment it was started.
#[derive(Debug)]
pub struct Capture {
    host: String,
    seen: Arc<Seen>,
    /// Closing it wakes and ends the reader.
    stop: Option<UnixStream>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    packets: Mutex<Vec<Packet>>,
    grown: Condvar,
}

impl Capture {
    pub(super) fn start(namespace: &NetworkNamespace) -> Result<Self, HostError> {
        let host = namespace.name().to_owned();
        let fail = |act, source| HostError::Capture { act, host: host.clone(), source };
        // A socket belongs to the namespace in which it was created, whichever thread reads from it.
        let socket = namespace
            .run(|| -> io::Result<OwnedFd> {
                let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
                let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
                setsockopt(&socket, ReceiveTimestampns, &true)?;
                setsockopt(&socket, RcvBuf, &(4 << 20))?;
                Ok(socket)
            })?
            .map_err(|source| fail("making the socket", source))?;
        let (stop, stopped) = UnixStream::pair().map_err(|source| fail("making the stop pipe", source))?;
        let seen = Arc::new(Seen::default());
        let sink = Arc::clone(&seen);
        let reader = thread::Builder::new()
            .name(format!("{host}: capture"))
            .spawn(move || read_until(&stopped, &socket, &sink))
            .map_err(|source| fail("starting the reader", source))?;
        Ok(Self { host, seen, stop: Some(stop), reader: Some(reader) })
    }

    /// Waits for a packet that matches `wanted`, since the start or later.
    pub fn wait_for(
        &self,
        within: Duration,
        mut wanted: impl FnMut(&Packet) -> bool,
    ) -> Result<Packet, HostError> {
        let mut looked_at = 0;
        let mut found = None;
        let packets = self.seen.packets.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.seen.grown.wait_timeout_while(packets, within, |packets| {
            found = packets[looked_at..].iter().find(|packet| wanted(packet)).cloned();
            looked_at = packets.len();
            found.is_none()
        });
        let (packets, _) = waited.unwrap_or_else(PoisonError::into_inner);
        found.ok_or_else(|| HostError::NotSeen {
            host: self.host.clone(),
            within,
            seen: packets.len(),
            summary: summary(&packets),
        })
    }

    /// The packets so far.
    pub fn packets(&self) -> Vec<Packet> {
        self.seen.packets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the capture, after the packets that the kernel still has, and returns all packets.
    pub fn stop(mut self) -> Vec<Packet> {
        self.end();
        self.packets()
    }

    fn end(&mut self) {
        if let Some(mut stop) = self.stop.take() {
            // Fails only if the reader is gone, and then there is nobody to stop.
            let _ = stop.write_all(&[0]);
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_until(stopped: &UnixStream, socket: &OwnedFd, seen: &Seen) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut ready =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => return,
        }
        let last = ready[1].any().unwrap_or(true);
        while let Ok(packet) = read_one(socket, &mut buffer) {
            let mut packets = seen.packets.lock().unwrap_or_else(PoisonError::into_inner);
            packets.extend(packet);
            seen.grown.notify_all();
        }
        if last {
            return;
        }
    }
}

/// The next waiting packet, unless it is no Ethernet frame; an error if none waits.
fn read_one(socket: &OwnedFd, buffer: &mut [u8]) -> nix::Result<Option<Packet>> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let (length, at, interface, direction) = {
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::empty();
        let message = match recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags) {
            // An interface that went down is no reason to stop observing the others.
            Err(nix::Error::EINTR | nix::Error::ENETDOWN) => return Ok(None),
            message => message?,
        };
        let at = message.cmsgs().ok().into_iter().flatten().find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let link = message.address;
        let direction = match link.map(|link| link.pkttype()) {
            Some(nix::libc::PACKET_OUTGOING) => Direction::Sent,
            Some(nix::libc::PACKET_OTHERHOST) => Direction::Overheard,
            _ => Direction::Received,
        };
        (message.bytes, at.unwrap_or_default(), link.map_or(0, |link| link.ifindex()), direction)
    };
    let bytes = buffer.get(..length).unwrap_or_default().to_vec();
    Ok(Packet::parse(at, interface, direction, bytes))
}

/// The latest packets, one a line.
fn summary(packets: &[Packet]) -> String {
    let shown = &packets[packets.len().saturating_sub(SHOWN)..];
    shown.iter().map(Packet::to_string).collect::<Vec<_>>().join("\n")
}
