//! The ports of the kernel's own Foo-over-UDP, through its generic netlink family.

use netlink_packet_core::NlasIterator;

use super::{FOU_PORT, Family};
use crate::generic;
use crate::netns::{self, NetNs};
use crate::socket::{self, Raw, Request, Socket};

// See include/uapi/linux/fou.h.
const FOU_CMD_ADD: u8 = 1;
const FOU_CMD_DEL: u8 = 2;
const FOU_CMD_GET: u8 = 3;
const FOU_ATTR_PORT: u16 = 1;
const FOU_ATTR_AF: u16 = 2;
const FOU_ATTR_IPPROTO: u16 = 3;
const FOU_ATTR_TYPE: u16 = 4;
const FOU_ENCAP_DIRECT: u8 = 1;

/// Why ports could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The kernel does not have the module.
    #[error("the kernel has no Foo-over-UDP (module fou)")]
    NoModule,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] socket::Error),
}

/// The ports of a namespace.
pub(super) struct Ports {
    socket: Socket<Raw>,
    family: u16,
    open: Vec<Family>,
}

impl Ports {
    /// Reads the ports of a namespace.
    pub(super) fn of(namespace: &NetNs) -> Result<Self, Error> {
        let mut socket = generic::open(namespace)?;
        let family = generic::family(&mut socket, "fou")?.ok_or(Error::NoModule)?;
        let list = generic::message(family, FOU_CMD_GET, 1).named("list the ports of Foo-over-UDP");
        let found = socket.list(&Request::list(list))?;
        let open = found.iter().filter_map(|port| read(&port.body)).collect();
        Ok(Self { socket, family, open })
    }

    /// Whether one is open.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The requests after which exactly the ports of `wanted` families are open.
    pub(super) fn difference(&self, wanted: &[Family]) -> Vec<Request> {
        let message = |command, family: Family, act: &str| {
            generic::message(self.family, command, 1)
                .with(FOU_ATTR_PORT, &FOU_PORT.to_be_bytes())
                .with(FOU_ATTR_AF, &[family.number()])
                .with(FOU_ATTR_IPPROTO, &[family.protocol()])
                .with(FOU_ATTR_TYPE, &[FOU_ENCAP_DIRECT])
                .named(format!("{act} port {FOU_PORT} of Foo-over-UDP for {family:?}"))
        };
        let missing = wanted.iter().filter(|family| !self.open.contains(family));
        let surplus = self.open.iter().filter(|family| !wanted.contains(family));
        missing
            .map(|family| Request::change(message(FOU_CMD_ADD, *family, "open")))
            .chain(surplus.map(|family| Request::remove(message(FOU_CMD_DEL, *family, "close"))))
            .collect()
    }

    /// Sends them.
    pub(super) fn apply(&mut self, requests: &[Request]) -> Result<(), socket::Error> {
        if requests.is_empty() { Ok(()) } else { self.socket.apply(requests) }
    }
}

/// The family of a port that is ours.
fn read(body: &[u8]) -> Option<Family> {
    let (mut port, mut number, mut protocol) = (None, None, None);
    for attribute in NlasIterator::new(body.get(generic::HEADER..)?).map_while(Result::ok) {
        match attribute.kind() {
            FOU_ATTR_PORT => port = <[u8; 2]>::try_from(attribute.value()).ok().map(u16::from_be_bytes),
            FOU_ATTR_AF => number = attribute.value().first().copied(),
            FOU_ATTR_IPPROTO => protocol = attribute.value().first().copied(),
            _ => {}
        }
    }
    let is_ours = |family: &Family| number == Some(family.number()) && protocol == Some(family.protocol());
    Family::ALL.into_iter().find(is_ours).filter(|_| port == Some(FOU_PORT))
}
