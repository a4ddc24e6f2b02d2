//! The nftables rules of egress: a table in a gateway's namespace, and a smaller one in a pod's.
//!
//! ```text
//!  a gateway's table          out of a tunnel, from a client ──────────▶ prerouting: counted as received
//!                             out of a tunnel, from others ────────────▶ prerouting: counted and dropped
//!  to port 5555, and not a tunnel's packet or not a client's ──────────▶ input: counted and dropped
//!  from a tunnel to outside ───────────────────────────────────────────▶ forward: accepted, then masqueraded
//!  from outside to a client, of a connection that is known ────────────▶ forward: counted as sent
//!  everything else ────────────────────────────────────────────────────▶ forward: counted and dropped
//! ```
//!
//! Packets to port 5555 are judged in the input hook, not earlier: an answer from outside to a connection that was
//! masqueraded with this very port is not for the gateway itself.

use std::net::IpAddr;

use super::FOU_PORT;
use super::decapsulate::FORGED_MARK;
use super::family::{Family, octets};
use super::plan::REPLY_MARK;
use crate::link::Traffic;
use crate::nft::{Chain, Expression, FIRST, Hook, SECOND, Transaction, Verdict};
use crate::socket::{Error, Raw, Socket};

use Expression::{
    ConnectionDirection, ConnectionState, Count, Header, In, InputInterface, InputKind, Is, IsNot, Mark,
    Marked, Mask, Masquerade, OutputInterface, Port, Protocol, Value,
};

/// The table's name, in both.
pub(super) const TABLE: &str = "tenure-egress";

const INVALID: u32 = 1;
const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
const REPLY: u8 = 1;
const UDP: u8 = 17;
/// The kinds of the kernel's own tunnels (`ARPHRD_TUNNEL`, `ARPHRD_TUNNEL6`).
const TUNNELS: [u16; 2] = [768, 769];
// The key types of sets, for nft(8): data types, and concatenations of them.
const IPV4_ADDRESS: u32 = 7;
const IPV6_ADDRESS: u32 = 8;
const INTERFACE: u32 = 20;
const NEXT: u32 = 6;
const DROP: Expression<'static> = Expression::Verdict(Verdict::Drop);
const ACCEPT: Expression<'static> = Expression::Verdict(Verdict::Accept);

/// How packets leave and enter tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    /// One device for each family. Programs have checked that each packet has the same source inside and outside.
    Devices([u32; 2]),
    /// A device for each client. Another set maps devices to clients.
    PerClient,
}

/// A client, and its device if it has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) device: Option<u32>,
}

/// What a gateway's rules have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets from clients, without the overhead of tunnels.
    pub received: Traffic,
    /// Packets to clients, without the overhead of tunnels.
    pub sent: Traffic,
    /// First packets of masqueraded connections, of IPv4 and IPv6.
    pub masqueraded: [Traffic; 2],
    /// Packets without a known connection, of IPv4 and IPv6.
    pub invalid: [Traffic; 2],
    /// Packets to the tunnels' port from addresses that are not clients.
    pub not_a_client: Traffic,
    /// Packets in tunnels with a forged source.
    pub forged: Traffic,
    /// Packets to the tunnels' port that are not tunnel packets, or were fragmented.
    pub malformed: Traffic,
    /// Answers to former clients.
    pub no_such_client: Traffic,
    /// Packets that came without a tunnel, or must not be forwarded for another reason.
    pub refused: Traffic,
}

const COUNTERS: [&str; 11] = [
    "received",
    "sent",
    "masqueraded4",
    "masqueraded6",
    "invalid4",
    "invalid6",
    "not_a_client",
    "forged",
    "malformed",
    "no_such_client",
    "refused",
];

/// Creates a gateway's table with these clients, replacing the existing one.
pub(super) fn masquerade(
    socket: &mut Socket<Raw>,
    interface: u32,
    own: &[IpAddr],
    ways: Ways,
    clients: &[Client],
) -> Result<(), Error> {
    let mut table = Transaction::afresh(TABLE);
    for counter in COUNTERS {
        table.counter(counter);
    }
    for family in Family::ALL {
        let kind = if family == Family::V4 { IPV4_ADDRESS } else { IPV6_ADDRESS };
        table.set(set(family), kind, family.address());
        table.set(tunnels(family), INTERFACE << NEXT | kind, 4 + family.address());
    }
    list(&mut table, clients, true);
    let outside = interface.to_ne_bytes();
    prerouting(&mut table, ways);
    input(&mut table, &outside, ways);
    forward(&mut table, &outside, ways);
    postrouting(&mut table, &outside, own);
    table.commit(socket)
}

/// Who leaves tunnels: before connection tracking, so that others cost least.
fn prerouting(table: &mut Transaction, ways: Ways) {
    let (name, policy) = ("prerouting", Verdict::Accept);
    table.chain(Chain { name, kind: "filter", hook: Hook::Prerouting, priority: -300, policy });
    for (position, family) in Family::ALL.into_iter().enumerate() {
        let (number, source) = ([family.number()], place(family.source()));
        let of = [Expression::Family(FIRST), Is(FIRST, &number)];
        match ways {
            Ways::Devices(devices) => {
                let device = devices[position].to_ne_bytes();
                let from = [InputInterface(FIRST), Is(FIRST, &device)];
                let client = [Header(FIRST, source, family.address()), In(FIRST, set(family))];
                table.rule(name, &[&from[..], &of, &client, &[Count("received"), ACCEPT]].concat());
                if family == Family::V6 {
                    // The other end of the pair tells whom it accepts.
                    let multicast = [Header(FIRST, place(family.destination()), 1), Is(FIRST, &[0xff]), DROP];
                    table.rule(name, &[&from[..], &of, &multicast].concat());
                }
                table.rule(name, &[&from[..], &[Count("not_a_client"), DROP]].concat());
            }
            Ways::PerClient => {
                let kind = TUNNELS[position].to_ne_bytes();
                let from = [InputKind(FIRST), Is(FIRST, &kind)];
                let client = [
                    InputInterface(FIRST),
                    Header(SECOND, source, family.address()),
                    In(FIRST, tunnels(family)),
                ];
                table.rule(name, &[&from[..], &of, &client, &[Count("received"), ACCEPT]].concat());
                table.rule(name, &[&from[..], &[Count("forged"), DROP]].concat());
            }
        }
    }
}

/// Who sends to the tunnels' port.
fn input(table: &mut Transaction, outside: &[u8], ways: Ways) {
    let (name, policy) = ("input", Verdict::Accept);
    table.chain(Chain { name, kind: "filter", hook: Hook::Input, priority: 0, policy });
    let from = [InputInterface(FIRST), Is(FIRST, outside)];
    let (udp, port, mark) = ([UDP], FOU_PORT.to_be_bytes(), FORGED_MARK.to_ne_bytes());
    let to = [Protocol(FIRST), Is(FIRST, &udp), Port(FIRST), Is(FIRST, &port)];
    match ways {
        Ways::Devices(_) => {
            let forged = [Marked(FIRST), Is(FIRST, &mark), Count("forged"), DROP];
            table.rule(name, &[&from[..], &forged].concat());
            table.rule(name, &[&from[..], &to, &[Count("malformed"), DROP]].concat());
        }
        Ways::PerClient => {
            for family in Family::ALL {
                let number = [family.number()];
                let client = [
                    Expression::Family(FIRST),
                    Is(FIRST, &number),
                    Header(FIRST, place(family.source()), family.address()),
                    In(FIRST, set(family)),
                    ACCEPT,
                ];
                table.rule(name, &[&from[..], &to, &client].concat());
            }
            table.rule(name, &[&from[..], &to, &[Count("not_a_client"), DROP]].concat());
        }
    }
}

/// Who is forwarded.
fn forward(table: &mut Transaction, outside: &[u8], ways: Ways) {
    let (name, policy) = ("forward", Verdict::Drop);
    table.chain(Chain { name, kind: "filter", hook: Hook::Forward, priority: 0, policy });
    let from_outside = [InputInterface(FIRST), Is(FIRST, outside)];
    let known_bits = ESTABLISHED_OR_RELATED.to_ne_bytes();
    let known = [ConnectionState(FIRST), Mask(FIRST, known_bits), IsNot(FIRST, &[0; 4])];
    for (family, invalid) in Family::ALL.into_iter().zip(["invalid4", "invalid6"]) {
        let number = [family.number()];
        let of = [Expression::Family(FIRST), Is(FIRST, &number)];
        let unknown = [ConnectionState(FIRST), Mask(FIRST, INVALID.to_ne_bytes()), IsNot(FIRST, &[0; 4])];
        table.rule(name, &[&of[..], &unknown, &[Count(invalid), DROP]].concat());
    }
    for (position, family) in Family::ALL.into_iter().enumerate() {
        let number = [family.number()];
        let device = match ways {
            Ways::Devices(devices) => devices[position].to_ne_bytes(),
            Ways::PerClient => [0; 4],
        };
        let kind = TUNNELS[position].to_ne_bytes();
        let (inside, back) = match ways {
            Ways::Devices(_) => (
                [InputInterface(FIRST), Is(FIRST, &device)],
                vec![OutputInterface(FIRST), Is(FIRST, &device)],
            ),
            Ways::PerClient => ([InputKind(FIRST), Is(FIRST, &kind)], Vec::new()),
        };
        let out = [OutputInterface(FIRST), Is(FIRST, outside), ACCEPT];
        table.rule(name, &[&inside[..], &out].concat());
        let client = [
            Expression::Family(FIRST),
            Is(FIRST, &number),
            Header(FIRST, place(family.destination()), family.address()),
            In(FIRST, set(family)),
            Count("sent"),
            ACCEPT,
        ];
        table.rule(name, &[&from_outside[..], &back, &known, &client].concat());
    }
    table.rule(name, &[&from_outside[..], &known, &[Count("no_such_client"), DROP]].concat());
    table.rule(name, &[Count("refused")]);
}

fn postrouting(table: &mut Transaction, outside: &[u8], own: &[IpAddr]) {
    let (name, policy) = ("postrouting", Verdict::Accept);
    // The priority of nft(8)'s srcnat.
    table.chain(Chain { name, kind: "nat", hook: Hook::Postrouting, priority: 100, policy });
    for address in own {
        let family = Family::of(*address);
        let (number, octets) = ([family.number()], octets(*address));
        let counter = if family == Family::V4 { "masqueraded4" } else { "masqueraded6" };
        table.rule(
            name,
            &[
                Expression::Family(FIRST),
                Is(FIRST, &number),
                OutputInterface(FIRST),
                Is(FIRST, outside),
                Header(FIRST, place(family.source()), family.address()),
                IsNot(FIRST, &octets),
                Count(counter),
                Masquerade,
            ],
        );
    }
}

/// Adds and removes clients in one transaction.
pub(super) fn change_clients(
    socket: &mut Socket<Raw>,
    added: &[Client],
    removed: &[Client],
) -> Result<(), Error> {
    let mut transaction = Transaction::on(TABLE);
    list(&mut transaction, added, true);
    list(&mut transaction, removed, false);
    transaction.commit(socket)
}

fn list(transaction: &mut Transaction, clients: &[Client], listed: bool) {
    for family in Family::ALL {
        let clients = clients.iter().filter(|client| Family::of(client.address) == family);
        let addresses: Vec<Vec<u8>> = clients.clone().map(|client| octets(client.address)).collect();
        let of_devices = clients.filter_map(|client| {
            let device = client.device?;
            Some([&device.to_ne_bytes()[..], &octets(client.address)].concat())
        });
        for (set, keys) in [(set(family), addresses), (tunnels(family), of_devices.collect())] {
            if listed {
                transaction.add_elements(set, &keys);
            } else {
                transaction.remove_elements(set, &keys);
            }
        }
    }
}

/// The counters of a gateway's rules; `None` if they do not exist.
pub(super) fn counted(socket: &mut Socket<Raw>) -> Result<Option<Counted>, Error> {
    let found = crate::nft::counters(socket, TABLE)?;
    if COUNTERS.iter().any(|name| !found.iter().any(|(it, _)| it == name)) {
        return Ok(None);
    }
    let of = |name: &str| found.iter().find(|(it, _)| it == name).map(|(_, it)| *it).unwrap_or_default();
    Ok(Some(Counted {
        received: of("received"),
        sent: of("sent"),
        masqueraded: [of("masqueraded4"), of("masqueraded6")],
        invalid: [of("invalid4"), of("invalid6")],
        not_a_client: of("not_a_client"),
        forged: of("forged"),
        malformed: of("malformed"),
        no_such_client: of("no_such_client"),
        refused: of("refused"),
    }))
}

/// Marks a pod's packets that answer incoming connections, so that rules can tell them apart.
pub(super) fn mark_replies(socket: &mut Socket<Raw>) -> Result<(), Error> {
    let mut table = Transaction::afresh(TABLE);
    // The priority of nft(8)'s mangle. Packets whose mark changes are routed again.
    let (hook, priority, policy) = (Hook::Output, -150, Verdict::Accept);
    table.chain(Chain { name: "output", kind: "route", hook, priority, policy });
    table.rule(
        "output",
        &[ConnectionDirection(FIRST), Is(FIRST, &[REPLY]), Value(FIRST, REPLY_MARK), Mark(FIRST)],
    );
    table.commit(socket)
}

/// Removes the table.
pub(super) fn remove(socket: &mut Socket<Raw>) -> Result<(), Error> {
    let mut table = Transaction::on(TABLE);
    table.remove();
    table.commit(socket)
}

fn place(offset: i16) -> u32 {
    u32::try_from(offset).unwrap_or(0)
}

/// The set of clients' addresses.
fn set(family: Family) -> &'static str {
    match family {
        Family::V4 => "clients4",
        Family::V6 => "clients6",
    }
}

/// The set of clients' devices, each with its client's address.
fn tunnels(family: Family) -> &'static str {
    match family {
        Family::V4 => "tunnels4",
        Family::V6 => "tunnels6",
    }
}
