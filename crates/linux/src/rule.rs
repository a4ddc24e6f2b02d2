//! The rule that sends every packet to the pod table first.

use netlink_packet_route::AddressFamily;

use crate::Settings;
use crate::host::Host;
use crate::policy::{self, Rule};
use crate::route::FAMILIES;
use crate::socket::{Error, Request, Socket};

/// Whether the rule exists for IPv4 and for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// For IPv4.
    pub v4: bool,
    /// For IPv6.
    pub v6: bool,
}

/// Ensures that the rule to the pod table exists in both families. Returns in which it existed already.
///
/// A kernel without IPv6 has no IPv6 rules; that counts as existing.
pub fn ensure(host: &mut Host) -> Result<Presence, Error> {
    let presence = find(host)?;
    let missing = [(presence.v4, AddressFamily::Inet), (presence.v6, AddressFamily::Inet6)];
    let requests: Vec<Request> = missing
        .into_iter()
        .filter(|(there, _)| !there)
        .map(|(_, family)| rule(family, &host.settings).add())
        .collect();
    host.socket.apply(&requests)?;
    Ok(presence)
}

/// In which families the rule exists.
pub fn find(host: &mut Host) -> Result<Presence, Error> {
    let [v4, v6] = FAMILIES.map(|family| has(&mut host.socket, family, &host.settings));
    Ok(Presence { v4: v4?, v6: v6? })
}

/// Removes the rule from both families.
pub fn remove(host: &mut Host) -> Result<(), Error> {
    let requests = FAMILIES.map(|family| rule(family, &host.settings).remove());
    host.socket.apply(&requests)
}

/// Whether a rule sends *all* packets to the pod table at our priority, whoever created it. A rule with selectors does not.
fn has(socket: &mut Socket, family: AddressFamily, settings: &Settings) -> Result<bool, Error> {
    let wanted = rule(family, settings);
    let found = policy::list(socket, family)?;
    Ok(found.is_none_or(|rules| {
        rules.iter().any(|rule| wanted == Rule { protocol: wanted.protocol, ..rule.clone() })
    }))
}

fn rule(family: AddressFamily, settings: &Settings) -> Rule {
    Rule::to_table(family, settings.pod_rule_priority, settings.pod_table, settings.protocol)
}
