//! Attaches BPF programs to links: tc filters that run a program on every packet of a protocol.
//!
//! A filter outlives the process that attached it, and is replaced in one step. Its owner chooses its name. A name that
//! contains a hash of the program tells later whether the right program is attached.

use std::os::fd::AsRawFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption};
use nix::errno::Errno;

use crate::bpf::Program;
use crate::socket::{Answer, Error, Message, Request, Socket};

// See rtnetlink(7), tc-bpf(8).
const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's return value is the verdict.
const DIRECT_ACTION: u32 = 1;
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;

/// The direction of the packets that a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Side {
    /// Incoming packets.
    Arriving = 0xffff_fff2,
    /// Outgoing packets.
    Leaving = 0xffff_fff3,
}

/// Where a program is attached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Filter {
    /// The link.
    pub(crate) link: u32,
    /// The direction.
    pub(crate) side: Side,
    /// Smaller priorities run first. Each belongs to one protocol.
    pub(crate) priority: u16,
    /// The Ethernet type of the packets.
    pub(crate) protocol: u16,
    /// The name that its owner chose.
    pub(crate) name: String,
}

/// Adds the `clsact` qdisc to a link; succeeds if it exists.
pub(crate) fn prepare(link: u32) -> Request {
    let message = Message::new(RTM_NEWQDISC, header(link, CLSACT_HANDLE, CLSACT, 0))
        .with_text(TCA_KIND, "clsact")
        .named(format!("let programs be attached to link {link}"));
    Request::create(message).tolerating(&[Errno::EEXIST])
}

impl Filter {
    /// Attaches a program, replacing the existing one.
    pub(crate) fn put(&self, program: &Program) -> Request {
        let message = self
            .message(RTM_NEWTFILTER)
            .with_nested(TCA_OPTIONS, &[], |options| {
                options
                    .with(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes())
                    .with_text(TCA_BPF_NAME, &self.name)
                    .with_number(TCA_BPF_FLAGS, DIRECT_ACTION)
            })
            .named(format!("attach program {} to link {}", self.name, self.link));
        Request::put(message)
    }

    /// Detaches it; succeeds if the filter or the qdisc is gone already.
    pub(crate) fn remove(&self) -> Request {
        let message = self
            .message(RTM_DELTFILTER)
            .named(format!("detach program {} from link {}", self.name, self.link));
        Request::remove(message).tolerating(&[Errno::ENOENT, Errno::ENODEV, Errno::EINVAL])
    }

    fn message(&self, kind: u16) -> Message {
        let info = u32::from(self.priority) << 16 | u32::from(self.protocol.to_be());
        Message::new(kind, header(self.link, 1, self.side as u32, info)).with_text(TCA_KIND, "bpf")
    }

    fn read(message: &TcMessage, side: Side) -> Option<Self> {
        let is_program =
            message.attributes.iter().any(|it| matches!(it, TcAttribute::Kind(kind) if kind == "bpf"));
        let name = message.attributes.iter().find_map(|attribute| match attribute {
            TcAttribute::Options(options) => options.iter().find_map(|option| match option {
                TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => Some(name.clone()),
                _ => None,
            }),
            _ => None,
        });
        let link = u32::try_from(message.header.index).ok()?;
        let priority = u16::try_from(message.header.info >> 16).ok()?;
        let protocol = u16::from_be(u16::try_from(message.header.info & 0xffff).ok()?);
        is_program.then_some(Self { link, side, priority, protocol, name: name? })
    }
}

/// The named programs in one direction of a link.
pub(crate) fn list(socket: &mut Socket, link: u32, side: Side) -> Result<Vec<Filter>, Error> {
    let message = Message::new(RTM_GETTFILTER, header(link, 0, side as u32, 0))
        .named(format!("list the programs on link {link}"));
    let found = match socket.list(&Request::list(message)) {
        // The link has no `clsact` qdisc yet.
        Err(error) if error.refusal().is_some_and(|refusal| refusal.errno == Errno::EINVAL) => Vec::new(),
        found => found?,
    };
    Ok(found
        .iter()
        .filter_map(|answer| match answer {
            Answer::Other(RouteNetlinkMessage::NewTrafficFilter(message)) => Filter::read(message, side),
            _ => None,
        })
        .collect())
}

fn header(link: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut header = [0; 20];
    let (_, words) = header.split_at_mut(4);
    for (place, word) in words.chunks_exact_mut(4).zip([link, handle, parent, info]) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    header
}
