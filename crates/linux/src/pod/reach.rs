//! Adds and removes the host's routes to a pod's addresses while the interface stays.
//!
//! Two interfaces may have the same address while it moves from one to the other. Adding a route replaces the one to the same
//! address elsewhere, in one step. Removing deletes exactly the route of this interface, so a late removal does not affect the
//! other one.

use std::net::IpAddr;

use super::{Identity, host_name};
use crate::host::Host;
use crate::link::Link;
use crate::routes::to_pod;
use crate::socket::{Error, Request};

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The routes are as requested.
    Done,
    /// The host has no such interface in service: no route leads there.
    NoInterface,
}

/// Adds routes for all of `addresses` to the interface of `identity`, in one message. Idempotent.
///
/// `source` returns the node's source address towards each.
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

/// Removes the routes for `addresses` that lead to the interface of `identity`, in one message. Idempotent.
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
