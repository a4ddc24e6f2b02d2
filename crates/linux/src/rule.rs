//! The rule that sends every packet past the pod table first.

use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use crate::Settings;
use crate::host::Host;
use crate::route::FAMILIES;
use crate::socket::{Answer, Error, Request, Socket};

/// Whether the rule is there for IPv4 and for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// For IPv4.
    pub v4: bool,
    /// For IPv6.
    pub v6: bool,
}

/// Makes sure that the rule to the pod table exists in both families. Says in which it was there already.
///
/// A kernel without IPv6 has no IPv6 rules; that counts as there.
pub fn ensure(host: &mut Host) -> Result<Presence, Error> {
    let presence = find(host)?;
    let missing = [(presence.v4, AddressFamily::Inet), (presence.v6, AddressFamily::Inet6)];
    let requests: Vec<Request> = missing
        .into_iter()
        .filter(|(there, _)| !there)
        .map(|(_, family)| add(family, &host.settings))
        .collect();
    host.socket.apply(&requests)?;
    Ok(presence)
}

/// Where the rule is.
pub fn find(host: &mut Host) -> Result<Presence, Error> {
    let [v4, v6] = FAMILIES.map(|family| has(&mut host.socket, family, &host.settings));
    Ok(Presence { v4: v4?, v6: v6? })
}

/// Removes the rule from both families.
pub fn remove(host: &mut Host) -> Result<(), Error> {
    let requests = FAMILIES.map(|family| {
        Request::remove(RouteNetlinkMessage::DelRule(message(family, &host.settings)))
            .tolerating(&[Errno::ENOENT, Errno::EAFNOSUPPORT])
    });
    host.socket.apply(&requests)
}

fn has(socket: &mut Socket, family: AddressFamily, settings: &Settings) -> Result<bool, Error> {
    let mut filter = RuleMessage::default();
    filter.header.family = family;
    let rules = match socket.dump(&RouteNetlinkMessage::GetRule(filter)) {
        Err(error) if error.refusal().is_some_and(|refusal| refusal.errno == Errno::EAFNOSUPPORT) => {
            return Ok(true);
        }
        rules => rules?,
    };
    Ok(rules.iter().any(|rule| match rule {
        Answer::Other(RouteNetlinkMessage::NewRule(rule)) => matches(rule, settings),
        _ => false,
    }))
}

/// Whether a rule sends *everything* to the pod table at our priority. One that selects by source or mark does not.
fn matches(rule: &RuleMessage, settings: &Settings) -> bool {
    let header = &rule.header;
    let mut table = u32::from(header.table);
    let mut priority = 0;
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Table(id) => table = *id,
            RuleAttribute::Priority(value) => priority = *value,
            RuleAttribute::Protocol(_)
            | RuleAttribute::SuppressPrefixLen(u32::MAX)
            | RuleAttribute::Other(_) => {}
            _ => return false,
        }
    }
    header.action == RuleAction::ToTable
        && (header.dst_len, header.src_len, header.tos) == (0, 0, 0)
        && (table, priority) == (settings.pod_table, settings.pod_rule_priority)
}

fn add(family: AddressFamily, settings: &Settings) -> Request {
    Request::create(RouteNetlinkMessage::NewRule(message(family, settings))).tolerating(&[Errno::EEXIST])
}

fn message(family: AddressFamily, settings: &Settings) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    message.header.table = u8::try_from(settings.pod_table).unwrap_or(0);
    message.attributes = vec![
        RuleAttribute::Priority(settings.pod_rule_priority),
        RuleAttribute::Table(settings.pod_table),
        RuleAttribute::Protocol(RouteProtocol::from(settings.protocol)),
    ];
    message
}
