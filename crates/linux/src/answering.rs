//! Whether an interface that somebody else made answers for its addresses on its segment: while an address is on two of
//! them, one does.
//!
//! An interface that does not answer is not quiet yet: its own questions for neighbours, which the kernel repeats seconds
//! after the last packet, tell its address, too, and whoever hears them believes the latest. So it is told to do without
//! neighbours (`NOARP`, for IPv6 as well), which takes back all that it knew of them. That must wait until it has its
//! addresses, because the kernel takes no note of who asks for an IPv6 address that comes later. What can be done before is
//! done before: not to answer over IPv4 (`arp_ignore`), and not to ask over IPv6 whether somebody has the address, because
//! somebody does, and would lose it.

use std::net::IpAddr;

use crate::link::{self, Link};
use crate::netns::{self, NetNs};
use crate::socket::{self, Socket};
use crate::{Mac, address, announce, sysctl};

/// Answers nobody, whatever is asked for.
const IGNORE_ALL: &str = "8";
/// The kernel's default: answers for every address of the host.
const ANSWER: &str = "0";

/// An interface that does not do as it is told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface (yet).
    #[error("there is no interface {link:?} in {namespace}")]
    NoLink {
        /// Its name.
        link: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// It has no Ethernet address.
    #[error("the interface {link:?} in {namespace} has no Ethernet address to announce")]
    NoMac {
        /// Its name.
        link: String,
        /// Where it is.
        namespace: String,
    },
    /// The namespace cannot be entered.
    #[error("enter the namespace of interface {link:?}")]
    Namespace {
        /// The interface.
        link: String,
        /// Why.
        source: netns::Error,
    },
    /// The kernel does not tell.
    #[error("look at interface {link:?}")]
    Kernel {
        /// The interface.
        link: String,
        /// Why.
        source: socket::Error,
    },
    /// A parameter cannot be set.
    #[error(transparent)]
    Parameter(#[from] sysctl::Error),
    /// It could not be announced.
    #[error(transparent)]
    Announce(#[from] announce::Error),
}

impl Error {
    /// Whether it may work a little later: the interface is not there yet, or not up.
    pub fn is_early(&self) -> bool {
        match self {
            Self::NoLink { .. } => true,
            Self::Announce(error) => error.is_early(),
            _ => false,
        }
    }

    /// Whether there is nobody left to answer or to be quiet.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Namespace { source, .. } if source.is_gone())
    }
}

/// Lets the interface `link` of `namespace` answer nobody who asks for its addresses. Says whether that was different.
pub fn stop_answering(namespace: &NetNs, link: &str) -> Result<bool, Error> {
    within(namespace, link, || {
        let changed = sysctl::set_of_link("ipv4", link, "arp_ignore", IGNORE_ALL)?;
        match sysctl::set_of_link("ipv6", link, "accept_dad", "0") {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(changed),
        }
    })
}

/// Makes a [silenced](stop_answering) interface say nothing at all of itself any more, if it has these addresses. Says whether it has.
pub fn mute(namespace: &NetNs, link: &str, addresses: &[IpAddr]) -> Result<bool, Error> {
    let (mut socket, found) = find(namespace, link)?;
    let failed = |source| Error::Kernel { link: link.to_owned(), source };
    let has = address::of_link(&mut socket, found.index).map_err(failed)?;
    let complete = found.up && addresses.iter().all(|it| has.iter().any(|own| own.address.addr() == *it));
    if complete {
        socket.apply(&[link::neighbours(found.index, false)]).map_err(failed)?;
    }
    Ok(complete)
}

/// Lets the interface answer again, if it was [silenced](stop_answering) or [muted](mute). Says whether that was different.
pub fn start_answering(namespace: &NetNs, link: &str) -> Result<bool, Error> {
    // Whatever else somebody set is theirs.
    let silenced =
        within(namespace, link, || Ok(sysctl::read_of_link("ipv4", link, "arp_ignore")? == IGNORE_ALL))?;
    if !silenced {
        return Ok(false);
    }
    let (mut socket, found) = find(namespace, link)?;
    let spoken = socket.apply(&[link::neighbours(found.index, true)]);
    spoken.map_err(|source| Error::Kernel { link: link.to_owned(), source })?;
    within(namespace, link, || sysctl::set_of_link("ipv4", link, "arp_ignore", ANSWER))
}

/// The Ethernet address of an interface.
pub fn mac(namespace: &NetNs, link: &str) -> Result<Mac, Error> {
    let (_, found) = find(namespace, link)?;
    found.mac.ok_or_else(|| Error::NoMac { link: link.to_owned(), namespace: namespace.to_string() })
}

fn find(namespace: &NetNs, link: &str) -> Result<(Socket, Link), Error> {
    let mut socket =
        namespace.socket().map_err(|source| Error::Namespace { link: link.to_owned(), source })?;
    let found = Link::by_name(&mut socket, link);
    let found = found.map_err(|source| Error::Kernel { link: link.to_owned(), source })?;
    let missing = || Error::NoLink { link: link.to_owned(), namespace: namespace.to_string() };
    Ok((socket, found.ok_or_else(missing)?))
}

fn within(
    namespace: &NetNs,
    link: &str,
    work: impl FnOnce() -> Result<bool, sysctl::Error> + Send,
) -> Result<bool, Error> {
    let done = namespace.run(work).map_err(|source| Error::Namespace { link: link.to_owned(), source })?;
    match done {
        Err(error) if error.is_missing() => {
            Err(Error::NoLink { link: link.to_owned(), namespace: namespace.to_string() })
        }
        done => Ok(done?),
    }
}
