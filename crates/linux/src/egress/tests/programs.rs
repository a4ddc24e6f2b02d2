//! Programs on packets: input, output, and what is dropped.

use std::net::IpAddr;

use super::super::decapsulate::{Decapsulation, From};
use super::super::encapsulate::{DROP, Encapsulation, PASS, To, Way, neighbour, router};
use super::super::family::octets;
use super::super::programs::{Programs, REDIRECTED, specimen};
use super::super::{FOU_PORT, Family, SourcePort, TTL};
use crate::Mac;
use crate::bpf::Program;
use crate::bpf::tests::may_load;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn client(family: Family) -> IpAddr {
    ip(if family == Family::V4 { "192.0.2.1" } else { "2001:db8::1" })
}

fn destination(family: Family) -> IpAddr {
    ip(if family == Family::V4 { "192.0.2.2" } else { "2001:db8::2" })
}

fn gateways(family: Family) -> [IpAddr; 2] {
    if family == Family::V4 { ["10.96.0.7", "240.1.2.3"] } else { ["fd00::7", "fd00::8"] }.map(ip)
}

/// A packet from the client to the destination, as it leaves the tunnel's device.
fn inner(family: Family, to: [u8; 6]) -> Vec<u8> {
    let specimen = specimen(family);
    let overhead = family.overhead() as usize;
    [&to[..], &specimen[6..14], &specimen[14 + overhead..]].concat()
}

fn sum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

fn to_gateways(family: Family, port: SourcePort) -> Program {
    let ways = gateways(family).map(|gateway| Way { gateway, port, next_hop: Some(gateway), mac: None });
    let to = To::Gateways(&ways);
    Program::load("test", Encapsulation { family, interface: 1, to }.assemble()).unwrap()
}

#[test]
fn a_packet_to_a_gateway_is_what_foo_over_udp_makes_of_it() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let program = to_gateways(family, SourcePort::Fixed);
        for gateway in gateways(family) {
            let packet = inner(family, neighbour(gateway).0);
            let ran = program.run(&packet).unwrap();
            assert_eq!(ran.result, REDIRECTED, "{gateway}");
            let (header, overhead) = (family.header(), family.overhead() as usize);
            assert_eq!(ran.packet[14 + overhead..], packet[14..], "the inner packet is as it was");
            let outer = &ran.packet[14..14 + header];
            match family {
                Family::V4 => {
                    assert_eq!(outer[..10], [0x45, 0, 0, 48, 0, 0, 0x40, 0, TTL, 17]);
                    assert_eq!(sum(outer), 0xffff, "its checksum");
                }
                Family::V6 => assert_eq!(outer[..8], [0x60, 0, 0, 0, 0, 48, 17, TTL]),
            }
            assert!(outer.ends_with(&[octets(client(family)), octets(gateway)].concat()));
            let [p0, p1] = FOU_PORT.to_be_bytes();
            let length = u8::try_from(8 + header).unwrap();
            assert_eq!(ran.packet[14 + header..14 + overhead], [p0, p1, p0, p1, 0, length, 0, 0]);
        }
    }
}

#[test]
fn a_packet_to_nobody_that_is_a_gateway_goes_on_as_it_came() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let program = to_gateways(family, SourcePort::Fixed);
        let other = ip(if family == Family::V4 { "10.96.0.8" } else { "fd00::9" });
        for to in [neighbour(other).0, [0x33, 0x33, 0, 0, 0, 0x16], [0xff; 6], [2, 0, 0, 0, 0, 2]] {
            let packet = inner(family, to);
            let ran = program.run(&packet).unwrap();
            assert_eq!((ran.result, ran.packet), (PASS, packet));
        }
    }
}

#[test]
fn a_packet_whose_next_hop_is_known_for_good_has_its_ethernet_address_and_leaves_at_once() {
    if !may_load() {
        return;
    }
    let (mac, own) = (Mac([2, 0, 0, 0, 0, 9]), ip("192.0.2.9"));
    for family in Family::ALL {
        let ways = gateways(family).map(|gateway| {
            let (port, next_hop) = (SourcePort::Fixed, Some(gateway));
            Way { gateway, port, next_hop, mac: Some(mac) }
        });
        let code = Encapsulation { family, interface: 1, to: To::Gateways(&ways) }.assemble();
        let program = Program::load("test", code).unwrap();
        let packet = inner(family, neighbour(ways[1].gateway).0);
        let (ran, by_neighbour) =
            (program.run(&packet).unwrap(), to_gateways(family, SourcePort::Fixed).run(&packet).unwrap());
        assert_eq!(ran.result, PASS);
        assert_eq!((&ran.packet[..6], &ran.packet[6..14]), (&mac.0[..], &packet[6..14]));
        assert_eq!(ran.packet[14..], by_neighbour.packet[14..], "the rest is the same");
        let others = inner(family, [2, 0, 0, 0, 0, 2]);
        assert_eq!(program.run(&others).unwrap().packet, others);
    }
    let to = To::Clients { own, mac: Some(mac) };
    let code = Encapsulation { family: Family::V4, interface: 1, to }.assemble();
    let ran =
        Program::load("test", code).unwrap().run(&inner(Family::V4, router(SourcePort::Fixed).0)).unwrap();
    assert_eq!((ran.result, &ran.packet[..6]), (REDIRECTED, &mac.0[..]));
}

#[test]
fn a_port_that_depends_on_the_flow_is_one_of_the_dynamic_ones() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let program = to_gateways(family, SourcePort::PerFlow);
        let packet = inner(family, neighbour(gateways(family)[0]).0);
        let first = program.run(&packet).unwrap().packet;
        let at = 14 + family.header();
        assert!(u16::from_be_bytes([first[at], first[at + 1]]) >= 0xc000);
        assert_eq!(program.run(&packet).unwrap().packet, first, "and the same for the same flow");
    }
}

#[test]
fn marks_of_congestion_are_allowed_on_the_way_and_handed_down_at_its_end() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let shift = if family == Family::V4 { 0 } else { 4 };
        for (inside, outside) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
            let mut packet = inner(family, neighbour(gateways(family)[0]).0);
            packet[15] = inside << shift;
            let ran = to_gateways(family, SourcePort::Fixed).run(&packet).unwrap();
            assert_eq!(ran.packet[15] >> shift & 3, outside);
        }
        let at = 15 + family.overhead() as usize;
        for (inside, outside, after) in [(0, 3, 0), (2, 3, 3), (1, 3, 3), (2, 0, 2)] {
            let mut packet = specimen(family);
            (packet[15], packet[at]) = (outside << shift, inside << shift);
            let ran = from(family, From::AnyGateway).run(&packet).unwrap();
            assert_eq!(
                (ran.result, ran.packet[15] >> shift & 3),
                (REDIRECTED, after),
                "{family:?} {outside}"
            );
        }
    }
}

fn from(family: Family, from: From<'_>) -> Program {
    Program::load("test", Decapsulation { family, device: Some(1), from }.assemble()).unwrap()
}

#[test]
fn a_client_takes_packets_from_its_gateways_and_for_itself_and_no_others() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let (packet, address) = (specimen(family), family.address() as usize);
        let (source, overhead) = (14 + family.source().unsigned_abs() as usize, family.overhead() as usize);
        let known = [gateways(family)[0], client(family)];
        let program = from(family, From::Gateways(&known));
        let ran = program.run(&packet).unwrap();
        assert_eq!((ran.result, &ran.packet[14..]), (REDIRECTED, &packet[14 + overhead..]));
        assert_eq!(ran.packet[..14], packet[..14]);
        let stranger = from(family, From::Gateways(&gateways(family)));
        assert_eq!(stranger.run(&packet).unwrap().result, DROP, "from another address");
        let changed = |at: usize, byte: u8| {
            let mut packet = packet.clone();
            packet[at] ^= byte;
            (program.run(&packet).unwrap().result, packet)
        };
        let inner = 14 + overhead;
        let destination = inner + family.destination().unsigned_abs() as usize + address - 1;
        assert_eq!(changed(destination, 1).0, DROP, "for another address");
        assert_eq!(changed(inner, 0x30).0, DROP, "of no version");
        assert_eq!(changed(source, 0x40).0, DROP);
        assert_eq!(changed(14 + family.header() + 3, 1).0, PASS, "for another port");
        let protocol = if family == Family::V4 { 23 } else { 20 };
        assert_eq!(changed(protocol, 1).0, PASS, "of another protocol");
        if family == Family::V4 {
            assert_eq!(changed(20, 0x20).0, PASS, "the first fragment");
            assert_eq!(changed(21, 1).0, PASS, "a later fragment");
            assert_eq!(changed(14, 3).0, PASS, "with options");
        }
    }
}

#[test]
fn a_gateway_takes_packets_in_the_senders_own_name_and_leaves_others_to_be_counted() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let (packet, overhead) = (specimen(family), family.overhead() as usize);
        let program = from(family, From::Anyone(destination(family)));
        let ran = program.run(&packet).unwrap();
        assert_eq!((ran.result, &ran.packet[14..]), (REDIRECTED, &packet[14 + overhead..]));
        let inner = 14 + overhead;
        let source = inner + family.source().unsigned_abs() as usize;
        let last = family.address() as usize - 1;
        let outer_destination = 14 + family.destination().unsigned_abs() as usize + last;
        for (at, what) in [
            (source, "another inner source"),
            (source + last, "another inner source at its end"),
            (inner, "no version"),
            (outer_destination, "for another address"),
            (14 + family.header() + 3, "for another port"),
        ] {
            let mut changed = packet.clone();
            changed[at] ^= 0x51;
            let ran = program.run(&changed).unwrap();
            assert_eq!((ran.result, ran.packet), (PASS, changed), "{what}: it goes on as it came");
        }
    }
}

#[test]
fn a_gateway_sends_to_whom_the_inner_packet_is_for_from_the_port_that_its_router_says() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let own = gateways(family)[0];
        let to = To::Clients { own, mac: None };
        let back = Program::load("test", Encapsulation { family, interface: 1, to }.assemble()).unwrap();
        let at = 14 + family.header();
        for port in [SourcePort::Fixed, SourcePort::PerFlow] {
            let ran = back.run(&inner(family, router(port).0)).unwrap();
            assert_eq!(ran.result, REDIRECTED);
            let ends = [octets(own), octets(destination(family))].concat();
            assert!(ran.packet[14..at].ends_with(&ends));
            let seen = u16::from_be_bytes([ran.packet[at], ran.packet[at + 1]]);
            match port {
                SourcePort::Fixed => assert_eq!(seen, FOU_PORT),
                SourcePort::PerFlow => assert!(seen >= 0xc000, "{seen}"),
            }
        }
        for other in [[2; 6], [0x33, 0x33, 0, 0, 0, 0x16], [0xff; 6]] {
            assert_eq!(back.run(&inner(family, other)).unwrap().result, DROP, "to nobody's router");
        }
    }
}

#[test]
fn the_options_of_the_kernels_own_tunnels_are_skipped() {
    if !may_load() {
        return;
    }
    let packet = specimen(Family::V6);
    let mut longer = packet.clone();
    longer[20] = 60;
    // The limit of further tunnels, and padding.
    longer.splice(54..54, [17, 0, 4, 1, 4, 1, 1, 0]);
    longer[19] += 8;
    let program = from(Family::V6, From::AnyGateway);
    let ran = program.run(&longer).unwrap();
    assert_eq!((ran.result, &ran.packet[14..]), (REDIRECTED, &packet[62..]));
    longer[55] = 1;
    assert_eq!(program.run(&longer).unwrap().result, PASS, "more options than that are nobody's");
}

#[test]
fn no_packet_that_is_cut_short_does_more_than_pass_or_go() {
    if !may_load() {
        return;
    }
    for family in Family::ALL {
        let whole = specimen(family);
        let program = from(family, From::Anyone(destination(family)));
        for length in 14..whole.len() {
            let ran = program.run(&whole[..length]);
            // The kernel builds no packet without a network header.
            assert!(ran.is_err() || ran.unwrap().result == PASS, "{length} bytes");
        }
    }
}

#[test]
fn the_same_program_is_loaded_once() {
    if !may_load() {
        return;
    }
    let mut programs = Programs::probe().unwrap();
    let code = |interface| {
        let way = Way { gateway: ip("10.96.0.7"), port: SourcePort::Fixed, next_hop: None, mac: None };
        let to = To::Gateways(&[way]);
        Encapsulation { family: Family::V4, interface, to }.assemble()
    };
    let (name, first) = programs.load("out", code(2)).unwrap();
    let (again, second) = programs.load("out", code(2)).unwrap();
    let (other, third) = programs.load("out", code(3)).unwrap();
    assert!(name == again && std::sync::Arc::ptr_eq(&first, &second));
    assert!(name != other && !std::sync::Arc::ptr_eq(&first, &third));
}
