//! What is written is read again, whatever it is; and no bytes make the decoder panic or remember more than it may.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Field = (Vec<u8>, Vec<u8>);

fn read(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Field>, Malformed> {
    let mut fields = Vec::new();
    decoder.decode(block, &mut |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    Ok(fields)
}

proptest! {
    #[test]
    fn fields_come_back_as_they_were(fields in vec((".{0,40}", ".{0,300}"), 0..20)) {
        let mut block = Vec::new();
        for (name, value) in &fields {
            literal(&mut block, name, value);
        }
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        prop_assert_eq!(read(&mut Decoder::default(), &block), Ok(fields));
    }

    #[test]
    fn numbers_come_back_as_they_were(prefix in 1_u32..=8, value in 0_usize..1 << 28) {
        let mut block = Vec::new();
        integer(&mut block, prefix, value);
        let mut reader = Reader { bytes: &block };
        prop_assert_eq!(reader.integer(prefix), Ok(value));
        prop_assert!(reader.bytes.is_empty());
    }

    /// What a peer says to remember is found again as long as it is not too much.
    #[test]
    fn the_table_has_the_newest_that_fit(fields in vec(("[a-z]{1,10}", "[a-z]{0,500}"), 1..40)) {
        let mut decoder = Decoder::default();
        for (name, value) in &fields {
            let mut block = Vec::new();
            literal(&mut block, name, value);
            block[0] = 0x40;
            read(&mut decoder, &block).unwrap();
        }
        let mut size = 0;
        for (place, (name, value)) in fields.iter().rev().enumerate() {
            size += name.len() + value.len() + 32;
            let mut block = Vec::new();
            integer(&mut block, 7, STATIC + 1 + place);
            block[0] |= 0x80;
            let expected = vec![(name.as_bytes().to_vec(), value.as_bytes().to_vec())];
            prop_assert_eq!(read(&mut decoder, &block).ok(), (size <= TABLE).then_some(expected));
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_hoard(blocks in vec(vec(any::<u8>(), 0..200), 1..20)) {
        let mut decoder = Decoder::default();
        for block in blocks {
            let _ = read(&mut decoder, &block);
            prop_assert!(decoder.dynamic.size() <= TABLE);
        }
    }
}
