//! A connection, spoken to by hand.

use super::*;
use crate::frame::{Frame, HEADER, Kind, PREFACE, flags};

const METHODS: &[&str] = &["/t.T/A", "/t.T/B"];

/// A frame that was said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) kind: Kind,
    pub(super) stream: u32,
    pub(super) ends: bool,
    pub(super) payload: Vec<u8>,
}

impl Said {
    fn reason(&self) -> u32 {
        let place = if self.kind == Kind::GoAway { 4 } else { 0 };
        u32::from_be_bytes(self.payload[place..place + 4].try_into().unwrap())
    }

    fn fields(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut fields = Vec::new();
        let mut decoder = hpack::Decoder::default();
        decoder.decode(&self.payload, &mut |name, value| fields.push((text(name), text(value)))).unwrap();
        fields
    }

    fn field(&self, name: &str) -> Option<String> {
        self.fields().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// All that is outgoing, which is written with that.
pub(super) fn said(connection: &mut Connection) -> Vec<Said> {
    let mut frames = Vec::new();
    while !connection.outgoing().is_empty() {
        let bytes = connection.outgoing().to_vec();
        connection.wrote(bytes.len());
        let mut rest = &bytes[..];
        while let Some(frame) = Frame::first(rest) {
            frames.push(Said {
                kind: frame.header.kind,
                stream: frame.header.stream,
                ends: frame.has(flags::END_STREAM),
                payload: frame.payload.to_vec(),
            });
            rest = &rest[HEADER + frame.payload.len()..];
        }
        assert!(rest.is_empty(), "half a frame");
    }
    frames
}

pub(super) fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::settings(&mut bytes, entries);
    bytes
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    raw(8, 0, stream, &increment.to_be_bytes())
}

pub(super) fn greeting() -> Vec<u8> {
    [&PREFACE[..], &settings(&[])].concat()
}

/// A head, with other fields than usual where they are given.
fn head(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let usual =
        [(":method", "POST"), (":scheme", "http"), (":path", path), ("content-type", "application/grpc")];
    for (name, value) in usual {
        let value = more.iter().find(|(known, _)| *known == name).map_or(value, |(_, value)| value);
        hpack::literal(&mut block, name, value);
    }
    for (name, value) in more.iter().filter(|(name, _)| usual.iter().all(|(known, _)| known != name)) {
        hpack::literal(&mut block, name, value);
    }
    block
}

fn message(text: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
}

pub(super) fn call(stream: u32, text: &[u8]) -> Vec<u8> {
    [raw(1, 4, stream, &head("/t.T/A", &[])), raw(0, 1, stream, &message(text))].concat()
}

fn open() -> Connection {
    let mut connection = Connection::new(METHODS);
    connection.receive(&greeting());
    connection
}

fn greeted() -> Connection {
    let mut connection = open();
    said(&mut connection);
    connection
}

fn called(connection: &mut Connection) -> Call {
    match connection.event() {
        Some(Event::Call(call)) => call,
        other => panic!("no call but {other:?}"),
    }
}

/// What a connection says and does after these bytes.
fn after(bytes: &[u8]) -> (Vec<Said>, Connection) {
    let mut connection = greeted();
    connection.receive(bytes);
    (said(&mut connection), connection)
}

#[test]
fn a_call_is_heard_and_answered() {
    let mut connection = open();
    let more = [("te", "trailers"), ("grpc-timeout", "2S"), ("traceparent", "00-1-2-01"), ("x", "y")];
    connection.receive(&raw(1, 4, 1, &head("/t.T/B", &more)));
    connection.receive(&raw(0, 1, 1, &message(b"hello")));
    let call = called(&mut connection);
    assert_eq!((call.stream, call.path, call.message()), (1, "/t.T/B", &b"hello"[..]));
    assert_eq!(
        (call.timeout, call.traceparent.as_deref()),
        (Some(Duration::from_secs(2)), Some("00-1-2-01"))
    );
    assert!(connection.may_wait(), "greeting and acknowledgement travel with the answer");
    connection.answer(1, Ok(b"world".to_vec()));
    assert!(!connection.may_wait());
    let said = said(&mut connection);
    let kinds: Vec<_> = said.iter().map(|said| (said.kind, said.stream, said.ends)).collect();
    assert_eq!(
        kinds,
        [
            (Kind::Settings, 0, false),
            (Kind::WindowUpdate, 0, false),
            (Kind::Settings, 0, true),
            (Kind::Headers, 1, false),
            (Kind::Data, 1, false),
            (Kind::Headers, 1, true),
        ]
    );
    assert_eq!(said[3].field(":status").as_deref(), Some("200"));
    assert_eq!(said[3].field("content-type").as_deref(), Some("application/grpc"));
    assert_eq!(said[4].payload, message(b"world"));
    assert_eq!(said[5].fields(), [("grpc-status".to_owned(), "0".to_owned())]);
    assert!(!connection.is_over() && connection.kept() == 0);
}

#[test]
fn with_the_goaway_of_its_caller_a_connection_ends_when_all_is_answered() {
    let goaway = raw(7, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let (nothing, mut connection) = after(&[call(1, b"a"), call(3, b"b"), goaway.clone()].concat());
    assert!(nothing.is_empty() && connection.is_all_asked() && connection.wants_input());
    connection.answer(3, Ok(Vec::new()));
    said(&mut connection);
    assert!(!connection.is_over());
    connection.answer(1, Ok(Vec::new()));
    let last = said(&mut connection).pop().unwrap();
    assert_eq!((last.kind, last.reason(), &last.payload[..4]), (Kind::GoAway, 0, &[0, 0, 0, 3][..]));
    assert!(connection.is_over());
    assert!(after(&goaway).1.is_over(), "at once if there is nothing");
}

#[test]
fn at_the_end_what_is_asked_is_answered_and_nothing_new_is_heard() {
    let mut connection = greeted();
    connection.receive(&[call(1, b"a"), raw(1, 4, 3, &head("/t.T/A", &[]))].concat());
    connection.shut_down();
    assert_eq!(said(&mut connection).pop().unwrap().payload[..4], [0, 0, 0, 3]);
    connection.receive(&[call(5, b"late"), raw(0, 1, 3, &message(b"under way"))].concat());
    assert_eq!(called(&mut connection).message(), b"a");
    assert_eq!(called(&mut connection).message(), b"under way");
    assert_eq!(connection.event(), None);
    connection.answer(1, Ok(Vec::new()));
    connection.answer(3, Ok(Vec::new()));
    assert!(said(&mut connection).iter().all(|said| said.kind != Kind::GoAway && said.stream != 5));
    assert!(connection.is_over());
    let mut idle = Connection::new(METHODS);
    idle.shut_down();
    assert_eq!(said(&mut idle).pop().unwrap().kind, Kind::GoAway);
    assert!(idle.is_over());
}

#[test]
fn heads_and_messages_may_be_padded_prioritised_and_cut() {
    let block = head("/t.T/A", &[]);
    let first = [&[2, 0, 0, 0, 0, 9][..], &block[..10], &[0, 0]].concat();
    let text = message(b"in two");
    let bytes = [
        raw(1, 0x28, 1, &first),
        raw(9, 0, 1, &block[10..11]),
        raw(9, 0, 1, &[]),
        raw(9, 4, 1, &block[11..]),
        raw(0, 8, 1, &[&[3][..], &text[..2], &[0; 3]].concat()),
        raw(0xfa, 0xff, 1, b"not known"),
        raw(0, 0, 1, &[]),
        raw(0, 9, 1, &[&[0][..], &text[2..]].concat()),
    ];
    let (_, mut connection) = after(&bytes.concat());
    assert_eq!(called(&mut connection).message(), b"in two");
    // Trailers may end it, too.
    let trailers = raw(1, 5, 3, &[0, 1, b'x', 1, b'y']);
    let (_, mut connection) =
        after(&[raw(1, 4, 3, &head("/t.T/A", &[])), raw(0, 0, 3, &message(b"x")), trailers].concat());
    assert_eq!(called(&mut connection).message(), b"x");
}

#[test]
fn a_large_answer_waits_for_the_windows_of_the_stream_and_of_the_connection() {
    let mut connection = Connection::new(METHODS);
    connection.receive(&[&PREFACE[..], &settings(&[(4, 10), (5, 20_000)])].concat());
    connection.receive(&call(1, b"a"));
    said(&mut connection);
    let answer: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    connection.answer(1, Ok(answer.clone()));
    let mut got = Vec::new();
    let mut take = |connection: &mut Connection| {
        let said = said(connection);
        let data = said.iter().filter(|said| said.kind == Kind::Data);
        let sizes: Vec<usize> = data.clone().map(|said| said.payload.len()).collect();
        data.for_each(|said| got.extend_from_slice(&said.payload));
        (sizes, said.iter().any(|said| said.ends && said.kind == Kind::Headers))
    };
    assert_eq!(take(&mut connection), (vec![10], false));
    // The peer changes its mind downwards: the window is below zero, and has to come up first.
    connection.receive(&settings(&[(4, 4)]));
    connection.receive(&window(1, 6));
    assert_eq!(take(&mut connection), (vec![], false));
    connection.receive(&window(1, 1));
    assert_eq!(take(&mut connection), (vec![1], false));
    connection.receive(&settings(&[(4, 1_000_004)]));
    assert_eq!(
        take(&mut connection),
        (vec![20_000, 20_000, 20_000, 5_524], false),
        "65,535 of the connection"
    );
    connection.receive(&window(0, 1_000_000));
    let (sizes, ended) = take(&mut connection);
    assert_eq!((sizes.iter().sum::<usize>(), ended), (100_005 - 65_535, true));
    assert!(got == message(&answer));
}

#[test]
fn answers_take_turns_and_what_is_not_read_is_not_added_to() {
    let mut connection = greeted();
    connection.receive(&[settings(&[(4, 0x7fff_ffff)]), window(0, 0x7fff_0000)].concat());
    connection.receive(&[call(1, b"a"), call(3, b"b")].concat());
    for stream in [1, 3] {
        connection.answer(stream, Ok(vec![0; 1 << 20]));
    }
    assert!(!connection.wants_input());
    assert!(connection.outgoing().len() < MOST_OUTGOING + 2 * LARGEST_PAYLOAD);
    let order: Vec<u32> =
        said(&mut connection).iter().filter(|said| said.kind == Kind::Data).map(|said| said.stream).collect();
    let (first, last) = (order.iter().position(|it| *it == 3), order.iter().rposition(|it| *it == 1));
    assert!(first.is_some() && first < last, "{order:?}");
    assert!(connection.wants_input() && connection.kept() == 0);
}

#[test]
fn a_caller_who_pads_or_sends_much_gets_larger_windows() {
    let mut connection = greeted();
    connection.receive(&raw(1, 4, 1, &head("/t.T/A", &[])));
    let padded = raw(0, 8, 1, &[&[255][..], &[0; 255]].concat());
    let (mut of_stream, mut of_connection) = (0, 0);
    for _ in 0..100_000 {
        connection.receive(&padded);
        for said in said(&mut connection) {
            assert_eq!(said.kind, Kind::WindowUpdate);
            if said.stream == 1 { of_stream += said.reason() } else { of_connection += said.reason() }
        }
    }
    assert!(of_stream > 20_000_000 && of_connection > 15_000_000);
    connection.receive(&raw(0, 1, 1, &message(b"at last")));
    assert_eq!(called(&mut connection).message(), b"at last");
}

#[test]
fn what_is_no_call_is_refused_with_words() {
    let full = |more: &[(&str, &str)], body: &[u8]| {
        [raw(1, 4, 1, &head("/t.T/A", more)), raw(0, 1, 1, body)].concat()
    };
    let one = message(b"x");
    let two = [&one[..], &one].concat();
    let cases: [(Vec<u8>, &str, &str, &str); 11] = [
        (full(&[(":path", "/t.T/C%")], &one), "200", "12", "no method /t.T/C%25"),
        (full(&[("content-type", "text/html")], &one), "415", "13", "content-type"),
        (full(&[(":method", "GET")], &one), "405", "13", "POST"),
        (full(&[("grpc-timeout", "soon")], &one), "200", "3", "grpc-timeout is \"soon\""),
        (full(&[], &[1, 0, 0, 0, 1, 0]), "200", "12", "compressed"),
        (full(&[], &[7, 0, 0, 0, 1, 0]), "200", "13", "begins with 7"),
        (full(&[], &[0, 0, 0x40, 0, 1]), "200", "8", "4194305"),
        (full(&[], &two), "200", "13", "more than one message"),
        (full(&[], &[]), "200", "13", "no message"),
        (full(&[], &one[..5]), "200", "13", "in the middle"),
        (raw(1, 5, 1, &head("/t.T/A", &[])), "200", "13", "no message"),
    ];
    for (bytes, http, grpc, words) in cases {
        let mut connection = greeted();
        connection.receive(&bytes);
        let said = said(&mut connection);
        let [refusal] = &said[..] else { panic!("{words}: {said:?}") };
        assert!(refusal.ends && refusal.kind == Kind::Headers, "{words}");
        assert_eq!(refusal.field(":status").as_deref(), Some(http), "{words}");
        assert_eq!(refusal.field("grpc-status").as_deref(), Some(grpc), "{words}");
        let message = refusal.field("grpc-message").unwrap();
        assert!(message.contains(words), "{message} contains {words}");
        assert_eq!((connection.event(), connection.kept()), (None, 0));
    }
}

#[test]
fn headers_that_are_too_large_once_decoded_are_refused() {
    let mut block = head("/t.T/A", &[]);
    // One field of 4,000 bytes to remember, and five times the memory of it.
    block.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
    block.extend([b'y'; 4000]);
    block.extend([0xbe; 5]);
    let (said, _) = after(&[raw(1, 4, 1, &block), raw(0, 1, 1, &message(b""))].concat());
    assert_eq!(said[0].field("grpc-status").as_deref(), Some("8"));
}

#[test]
fn who_goes_on_after_a_refusal_is_told_to_stop() {
    let refused = raw(1, 4, 1, &head("/t.T/C", &[]));
    let (said, mut connection) = after(&[refused, raw(0, 0, 1, b"more"), raw(0, 0, 1, b"and more")].concat());
    assert_eq!((said.len(), said[1].kind, said[1].reason()), (2, Kind::ResetStream, 0));
    connection.receive(&call(3, b"next"));
    assert_eq!(called(&mut connection).message(), b"next");
}

#[test]
fn a_call_that_is_cancelled_is_not_answered() {
    let (nothing, mut connection) = after(&[call(1, b"a"), raw(3, 0, 1, &[0, 0, 0, 8])].concat());
    assert!(nothing.is_empty());
    assert_eq!(called(&mut connection).stream, 1);
    assert_eq!(connection.event(), Some(Event::Cancelled(1)));
    connection.answer(1, Ok(b"late".to_vec()));
    assert!(connection.outgoing().is_empty());
    // What is on its way to a closed stream is left alone.
    connection.receive(&[raw(0, 1, 1, b"late"), window(1, 5), raw(1, 5, 1, &[0x82])].concat());
    assert!(connection.outgoing().is_empty() && !connection.is_over());
}

#[test]
fn more_calls_at_once_than_agreed_are_refused() {
    let mut connection = greeted();
    for number in 0..MOST_CALLS {
        connection.receive(&call(u32::try_from(number).unwrap() * 2 + 1, b""));
    }
    assert!(said(&mut connection).is_empty());
    connection.receive(&call(1001, b""));
    let said = said(&mut connection);
    assert_eq!((said[0].kind, said[0].stream, said[0].reason()), (Kind::ResetStream, 1001, 7));
    connection.answer(1, Ok(Vec::new()));
    connection.receive(&call(1003, b""));
    assert_eq!(std::iter::from_fn(|| connection.event()).count(), MOST_CALLS + 1);
}

#[test]
fn unfinished_calls_are_kept_up_to_a_limit() {
    let mut connection = greeted();
    let part = raw(0, 0, 0, &vec![0; LARGEST_PAYLOAD]);
    for stream in (1..21).step_by(2) {
        connection.receive(&raw(1, 4, stream, &head("/t.T/A", &[])));
        connection.receive(&raw(0, 0, stream, &[0, 0, 0x40, 0, 0]));
        let mut part = part.clone();
        part[5..9].copy_from_slice(&stream.to_be_bytes());
        for _ in 0..200 {
            connection.receive(&part);
        }
        assert!(connection.kept() < CONNECTION_WINDOW as usize + (1 << 20));
    }
    let refusals = said(&mut connection).into_iter().filter(|said| said.kind == Kind::Headers);
    assert!(refusals.map(|said| said.field("grpc-status").unwrap()).all(|code| code == "8"));
}

#[test]
fn pings_are_answered_and_settings_acknowledged() {
    let (said, _) =
        after(&[raw(6, 0, 0, b"12345678"), raw(6, 1, 0, b"12345678"), settings(&[(3, 7), (99, 1)])].concat());
    assert_eq!((said.len(), said[0].payload.as_slice(), said[0].ends), (2, &b"12345678"[..], true));
    assert_eq!((said[1].kind, said[1].ends), (Kind::Settings, true));
}

#[test]
fn a_broken_stream_is_reset_and_the_others_go_on() {
    let asking = |stream| raw(1, 4, stream, &head("/t.T/A", &[]));
    let bad = |more: &[(&str, &str)]| raw(1, 4, 3, &head("/t.T/A", more));
    let cases: [(Vec<u8>, u32); 10] = [
        (bad(&[("Upper", "x")]), 1),
        (bad(&[("te", "gzip")]), 1),
        (bad(&[("connection", "close")]), 1),
        (bad(&[(":late", "x")]), 1),
        (raw(1, 4, 3, &[0x83, 0x86]), 1),
        ([asking(3), raw(1, 4, 3, &[0, 1, b'x', 1, b'y'])].concat(), 1),
        ([asking(3), window(3, 0)].concat(), 1),
        ([asking(3), window(3, 0x7fff_ffff)].concat(), 3),
        ([call(3, b"x"), raw(0, 1, 3, b"x")].concat(), 5),
        ([call(3, b"x"), raw(1, 5, 3, &[0x82])].concat(), 5),
    ];
    for (number, (bytes, reason)) in cases.into_iter().enumerate() {
        let (said, mut connection) = after(&[call(1, b"good"), bytes].concat());
        let [reset] = &said[..] else { panic!("{number}: {said:?}") };
        assert_eq!((reset.kind, reset.stream, reset.reason()), (Kind::ResetStream, 3, reason), "{number}");
        connection.answer(1, Ok(Vec::new()));
        assert_eq!(self::said(&mut connection).len(), 3, "{number}");
    }
}

#[test]
fn a_broken_connection_is_ended_with_the_reason() {
    let cases: [(Vec<u8>, u32); 22] = [
        (b"\xff\xff\xff\0\0\0\0\0\x01".to_vec(), 6),
        (raw(4, 0, 1, &[]), 1),
        (raw(4, 1, 0, &[0; 6]), 6),
        (raw(4, 0, 0, &[0; 5]), 6),
        (settings(&[(2, 2)]), 1),
        (settings(&[(4, 0x8000_0000)]), 3),
        (settings(&[(5, 16_383)]), 1),
        (settings(&[(5, 1 << 24)]), 1),
        (raw(6, 0, 0, &[0; 7]), 6),
        (raw(6, 0, 1, &[0; 8]), 1),
        (raw(7, 0, 0, &[0; 7]), 6),
        (window(0, 0), 1),
        (window(0, 0x7fff_ffff), 3),
        (window(9, 1), 1),
        (raw(0, 0, 1, b"idle"), 1),
        (raw(3, 0, 1, &[0; 4]), 1),
        (raw(1, 4, 2, &head("/t.T/A", &[])), 1),
        (raw(1, 4, 1, &[0x80]), 9),
        ([raw(1, 0, 1, &[0x82]), raw(6, 0, 0, &[0; 8])].concat(), 1),
        (raw(9, 4, 1, &[]), 1),
        (raw(5, 4, 1, &[0; 4]), 1),
        ([raw(1, 4, 1, &head("/t.T/A", &[])), raw(0, 8, 1, &[9, 0])].concat(), 1),
    ];
    for (number, (bytes, reason)) in cases.into_iter().enumerate() {
        let (said, mut connection) = after(&bytes);
        let goaway = said.last().unwrap();
        assert_eq!((goaway.kind, goaway.reason()), (Kind::GoAway, reason), "{number}: {said:?}");
        assert!(connection.is_over() && !connection.wants_input(), "{number}");
        connection.receive(&call(11, b"late"));
        assert_eq!((connection.event(), connection.kept()), (None, 0));
    }
    let endless = [raw(1, 0, 1, &[0; 16_000]), raw(9, 0, 1, &[0; 16_000])].concat();
    assert_eq!(after(&endless).0[0].reason(), 11);
    for early in [&b"GET / HTTP/1.1\r\n"[..], &[&PREFACE[..], &window(0, 1)].concat()] {
        let mut connection = Connection::new(METHODS);
        connection.receive(early);
        assert_eq!(said(&mut connection).pop().unwrap().reason(), 1);
    }
}

#[test]
fn a_renewed_connection_is_as_a_new_one() {
    let greeting = Connection::new(METHODS).outgoing().to_vec();
    let mut connection = open();
    connection.receive(&[call(1, b"a"), raw(1, 4, 3, &[0x40, 1, b'x', 1, b'y', 0x80])].concat());
    let mut connection = connection.renewed();
    assert_eq!(connection.outgoing(), greeting);
    assert_eq!((connection.event(), connection.kept()), (None, greeting.len()));
    connection.receive(&[&self::greeting()[..], &raw(1, 4, 1, &[0xbe])].concat());
    assert_eq!(said(&mut connection).pop().unwrap().reason(), 9, "nothing is remembered");
}
