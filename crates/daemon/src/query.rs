//! The query of an address: names and values.

use std::collections::BTreeMap;

/// The values of a query by their names. What cannot be decoded is left out.
pub fn parse(query: Option<&str>) -> BTreeMap<String, String> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, value)| Some((decode(name)?, decode(value)?))).collect()
}

/// Text with `%xx` and `+`, as browsers write it.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_what_is_no_text_is_left_out() {
        let parsed = parse(Some("pool=a%2Fb+c&x=%3Cimg%3E&bad=%zz&cut=%4&not=%ff&empty=&alone"));
        let expected = [("empty", ""), ("pool", "a/b c"), ("x", "<img>")];
        assert_eq!(parsed, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert!(parse(None).is_empty());
    }
}
