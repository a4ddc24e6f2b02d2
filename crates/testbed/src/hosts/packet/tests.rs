//! Frames by hand, and frames that are cut off.

use super::*;

fn parse(bytes: &[u8]) -> Option<Packet> {
    Packet::parse(Duration::ZERO, 2, Direction::Received, bytes.to_vec())
}

fn frame(ethertype: u16, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1]);
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend(rest);
    bytes
}

const ARP_REQUEST: [u8; 28] =
    [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2];

const UDP_V4: [u8; 24] =
    [0x45, 0, 0, 24, 0, 0, 0, 0, 63, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 9, 0x15, 0xb3, 0, 53];

#[test]
fn an_arp_request_tells_who_asks_for_whom() {
    let packet = parse(&frame(0x0806, &ARP_REQUEST)).unwrap();
    let arp = packet.arp().unwrap();
    assert_eq!(arp.operation, ArpOperation::Request);
    assert_eq!(arp.sender, Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(arp.target, Ipv4Addr::new(192, 0, 2, 2));
    assert_eq!(packet.destination, MacAddress([0xff; 6]));
    assert_eq!(
        packet.to_string(),
        "#2 Received 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff ARP who has 192.0.2.2, tell 192.0.2.1"
    );
}

#[test]
fn a_udp_packet_tells_its_ports() {
    let packet = parse(&frame(0x0800, &UDP_V4)).unwrap();
    let ip = packet.ip().unwrap();
    assert_eq!(ip.destination, IpAddr::from([198, 51, 100, 9]));
    assert_eq!((ip.hops, ip.protocol, ip.ports, ip.icmp), (63, 17, Some((5555, 53)), None));
}

#[test]
fn a_later_fragment_has_no_ports() {
    let mut bytes = UDP_V4;
    bytes[7] = 1;
    assert_eq!(parse(&frame(0x0800, &bytes)).unwrap().ip().unwrap().ports, None);
}

#[test]
fn a_neighbour_solicitation_is_told_from_other_icmp() {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 2, 58, 255];
    bytes.extend(Ipv6Addr::LOCALHOST.octets());
    let group = Ip::solicited_node("2001:db8::12:3456".parse().unwrap());
    assert_eq!(group, "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
    bytes.extend(group.octets());
    bytes.extend([135, 0]);
    assert!(parse(&frame(0x86dd, &bytes)).unwrap().ip().unwrap().is_neighbour_solicitation());
    bytes[40] = 136;
    assert!(!parse(&frame(0x86dd, &bytes)).unwrap().ip().unwrap().is_neighbour_solicitation());
}

#[test]
fn a_neighbour_message_tells_the_address_that_it_is_about() {
    let target: Ipv6Addr = "2001:db8::9".parse().unwrap();
    let mut bytes = vec![0x60, 0, 0, 0, 0, 24, 58, 255];
    bytes.extend([Ipv6Addr::LOCALHOST.octets(), Ipv6Addr::LOCALHOST.octets()].concat());
    bytes.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(parse(&frame(0x86dd, &bytes)).unwrap().solicited(), None, "cut off");
    bytes.extend(target.octets());
    let asked = parse(&frame(0x86dd, &bytes)).unwrap();
    assert_eq!((asked.solicited(), asked.advertised()), (Some(target), None));
    bytes[40] = 136;
    let told = parse(&frame(0x86dd, &bytes)).unwrap();
    assert_eq!((told.solicited(), told.advertised()), (None, Some(target)));
}

#[test]
fn a_frame_cut_off_anywhere_is_read_as_far_as_it_goes() {
    for (ethertype, whole) in [(0x0806, ARP_REQUEST.as_slice()), (0x0800, UDP_V4.as_slice())] {
        let bytes = frame(ethertype, whole);
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]).is_some(), length >= 14, "{length} bytes");
        }
    }
}
