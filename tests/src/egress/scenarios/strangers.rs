//! Whoever is no client, or speaks in another's name, is not served, and everything that is dropped is counted.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Result, ensure};
use tenure_linux::egress::{Datapath, FOU_PORT, SourcePort};
use tenure_testbed::hosts::{Host, link};
use tenure_testbed::wait::until;

use super::super::{Bed, CLIENT, GATEWAY, OUTSIDE, both, ip};

const STRANGER: [&str; 2] = ["10.2.9.9", "fd02:9::9"];
/// How often each packet is sent.
const TIMES: u64 = 3;

/// The scenario.
pub(super) fn are_not_served(_: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    let bed = Bed::new()?;
    let mut serving = bed.serve(gateway, SourcePort::Fixed, &both(CLIENT))?;
    let stranger = Host::new("stranger")?;
    link(
        (&stranger, "eth0", &["10.2.9.9/24", "fd02:9::9/64"]),
        (&bed.node, "s", &["10.2.9.1/24", "fd02:9::1/64"]),
    )?;
    stranger.route("default", ip("10.2.9.1"))?;
    stranger.route("default", ip("fd02:9::1"))?;
    let mut sockets = Vec::new();
    for family in 0..2 {
        let [own, client, to] = [STRANGER, CLIENT, OUTSIDE].map(|it| ip(it[family]));
        let gateway = SocketAddr::new(ip(GATEWAY[family]), FOU_PORT);
        let of_stranger = stranger.run(|| UdpSocket::bind((own, FOU_PORT)))??;
        let of_client = bed.client.run(|| UdpSocket::bind((client, FOU_PORT)))??;
        for _ in 0..TIMES {
            for packet in [echo_request(own, to), echo_request(client, to), vec![0; 40], vec![0; 3], vec![]] {
                of_stranger.send_to(&packet, gateway)?;
            }
            // A client may speak in its own name alone.
            of_client.send_to(&echo_request(own, to), gateway)?;
        }
        sockets.push((of_stranger, echo_request(own, to), gateway));
    }
    let counted = until("all packets to be dropped", || {
        let counted = serving.counted().ok().flatten()?;
        let dropped = [counted.not_a_client, counted.forged, counted.malformed].map(|it| it.packets);
        (dropped.iter().sum::<u64>() >= 2 * 6 * TIMES).then_some(counted)
    });
    ensure!(counted.forged.packets >= 2 * TIMES, "{counted:?}");
    ensure!(counted.not_a_client.packets >= 2 * TIMES, "{counted:?}");
    ensure!(counted.masqueraded.iter().all(|of| of.packets == 0), "something left: {counted:?}");
    ensure!(counted.received.packets == 0 && counted.sent.packets == 0, "{counted:?}");
    // As a client, and in its own name, it is served.
    serving.serve(&both(CLIENT).into_iter().chain(both(STRANGER)).collect())?;
    for ((socket, request, gateway), served) in sockets.iter().zip(1..) {
        until("an answer to come back", || {
            socket.send_to(request, gateway).ok()?;
            (serving.counted().ok()??.sent.packets >= served).then_some(())
        });
    }
    Ok(())
}

/// A packet that asks for an echo (RFC 792, RFC 4443), with its IP header.
pub fn echo_request(from: IpAddr, to: IpAddr) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut packet =
                [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0][..], &from.octets(), &to.octets()].concat();
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&sum);
            packet.extend([8, 0, 0xf7, 0xfe, 0, 0, 0, 1]);
            packet
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let (addresses, mut request) =
                ([from.octets(), to.octets()].concat(), vec![128, 0, 0, 0, 0, 0, 0, 1]);
            let sum = checksum(&[&addresses[..], &[0, 0, 0, 8, 0, 0, 0, 58], &request].concat());
            request[2..4].copy_from_slice(&sum);
            [&[0x60, 0, 0, 0, 0, 8, 58, 64][..], &addresses, &request].concat()
        }
        _ => Vec::new(),
    }
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    [high, low]
}
