//! Takes a pod's interface out of service.
//!
//! It returns at once: no packet passes any more and no route leads there. The reaper deletes the link later, because deleting
//! links one by one takes the kernel 15 ms each.

use super::{Identity, host_name, messages};
use crate::host::Host;
use crate::link::Link;
use crate::socket::{Error, Kind};

/// The result of a teardown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destroyed {
    /// It is out of service now and waits for the reaper.
    ToTrash(Link),
    /// There was nothing to do.
    AlreadyGone,
}

/// Takes the interface of `identity` out of service. Idempotent; also works when its namespace is gone.
///
/// The name of the host end is only needed if the plan set one.
pub fn destroy(host: &mut Host, identity: &Identity, name: Option<&str>) -> Result<Destroyed, Error> {
    let derived;
    let name = if let Some(name) = name {
        name
    } else {
        derived = host_name(&host.settings, &identity.container, &identity.interface);
        &derived
    };
    let Some(link) = Link::by_name(&mut host.socket, name)? else {
        return Ok(Destroyed::AlreadyGone);
    };
    // A link without an alias is an interrupted setup; one with another alias belongs to another holder.
    let owner = link.alias.as_deref().map(Identity::of_alias);
    let ours = match owner {
        None => link.group == host.settings.pod_group,
        Some(owner) => owner.is_some_and(|(owner, _)| owner.is_same_holder(identity)),
    };
    if ours { discard(host, link) } else { Ok(Destroyed::AlreadyGone) }
}

/// Takes a link of the inventory out of service, whoever owned it.
pub fn discard(host: &mut Host, link: Link) -> Result<Destroyed, Error> {
    if link.group == host.settings.trash_group {
        return Ok(Destroyed::AlreadyGone);
    }
    // Setting it down removes its routes from every table in the same step.
    match host.socket.apply(&[messages::to_trash(&host.settings, link.index)]) {
        Ok(()) => Ok(Destroyed::ToTrash(link)),
        Err(error) if error.kind() == Kind::Gone => Ok(Destroyed::AlreadyGone),
        Err(error) => Err(error),
    }
}
