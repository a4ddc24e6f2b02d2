//! What a runtime hands to a plugin, as one text, so that a corpus can be read and written by people:
//!
//! ```text
//! CNI_COMMAND=ADD
//! CNI_CONTAINERID=c1
//!
//! {"cniVersion":"1.0.0", ...
//! ```
//!
//! Variables up to the first empty line, standard input after it. Neither needs to be UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What a runtime hands to a plugin.
pub(crate) struct Words<'a> {
    variables: Vec<(&'a [u8], &'a [u8])>,
    pub(crate) stdin: &'a [u8],
}

impl<'a> Words<'a> {
    pub(crate) fn read(input: &'a [u8]) -> Self {
        let end = input.windows(2).position(|pair| pair == b"\n\n");
        let (head, stdin) = end.map_or((input, &[][..]), |end| (&input[..end], &input[end + 2..]));
        let pairs = head.split(|byte| *byte == b'\n').filter_map(|line| {
            let equals = line.iter().position(|byte| *byte == b'=')?;
            Some((&line[..equals], &line[equals + 1..]))
        });
        Self { variables: pairs.collect(), stdin }
    }

    /// The value of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        let found = self.variables.iter().find(|(known, _)| *known == name.as_bytes());
        found.map(|(_, value)| OsString::from_vec(value.to_vec()))
    }
}
