//! The examples of RFC 7541, appendix C, and what must be refused.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn fields(decoder: &mut Decoder, hex: &str) -> Result<Vec<String>, Malformed> {
    let mut fields = Vec::new();
    decoder.decode(&bytes(hex), &mut |name, value| {
        fields.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
    })?;
    Ok(fields)
}

/// Blocks one after the other through one decoder, with what each says and what the table has then.
fn check(decoder: &mut Decoder, blocks: &[(&str, usize, &[&str])]) {
    for (hex, size, expected) in blocks {
        assert_eq!(fields(decoder, hex).unwrap(), *expected, "{hex}");
        assert_eq!(decoder.dynamic.size(), *size, "{hex}");
    }
}

#[test]
fn numbers_are_those_of_c_1() {
    let written = |prefix, value| {
        let mut block = Vec::new();
        integer(&mut block, prefix, value);
        block
    };
    assert_eq!(written(5, 10), [0x0a]);
    assert_eq!(written(5, 1337), [0x1f, 0x9a, 0x0a]);
    assert_eq!(written(8, 42), [0x2a]);
    let read = |prefix, bytes: &[u8]| Reader { bytes }.integer(prefix);
    assert_eq!(read(5, &[0x0a]), Ok(10));
    assert_eq!(read(5, &[0x1f, 0x9a, 0x0a]), Ok(1337));
    assert_eq!(read(8, &[0x2a]), Ok(42));
    assert!(read(5, &[0x1f, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
    assert_eq!(read(5, &[0x1f, 0x80]), Err(ENDS_EARLY));
}

#[test]
fn fields_are_those_of_c_2() {
    let one = |hex, size, expected: &str| check(&mut Decoder::default(), &[(hex, size, &[expected])]);
    one("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", 55, "custom-key: custom-header");
    one("040c 2f73 616d 706c 652f 7061 7468", 0, ":path: /sample/path");
    one("1008 7061 7373 776f 7264 0673 6563 7265 74", 0, "password: secret");
    one("82", 0, ":method: GET");
}

#[test]
fn requests_are_those_of_c_3_and_c_4() {
    let first: &[&str] = &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
    let second = [first, &["cache-control: no-cache"]].concat();
    let third = [
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ];
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for [one, two, three] in [plain, coded] {
        check(&mut Decoder::default(), &[(one, 57, first), (two, 110, &second), (three, 164, &third)]);
    }
}

#[test]
fn responses_with_a_table_of_256_bytes_are_those_of_c_5_and_c_6() {
    let shared = [
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ];
    let first = [&[":status: 302"], &shared[..]].concat();
    let second = [&[":status: 307"], &shared[..]].concat();
    let third = [
        ":status: 200",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
        "location: https://www.example.com",
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ];
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for [one, two, three] in [plain, coded] {
        let mut decoder = Decoder::default();
        check(
            &mut decoder,
            &[("3fe1 01", 0, &[]), (one, 222, &first), (two, 222, &second), (three, 215, &third)],
        );
        check(&mut decoder, &[("20", 0, &[])]);
    }
}

#[test]
fn an_entry_that_does_not_fit_empties_the_table_and_a_name_outlives_its_entry() {
    let mut decoder = Decoder::default();
    // A table of 40 bytes: "a: b" has 34. Its name is used again by an entry that takes its place.
    check(&mut decoder, &[("3f09", 0, &[]), ("4001 6101 62", 34, &["a: b"])]);
    check(&mut decoder, &[("7e02 6363", 35, &["a: cc"]), ("be", 35, &["a: cc"])]);
    check(&mut decoder, &[("4003 6161 6107 6262 6262 6262 62", 0, &["aaa: bbbbbbb"])]);
    assert!(fields(&mut decoder, "be").is_err());
}

#[test]
fn what_is_no_header_block_is_refused() {
    for broken in
        ["80", "be", "ff80 8080 8001", "400a 61", "00", "0001 61", "3fe2 1f", "82 20", "0001 6181 00"]
    {
        assert!(fields(&mut Decoder::default(), broken).is_err(), "{broken}");
    }
    assert_eq!(fields(&mut Decoder::default(), "3fe1 1f").unwrap(), Vec::<String>::new(), "4096 is accepted");
}
