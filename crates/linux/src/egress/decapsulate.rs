//! The program that takes packets out of UDP packets: on the way into the interface that tunnels go through.
//!
//! ```text
//! Ethernet │ outer IP │ UDP │ inner IP │ …     ──▶     Ethernet │ inner IP │ …     goes on, or arrives at another device
//! ```
//!
//! What is not for the tunnel's port goes on as if there were no program. What is for it arrives, or is dropped: nothing
//! of it is ever answered by the kernel. A fragment of an outer packet is not for anybody here.
//!
//! A gateway's program keeps no list of clients. Whatever has the same source inside and outside comes out of the tunnel,
//! and nftables decides who is a client; what has not goes on as it came, with a mark if its source is forged, and nftables
//! counts and drops it. So a gateway that may not use BPF itself decides and counts all the same.
//!
//! A packet that is to be segmented later stays one. The kernel still takes it for a tunnel's then: TCP survives that and
//! UDP does not, which is why both ends segment UDP before it goes into a tunnel.

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
    /// The device that inner packets arrive at; without one they go on where they are.
    pub(super) device: Option<u32>,
    /// Who may send.
    pub(super) from: From<'a>,
}

/// Who may send, and what.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    /// These gateways, to the address that the outer packet is for, too.
    Gateways(&'a [IpAddr]),
    /// Any gateway: those that choose a port for each flow send from addresses of their own.
    AnyGateway,
    /// Anyone in its own name, to this address: a gateway's.
    Anyone(IpAddr),
}

/// The mark of packets to a gateway whose inner source is not the outer one.
pub(super) const FORGED_MARK: u32 = 0x7465_6e66;
/// Where a packet's mark is in what a program sees of it.
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
    /// The program.
    ///
    /// `R6` is the packet, `R8` the length of what is taken away, `R9` the outer congestion bits.
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

    /// Whether it is UDP over IPv4, without options and whole.
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

    /// Whether it is UDP over IPv6, after at most eight bytes of destination options: the kernel's own tunnels say in
    /// them how many more tunnels are allowed, unless they are told not to.
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

    /// Whether it is for the tunnels' port.
    fn udp(&self, code: &mut Assembler, pass: Label) {
        load(code, HeaderPosition::BeforeInner(self.family), UDP_HEADER, UDP + self.family.header(), pass);
        code.load(Width::Half, R1, R10, UDP_HEADER + 2);
        code.jump_if(R1, Condition::NotEqual, FOU_PORT.to_be().into(), pass);
    }

    /// Sorts out what comes from somebody who may not send it.
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

    /// Goes to `other` if the inner header has another address at `offset` than the outer one.
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

    /// Removes the outer headers, and hands down a mark of congestion (RFC 6040).
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

/// Goes to `other` if the address on the stack is not this one.
fn must_be(code: &mut Assembler, place: i16, address: IpAddr, other: Label) {
    for (word, place) in octets(address).chunks_exact(4).zip((place..).step_by(4)) {
        code.load(Width::Word, R1, R10, place);
        let word = word.try_into().map_or(0, i32::from_ne_bytes);
        code.jump_if(R1, Condition::NotEqual, word, other);
    }
}

/// Where in a packet something begins.
#[derive(Clone, Copy)]
enum HeaderPosition {
    At(i32),
    /// As far before the inner packet as a UDP header is long; `R8` is how far the inner packet is from the outer one.
    BeforeInner(Family),
}

/// Reads a part of the packet onto the stack; goes to `pass` if the packet is not as long.
fn load(code: &mut Assembler, place: HeaderPosition, to: i16, length: usize, pass: Label) {
    code.copy(R1, R6);
    match place {
        HeaderPosition::At(offset) => code.set(R2, offset),
        // Known at once, and one less thing for the verifier to follow.
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
