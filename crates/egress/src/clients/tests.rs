//! Who is a client, case by case.

use tenure_api::coil::egress::EgressClient;

use super::*;

pub(super) fn spec(pods: &[(&str, &[&str])]) -> EgressClientsSpec {
    let client = |(uid, addresses): &(&str, &[&str])| EgressClient {
        namespace: "default".to_owned(),
        pod: format!("pod-{uid}"),
        uid: (*uid).to_owned(),
        addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
    };
    EgressClientsSpec { node_name: "node".to_owned(), clients: pods.iter().map(client).collect() }
}

fn clients() -> Clients {
    Clients::new(vec!["10.3.0.9".parse().unwrap(), "fd03::9".parse().unwrap()])
}

fn served(clients: &Clients) -> Vec<String> {
    clients.served().iter().map(ToString::to_string).collect()
}

const NOW: Duration = Duration::from_secs(100);
const LATER: Duration = Duration::from_secs(102);

#[test]
fn an_address_that_moves_to_another_node_is_served_in_either_order_of_events() {
    for new_first in [false, true] {
        let mut clients = clients();
        clients.apply("nat.a", &spec(&[("1", &["10.2.0.7", "fd02::7"])]), NOW);
        if new_first {
            clients.apply("nat.b", &spec(&[("2", &["10.2.0.7"])]), NOW);
            clients.apply("nat.a", &spec(&[]), NOW);
        } else {
            clients.apply("nat.a", &spec(&[]), NOW);
            assert_eq!(served(&clients), ["10.2.0.7", "fd02::7"], "it may be on its way");
            clients.apply("nat.b", &spec(&[("2", &["10.2.0.7"])]), NOW);
        }
        assert_eq!(clients.expire(NOW), Some(LATER), "the other address of the pod goes");
        assert_eq!(clients.expire(LATER), None);
        assert_eq!(served(&clients), ["10.2.0.7"]);
    }
}

#[test]
fn a_finished_pod_takes_the_address_from_no_other_on_its_node() {
    let mut clients = clients();
    clients.apply("nat.a", &spec(&[("old", &["10.2.0.7"]), ("new", &["10.2.0.7"])]), NOW);
    clients.apply("nat.a", &spec(&[("new", &["10.2.0.7"])]), NOW);
    assert_eq!(clients.expire(LATER), None);
    assert_eq!(served(&clients), ["10.2.0.7"]);
    clients.remove("nat.a", LATER);
    clients.expire(LATER + GRACE);
    assert_eq!(served(&clients), Vec::<String>::new());
}

#[test]
fn a_list_ends_what_it_does_not_mention_and_only_at_its_end() {
    let mut clients = clients();
    assert!(!clients.is_complete());
    for node in ["nat.a", "nat.b", "nat.c"] {
        let last = &node[4..];
        let address = format!("10.2.0.{}", last.as_bytes()[0]);
        clients.apply(node, &spec(&[(last, &[&address])]), NOW);
    }
    clients.begin();
    clients.apply("nat.a", &spec(&[("a", &["10.2.0.97"])]), NOW);
    clients.keep("nat.b");
    assert_eq!(clients.expire(NOW + GRACE), None);
    assert_eq!(served(&clients).len(), 3);
    clients.finish(NOW);
    assert!(clients.is_complete());
    clients.expire(LATER);
    assert_eq!(served(&clients), ["10.2.0.97", "10.2.0.98"], "one that cannot be read keeps what it said");
}

#[test]
fn what_cannot_be_a_client_is_left_out_and_counted() {
    let mut clients = clients();
    let bad = [
        "",
        "10.2.0",
        "10.2.0.7/32",
        "ten",
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "::1",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "169.254.1.1",
        "fe80::1",
        "::ffff:10.2.0.7",
        "10.3.0.9",
        "fd03::9",
    ];
    let pods: Vec<(&str, &[&str])> =
        bad.iter().map(|address| (*address, std::slice::from_ref(address))).collect();
    clients.apply("nat.a", &spec(&pods), NOW);
    assert_eq!((served(&clients), clients.unusable()), (vec![], bad.len()));
    clients.apply(
        "nat.a",
        &spec(&[("1", &["10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4", "10.2.0.5"])]),
        NOW,
    );
    assert_eq!((served(&clients).len(), clients.unusable()), (4, 1));
    assert_eq!(clients.pods().count(), 1);
}

#[test]
fn there_is_a_limit_to_everything() {
    let mut clients = clients();
    let addresses: Vec<String> =
        (0..70_000_u32).map(|n| std::net::Ipv4Addr::from(0x0a64_0000 + n).to_string()).collect();
    for (number, part) in addresses.chunks(4096).enumerate() {
        let texts: Vec<&str> = part.iter().map(String::as_str).collect();
        let pods: Vec<(&str, &[&str])> = texts.chunks(4).map(|texts| (texts[0], texts)).collect();
        clients.apply(&format!("nat.{number}"), &spec(&pods), NOW);
    }
    assert_eq!((clients.served().len(), clients.unusable()), (MOST_CLIENTS, 70_000 - MOST_CLIENTS));
    let many: Vec<(&str, &[&str])> = vec![("x", &["10.2.0.1"]); MOST_PODS + 7];
    let mut other = self::clients();
    other.apply("nat.a", &spec(&many), NOW);
    assert_eq!((other.pods().count(), other.unusable()), (MOST_PODS, 7));
}
