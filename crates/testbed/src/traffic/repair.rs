//! The socket options of TCP's repair mode, as in `linux/tcp.h`.
//!
//! In repair mode a socket is only a record that is read and written: connecting or closing it sends nothing,
//! and written bytes go into a queue as if they had been sent or received before.

use std::os::fd::AsFd;

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

/// A socket in repair mode.
pub(super) const ON: u32 = 1;
/// An ordinary socket; when it becomes one, the kernel asks the other end for its window.
pub(super) const OFF: u32 = 0;

/// The queue of bytes that arrived and were not read yet.
pub(super) const RECEIVE_QUEUE: u32 = 1;
/// The queue of bytes that were written and are not acknowledged yet.
pub(super) const SEND_QUEUE: u32 = 2;

/// The options that both ends negotiated when they connected, by the numbers of RFC 9293, 7323 and 2018.
pub(super) const MAXIMUM_SEGMENT: u32 = 2;
pub(super) const WINDOW_SCALE: u32 = 3;
pub(super) const SELECTIVE_ACKNOWLEDGEMENT: u32 = 4;
pub(super) const TIMESTAMPS: u32 = 8;

sockopt_impl!(
    /// The queue for [`QueueSequence`], for reading with `MSG_PEEK` and for writing.
    RepairQueue,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_REPAIR_QUEUE,
    u32
);
sockopt_impl!(
    /// Read: the number of the byte after the queue. Written, before the socket is connected: the number of
    /// its first byte.
    QueueSequence,
    Both,
    libc::IPPROTO_TCP,
    libc::TCP_QUEUE_SEQ,
    u32
);
sockopt_impl!(
    /// One of the negotiated options: its number and its value.
    AgreedOption,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_REPAIR_OPTIONS,
    [u32; 2]
);
sockopt_impl!(
    /// What each end may send: `snd_wl1`, `snd_wnd`, `max_window`, `rcv_wnd`, `rcv_wup`.
    Windows,
    Both,
    libc::IPPROTO_TCP,
    libc::TCP_REPAIR_WINDOW,
    [u32; 5]
);
sockopt_impl!(
    /// The connection's own clock. Its lowest bit says whether it counts microseconds.
    TimestampClock,
    Both,
    libc::IPPROTO_TCP,
    libc::TCP_TIMESTAMP,
    u32
);
sockopt_impl!(
    /// The part of `struct tcp_info` that [`Info`] reads.
    RawInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; 152]
);
sockopt_impl!(
    /// How many bytes a second are sent at most, by a timer of the kernel's own.
    MaximumRate,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u32
);
sockopt_impl!(
    /// A program of the classic packet filter, which sees every packet before the connection does.
    AttachFilter,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ATTACH_FILTER,
    libc::sock_fprog
);
sockopt_impl!(
    /// Removes it again; the value does not matter.
    DetachFilter,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_DETACH_FILTER,
    u32
);

/// Further state of a connection.
pub(super) struct Info([u8; 152]);

impl Info {
    pub(super) fn of(socket: &impl AsFd) -> nix::Result<Self> {
        getsockopt(socket, RawInfo).map(Self)
    }

    /// The state; 1 is established.
    pub(super) fn state(&self) -> u8 {
        self.0[0]
    }

    pub(super) fn has_timestamps(&self) -> bool {
        self.0[5] & 1 != 0
    }

    pub(super) fn has_selective_acknowledgements(&self) -> bool {
        self.0[5] & 2 != 0
    }

    /// By how many bits windows are shifted, the other end's and ours, if they are.
    pub(super) fn window_scales(&self) -> Option<(u32, u32)> {
        let both = u32::from(self.0[6]);
        (self.0[5] & 4 != 0).then_some((both & 0xf, both >> 4))
    }

    /// How many of the bytes in the send queue were never sent.
    pub(super) fn unsent(&self) -> usize {
        u32::from_ne_bytes([self.0[144], self.0[145], self.0[146], self.0[147]]) as usize
    }
}
