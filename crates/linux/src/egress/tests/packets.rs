//! Any bytes at a gateway's port 5555, compared with a model: only inner packets of their senders are decapsulated;
//! everything else is unchanged.

use std::net::IpAddr;

use proptest::prelude::*;

use super::super::decapsulate::{Decapsulation, From};
use super::super::encapsulate::PASS;
use super::super::family::octets;
use super::super::programs::{REDIRECTED, specimen};
use super::super::{FOU_PORT, Family};
use crate::bpf::Program;
use crate::bpf::tests::may_load;

/// The destination of samples.
fn own(family: Family) -> IpAddr {
    if family == Family::V4 { [192, 0, 2, 2].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into() }
}

/// The bytes from `at` on, as many as there must be.
fn part(packet: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    packet.get(at..at + length)
}

/// Where the inner packet begins, if it should be decapsulated.
fn inner(packet: &[u8], family: Family) -> Option<usize> {
    let (header, address) = (family.header(), family.address() as usize);
    let udp = match family {
        Family::V4 => {
            let outer = part(packet, 14, header)?;
            let fragment = u16::from_be_bytes([outer[6], outer[7]]) & 0x3fff;
            (outer[0] == 0x45 && outer[9] == 17 && fragment == 0).then_some(34)?
        }
        Family::V6 => match *part(packet, 14, header + 8)? {
            ref outer if outer[6] == 17 => 54,
            ref outer if outer[6] == 60 && outer[40..42] == [17, 0] => 62,
            _ => return None,
        },
    };
    let rest = part(packet, udp, 8 + header)?;
    let (source, destination) =
        (family.source().unsigned_abs() as usize, family.destination().unsigned_abs() as usize);
    let version = if family == Family::V4 { 4 } else { 6 };
    let comes_out = rest[2..4] == FOU_PORT.to_be_bytes()
        && rest[8] >> 4 == version
        && packet[14 + destination..][..address] == octets(own(family))
        && packet[14 + source..][..address] == rest[8 + source..][..address];
    comes_out.then_some(udp + 8)
}

fn congestion(header: &[u8], family: Family) -> u8 {
    if family == Family::V4 { header[1] & 3 } else { header[1] >> 4 & 3 }
}

#[derive(Clone, Debug)]
struct Arrives {
    family: Family,
    options: bool,
    payload: Vec<u8>,
    changes: Vec<(prop::sample::Index, u8)>,
    length: Option<prop::sample::Index>,
}

impl Arrives {
    fn packet(&self) -> Vec<u8> {
        let mut packet = specimen(self.family);
        if self.options && self.family == Family::V6 {
            packet[20] = 60;
            packet.splice(54..54, [17, 0, 4, 1, 4, 1, 1, 0]);
        }
        packet.extend(&self.payload);
        for (at, value) in &self.changes {
            let at = 14 + at.index(packet.len() - 14);
            packet[at] = *value;
        }
        if let Some(length) = &self.length {
            packet.truncate(14 + length.index(packet.len() - 14));
        }
        packet
    }
}

fn arrives() -> impl Strategy<Value = Arrives> {
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let value =
        prop_oneof![any::<u8>(), prop::sample::select(vec![0, 1, 2, 4, 6, 17, 41, 60, 0x45, 0x60, 0xff])];
    (
        family,
        any::<bool>(),
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec((any::<prop::sample::Index>(), value), 0..4),
        prop::option::weighted(0.3, any::<prop::sample::Index>()),
    )
        .prop_map(|(family, options, payload, changes, length)| Arrives {
            family,
            options,
            payload,
            changes,
            length,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_arrives_comes_out_as_the_model_says_or_goes_on_as_it_came(arrives in arrives()) {
        thread_local! {
            static PROGRAMS: Option<[Program; 2]> = may_load().then(|| Family::ALL.map(|family| {
                let from = From::Anyone(own(family));
                Program::load("test", Decapsulation { family, device: Some(1), from }.assemble()).unwrap()
            }));
        }
        let (packet, family) = (arrives.packet(), arrives.family);
        let position = usize::from(family == Family::V6);
        let ran = PROGRAMS.with(|programs| programs.as_ref().map(|programs| programs[position].run(&packet)));
        // The kernel builds no packet without a network header, and not everybody may load programs.
        let Some(Ok(ran)) = ran else { return Ok(()) };
        let Some(begin) = inner(&packet, family) else {
            prop_assert_eq!((ran.result, ran.packet), (PASS, packet));
            return Ok(());
        };
        prop_assert_eq!(ran.result, REDIRECTED);
        prop_assert_eq!(&ran.packet[..14], &packet[..14]);
        // A copied congestion mark changes two more bytes.
        if congestion(&packet[14..], family) == 3 {
            prop_assert_eq!(ran.packet[14..].len(), packet[begin..].len());
        } else {
            prop_assert_eq!(&ran.packet[14..], &packet[begin..]);
        }
    }
}
