//! Controls whether an interface of another plugin answers for its addresses on its segment. While two interfaces have the same
//! address, only one of them answers.
//!
//! An interface that does not answer can still reveal its address: its own neighbour solicitations, which the kernel repeats
//! seconds after the last packet, contain it, and hosts believe the latest message. So the interface is set to `NOARP` (for
//! IPv6 as well), which also clears its neighbour cache. This must wait until the interface has its addresses: the kernel does
//! not apply it to IPv6 addresses that are added later. Two things are done earlier: the interface stops answering ARP
//! (`arp_ignore`), and skips IPv6 duplicate address detection, because the other interface has the address and would lose it.

use std::net::IpAddr;

use crate::link::{self, Link};
use crate::netns::{self, NetNs};
use crate::socket::{self, Socket};
use crate::{Mac, address, announce, sysctl};

/// Answers no ARP request.
const IGNORE_ALL: &str = "8";
/// The kernel's default: answers for every address of the host.
const ANSWER: &str = "0";

/// Why the change failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface does not exist (yet).
    #[error("there is no interface {link:?} in {namespace}")]
    NoLink {
        /// Its name.
        link: String,
        /// The namespace that was searched.
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
        /// The cause.
        source: netns::Error,
    },
    /// The kernel cannot list the interface.
    #[error("look at interface {link:?}")]
    Kernel {
        /// The interface.
        link: String,
        /// The cause.
        source: socket::Error,
    },
    /// A parameter cannot be set.
    #[error(transparent)]
    Parameter(#[from] sysctl::Error),
    /// The announcement failed.
    #[error(transparent)]
    Announce(#[from] announce::Error),
}

impl Error {
    /// Whether a retry may succeed: the interface does not exist yet, or is not up.
    pub fn is_early(&self) -> bool {
        match self {
            Self::NoLink { .. } => true,
            Self::Announce(error) => error.is_early(),
            _ => false,
        }
    }

    /// Whether the interface or its namespace is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Namespace { source, .. } if source.is_gone())
    }
}

/// Stops the interface `link` of `namespace` from answering for its addresses. Returns whether this changed anything.
pub fn stop_answering(namespace: &NetNs, link: &str) -> Result<bool, Error> {
    within(namespace, link, || {
        let changed = sysctl::set_of_link("ipv4", link, "arp_ignore", IGNORE_ALL)?;
        match sysctl::set_of_link("ipv6", link, "accept_dad", "0") {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(changed),
        }
    })
}

/// Makes a [silenced](stop_answering) interface send nothing about itself, if it has these addresses. Returns whether it has
/// them.
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

/// Lets an interface answer again that was [silenced](stop_answering) or [muted](mute). Returns whether this changed anything.
pub fn start_answering(namespace: &NetNs, link: &str) -> Result<bool, Error> {
    // Values that somebody else set stay.
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
