//! The status of a call that ended without an answer.

use std::fmt::{self, Write as _};

/// The codes that this server uses, by the numbers of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The call cannot be read.
    InvalidArgument = 3,
    /// The caller's deadline passed.
    DeadlineExceeded = 4,
    /// It is larger than the limit.
    ResourceExhausted = 8,
    /// There is no such method or message encoding.
    Unimplemented = 12,
    /// The caller broke the protocol of gRPC.
    Internal = 13,
}

/// A status other than OK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its code.
    pub code: Code,
    /// What is wrong, for people.
    pub message: String,
}

impl Status {
    /// A status.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gRPC status {}: {}", self.code as u8, self.message)
    }
}

/// How much of a message is sent: it may quote the caller's input.
const LONGEST_WORDS: usize = 256;

/// `grpc-message` is percent-encoded.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes().take(LONGEST_WORDS) {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// The reverse; an invalid code stands for itself.
pub(crate) fn percent_decoded(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%');
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were() {
        for words in ["there is no method /a.B/C", "100 %", "%41", "naïve\n…", ""] {
            let encoded = percent_encoded(words);
            assert!(encoded.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{encoded}");
            assert_eq!(percent_decoded(encoded.as_bytes()), words);
        }
        assert_eq!(percent_encoded("a\t%"), "a%09%25");
        assert_eq!(percent_decoded(b"%zz%4"), "%zz%4");
    }
}
