//! The messages of setup and teardown, byte for byte.

use super::*;
use crate::socket::Request;
use crate::{Settings, link};

fn plan() -> PodPlan {
    let identity = Identity {
        container: "c0ffee".into(),
        interface: "eth0".into(),
        network: "k8s".into(),
        namespace: "shop".into(),
        pod: "web-0".into(),
    };
    let addresses = vec!["10.2.0.1".parse().unwrap(), "fd01::1".parse().unwrap()];
    PodPlan { sources: vec!["192.0.2.1".parse().unwrap()], ..PodPlan::new(identity, addresses, 1450) }
}

/// Compares with lines of hexadecimal words; text after `#` is a comment.
#[track_caller]
fn assert_encodes(request: &Request, expected: &str) {
    let mut bytes = Vec::new();
    request.encode(1, true, &mut bytes);
    let digits: String =
        expected.lines().flat_map(|line| line.split('#').next().unwrap().split_whitespace()).collect();
    let expected: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    assert_eq!(bytes, expected, "{}", request.describe());
}

#[test]
fn one_message_makes_both_ends_each_in_its_namespace() {
    let create = messages::create(&plan(), &Settings::default(), 9);
    assert_encodes(
        &create,
        "d0000000 1000 0d06 01000000 00000000        # NEWLINK, request, acknowledge, echo, create, exclusive
         00000000 00000000 00000000 00000000         # no flags: both ends are born down
         1400 0300 746e7237 62333063 64363738 38333800 # IFNAME tnr7b30cd678838
         0800 1b00 502d0000                          # GROUP 11600
         0800 0400 aa050000                          # MTU 1450
         0a00 0100 0a54656e 75720000                 # ADDRESS, the same on every host
         0800 1f00 01000000 0800 2000 01000000       # one queue each way
         0800 0d00 e8030000                          # TXQLEN 1000
         6800 1200                                   # LINKINFO
           0900 0100 76657468 00000000               #   KIND veth
           5800 0200 5400 0100                       #   DATA, PEER
             00000000 00000000 00000000 00000000
             0900 0300 65746830 00000000             #     IFNAME eth0
             0800 1c00 09000000                      #     NET_NS_FD 9
             0800 0400 aa050000                      #     MTU 1450
             0a00 0100 0a678838 f2d90000             #     ADDRESS, from the identity
             0800 1f00 01000000 0800 2000 01000000 0800 0d00 e8030000",
    );
}

#[test]
fn a_question_needs_no_acknowledgement_beside_its_answer() {
    assert_encodes(
        &link::look_up("tnr7b30cd678838"),
        "3c000000 1200 0100 01000000 00000000        # GETLINK
         00000000 00000000 00000000 00000000
         1400 0300 746e7237 62333063 64363738 38333800
         0800 1d00 08000000                          # EXT_MASK, without IPv6 statistics",
    );
    assert_encodes(
        &link::look_into(3, 2),
        "30000000 1200 0100 01000000 00000000
         00000000 02000000 00000000 00000000
         0800 2e00 03000000                          # TARGET_NETNSID
         0800 1d00 08000000",
    );
}

#[test]
fn inside_the_pod_addresses_neighbours_and_routes_are_known_at_once() {
    let requests = messages::inside(&plan(), &Settings::default(), 2);
    let expected = [
        "20000000 1300 0500 01000000 00000000        # SETLINK
         00000000 01000000 01000000 01000000         # lo, up",
        "20000000 1300 0500 01000000 00000000
         00000000 02000000 01000000 01000000         # eth0, up",
        "28000000 1400 0505 01000000 00000000        # NEWADDR, create or replace
         02 20 00 00 02000000                        # IPv4, /32, link 2
         0800 0200 0a020001 0800 0100 0a020001",
        "48000000 1400 0505 01000000 00000000
         0a 80 02 00 02000000                        # IPv6, /128, no duplicate address detection
         1400 0200 fd010000 00000000 00000000 00000001
         1400 0100 fd010000 00000000 00000000 00000001
         0800 0800 02000000",
        "40000000 1800 0505 01000000 00000000        # NEWROUTE
         0a 80 00 00 ff 03 00 02 00000000            # /128, local table, boot, local
         1400 0100 fd010000 00000000 00000000 00000001
         0800 0400 02000000
         0800 1700 3c000000                          # EXPIRES in 60 s",
        "30000000 1c00 0505 01000000 00000000        # NEWNEIGH
         02000000 02000000 8000 00 00                # IPv4, link 2, permanent
         0800 0100 a9fe0101                          # 169.254.1.1
         0a00 0200 0a54656e 75720000                 # the host end's address",
        "34000000 1800 0505 01000000 00000000        # NEWROUTE
         02 20 00 00 fe 03 fd 01 00000000            # /32, main, boot, link scope, unicast
         0800 0100 a9fe0101 0800 0400 02000000 0800 0f00 fe000000",
        "34000000 1800 0505 01000000 00000000
         02 00 00 00 fe 03 00 01 00000000            # default
         0800 0400 02000000 0800 0500 a9fe0101 0800 0f00 fe000000",
        "3c000000 1c00 0505 01000000 00000000
         0a000000 02000000 8000 00 00
         1400 0100 fe800000 00000000 00000000 00000001
         0a00 0200 0a54656e 75720000",
        "40000000 1800 0505 01000000 00000000
         0a 00 00 00 fe 03 00 01 00000000            # default of IPv6
         0800 0400 02000000
         1400 0500 fe800000 00000000 00000000 00000001
         0800 0f00 fe000000",
    ];
    assert_eq!(requests.len(), expected.len());
    requests.iter().zip(expected).for_each(|(request, expected)| assert_encodes(request, expected));
}

#[test]
fn on_the_host_the_end_is_marked_and_each_address_is_routed_to_it() {
    let requests = messages::outside(&plan(), &Settings::default(), 7);
    let expected = [
        "58000000 1300 0500 01000000 00000000        # SETLINK
         00000000 07000000 00000000 00000000
         2600 1400                                   # IFALIAS tenure/c0ffee/eth0/k8s/shop/web-0
           74656e75 72652f63 30666665 652f6574 68302f6b 38732f73 686f702f 7765622d 30000000
         1000 1a00 0c00 0a00 0500 0800 01000000      # AF_SPEC, INET6, ADDR_GEN_MODE none",
        "20000000 1300 0500 01000000 00000000
         00000000 07000000 01000000 01000000         # up",
        "28000000 1400 0505 01000000 00000000
         02 20 00 fd 07000000                        # 169.254.1.1/32, link scope
         0800 0200 a9fe0101 0800 0100 a9fe0101",
        "48000000 1400 0505 01000000 00000000
         0a 40 02 fd 07000000                        # fe80::1/64
         1400 0200 fe800000 00000000 00000000 00000001
         1400 0100 fe800000 00000000 00000000 00000001
         0800 0800 02000000",
        "30000000 1c00 0505 01000000 00000000
         02000000 07000000 0400 10 00                # stale: believed at first; learned from outside
         0800 0100 0a020001 0a00 0200 0a678838 f2d90000",
        "3c000000 1800 0505 01000000 00000000
         02 20 00 00 74 1e 00 01 00000000            # /32, table 116, protocol 30, wide scope
         0800 0100 0a020001 0800 0400 07000000
         0800 0700 c0000201                          # PREFSRC, the node's own
         0800 0f00 74000000",
        "3c000000 1c00 0505 01000000 00000000
         0a000000 07000000 0400 10 00
         1400 0100 fd010000 00000000 00000000 00000001
         0a00 0200 0a678838 f2d90000",
        "40000000 1800 0505 01000000 00000000
         0a 80 00 00 74 1e 00 01 00000000
         1400 0100 fd010000 00000000 00000000 00000001
         0800 0400 07000000 0800 0f00 74000000",
    ];
    assert_eq!(requests.len(), expected.len());
    requests.iter().zip(expected).for_each(|(request, expected)| assert_encodes(request, expected));
}

#[test]
fn every_message_says_in_words_what_it_is_for() {
    let settings = Settings::default();
    let plan = PodPlan { addresses: vec!["10.2.0.1".parse().unwrap()], ..plan() };
    let mut requests = vec![messages::create(&plan, &settings, 9)];
    requests.extend(messages::inside(&plan, &settings, 2));
    requests.extend(messages::outside(&plan, &settings, 7));
    requests.extend([link::look_into(3, 2), messages::to_trash(&settings, 7)]);
    let words: Vec<String> = requests.iter().map(Request::describe).collect();
    let expected = [
        "create link tnr7b30cd678838",
        "change link 1, up",
        "change link 2, up",
        "add address 10.2.0.1/32 on link 2",
        "add neighbour 169.254.1.1 on link 2",
        "add route 169.254.1.1/32 dev 2 in table 254",
        "add route default of Inet dev 2 via 169.254.1.1 in table 254",
        "change link 7, alias \"tenure/c0ffee/eth0/k8s/shop/web-0\"",
        "change link 7, up",
        "add address 169.254.1.1/32 on link 7",
        "add neighbour 10.2.0.1 on link 7",
        "add route 10.2.0.1/32 dev 7 in table 116",
        "look up link 2",
        "change link 7, down, group 11601",
    ];
    assert_eq!(words, expected);
}

#[test]
fn one_message_takes_a_link_out_of_service() {
    assert_encodes(
        &messages::to_trash(&Settings::default(), 7),
        "28000000 1300 0500 01000000 00000000
         00000000 07000000 00000000 01000000         # down
         0800 1b00 512d0000                          # GROUP 11601",
    );
}

#[test]
fn a_pod_of_one_family_hears_nothing_of_the_other() {
    let settings = Settings::default();
    for (address, other) in [("10.2.0.1", "Inet6"), ("fd01::1", "Inet ")] {
        let plan = PodPlan { addresses: vec![address.parse().unwrap()], ..plan() };
        let requests =
            [messages::inside(&plan, &settings, 2), messages::outside(&plan, &settings, 7)].concat();
        for request in requests {
            let text = format!("{:?} ", request.message().unwrap());
            let own_family =
                !text.contains(&format!("family: {other}")) && !text.contains(&format!("[{other}("));
            assert!(own_family, "{text}");
        }
    }
}
