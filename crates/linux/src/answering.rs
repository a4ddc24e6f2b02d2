//! Whether an interface that somebody else made answers for its addresses on its segment: while an address is on two of
//! them, one does.
//!
//! IPv4 has a parameter for it, `arp_ignore`. IPv6 has none; but there a second interface must not ask whether somebody has
//! its address, because somebody does, and would lose it.

use crate::link::Link;
use crate::netns::{self, NetNs};
use crate::{Mac, announce, socket, sysctl};

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
pub fn hush(namespace: &NetNs, link: &str) -> Result<bool, Error> {
    within(namespace, link, || {
        let changed = sysctl::set_of_link("ipv4", link, "arp_ignore", IGNORE_ALL)?;
        match sysctl::set_of_link("ipv6", link, "accept_dad", "0") {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(changed),
        }
    })
}

/// Lets the interface answer again, if it was [hushed](hush). Says whether that was different.
pub fn unhush(namespace: &NetNs, link: &str) -> Result<bool, Error> {
    within(namespace, link, || {
        // Whatever else somebody set is theirs.
        let hushed = sysctl::read_of_link("ipv4", link, "arp_ignore")? == IGNORE_ALL;
        if hushed { sysctl::set_of_link("ipv4", link, "arp_ignore", ANSWER) } else { Ok(false) }
    })
}

/// The Ethernet address of an interface.
pub fn mac(namespace: &NetNs, link: &str) -> Result<Mac, Error> {
    let mut socket =
        namespace.socket().map_err(|source| Error::Namespace { link: link.to_owned(), source })?;
    let found = Link::by_name(&mut socket, link);
    let found = found.map_err(|source| Error::Kernel { link: link.to_owned(), source })?;
    let (link, namespace) = (link.to_owned(), namespace.to_string());
    match found {
        None => Err(Error::NoLink { link, namespace }),
        Some(found) => found.mac.ok_or(Error::NoMac { link, namespace }),
    }
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
