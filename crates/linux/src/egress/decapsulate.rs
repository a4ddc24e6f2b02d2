//! The program that decapsulates UDP packets as they enter the tunnels' interface.
//!
//! ```text
//! Ethernet │ outer IP │ UDP │ inner IP │ …     ──▶     Ethernet │ inner IP │ …     goes on, or arrives at another device
//! ```
//!
//! Packets for other ports are not changed. Packets for the tunnels' port are delivered or dropped; the kernel never
//! answers them. Fragments of outer packets are dropped.
//!
//! A gateway's program has no list of clients. A packet with the same source inside and outside is decapsulated, and
//! nftables decides who is a client. Any other packet goes on unchanged, with a mark if its source is forged, and
//! nftables counts and drops it. So a gateway that may not use BPF itself still decides and counts.
//!
//! A packet that is to be segmented later stays one packet. The kernel then still takes it for a tunnel packet: TCP
//! survives that and UDP does not, so both ends segment UDP before it enters a tunnel.

use std::net::IpAddr;

use super::FOU_PORT;
use super::encapsulate::{DROP, PASS};
use super::family::{Family, UDP, octets};
use crate::bpf::{Assembler, Condition, Helper, Label, Operation, Register, Width};

use Register::{R0, R1, R2, R3, R4, R6, R8, R9, R10};

/// A program that decapsulates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decapsulation<'a> {
    /// Of which packets.
    pub(super) family: Family,
    /// The device at which inner packets arrive; without one they go on at the same interface.
    pub(super) device: Option<u32>,
    /// Who may send.
    pub(super) from: From<'a>,
}

/// Who may send, and to which address.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    /// These gateways, to the address of the outer packet.
    Gateways(&'a [IpAddr]),
    /// Any gateway: those with a source port per flow send from their own addresses.
    AnyGateway,
    /// Anyone with its own source address, to this address of a gateway.
    Anyone(IpAddr),
}

/// The mark of packets to a gateway whose inner source differs from the outer one.
pub(super) const FORGED_MARK: u32 = 0x7465_6e66;
/// The offset of a packet's mark in `__sk_buff`.
const MARK: i16 = 8;

// On the stack: the outer IP header with room for a small option header, and the UDP header with the inner IP header.
const OUTER: i16 = -112;
const UDP_HEADER: i16 = -64;
const INNER: i16 = UDP_HEADER + 8;

// Flags of `bpf_skb_adjust_room`.
const AT_MAC: i32 = 1;
const KEEP_SEGMENT_SIZE: i32 = 1;
/// `BPF_F_INGRESS` of `bpf_redirect`.
const ARRIVING: i32 = 1;

const NEXT_UDP: i32 = 17;
const NEXT_OPTIONS: i32 = 60;

impl Decapsulation<'_> {
    /// Builds the program.
    ///
    /// `R6` is the packet, `R8` the length to remove, `R9` the outer congestion bits.
    pub(super) fn assemble(&self) -> Assembler {
        let mut code = Assembler::default();
        let (pass, drop) = (code.label(), code.label());
        code.copy(R6, R1);
        code.set(R8, self.family.overhead().cast_signed());
        match self.family {
            Family::V4 => self.outer_v4(&mut code, pass),
            Family::V6 => self.outer_v6(&mut code, pass),
        }
        self.udp(&mut code, pass);
        code.load(Width::Byte, R1, R10, INNER);
        code.compute_with(Operation::ShiftRight, R1, 4);
        let version = if self.family == Family::V4 { 4 } else { 6 };
        let malformed = if let From::Anyone(_) = self.from { pass } else { drop };
        code.jump_if(R1, Condition::NotEqual, version, malformed);
        self.sender(&mut code, pass, drop);
        self.congestion(&mut code);
        Self::take_away(&mut code, drop);
        if let Some(device) = self.device {
            code.set(R1, device.cast_signed());
            code.set(R2, ARRIVING);
            code.call(Helper::Redirect);
            code.exit();
        }
        code.mark(pass);
        code.exit_with(PASS);
        code.mark(drop);
        code.exit_with(DROP);
        code
    }

    /// Checks for UDP over IPv4, without options and not fragmented.
    fn outer_v4(&self, code: &mut Assembler, pass: Label) {
        load(code, HeaderPosition::At(14), OUTER, self.family.header(), pass);
        code.load(Width::Byte, R1, R10, OUTER);
        code.jump_if(R1, Condition::NotEqual, 0x45, pass);
        code.load(Width::Byte, R1, R10, OUTER + 9);
        code.jump_if(R1, Condition::NotEqual, NEXT_UDP, pass);
        code.load(Width::Half, R1, R10, OUTER + 6);
        code.compute_with(Operation::And, R1, 0x3fff_u16.to_be().into());
        code.jump_if(R1, Condition::NotEqual, 0, pass);
    }

    /// Checks for UDP over IPv6, after at most eight bytes of destination options: by default the kernel's own
    /// tunnels put the limit of further tunnels there.
    fn outer_v6(&self, code: &mut Assembler, pass: Label) {
        let udp = code.label();
        load(code, HeaderPosition::At(14), OUTER, self.family.header() + UDP, pass);
        code.load(Width::Byte, R1, R10, OUTER + 6);
        code.jump_if(R1, Condition::Equal, NEXT_UDP, udp);
        code.jump_if(R1, Condition::NotEqual, NEXT_OPTIONS, pass);
        code.load(Width::Half, R1, R10, OUTER + 40);
        code.jump_if(R1, Condition::NotEqual, u16::from_ne_bytes([17, 0]).into(), pass);
        code.set(R8, self.family.overhead().cast_signed() + 8);
        code.mark(udp);
    }

    /// Checks for the tunnels' port.
    fn udp(&self, code: &mut Assembler, pass: Label) {
        load(code, HeaderPosition::BeforeInner(self.family), UDP_HEADER, UDP + self.family.header(), pass);
        code.load(Width::Half, R1, R10, UDP_HEADER + 2);
        code.jump_if(R1, Condition::NotEqual, FOU_PORT.to_be().into(), pass);
    }

    /// Sorts out packets from senders that are not allowed.
    fn sender(&self, code: &mut Assembler, pass: Label, drop: Label) {
        let (source, destination) = (self.family.source(), self.family.destination());
        match self.from {
            From::Gateways(gateways) => {
                let fine = code.label();
                self.must_be_same(code, destination, drop);
                for gateway in gateways {
                    let next = code.label();
                    must_be(code, OUTER + source, *gateway, next);
                    code.jump(fine);
                    code.mark(next);
                }
                code.jump(drop);
                code.mark(fine);
            }
            From::AnyGateway => self.must_be_same(code, destination, drop),
            From::Anyone(own) => {
                let (forged, fine) = (code.label(), code.label());
                must_be(code, OUTER + destination, own, pass);
                self.must_be_same(code, source, forged);
                code.jump(fine);
                code.mark(forged);
                code.set(R1, FORGED_MARK.cast_signed());
                code.store(Width::Word, R6, MARK, R1);
                code.jump(pass);
                code.mark(fine);
            }
        }
    }

    /// Jumps to `other` if the inner address at `offset` differs from the outer one.
    fn must_be_same(&self, code: &mut Assembler, offset: i16, other: Label) {
        for word in 0..i16::try_from(self.family.address() / 4).unwrap_or(0) {
            code.load(Width::Word, R1, R10, OUTER + offset + 4 * word);
            code.load(Width::Word, R2, R10, INNER + offset + 4 * word);
            code.jump_if_register(R1, Condition::NotEqual, R2, other);
        }
    }

    fn congestion(&self, code: &mut Assembler) {
        code.load(Width::Byte, R9, R10, OUTER + 1);
        if self.family == Family::V6 {
            code.compute_with(Operation::ShiftRight, R9, 4);
        }
        code.compute_with(Operation::And, R9, 3);
    }

    /// Removes the outer headers, and copies a congestion mark to the inner packet (RFC 6040).
    fn take_away(code: &mut Assembler, drop: Label) {
        let unmarked = code.label();
        code.copy(R1, R6);
        code.set(R2, 0);
        code.compute(Operation::Subtract, R2, R8);
        code.set(R3, AT_MAC);
        code.set(R4, KEEP_SEGMENT_SIZE);
        code.call(Helper::AdjustRoom);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
        code.jump_if(R9, Condition::NotEqual, 3, unmarked);
        code.copy(R1, R6);
        code.call(Helper::MarkCongestion);
        code.mark(unmarked);
    }
}

/// Jumps to `other` if the address on the stack is not this one.
fn must_be(code: &mut Assembler, place: i16, address: IpAddr, other: Label) {
    for (word, place) in octets(address).chunks_exact(4).zip((place..).step_by(4)) {
        code.load(Width::Word, R1, R10, place);
        let word = word.try_into().map_or(0, i32::from_ne_bytes);
        code.jump_if(R1, Condition::NotEqual, word, other);
    }
}

/// An offset in a packet.
#[derive(Clone, Copy)]
enum HeaderPosition {
    At(i32),
    /// The length of a UDP header before the inner packet; `R8` is the offset of the inner packet in the outer one.
    BeforeInner(Family),
}

/// Reads a part of the packet onto the stack; jumps to `pass` if the packet is too short.
fn load(code: &mut Assembler, place: HeaderPosition, to: i16, length: usize, pass: Label) {
    code.copy(R1, R6);
    match place {
        HeaderPosition::At(offset) => code.set(R2, offset),
        // A constant is one thing less for the verifier to track.
        HeaderPosition::BeforeInner(Family::V4) => code.set(R2, 34),
        HeaderPosition::BeforeInner(Family::V6) => {
            code.copy(R2, R8);
            code.compute_with(Operation::Add, R2, 14 - 8);
        }
    }
    code.copy(R3, R10);
    code.compute_with(Operation::Add, R3, to.into());
    code.set(R4, i32::try_from(length).unwrap_or(0));
    code.call(Helper::LoadBytes);
    code.jump_if(R0, Condition::NotEqual, 0, pass);
}
