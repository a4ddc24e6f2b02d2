//! Whether packets arrive at a pod's interface: the host's routes to its addresses, put and withdrawn while the interface
//! stays.
//!
//! Two interfaces may have the same address while it moves from one to the other. A route that is put takes the place of
//! the one that leads to the same address elsewhere, in one step; one that is withdrawn is exactly that of this interface,
//! so that whoever withdraws late takes nothing away from the other.

use std::net::IpAddr;

use super::{Identity, host_name};
use crate::host::Host;
use crate::link::Link;
use crate::routes::to_pod;
use crate::socket::{Error, Request};

/// What became of an interface's reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It is as it was asked for.
    Done,
    /// The host has no such interface, or it is out of service: no route leads there.
    NoInterface,
}

/// Has routes lead to the interface of `identity` for all of `addresses`, in one message; as often as one likes.
///
/// `source` says the node's own address towards each.
pub fn reach(
    host: &mut Host,
    identity: &Identity,
    addresses: &[IpAddr],
    source: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Result<Reached, Error> {
    let Some(link) = own_link(host, identity)? else { return Ok(Reached::NoInterface) };
    put(host, link.index, addresses, source)?;
    Ok(Reached::Done)
}

/// Takes the routes for `addresses` away that lead to the interface of `identity`, in one message; as often as one likes.
pub fn withdraw(host: &mut Host, identity: &Identity, addresses: &[IpAddr]) -> Result<Reached, Error> {
    let Some(link) = own_link(host, identity)? else { return Ok(Reached::NoInterface) };
    remove(host, link.index, addresses)?;
    Ok(Reached::Done)
}

pub(super) fn put(
    host: &mut Host,
    link: u32,
    addresses: &[IpAddr],
    source: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Result<(), Error> {
    let Host { socket, settings, .. } = host;
    let route = |address: &IpAddr| to_pod(settings, *address, link, source(*address)).put();
    socket.apply(&addresses.iter().map(route).collect::<Vec<Request>>())
}

pub(super) fn remove(host: &mut Host, link: u32, addresses: &[IpAddr]) -> Result<(), Error> {
    let Host { socket, settings, .. } = host;
    let route = |address: &IpAddr| to_pod(settings, *address, link, None).remove();
    socket.apply(&addresses.iter().map(route).collect::<Vec<Request>>())
}

/// The host end of an interface in service.
fn own_link(host: &mut Host, identity: &Identity) -> Result<Option<Link>, Error> {
    let name = host_name(&host.settings, &identity.container, &identity.interface);
    let Some(link) = Link::by_name(&mut host.socket, &name)? else { return Ok(None) };
    let owner = link.alias.as_deref().and_then(Identity::of_alias);
    let ours = owner.is_some_and(|(owner, _)| owner.is_same_holder(identity));
    Ok(Some(link).filter(|link| ours && link.group != host.settings.trash_group))
}
