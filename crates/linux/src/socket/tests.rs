//! The socket against the kernel, as far as that needs no rights: reading links of the current namespace.

use netlink_packet_core::{ErrorMessage, NLM_F_ACK_TLVS, NLM_F_CAPPED};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};

use super::*;
use crate::link::{self, LOOPBACK, Link};

#[test]
fn each_request_of_an_exchange_is_answered_for_by_itself() {
    let mut socket = Socket::open().unwrap();
    let requests = [link::look_up("lo"), link::look_up("no-such-link"), link::look_up("lo")];
    let outcomes = socket.exchange(&requests).unwrap();
    for there in [&outcomes[0], &outcomes[2]] {
        let link = Link::of_answer(there.clone().unwrap().unwrap()).unwrap();
        assert_eq!((link.index, link.name.as_str()), (LOOPBACK, "lo"));
    }
    let refusal = outcomes[1].as_ref().unwrap_err();
    assert_eq!((refusal.position, refusal.total, refusal.errno), (1, 3, Errno::ENODEV));
    assert_eq!(refusal.to_string(), "look up link no-such-link (request 2 of 3): ENODEV: No such device");
    assert_eq!(refusal.kind(), Kind::Gone);
}

#[test]
fn what_is_not_there_is_none_and_not_an_error() {
    let mut socket = Socket::open().unwrap();
    assert_eq!(Link::by_name(&mut socket, "no-such-link").unwrap(), None);
    assert_eq!(Link::by_index(&mut socket, LOOPBACK).unwrap().unwrap().name, "lo");
}

#[test]
fn more_requests_than_one_message_takes_are_all_answered() {
    let mut socket = Socket::open().unwrap();
    let requests = vec![link::look_up("lo"); 3 * BATCH + 7];
    let outcomes = socket.exchange(&requests).unwrap();
    assert_eq!(outcomes.len(), requests.len());
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))));
}

#[test]
fn the_first_refusal_that_is_not_tolerated_is_the_error() {
    let mut socket = Socket::open().unwrap();
    let tolerated = link::look_up("no-such-link").tolerating(&[Errno::ENODEV]);
    socket.apply(&[tolerated.clone(), link::look_up("lo")]).unwrap();
    let error = socket.apply(&[tolerated, link::look_up("nor-this-one")]).unwrap_err();
    assert!(error.to_string().starts_with("look up link nor-this-one (request 2 of 2)"), "{error}");
}

#[test]
fn a_filter_that_the_kernel_does_not_know_is_refused_in_the_kernels_own_words() {
    let mut socket = Socket::open().unwrap();
    let mut filter = LinkMessage::default();
    filter.attributes.push(LinkAttribute::Group(5));
    let error = socket.dump(&RouteNetlinkMessage::GetLink(filter)).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("Unsupported attribute in link dump request"), "{error}");
    // The socket still works.
    assert!(Link::by_name(&mut socket, "lo").unwrap().is_some());
}

#[test]
fn a_table_without_routes_is_empty_and_not_an_error() {
    let mut socket = Socket::open().unwrap();
    let found = crate::route::list(&mut socket, crate::route::Filter::table(4_000_000_001)).unwrap();
    assert_eq!(found, []);
}

#[test]
fn the_explanation_is_found_behind_the_refused_request() {
    let request = link::look_up("lo");
    let attribute = [12, 0, 1, 0, b'b', b'e', b'c', b'a', b'u', b's', b'e', 0];
    let mut error = ErrorMessage::default();
    error.code = std::num::NonZeroI32::new(-17);

    // Capped: only the header of the refused request comes back.
    error.header = [[0; 16].as_slice(), &attribute].concat();
    let read = |error: &ErrorMessage, flags| Refusal::read(error, flags, &request, 0, 1).unwrap();
    let refusal = read(&error, NLM_F_CAPPED | NLM_F_ACK_TLVS);
    assert_eq!(refusal.explanation.as_deref(), Some("because"));
    assert_eq!(refusal.to_string(), "look up link lo: EEXIST: File exists, because");
    assert_eq!(read(&error, NLM_F_CAPPED).explanation, None);

    // Complete: the request's own length tells where the attributes begin.
    error.header = [[24, 0, 0, 0].as_slice(), &[0; 20], &attribute].concat();
    assert_eq!(read(&error, NLM_F_ACK_TLVS).explanation.as_deref(), Some("because"));

    // Malformed input is not misread.
    error.header = vec![255; 7];
    assert_eq!(read(&error, NLM_F_ACK_TLVS).explanation, None);
    error.code = None;
    assert!(Refusal::read(&error, 0, &request, 0, 1).is_none());
}

#[test]
fn a_datagram_that_is_not_netlink_is_an_error_and_not_a_panic() {
    for datagram in [&[0_u8; 7][..], &[255; 40], &[16, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        assert!(Messages::<Answer>::of(datagram).all(|message| message.is_err()), "{datagram:?}");
    }
}
