//! Policy routing rules: the value, requests that add and remove one, and lists.

use ipnet::IpNet;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use crate::socket::{Answer, Error, Request, Socket};

/// One rule. Fields that are not set match every packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The family of its packets.
    pub family: AddressFamily,
    /// Rules with smaller numbers are evaluated first.
    pub priority: u32,
    /// Only packets from this network.
    pub from: Option<IpNet>,
    /// Only packets to this network.
    pub to: Option<IpNet>,
    /// Only packets from this interface.
    pub from_interface: Option<String>,
    /// Only packets with this mark.
    pub mark: Option<u32>,
    /// The action.
    pub action: Action,
    /// The protocol number of its creator.
    pub protocol: u8,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Looks up a route in this table, and continues with the next rule if there is none.
    Table(u32),
    /// Continues with the rule of this priority.
    Goto(u32),
}

impl Rule {
    /// A rule that sends every packet to a table.
    pub fn to_table(family: AddressFamily, priority: u32, table: u32, protocol: u8) -> Self {
        let (from, to, from_interface, mark) = (None, None, None, None);
        Self { family, priority, from, to, from_interface, mark, action: Action::Table(table), protocol }
    }

    /// Adds it; succeeds if it exists.
    pub fn add(&self) -> Request {
        Request::create(RouteNetlinkMessage::NewRule(self.message())).tolerating(&[Errno::EEXIST])
    }

    /// Removes it; succeeds if it is gone already, or if the kernel lacks the family.
    pub fn remove(&self) -> Request {
        Request::remove(RouteNetlinkMessage::DelRule(self.message()))
            .tolerating(&[Errno::ENOENT, Errno::EAFNOSUPPORT])
    }

    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = self.family;
        message.attributes.push(RuleAttribute::Priority(self.priority));
        match self.action {
            Action::Table(table) => {
                message.header.action = RuleAction::ToTable;
                message.header.table = u8::try_from(table).unwrap_or(0);
                message.attributes.push(RuleAttribute::Table(table));
            }
            Action::Goto(priority) => {
                message.header.action = RuleAction::Goto;
                message.attributes.push(RuleAttribute::Goto(priority));
            }
        }
        if let Some(from) = self.from {
            message.header.src_len = from.prefix_len();
            message.attributes.push(RuleAttribute::Source(from.network()));
        }
        if let Some(to) = self.to {
            message.header.dst_len = to.prefix_len();
            message.attributes.push(RuleAttribute::Destination(to.network()));
        }
        message.attributes.extend(self.from_interface.clone().map(RuleAttribute::Iifname));
        message.attributes.extend(self.mark.map(RuleAttribute::FwMark));
        message.attributes.push(RuleAttribute::Protocol(RouteProtocol::from(self.protocol)));
        message
    }

    /// Decodes the kernel's description; `None` for a rule with other actions or selectors.
    pub fn read(message: &RuleMessage) -> Option<Self> {
        let header = &message.header;
        let mut rule = Self::to_table(header.family, 0, header.table.into(), 0);
        let mut goto = None;
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Table(table) => rule.action = Action::Table(*table),
                RuleAttribute::Goto(priority) => goto = Some(*priority),
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Source(address) => {
                    rule.from = Some(IpNet::new(*address, header.src_len).ok()?);
                }
                RuleAttribute::Destination(address) => {
                    rule.to = Some(IpNet::new(*address, header.dst_len).ok()?);
                }
                RuleAttribute::Iifname(name) => rule.from_interface = Some(name.clone()),
                RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
                RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
                RuleAttribute::FwMask(u32::MAX)
                | RuleAttribute::SuppressPrefixLen(u32::MAX)
                | RuleAttribute::Other(_) => {}
                _ => return None,
            }
        }
        match (header.action, goto) {
            (RuleAction::ToTable, _) => {}
            (RuleAction::Goto, Some(priority)) => rule.action = Action::Goto(priority),
            _ => return None,
        }
        let elsewhere = header.dst_len > 0 && rule.to.is_none() || header.src_len > 0 && rule.from.is_none();
        (header.tos == 0 && !elsewhere).then_some(rule)
    }
}

/// The rules of one family that fit a [`Rule`]; `None` if the kernel lacks the family.
pub fn list(socket: &mut Socket, family: AddressFamily) -> Result<Option<Vec<Rule>>, Error> {
    let mut filter = RuleMessage::default();
    filter.header.family = family;
    let found = match socket.dump(&RouteNetlinkMessage::GetRule(filter)) {
        Err(error) if error.refusal().is_some_and(|refusal| refusal.errno == Errno::EAFNOSUPPORT) => {
            return Ok(None);
        }
        found => found?,
    };
    Ok(Some(
        found
            .iter()
            .filter_map(|answer| match answer {
                Answer::Other(RouteNetlinkMessage::NewRule(message)) => Rule::read(message),
                _ => None,
            })
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_rule()(
            priority in any::<u32>(),
            from in prop::option::of((any::<u32>(), 1..=32_u8)),
            to in prop::option::of((any::<u32>(), 1..=32_u8)),
            interface in any::<bool>(),
            mark in prop::option::of(1..=u32::MAX),
            goto in any::<bool>(),
            number in 1..=u32::MAX,
            protocol in any::<u8>(),
        ) -> Rule {
            let network = |(bits, length)| {
                IpNet::new(std::net::Ipv4Addr::from_bits(bits).into(), length).unwrap().trunc()
            };
            Rule {
                family: AddressFamily::Inet,
                priority,
                from: from.map(network),
                to: to.map(network),
                from_interface: interface.then(|| "eth0".to_owned()),
                mark,
                action: if goto { Action::Goto(number) } else { Action::Table(number) },
                protocol,
            }
        }
    }

    proptest! {
        #[test]
        fn a_rule_survives_the_way_through_its_message(rule in any_rule()) {
            let RouteNetlinkMessage::NewRule(message) = rule.add().message().unwrap() else { panic!() };
            prop_assert_eq!(Rule::read(&message), Some(rule));
        }
    }
}
