//! However bytes are cut, they mean the same; whatever they are, nothing panics and nothing is hoarded.

use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{call, greeting, raw, said};
use super::*;

const METHODS: &[&str] = &["/t.T/A"];

/// Frames that are mostly right, on few streams.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(0_u32), (0_u32..6).prop_map(|number| number * 2 + 1)];
    let any_frame = (0_u8..11, any::<u8>(), stream.clone(), vec(any::<u8>(), 0..40))
        .prop_map(|(kind, flags, stream, payload)| raw(kind, flags, stream, &payload));
    let good_call = ((0_u32..40).prop_map(|number| number * 2 + 1), vec(any::<u8>(), 0..60))
        .prop_map(|(stream, text)| call(stream, &text));
    let settings =
        (prop_oneof![Just(1_u8), Just(3), Just(4), Just(5)], any::<u16>()).prop_map(|(setting, value)| {
            let [v0, v1] = value.to_be_bytes();
            raw(4, 0, 0, &[0, setting, 0, 0, v0, v1])
        });
    let window = (stream, 1_u32..1000).prop_map(|(stream, size)| raw(8, 0, stream, &size.to_be_bytes()));
    let reset = (0_u32..40).prop_map(|number| raw(3, 0, number * 2 + 1, &[0, 0, 0, 8]));
    let one = prop_oneof![6 => good_call, 1 => settings, 2 => window, 1 => reset, 1 => any_frame];
    vec(one, 0..30).prop_map(|frames| [greeting(), frames.concat()].concat())
}

fn heard(pieces: &[&[u8]]) -> (Vec<Event>, Vec<u8>, bool) {
    let mut connection = Connection::new(METHODS);
    let mut events = Vec::new();
    for piece in pieces {
        connection.receive(piece);
        events.extend(std::iter::from_fn(|| connection.event()));
    }
    (events, connection.outgoing().to_vec(), connection.closed)
}

proptest! {
    #[test]
    fn it_does_not_matter_where_bytes_are_cut(bytes in frames(), cuts in vec(any::<prop::sample::Index>(), 0..20)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(heard(&pieces), heard(&[&bytes]));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(heard(&single), heard(&[&bytes]));
    }

    #[test]
    fn no_bytes_make_it_panic_or_hoard(bytes in vec(any::<u8>(), 0..3000), with_greeting in any::<bool>()) {
        let bytes = if with_greeting { [greeting(), bytes].concat() } else { bytes };
        let mut connection = Connection::new(METHODS);
        for piece in bytes.chunks(100) {
            connection.receive(piece);
            prop_assert!(connection.kept() <= 2 * bytes.len() + 4096);
        }
    }

    /// Every call that is heard and not cancelled is answered whole, in spite of small windows, once they are opened.
    #[test]
    fn what_is_answered_arrives(sizes in vec(0_usize..50_000, 1..20), window in 0_u32..70_000, frame in 16_384_u32..40_000) {
        let mut connection = Connection::new(METHODS);
        let [w, f] = [window, frame].map(u32::to_be_bytes);
        let settings = [&[0, 4][..], &w, &[0, 5], &f].concat();
        connection.receive(&[&frame::PREFACE[..], &raw(4, 0, 0, &settings)].concat());
        for (number, size) in sizes.iter().enumerate() {
            let stream = u32::try_from(number).unwrap() * 2 + 1;
            connection.receive(&call(stream, b""));
            connection.answer(stream, Ok(vec![7; *size]));
        }
        let mut got = vec![0; sizes.len()];
        let mut ended = 0;
        let opening = std::iter::once(Vec::new()).chain((0..sizes.len()).flat_map(|number| {
            let stream = u32::try_from(number).unwrap() * 2 + 1;
            [raw(8, 0, stream, &60_000_u32.to_be_bytes()), raw(8, 0, 0, &60_000_u32.to_be_bytes())]
        }));
        for bytes in opening {
            connection.receive(&bytes);
            for said in said(&mut connection) {
                prop_assert!(said.payload.len() <= frame as usize);
                if said.kind == frame::Kind::Data {
                    got[said.stream as usize / 2] += said.payload.len();
                }
                ended += usize::from(said.kind == frame::Kind::Headers && said.ends);
            }
        }
        prop_assert_eq!(got, sizes.iter().map(|size| size + MESSAGE_PREFIX).collect::<Vec<_>>());
        prop_assert_eq!((ended, connection.kept()), (sizes.len(), 0));
    }
}
