//! The program that encapsulates packets as they leave a client's interface or a gateway's device.
//!
//! ```text
//! Ethernet │ inner IP │ …     ──▶     Ethernet │ outer IP │ UDP │ inner IP │ …     to the next hop of the outer packet
//! ```
//!
//! The outer packet equals that of the kernel's own Foo-over-UDP: TTL 225, don't fragment, no UDP checksum,
//! congestion bits of the inner packet. A packet that is to be segmented later (TCP and UDP segmentation offload)
//! stays one packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::family::{Family, UDP, octets};
use super::{FOU_PORT, SourcePort, TTL};
use crate::Mac;
use crate::bpf::{Assembler, Condition, Helper, Label, Operation, Register, Width};

use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// A program that encapsulates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encapsulation<'a> {
    /// Of which packets.
    pub(super) family: Family,
    /// The interface by which outer packets leave.
    pub(super) interface: u32,
    /// Where they go.
    pub(super) to: To<'a>,
}

/// Where outer packets go.
#[derive(Clone, Copy, Debug)]
pub(super) enum To<'a> {
    /// From the inner packet's source to the gateway whose [`neighbour`] the packet was routed to. Packets that were
    /// routed elsewhere are not changed.
    Gateways(&'a [Way]),
    /// From `own` to the inner packet's destination. The [`router`] that it was routed to tells the source port.
    Clients {
        /// The gateway's address.
        own: IpAddr,
        /// The Ethernet address of the only next hop to all clients, if it is permanent.
        mac: Option<Mac>,
    },
}

/// The way to a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The gateway.
    pub(super) gateway: IpAddr,
    /// The source port of outer packets.
    pub(super) port: SourcePort,
    /// The next hop of outer packets. Without one they are routed again, which follows every change of routes, but
    /// would lead them back here if an Egress covers its own gateway. With one, a packet that has to wait for the
    /// next hop's Ethernet address is lost: the kernel then sends it where the inner packet was to go.
    pub(super) next_hop: Option<IpAddr>,
    /// The Ethernet address of the next hop, if it is permanent. Then outer packets leave at once, without a second
    /// lookup of route, neighbour and programs.
    pub(super) mac: Option<Mac>,
}

/// The Ethernet address that stands for a gateway. It never appears on a wire: the kernel writes it on a packet, and
/// the program reads it. It is derived from the gateway's address alone, so a changed list of gateways does not
/// change the others.
pub(super) fn neighbour(gateway: IpAddr) -> Mac {
    let [k0, k1, k2, k3] = key(gateway);
    let [m0, m1] = TO_GATEWAY;
    Mac([m0, m1, k0, k1, k2, k3])
}

/// Whether a neighbour stands for a gateway, by both its addresses: other Ethernet addresses may have the same
/// prefix.
pub(super) fn is_stand_in(address: IpAddr, mac: Mac) -> bool {
    let is_ours = match address {
        IpAddr::V4(address) => address.octets().starts_with(&STAND_INS),
        IpAddr::V6(address) => address.segments().starts_with(&STAND_INS_V6),
    };
    is_ours && mac.0.starts_with(&TO_GATEWAY)
}

/// The routers that stand for gateways in a client's routes, and whose Ethernet addresses are the gateways'
/// [`neighbour`]s. They are unused link-local addresses, so no route or neighbour of the pod is touched: for IPv6
/// derived from the gateway's key; for IPv4 in 169.254.117.0/24, where a collision moves on to the next.
pub(super) fn stand_ins(gateways: &[IpAddr]) -> BTreeMap<IpAddr, IpAddr> {
    let mut found = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for gateway in gateways.iter().copied().collect::<BTreeSet<_>>() {
        let [k0, k1, k2, k3] = key(gateway);
        let hop: IpAddr = match gateway {
            IpAddr::V4(_) => {
                let first = k0.wrapping_mul(31).wrapping_add(k1).wrapping_mul(31).wrapping_add(k2) ^ k3;
                let free = (0..=u8::MAX).map(|step| first.wrapping_add(step)).find(|last| {
                    // Neither the network's own address nor its broadcast address.
                    (1..u8::MAX).contains(last) && taken.insert(*last)
                });
                {
                    let [a, b, c] = STAND_INS;
                    Ipv4Addr::new(a, b, c, free.unwrap_or(1)).into()
                }
            }
            IpAddr::V6(_) => {
                let [k0, k1, k2, k3] = [k0, k1, k2, k3].map(u16::from);
                {
                    let [s0, s1, s2, s3, s4, s5] = STAND_INS_V6;
                    Ipv6Addr::new(s0, s1, s2, s3, s4, s5, k0 << 8 | k1, k2 << 8 | k3).into()
                }
            }
        };
        found.insert(gateway, hop);
    }
    found
}

/// The Ethernet address that stands for the path to a gateway's clients: it contains the source port of outer
/// packets, or zero if that depends on the flow. Whoever creates the neighbour entry chooses, and need not have
/// loaded the program.
pub(super) fn router(port: SourcePort) -> Mac {
    let [p0, p1] = match port {
        SourcePort::Fixed => FOU_PORT.to_be_bytes(),
        SourcePort::PerFlow => [0; 2],
    };
    let [m0, m1] = TO_CLIENTS;
    Mac([m0, m1, 0, 0, p0, p1])
}

/// The prefix of Ethernet addresses that stand for gateways. Pods' routers have another.
const TO_GATEWAY: [u8; 2] = [0x0e, 0x54];
/// The prefix of those that stand for the path to clients. Agent and gateway must agree on it, whatever their
/// versions.
const TO_CLIENTS: [u8; 2] = [0x0a, 0x54];
/// The prefix of the addresses of [`stand_ins`].
const STAND_INS: [u8; 3] = [169, 254, 117];
const STAND_INS_V6: [u16; 6] = [0xfe80, 0, 0, 0, 0x7465, 0x6e75];

/// Four bytes that stand for a gateway: its IPv4 address, or a hash (FNV-1a) of its IPv6 address.
pub(super) fn key(gateway: IpAddr) -> [u8; 4] {
    match gateway {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => address
            .octets()
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
            .to_be_bytes(),
    }
}

/// What tc does with a packet.
pub(super) const DROP: i32 = 2;
/// tc result: continue with the next filter.
pub(super) const PASS: i32 = -1;

// On the stack: the packet's Ethernet header, placed so that what follows is aligned, and its IP header.
const ETHERNET: usize = 14;
const FRAME: i16 = -62;
const INNER: i16 = FRAME + 14;
/// The outer IP header and UDP header.
const OUTER: i16 = -112;
/// The next hop of the outer packet: `struct bpf_redir_neigh`.
const NEXT_HOP: i16 = -136;
const NEXT_HOP_LENGTH: i32 = 20;

// Flags of `bpf_skb_adjust_room`.
const AT_MAC: i32 = 1;
const KEEP_SEGMENT_SIZE: i32 = 1;
const OUTER_IPV4: i32 = 1 << 1;
const OUTER_IPV6: i32 = 1 << 2;
const OUTER_UDP: i32 = 1 << 4;

impl Encapsulation<'_> {
    /// Builds the program.
    ///
    /// `R6` is the packet, `R7` its length with the new headers, `R8` its congestion bits, `R9` the source port.
    pub(super) fn assemble(&self) -> Assembler {
        let mut code = Assembler::default();
        let (pass, drop) = (code.label(), code.label());
        code.copy(R6, R1);
        let others = if let To::Gateways(_) = self.to { pass } else { drop };
        self.read(&mut code, others);
        self.address(&mut code, others);
        self.congestion(&mut code);
        Self::source_port(&mut code);
        self.make_room(&mut code, drop);
        match self.family {
            Family::V4 => ipv4(&mut code),
            Family::V6 => ipv6(&mut code),
        }
        self.udp(&mut code);
        write(&mut code, (14, OUTER), self.family.header() + UDP, drop);
        self.leave(&mut code, drop);
        // Unreachable destinations are refused.
        if let To::Gateways(_) = self.to {
            code.mark(pass);
            code.exit_with(PASS);
        }
        code.mark(drop);
        code.exit_with(DROP);
        code
    }

    /// Whether the next hop to each gateway is known.
    fn knows_next_hop(&self) -> bool {
        matches!(self.to, To::Gateways(ways) if ways.iter().all(|way| way.next_hop.is_some()))
    }

    /// Whether its Ethernet address is.
    fn knows_mac(&self) -> bool {
        match self.to {
            To::Gateways(ways) => ways.iter().all(|way| way.mac.is_some()),
            To::Clients { mac, .. } => mac.is_some(),
        }
    }

    /// Sends the packet.
    fn leave(&self, code: &mut Assembler, drop: Label) {
        if self.knows_mac() {
            write(code, (0, FRAME), 6, drop);
            if let To::Gateways(_) = self.to {
                // It already leaves by the interface.
                code.exit_with(PASS);
                return;
            }
            code.set(R1, self.interface.cast_signed());
            code.set(R2, 0);
            code.call(Helper::Redirect);
            code.exit();
            return;
        }
        code.set(R1, self.interface.cast_signed());
        code.set(R2, 0);
        code.set(R3, 0);
        if self.knows_next_hop() {
            code.copy(R2, R10);
            code.compute_with(Operation::Add, R2, NEXT_HOP.into());
            code.set(R3, NEXT_HOP_LENGTH);
        }
        code.set(R4, 0);
        code.call(Helper::RedirectToNeighbour);
        code.exit();
    }

    /// Reads the Ethernet and IP header.
    fn read(&self, code: &mut Assembler, others: Label) {
        code.copy(R1, R6);
        code.set(R2, 0);
        code.copy(R3, R10);
        code.compute_with(Operation::Add, R3, FRAME.into());
        code.set(R4, i32::try_from(ETHERNET + self.family.header()).unwrap_or(0));
        code.call(Helper::LoadBytes);
        code.jump_if(R0, Condition::NotEqual, 0, others);
        code.load(Width::Word, R7, R6, 0);
        code.compute_with(Operation::Add, R7, self.family.overhead().cast_signed() - 14);
    }

    /// Writes source and destination of the outer header.
    fn address(&self, code: &mut Assembler, others: Label) {
        let (source, destination) = (self.family.source(), self.family.destination());
        let begins = if let To::Gateways(_) = self.to { TO_GATEWAY } else { TO_CLIENTS };
        code.load(Width::Half, R1, R10, FRAME);
        code.jump_if(R1, Condition::NotEqual, u16::from_ne_bytes(begins).into(), others);
        match self.to {
            To::Gateways(gateways) => {
                let known = code.label();
                code.load(Width::Word, R1, R10, FRAME + 2);
                for way in gateways {
                    let next = code.label();
                    code.jump_if(R1, Condition::NotEqual, i32::from_ne_bytes(key(way.gateway)), next);
                    store(code, OUTER + destination, &octets(way.gateway));
                    set_port(code, way.port);
                    if let Some(mac) = way.mac.filter(|_| self.knows_mac()) {
                        set_mac(code, mac);
                    } else if let Some(hop) = way.next_hop.filter(|_| self.knows_next_hop()) {
                        set_next_hop(code, hop);
                    }
                    code.jump(known);
                    code.mark(next);
                }
                // Somebody happens to have such an address, or a gateway was just removed: then nobody has it.
                code.jump(others);
                code.mark(known);
                self.copy_address(code, source);
            }
            To::Clients { own, mac } => {
                self.copy_address(code, destination);
                store(code, OUTER + source, &octets(own));
                code.load(Width::Half, R9, R10, FRAME + 4);
                if let Some(mac) = mac {
                    set_mac(code, mac);
                }
            }
        }
    }

    /// Copies the address at `offset` of the inner header into the outer one.
    fn copy_address(&self, code: &mut Assembler, offset: i16) {
        for word in 0..i16::try_from(self.family.address() / 4).unwrap_or(0) {
            code.load(Width::Word, R1, R10, INNER + offset + 4 * word);
            code.store(Width::Word, R10, OUTER + offset + 4 * word, R1);
        }
    }

    /// RFC 6040: the outer packet is markable like the inner one, but starts unmarked.
    fn congestion(&self, code: &mut Assembler) {
        let fine = code.label();
        code.load(Width::Byte, R8, R10, INNER + 1);
        if self.family == Family::V6 {
            code.compute_with(Operation::ShiftRight, R8, 4);
        }
        code.compute_with(Operation::And, R8, 3);
        code.jump_if(R8, Condition::NotEqual, 3, fine);
        code.set(R8, 2);
        code.mark(fine);
    }

    /// Chooses a source port if there is none yet.
    fn source_port(code: &mut Assembler) {
        let chosen = code.label();
        code.jump_if(R9, Condition::NotEqual, 0, chosen);
        code.copy(R1, R6);
        code.call(Helper::HashOfFlow);
        code.copy(R9, R0);
        // One of the dynamic ports (RFC 6335).
        code.compute_with(Operation::And, R9, 0x3fff);
        code.compute_with(Operation::Or, R9, 0xc000);
        code.order_for_network(R9);
        code.mark(chosen);
    }

    fn make_room(&self, code: &mut Assembler, drop: Label) {
        let outer = match self.family {
            Family::V4 => OUTER_IPV4,
            Family::V6 => OUTER_IPV6,
        };
        code.copy(R1, R6);
        code.set(R2, self.family.overhead().cast_signed());
        code.set(R3, AT_MAC);
        code.set(R4, KEEP_SEGMENT_SIZE | outer | OUTER_UDP);
        code.call(Helper::AdjustRoom);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }

    fn udp(&self, code: &mut Assembler) {
        let udp = OUTER + i16::try_from(self.family.header()).unwrap_or(0);
        code.store(Width::Half, R10, udp, R9);
        code.store_value(Width::Half, R10, udp + 2, FOU_PORT.to_be().into());
        code.copy(R1, R7);
        code.compute_with(Operation::Subtract, R1, i32::try_from(self.family.header()).unwrap_or(0));
        code.order_for_network(R1);
        code.store(Width::Half, R10, udp + 4, R1);
        code.store_value(Width::Half, R10, udp + 6, 0);
    }
}

/// Writes a part of the packet from the stack.
fn write(code: &mut Assembler, (to, from): (i32, i16), length: usize, drop: Label) {
    code.copy(R1, R6);
    code.set(R2, to);
    code.copy(R3, R10);
    code.compute_with(Operation::Add, R3, from.into());
    code.set(R4, i32::try_from(length).unwrap_or(0));
    code.set(R5, 0);
    code.call(Helper::StoreBytes);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
}

/// Writes the Ethernet header.
fn set_mac(code: &mut Assembler, mac: Mac) {
    for (half, place) in mac.0.chunks_exact(2).zip((FRAME..).step_by(2)) {
        let value = half.try_into().map_or(0, u16::from_ne_bytes);
        code.store_value(Width::Half, R10, place, value.into());
    }
}

/// Sets the source port, or zero if it depends on the flow.
fn set_port(code: &mut Assembler, port: SourcePort) {
    code.set(
        R9,
        match port {
            SourcePort::Fixed => FOU_PORT.to_be().into(),
            SourcePort::PerFlow => 0,
        },
    );
}

/// Writes where the kernel sends outer packets.
fn set_next_hop(code: &mut Assembler, hop: IpAddr) {
    code.store_value(Width::Word, R10, NEXT_HOP, Family::of(hop).number().into());
    let mut bytes = octets(hop);
    bytes.resize(16, 0);
    store(code, NEXT_HOP + 4, &bytes);
}

/// Writes constant bytes, four at a time.
fn store(code: &mut Assembler, offset: i16, bytes: &[u8]) {
    let words = bytes.chunks_exact(4).zip((offset..).step_by(4));
    for (word, place) in words {
        let value = word.try_into().map_or(0, i32::from_ne_bytes);
        code.store_value(Width::Word, R10, place, value);
    }
}

/// Completes the outer IPv4 header, whose addresses are already set: length, TTL, then the checksum.
fn ipv4(code: &mut Assembler) {
    code.store_value(Width::Byte, R10, OUTER, 0x45);
    code.store(Width::Byte, R10, OUTER + 1, R8);
    code.copy(R1, R7);
    code.order_for_network(R1);
    code.store(Width::Half, R10, OUTER + 2, R1);
    // No identification is needed where fragmenting is forbidden (RFC 6864).
    store(code, OUTER + 4, &[0, 0, 0x40, 0, TTL, 17, 0, 0]);
    // One's complement, whatever the order of the bytes (RFC 1071).
    code.set(R2, 0);
    for half in 0..10 {
        code.load(Width::Half, R1, R10, OUTER + 2 * half);
        code.compute(Operation::Add, R2, R1);
    }
    for _ in 0..2 {
        code.copy(R1, R2);
        code.compute_with(Operation::And, R2, 0xffff);
        code.compute_with(Operation::ShiftRight, R1, 16);
        code.compute(Operation::Add, R2, R1);
    }
    code.compute_with(Operation::Xor, R2, -1);
    code.store(Width::Half, R10, OUTER + 10, R2);
}

/// Completes the outer IPv6 header, whose addresses are already set.
fn ipv6(code: &mut Assembler) {
    code.store_value(Width::Byte, R10, OUTER, 0x60);
    code.compute_with(Operation::ShiftLeft, R8, 4);
    code.store(Width::Byte, R10, OUTER + 1, R8);
    code.store_value(Width::Half, R10, OUTER + 2, 0);
    code.copy(R1, R7);
    code.compute_with(Operation::Subtract, R1, 40);
    code.order_for_network(R1);
    code.store(Width::Half, R10, OUTER + 4, R1);
    code.store_value(Width::Half, R10, OUTER + 6, u16::from_ne_bytes([17, TTL]).into());
}
